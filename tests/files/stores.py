"""The stores that the specification of files is run against."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from tests.files.s3 import s3_bucket
from tracker.files import Files, LocalFiles, Stores


@dataclass(frozen=True, slots=True)
class Store:
    """Files, and a directory of a test's own among them. excludes: whether the store creates only if
    absent; else it says that it cannot."""

    files: Files
    root: str
    excludes: bool = True

    def at(self, name: str) -> str:
        return f"{self.root}/{name}"


class Opened(Protocol):
    def __call__(self, directory: Path) -> AbstractContextManager[Store]: ...


@contextmanager
def local(directory: Path) -> Iterator[Store]:
    yield Store(LocalFiles(), str(directory / "a directory"))


@contextmanager
def memory(directory: Path) -> Iterator[Store]:
    """fsspec's own, which is one for the whole process."""
    root = f"memory://{directory}/{uuid4().hex}"
    files = Stores().files(root)
    yield Store(files, root, excludes=False)
    files.delete_all(root)


@contextmanager
def s3(directory: Path) -> Iterator[Store]:
    with s3_bucket() as bucket:
        yield Store(Stores().files(bucket), f"{bucket}/a directory")


STORES: dict[str, Opened] = {"local": local, "memory": memory, "s3": s3}
EXCLUSIVE = ["local", "s3"]
"""Those that create a file only if it is absent."""
