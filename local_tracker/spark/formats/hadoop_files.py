"""Files wherever a session can read: by Hadoop's `FileSystem` in the driver's JVM, with its credentials.

Files of this machine are read directly all the same, since Hadoop's local file system lets several create
what only one may. Which stores write a file whole, and only if it is absent, is known by their scheme:
S3A and Google's do when the file is closed; HDFS renames within its NameNode, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.sql import SparkSession

from local_tracker.spark.jvm import hadoop_configuration, java_array
from tracker.errors import Code
from tracker.files import STORES, Files, FilesError, Stores, child, location_of, parent, scheme
from tracker.files.interface import UNFINISHED, End, check_size

_AT_CLOSE = ("s3", "gs")
"""Schemes whose files appear when they are closed, and whole."""

_BY_RENAME = ("hdfs",)
"""Schemes that rename in one step, over a file that is there or, if asked so, not."""

_WRITTEN = (*_AT_CLOSE, *_BY_RENAME)
_IF_ABSENT = "fs.option.create.conditional.overwrite"
_S3A_SINCE = "3.4.2"

_ABSENT = ("java.io.FileNotFoundException", "java.nio.file.NoSuchFileException")
_THERE = (
    "org.apache.hadoop.fs.FileAlreadyExistsException",
    "org.apache.hadoop.fs.s3a.RemoteFileChangedException",
)
_OF_A_FUTURE = "java.util.concurrent.ExecutionException"
_FORBIDDEN = (
    "java.nio.file.AccessDeniedException",
    "org.apache.hadoop.security.AccessControlException",
)


class SessionStores(Stores):
    """What a session reaches, by the names that it knows: a path without a scheme is one of its default file
    system."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(lambda store: HadoopFiles(spark, store))
        self._spark = spark
        self._default = str(hadoop_configuration(spark).get("fs.defaultFS") or "file:///")

    def location(self, text: str) -> str:
        if self._default.startswith("file:") or ":" in text.partition("/")[0]:
            return super().location(text)
        jvm = self._spark.sparkContext._jvm
        assert jvm is not None
        path = jvm.org.apache.hadoop.fs.Path(text)
        uri = path.getFileSystem(hadoop_configuration(self._spark)).makeQualified(path).toUri()
        return location_of(str(uri.getScheme()), str(uri.getAuthority() or ""), str(uri.getPath()))


def session_stores(spark: SparkSession | None) -> Stores:
    """What a session reaches. Where there is none, or it is one of Spark Connect, whose JVM is elsewhere:
    what this process does by itself."""
    if spark is None or not hasattr(spark, "_jsparkSession"):
        return STORES
    return SessionStores(spark)


