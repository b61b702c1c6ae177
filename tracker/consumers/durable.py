"""A small JSON file that is replaced as a whole, and a lock that keeps a second process out."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from tracker.client.errors import LowmarkError
from tracker.files.local import sync_directory


class StateError(LowmarkError):
    """A consumer's own record cannot be used; says which, and what to do."""


class StateFile:
    """A consumer's durable record: one JSON object in a local or mounted file.

    `held()` while one process uses it; a second one is refused. Written beside and renamed, so that it
    is the old one or the new one at any moment.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(path))
        self._lock = -1

    def hold(self) -> None:
        """Takes the file for this process. Raises StateError if another process has it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise StateError(
                f"{self.path} is used by another process; let it end, or give this one a file of its own"
            ) from None
        self._lock = lock

    def release(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def read(self) -> dict[str, Any] | None:
        """What was written last; None if nothing ever was. Raises StateError if it is damaged."""
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise StateError(
                f"{self.path} is damaged: it does not hold a JSON object; restore it from a backup"
            )
        return found

    def write(self, value: dict[str, Any]) -> None:
        """Replaces it; durable on return. Raises OSError."""
        write_durably(self.path, json.dumps(value).encode() + b"\n")


def write_durably(path: Path, data: bytes) -> None:
    """Replaces a file as a whole; the file and its name are durable on return. Raises OSError."""
    hidden = path.with_name(f".{path.name}.tmp")
    with open(hidden, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(hidden, path)
    sync_directory(str(path.parent))
