"""Object stores and other file systems, by the user's installed file system of fsspec.

Which of them write a file whole, and only if it is absent, is known by scheme (docs/object-stores.md); with
the others files are read, and whoever is to write there is refused.
"""

from __future__ import annotations

from typing import Any, ClassVar

import fsspec

from tracker.errors import Code, FilesError
from tracker.files.interface import Files, PartialError, check_size
from tracker.files.locations import scheme

_WHOLE = ("s3", "gs", "abfs", "memory")
"""Schemes whose stores show a file when all of it is there, or as it was before."""

_EXCLUSIVE = ("s3", "gs", "abfs")
"""Of these, those that take the condition that nothing is there yet."""

_PRECONDITIONS = ("412", "PreconditionFailed")


class FsspecFiles(Files):
    """Files of one store, such as `s3://bucket`, with the credentials and settings that its file system finds by itself
    (its own environment variables and files, and fsspec's configuration)."""

    _AT_ONCE: ClassVar[dict[str, Any]] = {}
    """What makes fsspec read a whole file by one request."""

    def __init__(self, store: str) -> None:
        """Raises FilesError where no file system of the store's scheme is installed."""
        super().__init__()
        self._scheme, self._fs = scheme(store), _file_system(store)

    def _names(self, directory: str) -> list[str]:
        return self._relative(directory, self._fs.ls(directory, detail=False, refresh=True))

    def _walk(self, directory: str) -> list[str]:
        return self._relative(directory, self._fs.find(directory))

    def _relative(self, directory: str, paths: list[str]) -> list[str]:
        """Without what stands for the directory itself: an empty object of its name, or a file."""
        own = str(fsspec.core.strip_protocol(directory)).rstrip("/")
        found = (path.removeprefix(own).strip("/") for path in paths if path.startswith(f"{own}/"))
        return [path for path in found if path]

    def _is_directory(self, path: str) -> bool:
        self.requests.count("list")  # after it was looked for as a file
        try:
            return bool(self._fs.info(path)["type"] == "directory")
        except FileNotFoundError:
            return False

    def _size(self, path: str) -> int:
        info = self._fs.info(path)
        if info["type"] == "directory":
            raise FileNotFoundError(path)
        return int(info["size"])

    def _read(self, path: str, begin: int, end: int) -> bytes:
        return bytes(self._fs.cat_file(path, start=begin, end=end))

    def _read_whole(self, path: str, most_bytes: int) -> bytes:
        size = self._size(path)
        self.requests.count("read")
        check_size(path, size, most_bytes)
        data = bytes(self._fs.cat_file(path, **self._AT_ONCE))
        if len(data) < size:
            raise PartialError(f"{len(data)} bytes of {size} came")
        return data

    def _create(self, path: str, data: bytes) -> None:
        if self._scheme not in _WHOLE:
            raise self._cannot_write(path)
        self._fs.pipe_file(path, data)

    def _cannot_write(self, path: str) -> FilesError:
        return FilesError(
            f"{path}: nothing is written by fsspec to {self._scheme}:, where a reader may find a file "
            f"half written; written is to {', '.join(_WHOLE[:-1])} and to local directories"
        )

    def _check_exclusive(self, path: str) -> None:
        if self._scheme not in _EXCLUSIVE:
            raise FilesError(
                f"{path}: fsspec cannot create a file only if it is absent in {self._scheme}:; use one of "
                f"{', '.join(_EXCLUSIVE)}, or a local directory",
                Code.FILES_EXCLUSIVE,
            )
        super()._check_exclusive(path)

    def _create_if_absent(self, path: str, data: bytes) -> None:
        try:
            self._fs.pipe_file(path, data, mode="create")
        except OSError as error:
            if _code(error) in _PRECONDITIONS:
                raise FileExistsError(path) from None
            raise

    def _delete(self, path: str) -> None:
        self._fs.rm_file(path)

    def _delete_all(self, directory: str) -> None:
        self.requests.count("list")
        self._fs.rm(directory, recursive=True)

    def _move(self, source: str, target: str) -> None:
        if self._scheme not in _WHOLE:
            raise self._cannot_write(target)
        if self._exists(target):
            raise FileExistsError(target)
        self.requests.count("write")
        self._fs.cp_file(source, target)
        self._fs.rm_file(source)

    def _exists(self, path: str) -> bool:
        self.requests.count("read")
        try:
            self._size(path)
        except FileNotFoundError:
            return False
        return True

    def _make_directory(self, path: str) -> None:
        """Object stores have none: a directory is there when a file is below it."""
        if self._scheme not in _EXCLUSIVE:
            self._fs.makedirs(path, exist_ok=True)


class S3Files(FsspecFiles):
    """Files of a bucket. A size is asked for by one request, where fsspec would also look for a directory of
    that name, and a file is read by one. A directory that is not there is listed as an empty one, where fsspec
    would list the whole one above it, in search of a file of that name."""

    _AT_ONCE: ClassVar[dict[str, Any]] = {"max_concurrency": 1}

    def _names(self, directory: str) -> list[str]:
        return self._relative(directory, self._listed(directory, Delimiter="/"))

    def _walk(self, directory: str) -> list[str]:
        found = self._listed(directory)
        return self._relative(directory, [path for path in found if not path.endswith("/")])

    def _listed(self, directory: str, **how: str) -> list[str]:
        """What is below a directory, as `bucket/key`."""
        bucket, key, _ = self._fs.split_path(directory)
        asked = {"Bucket": bucket, "Prefix": f"{key.rstrip('/')}/" if key else "", **how}
        found: list[str] = []
        while True:
            page = self._fs.call_s3("list_objects_v2", **asked)
            found += [f"{bucket}/{file['Key']}" for file in page.get("Contents", ())]
            found += [f"{bucket}/{folder['Prefix']}" for folder in page.get("CommonPrefixes", ())]
            if not page.get("IsTruncated"):
                return found
            asked["ContinuationToken"] = page["NextContinuationToken"]

    def _size(self, path: str) -> int:
        bucket, key, _ = self._fs.split_path(path)
        if not key:
            raise FileNotFoundError(path)
        return int(self._fs.call_s3("head_object", Bucket=bucket, Key=key)["ContentLength"])


def fsspec_files(store: str) -> Files:
    """The files of a store by its scheme. Raises FilesError."""
    return S3Files(store) if scheme(store) == "s3" else FsspecFiles(store)


def _file_system(store: str) -> Any:
    """One of our own, which remembers no listing, and leaves asking again to `Files`."""
    options: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
    if scheme(store) == "s3" and "config_kwargs" not in fsspec.config.conf.get("s3", {}):
        options["config_kwargs"] = {"retries": {"total_max_attempts": 1}}
    try:
        made, _ = fsspec.core.url_to_fs(f"{store}/", **options)
    except (ImportError, OSError, ValueError) as error:
        raise FilesError(f"{store} cannot be reached by fsspec: {error}") from None
    if hasattr(made, "retries"):
        made.retries = 1
    return made


def _code(error: OSError) -> str:
    """What S3 calls an error."""
    response = getattr(error.__cause__, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))
