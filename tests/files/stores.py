"""The stores that the specification of files is run against."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tracker.files import Files, LocalFiles


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


STORES: dict[str, Opened] = {"local": local}
