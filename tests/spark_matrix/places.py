"""Where the files of a row are: what Spark is told of them, and how the row looks at them itself."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol


class StoreAway(Exception):
    """Nobody answers for the files now: to be looked at again later."""


class Looked(Protocol):
    """A file or folder as `Path` shows it, by eyes that are not those of the code being judged."""

    @property
    def name(self) -> str: ...
    def __truediv__(self, name: str, /) -> Looked: ...
    def exists(self) -> bool: ...
    def iterdir(self) -> Iterable[Looked]: ...
    def read_text(self) -> str: ...
    def read_bytes(self) -> bytes: ...
    def stat(self) -> Any: ...


class Place(Protocol):
    """Files and folders by their names, relative to the row's own."""

    def url(self, name: str) -> str:
        """What Spark is told."""

    def logged(self, name: str) -> str:
        """How Spark's logs name a file."""

    def look(self, name: str) -> Looked:
        """What is there. Raises StoreAway where nobody answers."""

    def put(self, name: str, data: bytes) -> None:
        """Writes a file, which appears as a whole."""


class LocalPlace:
    """A directory of this machine."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def url(self, name: str) -> str:
        return str(self.directory / name)

    def logged(self, name: str) -> str:
        return f"file://{self.directory / name}"

    def look(self, name: str) -> Path:
        return self.directory / name

    def put(self, name: str, data: bytes) -> None:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(f".{path.name}")
        hidden.write_bytes(data)
        os.rename(hidden, path)
