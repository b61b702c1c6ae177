"""What is asked of a file system or an object store, wherever it is: little, and never a rename.

A file appears whole or not at all, and by `create_if_absent` once only, whoever else tries. What a store
does not answer is asked again, ATTEMPTS times in all; what it still does not answer then is AwayError, and
may be asked again later: every operation may be repeated.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar
from uuid import uuid4

from tracker.errors import Code, FilesError, UnavailableError
from tracker.files.locations import child, parent

ATTEMPTS = 5
"""How often one operation is tried before the store counts as away."""

PAUSES_S = (0.1, 0.2, 0.4, 0.8)
"""How long is waited between those, in seconds."""

LISTED_AT_ONCE = 1_000
"""Names that a store lists by one request; more cost one request for each so many."""

UNFINISHED = ".unfinished"
"""How the names of files end that are not whole yet, and that no listing shows."""

_T = TypeVar("_T")


class AwayError(FilesError, UnavailableError):
    """The store did not answer in ATTEMPTS tries. The operation may have been done; it may be repeated."""

    code = Code.UNAVAILABLE_FILES


class PartialError(Exception):
    """Fewer bytes came than the file has; raised by implementations, and asked for again."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of a file. size: of the whole file, in bytes; data: its last bytes."""

    size: int
    data: bytes


