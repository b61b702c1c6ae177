"""A small JSON record that is replaced as a whole, and what keeps a second process out.

On this machine that is a lock. In an object store nothing is locked: whoever comes later takes the record
over, and the one before is refused at its next word.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from tracker.errors import StateError
from tracker.files import STORES, FilesError, Stores, parent, scheme
from tracker.files.local import try_lock, write_durably

MAX_RECORD_BYTES = 1 << 20


class State(Protocol):
    """A consumer's durable record: one JSON object. path: where it is, for messages."""

    @property
    def path(self) -> object: ...

    def hold(self) -> None:
        """Takes the record for this process. Raises StateError."""

    def release(self) -> None: ...

    def read(self) -> dict[str, Any] | None:
        """What was written last; None if nothing ever was. Raises StateError."""

    def write(self, value: dict[str, Any]) -> None:
        """Replaces it; durable on return. Raises StateError, OSError."""


def state_at(record: str | os.PathLike[str], stores: Stores = STORES) -> State:
    """The record at a path, or in a store. Raises StateError where there is no way to the store."""
    try:
        where = stores.location(os.fspath(record))
        return StoredState(where, stores) if scheme(where) else StateFile(where)
    except FilesError as error:
        raise StateError(str(error)) from error


class StoredState:
    """A record in a store: numbered versions beside each other, each created only if absent.

    Who takes it writes a version of its own, so that whoever had it before finds that number taken. Older
    versions are deleted once a newer one is there; who then creates one of those finds the newer one.
    """

    def __init__(self, where: str, stores: Stores) -> None:
        """Raises FilesError."""
        self.path, self._files = where, stores.files(where)
        self._own, self._version = uuid4().hex, 0

    def hold(self) -> None:
        self._own = uuid4().hex
        self._version, found = self._newest()
        self._create(found["state"] if found else None)

    def release(self) -> None:
        self._version = 0

    def read(self) -> dict[str, Any] | None:
        if not self._version:
            self.hold()
        version, found = self._newest()
        if found is None or found.get("writer") != self._own:
            raise self._taken_over(version)
        self._version = version  # which may be of a write whose answer was lost
        state: dict[str, Any] | None = found["state"]
        return state

    def write(self, value: dict[str, Any]) -> None:
        if not self._version:
            self.hold()
        self._create(value)

    def _newest(self) -> tuple[int, dict[str, Any] | None]:
        """The number and content of the newest version; 0 and None if there is none."""
        try:
            versions = self._versions()
            if not versions:
                return 0, None
            text = self._files.read_whole(self._at(versions[-1]), MAX_RECORD_BYTES, is_there=True)
        except FilesError as error:
            raise StateError(str(error)) from error
        if text is None:  # a newer one has been written meanwhile
            raise self._taken_over(versions[-1])
        try:
            found = json.loads(text)
        except (RecursionError, ValueError):
            found = None
        if not isinstance(found, dict) or not isinstance(found.get("state"), dict | None):
            raise StateError(f"{self._at(versions[-1])} is damaged: restore it from a backup")
        return versions[-1], found

    def _create(self, state: dict[str, Any] | None) -> None:
        version = self._version + 1
        text = json.dumps({"writer": self._own, "version": version, "state": state}).encode()
        try:
            created = self._files.create_if_absent(self._at(version), text)
            versions = self._versions()
            if not created or max(versions, default=version) > version:
                raise self._taken_over(max(versions, default=version))
            self._version = version
            for older in versions:
                if older < version:
                    self._files.delete(self._at(older))
        except FilesError as error:
            raise StateError(str(error)) from error

    def _versions(self) -> list[int]:
        begin = self._at(0).rpartition("/")[2].removesuffix(f"{0:012d}")
        names = self._files.names(parent(self.path))
        ends = [name.removeprefix(begin) for name in names if name.startswith(begin)]
        return sorted(
            int(end) for end in ends if len(end) == 12 and end.isascii() and end.isdigit()
        )

    def _at(self, version: int) -> str:
        return f"{self.path}.{version:012d}"

    def _taken_over(self, version: int) -> StateError:
        return StateError(
            f"{self.path} has been taken over by another process, which has written version {version}; end "
            f"one of the two, or give it a record of its own"
        )


class StateFile:
    """A consumer's durable record: one JSON object in a local or mounted file.

    Held from `hold` or the first use on, so that a second process is refused. Written beside and renamed, so that it
    is the old one or the new one at any moment.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(path))
        self._lock = -1

    def hold(self) -> None:
        """Takes the file for this process, once. Raises StateError if another process has it."""
        if self._lock >= 0:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = try_lock(f"{self.path}.lock")
        if lock is None:
            raise StateError(
                f"{self.path} is used by another process; let it end, or give this one a file of its own"
            )
        self._lock = lock

    def release(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def read(self) -> dict[str, Any] | None:
        """What was written last; None if nothing ever was. Raises StateError if it is damaged."""
        self.hold()
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            found = json.loads(text)
        except (RecursionError, ValueError):
            found = None
        if not isinstance(found, dict):
            raise StateError(
                f"{self.path} is damaged: it does not hold a JSON object; restore it from a backup"
            )
        return found

    def write(self, value: dict[str, Any]) -> None:
        """Replaces it; durable on return. Raises StateError, OSError."""
        self.hold()
        write_durably(self.path, json.dumps(value).encode() + b"\n")