class HadoopFiles(Files):
    """Files of one store, such as `s3://bucket`, by the session's own configuration."""

    def __init__(self, spark: SparkSession, store: str) -> None:
        """Raises FilesError where the session has no file system for the store."""
        super().__init__()
        self._spark, self._conf = spark, hadoop_configuration(spark)
        self._scheme = scheme(store) or "file"
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        self._jvm = jvm
        with _translated(store):
            self._fs = self._path(child(store, "")).getFileSystem(self._conf)

    def _path(self, where: str) -> Any:
        """Hadoop's path; what all call `s3:` is `s3a:` to it, unless the platform has one of that name."""
        if self._scheme == "s3" and not self._conf.get("fs.s3.impl"):
            where = "s3a" + where.removeprefix("s3")
        return self._jvm.org.apache.hadoop.fs.Path(where if scheme(where) else f"file:{where}")

    def _names(self, directory: str) -> list[str]:
        with _translated(directory):
            where = self._path(directory)
            found = [status.getPath() for status in self._fs.listStatus(where)]
            return [
                str(path.getName()) for path in found if not path.equals(where)
            ]  # a file is in itself

    def _walk(self, directory: str) -> list[str]:
        with _translated(directory):
            own = str(self._path(directory).toUri().getPath())
            found, files = [], self._fs.listFiles(self._path(directory), True)
            while files.hasNext():
                found.append(str(files.next().getPath().toUri().getPath())[len(own) :].lstrip("/"))
            return [path for path in found if path]

    def _is_directory(self, path: str) -> bool:
        try:
            return bool(self._status(path).isDirectory())
        except FileNotFoundError:
            return False

    def _status(self, path: str) -> Any:
        with _translated(path):
            return self._fs.getFileStatus(self._path(path))

    def _file_status(self, path: str) -> Any:
        status = self._status(path)
        if status.isDirectory():
            raise FileNotFoundError(path)
        return status

    def _size(self, path: str) -> int:
        return int(self._file_status(path).getLen())

    def _read(self, path: str, begin: int, end: int) -> bytes:
        with _translated(path):
            return _part(self._fs.open(self._path(path)), begin, end - begin)

    def _read_whole(self, path: str, most_bytes: int) -> bytes:
        status = self._file_status(path)
        size = int(status.getLen())
        check_size(path, size, most_bytes)
        data = self._read_as_of(status, path, 0, most_bytes)
        # More may come than there was: of one that has taken its place meanwhile, and then not all.
        return self._checked_end(size, most_bytes, data).data

    def _read_end(self, path: str, most_bytes: int) -> End:
        status = self._file_status(path)
        size = int(status.getLen())
        data = self._read_as_of(status, path, max(0, size - most_bytes), most_bytes)
        return self._checked_end(size, most_bytes, data)

    def _read_as_of(self, status: Any, path: str, begin: int, most_bytes: int) -> bytes:
        """Bytes of a file whose status is known, for which S3A then does not ask once more."""
        self.requests.count("read")
        with _translated(path):
            opening = self._fs.openFile(self._path(path)).withFileStatus(status)
            return _part(opening.build().get(), begin, most_bytes)

    def _create(self, path: str, data: bytes) -> None:
        if self._scheme in _AT_CLOSE:
            with _translated(path):
                _write(self._fs.create(self._path(path), True), data)
        elif self._scheme in _BY_RENAME:
            self._rename_in(path, data, "OVERWRITE")
        else:
            raise FilesError(
                f"{path}: nothing is written to {self._scheme}:, where a reader may find a file half "
                f"written, or none; written is to {', '.join(_WRITTEN)}"
            )

    def _check_exclusive(self, path: str) -> None:
        if self._scheme not in _WRITTEN:
            raise FilesError(
                f"{path}: Hadoop cannot create a file only if it is absent, and whole, in {self._scheme}:; "
                f"use one of {', '.join(_WRITTEN)}, or a local directory",
                Code.FILES_EXCLUSIVE,
            )
        super()._check_exclusive(path)

    def _create_if_absent(self, path: str, data: bytes) -> None:
        if self._scheme in _BY_RENAME:
            self._rename_in(path, data, "NONE")
            return
        with _translated(path):
            if self._scheme == "gs":
                stream = self._fs.create(self._path(path), False)
            else:
                stream = self._s3_stream(path)
            _write(stream, data)

    def _s3_stream(self, path: str) -> Any:
        """Puts the file with `If-None-Match: *` when it is closed. The option must be taken, not may."""
        builder = self._fs.createFile(self._path(path)).recursive().overwrite(True)
        try:
            return builder.must(_IF_ABSENT, True).build()
        except Py4JJavaError as error:
            if "IllegalArgumentException" not in _class(error):
                raise
            raise FilesError(
                f"{path}: this session's S3A cannot create a file only if it is absent ({_message(error)}); "
                f"it can since Hadoop {_S3A_SINCE}, which Spark 4.1 comes with",
                Code.FILES_EXCLUSIVE,
            ) from None

    def _rename_in(self, path: str, data: bytes, option: str) -> None:
        """Writes a file beside its place and renames it there, over one that is there or not."""
        hadoop = self._jvm.org.apache.hadoop.fs
        hidden = self._path(child(parent(path), f".{uuid4().hex}{UNFINISHED}"))
        rename = getattr(hadoop.Options.Rename, option)
        with _translated(path):
            try:
                _write(self._fs.create(hidden, True), data)
                context = hadoop.FileContext.getFileContext(hidden.toUri(), self._conf)
                options = java_array(self._spark, hadoop.Options.Rename, rename)
                context.rename(hidden, self._path(path), options)
            except BaseException:
                self._fs.delete(hidden, False)
                raise

    def _delete(self, path: str) -> None:
        with _translated(path):
            self._fs.delete(self._path(path), False)

    def _delete_all(self, directory: str) -> None:
        with _translated(directory):
            self._fs.delete(self._path(directory), True)

    def _move(self, source: str, target: str) -> None:
        """S3A copies within the store; the copy appears whole, and the source may still be there then."""
        with _translated(target):
            self._fs.mkdirs(self._path(parent(target)))
            if self._fs.rename(self._path(source), self._path(target)):
                return
        if self._is_file(target):
            raise FileExistsError(target)
        if not self._is_file(source):
            raise FileNotFoundError(source)
        raise ConnectionError(f"{source} was not put there")

    def _is_file(self, path: str) -> bool:
        self.requests.count("read")
        try:
            self._size(path)
        except FileNotFoundError:
            return False
        return True

    def address(self, where: str) -> str:
        return str(self._path(where).toString())

    def _make_directory(self, path: str) -> None:
        with _translated(path):
            self._fs.mkdirs(self._path(path))


def _part(stream: Any, begin: int, most_bytes: int) -> bytes:
    """The bytes of an open file from `begin` on, so many at most; closes it."""
    try:
        if begin:
            stream.seek(begin)
        return bytes(stream.readNBytes(most_bytes))
    finally:
        stream.close()


def _write(stream: Any, data: bytes) -> None:
    """A stream whose writing has failed is left open: closing it could publish a part."""
    stream.write(data)
    stream.close()


@contextmanager
def _translated(where: str) -> Iterator[None]:
    """Java's exceptions as those that `Files` knows."""
    try:
        yield
    except Py4JJavaError as error:
        name = _class(error)
        if name in _ABSENT:
            raise FileNotFoundError(where) from None
        if name in _THERE:
            raise FileExistsError(where) from None
        if name in _FORBIDDEN:
            raise PermissionError(_message(error)) from None
        if name.endswith(("UnsupportedFileSystemException", "ClassNotFoundException")) or (
            "ClassNotFoundException" in _message(error)
        ):
            raise FilesError(
                f"{where}: this session has no file system for it ({_message(error)}); add its jars, such "
                f"as org.apache.hadoop:hadoop-aws of the session's Hadoop for s3a:"
            ) from None
        raise
    except Py4JNetworkError:
        raise
    except Py4JError as error:
        raise FilesError(f"{where}: the session's JVM does not do so: {error}"[:500]) from error


def _class(error: Py4JJavaError) -> str:
    return str(_thrown(error).getClass().getName())


def _message(error: Py4JJavaError) -> str:
    return f"{_class(error).rpartition('.')[2]}: {_thrown(error).getMessage()}"[:300]


def _thrown(error: Py4JJavaError) -> Any:
    """Of a future, what it failed with."""
    thrown = error.java_exception
    if str(thrown.getClass().getName()) == _OF_A_FUTURE and thrown.getCause() is not None:
        return thrown.getCause()
    return thrown