class Requests:
    """How many requests a store was sent, retries too: object stores charge for each. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = {"list": 0, "read": 0, "write": 0}

    def count(self, kind: str, number: int = 1) -> None:
        with self._lock:
            self._counts[kind] += number

    def counted(self) -> dict[str, int]:
        """By kind: `list`, `read` (of a size, too), `write` (deleting, too)."""
        with self._lock:
            return dict(self._counts)


class Files(ABC):
    """The files of one store. Thread-safe. Locations are as `location` returns them.

    Implementations raise FileNotFoundError, FileExistsError and PermissionError for what these say, and
    FilesError for what will be so again; whatever else they raise is taken for a store that is away.
    """

    POLL_S: ClassVar[tuple[float, float]] = (0.05, 1.0)
    """How long to wait between two looks for a file that will come, in seconds: at first, and at most."""

    POLL_SHARE: ClassVar[float] = 1.0
    """... and in between, as a share of the time that was waited so far."""

    MAY_LAG: ClassVar[bool] = True
    """Whether a file that is there may be found absent for a while."""

    PROBED: ClassVar[bool] = True
    """Whether it is tried out that the store creates only if absent, before anyone relies on it."""

    def __init__(self, pauses_s: Sequence[float] = PAUSES_S) -> None:
        self.requests = Requests()
        self._pauses_s = tuple(pauses_s)
        self._exclusive: set[str] = set()  # the stores (scheme and authority) that were tried out
        self._probing = threading.Lock()

    # --- what is asked ----------------------------------------------------------------------------

    def names(self, directory: str) -> list[str]:
        """The names of files and folders in a directory, in any order; none if it does not exist."""
        try:
            found = self._tried("list", directory, lambda: self._names(directory))
        except FileNotFoundError:
            return []
        self.requests.count("list", len(found) // LISTED_AT_ONCE)
        return [name for name in found if not name.endswith(UNFINISHED)]

    def walk(self, directory: str) -> list[str]:
        """The files below a directory, by their paths relative to it, in order; none if it does not
        exist."""
        try:
            found = self._tried("list", directory, lambda: self._walk(directory))
        except FileNotFoundError:
            return []
        self.requests.count("list", len(found) // LISTED_AT_ONCE)
        return sorted(name for name in found if not name.endswith(UNFINISHED))

    def is_directory(self, path: str) -> bool:
        """Whether there is a directory; in a store without directories, whether a file is below it."""
        return self._tried("list", path, lambda: self._is_directory(path))

    def size(self, path: str) -> int | None:
        """The size of a file in bytes; None if it does not exist."""
        try:
            return self._tried("read", path, lambda: self._size(path))
        except FileNotFoundError:
            return None

    def read(self, path: str, begin: int, end: int) -> bytes:
        """The bytes begin <= i < end of a file, which has them. Raises FilesError if it has not."""
        if begin == end:
            return b""

        def part() -> bytes:
            data = self._read(path, begin, end)
            if len(data) != end - begin:
                raise PartialError(f"{len(data)} bytes of {end - begin} came")
            return data

        try:
            return self._tried("read", path, part)
        except FileNotFoundError:
            raise FilesError(f"{path} does not exist") from None

    def read_whole(self, path: str, most_bytes: int, *, is_there: bool = False) -> bytes | None:
        """A file of `most_bytes` at most; None if it does not exist. is_there: the file has been heard of,
        so a store that lags is asked again. Raises FilesError if it is larger."""
        for attempt in range(ATTEMPTS if is_there and self.MAY_LAG else 1):
            if attempt:
                self._pause(attempt)
            try:
                return self._tried("read", path, lambda: self._read_whole(path, most_bytes))
            except FileNotFoundError:
                continue
        return None

    def seen(self, look: Callable[[], _T | None]) -> _T | None:
        """What a look at files finds that must be there, as far as is known; None if it is not found. A store that lags
        is looked at again."""
        for attempt in range(ATTEMPTS if self.MAY_LAG else 1):
            if attempt:
                self._pause(attempt)
            if (found := look()) is not None:
                return found
        return None

    def read_end(self, path: str, most_bytes: int) -> End | None:
        """The last `most_bytes` of a file, or all of it if it is shorter; None if it does not exist."""
        try:
            return self._tried("read", path, lambda: self._read_end(path, most_bytes))
        except FileNotFoundError:
            return None

    def create(self, path: str, data: bytes) -> None:
        """Writes a file, or replaces it, as a whole; durable on return."""
        self._tried("write", path, lambda: self._create(path, data))

    def create_if_absent(self, path: str, data: bytes) -> bool:
        """Writes a file as a whole if it is not there; durable on return. True if the file holds these
        bytes now, so that whoever asks again is told the same; False if another was there before, which
        the caller reads. Two who bring the same bytes have both created it: whoever must be told apart
        puts a name of its own into them.

        Raises FilesError if the store cannot do so, and AwayError if it may have been done."""
        if not data:
            raise ValueError(
                f"{path} was to be created empty: some stores write over one that is there"
            )
        self._check_exclusive(path)
        for _ in range(ATTEMPTS):
            try:
                self._tried("write", path, lambda: self._create_if_absent(path, data))
                return True
            except FileExistsError:
                there = self.size(path)
            if there is None:
                continue  # it has been deleted meanwhile
            try:
                return there == len(data) and self.read(path, 0, there) == data
            except FilesError:
                if self.size(path) is not None:
                    raise
        raise AwayError(
            f"{path} appeared and was deleted {ATTEMPTS} times while it was to be created"
        )

    def delete(self, path: str) -> None:
        """Deletes a file; one that is not there is deleted already."""
        try:
            self._tried("write", path, lambda: self._delete(path))
        except FileNotFoundError:
            return

    def delete_all(self, directory: str) -> None:
        """Deletes a directory and all that is below it; one that is not there is deleted already."""
        try:
            self._tried("write", directory, lambda: self._delete_all(directory))
        except FileNotFoundError:
            return

    def move(self, source: str, target: str) -> None:
        """Puts a file, whole, into another place of its store, where nobody else puts anything: by a rename
        where the store has one, else by a copy that the store makes. May be repeated: a file that is in
        its place stays as it is. Raises FilesError if neither is there."""
        try:
            self._tried("write", target, lambda: self._move(source, target))
        except FileExistsError:
            self.delete(source)
        except FileNotFoundError:
            if self.size(target) is None:
                raise FilesError(f"{source} is gone, and {target} is not there") from None

    def address(self, where: str) -> str:
        """What Spark, or whoever else writes files itself, calls a location."""
        return where

    def make_directory(self, path: str) -> None:
        """Makes a directory and those above it, where the store has any."""
        self._tried("write", path, lambda: self._make_directory(path))

    # --- what a store does ------------------------------------------------------------------------

    @abstractmethod
    def _names(self, directory: str) -> list[str]: ...

    @abstractmethod
    def _walk(self, directory: str) -> list[str]: ...

    @abstractmethod
    def _is_directory(self, path: str) -> bool: ...

    @abstractmethod
    def _size(self, path: str) -> int: ...

    @abstractmethod
    def _read(self, path: str, begin: int, end: int) -> bytes: ...

    @abstractmethod
    def _read_whole(self, path: str, most_bytes: int) -> bytes: ...

    def _read_end(self, path: str, most_bytes: int) -> End:
        """By two requests, of which the caller has counted one."""
        size = self._size(path)
        if size == 0 or most_bytes == 0:
            return End(size, b"")
        self.requests.count("read")
        return self._checked_end(
            size, most_bytes, self._read(path, max(0, size - most_bytes), size)
        )

    @staticmethod
    def _checked_end(size: int, most_bytes: int, data: bytes) -> End:
        """Raises PartialError where bytes are missing."""
        if len(data) != min(size, most_bytes):
            raise PartialError(f"{len(data)} bytes of {min(size, most_bytes)} came")
        return End(size, data)

    @abstractmethod
    def _create(self, path: str, data: bytes) -> None: ...

    @abstractmethod
    def _create_if_absent(self, path: str, data: bytes) -> None: ...

    @abstractmethod
    def _delete(self, path: str) -> None: ...

    @abstractmethod
    def _delete_all(self, directory: str) -> None: ...

    @abstractmethod
    def _move(self, source: str, target: str) -> None:
        """Raises FileExistsError where a file is."""

    @abstractmethod
    def _make_directory(self, path: str) -> None: ...

    # --- inside -----------------------------------------------------------------------------------

    def _tried(self, kind: str, path: str, ask: Callable[[], _T]) -> _T:
        """What the store answers, of ATTEMPTS tries. FileNotFoundError and FileExistsError are answers."""
        for attempt in range(1, ATTEMPTS + 1):
            self.requests.count(kind)
            try:
                return ask()
            except (FileNotFoundError, FileExistsError, FilesError):
                raise
            except (PermissionError, IsADirectoryError, ValueError, TypeError) as error:
                raise FilesError(f"{path}: {_text(error)}") from error
            except Exception as error:
                if attempt == ATTEMPTS:
                    raise AwayError(
                        f"{path}: the store did not answer in {ATTEMPTS} tries: {_text(error)}"
                    ) from error
            self._pause(attempt)
        raise AssertionError("the last attempt returns or raises")

    def _pause(self, attempt: int) -> None:
        if self._pauses_s:
            time.sleep(self._pauses_s[min(attempt, len(self._pauses_s)) - 1])

    def _check_exclusive(self, path: str) -> None:
        """Raises FilesError where a second creation does not fail: a server may take the condition
        and not heed it."""
        if not self.PROBED:
            return
        store = "/".join(path.split("/", 3)[:3])
        with self._probing:
            if store in self._exclusive:
                return
            probe = child(parent(path), f".lowmark-{uuid4().hex}{UNFINISHED}")
            try:
                self._tried("write", probe, lambda: self._create_if_absent(probe, b"1"))
                self._tried("write", probe, lambda: self._create_if_absent(probe, b"2"))
            except FileExistsError:
                self._exclusive.add(store)
                return
            finally:
                self.delete(probe)
        raise FilesError(
            f"{store} wrote over a file that was to be created only if absent, so nothing can be "
            f"published there safely; use a store that heeds the condition (If-None-Match)",
            Code.FILES_EXCLUSIVE,
        )


def check_size(path: str, size: int, most_bytes: int) -> None:
    """Raises FilesError for a file that is too large to be read whole."""
    if size > most_bytes:
        raise FilesError(f"{path} has {size} bytes; files of at most {most_bytes} are read whole")


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500]
