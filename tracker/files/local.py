"""The machine's own file system, and what is mounted there."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable
from typing import ClassVar
from uuid import uuid4

from tracker.errors import Code, FilesError
from tracker.files.interface import UNFINISHED, Files, check_size

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)


class LocalFiles(Files):
    """Files by absolute paths. A file that is to be created only if absent is written beside its place and
    linked there: `link` fails where a file is, which renaming does not. Nothing is asked twice: a disk
    that fails will fail again."""

    POLL_S: ClassVar[tuple[float, float]] = (0.005, 0.03)
    POLL_SHARE: ClassVar[float] = 0.02
    MAY_LAG: ClassVar[bool] = False
    PROBED: ClassVar[bool] = False

    def _names(self, directory: str) -> list[str]:
        try:
            return os.listdir(directory)
        except OSError as error:
            raise _told(error, directory) from None

    def _walk(self, directory: str) -> list[str]:
        found = []
        for folder, _, names in os.walk(directory, onerror=_refuse):
            found += [os.path.relpath(os.path.join(folder, name), directory) for name in names]
        return found

    def _is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def _size(self, path: str) -> int:
        try:
            return _file_size(os.stat(path), path)
        except OSError as error:
            raise _told(error, path) from None

    def _read(self, path: str, begin: int, end: int) -> bytes:
        try:
            with open(path, "rb") as file:
                size = _file_size(os.fstat(file.fileno()), path)
                if size < end:
                    raise FilesError(
                        f"{path} has {size} bytes, and those up to {end} were asked for"
                    )
                file.seek(begin)
                return file.read(end - begin)
        except OSError as error:
            raise _told(error, path) from None

    def _read_whole(self, path: str, most_bytes: int) -> bytes:
        try:
            with open(path, "rb") as file:
                check_size(path, _file_size(os.fstat(file.fileno()), path), most_bytes)
                return file.read()
        except OSError as error:
            raise _told(error, path) from None

    def _create(self, path: str, data: bytes) -> None:
        self._place(path, data, os.replace)

    def _create_if_absent(self, path: str, data: bytes) -> None:
        try:
            self._place(path, data, os.link)
        except FilesError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno in _NO_LINKS:
                raise FilesError(
                    f"{path} cannot be created only if absent: its file system has no hard links "
                    f"({error.__cause__.strerror}); use another, or the store behind it by its own scheme",
                    Code.FILES_EXCLUSIVE,
                ) from None
            raise

    def _place(self, path: str, data: bytes, place: Callable[[str, str], None]) -> None:
        """Writes a file beside its place, durably, and puts it there."""
        try:
            self._make_directory(os.path.dirname(path))
            write_durably(path, data, place)
        except OSError as error:
            raise _told(error, path) from error

    def _delete(self, path: str) -> None:
        try:
            os.unlink(path)
        except OSError as error:
            raise _told(error, path) from None

    def _delete_all(self, directory: str) -> None:
        try:
            shutil.rmtree(directory)
        except OSError as error:
            raise _told(error, directory) from None

    def _move(self, source: str, target: str) -> None:
        try:
            if os.path.lexists(target):
                raise FileExistsError(target)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.rename(source, target)
        except OSError as error:
            raise _told(error, target) from None

    def _make_directory(self, path: str) -> None:
        """The names of new folders are as durable as what is put into them."""
        if os.path.isdir(path):
            return
        try:
            above = os.path.dirname(path)
            self._make_directory(above)
            os.makedirs(path, exist_ok=True)
            sync(above)
        except OSError as error:
            raise _told(error, path) from None


def write_durably(
    path: str | os.PathLike[str], data: bytes, place: Callable[[str, str], None] = os.replace
) -> None:
    """Writes a file, or replaces it, as a whole: it is the old one or the new one at any moment. The file and its name
    are durable on return. place: puts what was written beside its place there. Raises OSError."""
    folder, name = os.path.split(os.path.abspath(path))
    short = name[:200].encode()[:200].decode(errors="ignore")
    hidden = f"{folder}/.{short}.{uuid4().hex}{UNFINISHED}"
    try:
        with open(hidden, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        place(hidden, f"{folder}/{name}")
    finally:
        if os.path.lexists(hidden):
            os.unlink(hidden)
    sync(folder)


def sync(path: str | os.PathLike[str]) -> None:
    """Makes the contents of a file, or the names in a directory, durable. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def try_lock(path: str | os.PathLike[str], *, make: bool = True) -> int | None:
    """A descriptor that holds a lock on a file until it is closed, as it is when its process ends; None if another
    process holds it. Raises FileNotFoundError if there is no such file and it is not to be made."""
    while True:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if make else 0)
        fd = os.open(path, flags, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        # Whoever held it before may have removed the file: then a lock on it keeps nobody out.
        if _is_file(fd, path):
            return fd
        os.close(fd)


def _is_file(fd: int, path: str | os.PathLike[str]) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _file_size(found: os.stat_result, path: str) -> int:
    if not stat.S_ISREG(found.st_mode):
        raise FilesError(f"{path} is not a file")
    return found.st_size


def _told(error: OSError, path: str) -> Exception:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return FileNotFoundError(path)
    if isinstance(error, FileExistsError):
        return FileExistsError(path)
    return FilesError(f"{path}: {error}")


def _refuse(error: OSError) -> None:
    raise _told(error, str(error.filename))
