"""The mark of a log: a small file beside it that says how far the log is known to be durable.

It is written over in place after each commit, when that is durable, and not synced with it: so it is never
ahead of the log. Behind it may be, by what a machine that lost power had not written down yet; a process
that is killed leaves it exact. A log that ends before its mark has lost what was acknowledged, and one of
another name was put in the place of the marked one.
"""

from __future__ import annotations

import os
import uuid
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tracker.store.interface import StoreError

_WORD = "lowmark-mark-1"
_MOST_BYTES = 512
"""One sector, which a disk writes whole or not at all."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The log of the store of this name was durable up to a position under an owner's epoch."""

    identity: str
    epoch: int
    position: int

    def line(self) -> bytes:
        text = f"{_WORD} {self.identity} {self.epoch:020d} {self.position:020d}"
        return f"{text} {zlib.crc32(text.encode()):08x}\n".encode()


def new_identity() -> str:
    return uuid.uuid4().hex


def mark_path(path: Path) -> Path:
    return path.with_name(f"{path.name}-mark")


def read_mark(path: Path) -> Mark | None:
    """The mark of the store at `path`; None if it has none. Raises StoreError if it cannot be read."""
    target = mark_path(path)
    try:
        with target.open("rb") as file:
            content = file.read(_MOST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{target} cannot be read: {error}") from error
    with suppress(ValueError):
        word, identity, epoch, position, _ = content.decode().split()
        mark = Mark(identity, int(epoch), int(position))
        if word == _WORD and mark.line() == content:
            return mark
    raise StoreError(
        f"{target} is damaged, and with it is lost how far the log of {path} was acknowledged; restore it, "
        "or accept that nobody knows, with: lowmark store accept-loss"
    )


def make_mark(path: Path, mark: Mark) -> None:
    """Makes the mark of the store at `path`, durably, or writes it anew. Raises OSError."""
    target = mark_path(path)
    unfinished = target.with_name(f"{target.name}.unfinished")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, mark.line())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(unfinished, target)
    sync_names(target.parent)


def sync_names(folder: Path) -> None:
    """Makes the names in a directory durable. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class OpenMark:
    """The mark of a store, which its owner moves on."""

    def __init__(self, path: Path, identity: str) -> None:
        """Raises OSError."""
        self._identity = identity
        self._file = os.open(mark_path(path), os.O_WRONLY | os.O_CLOEXEC)

    def move(self, epoch: int, position: int) -> None:
        """The log is durable up to there. A mark that cannot be written stays behind, which is allowed."""
        with suppress(OSError):
            os.pwrite(self._file, Mark(self._identity, epoch, position).line(), 0)

    def sync(self) -> None:
        with suppress(OSError):
            os.fdatasync(self._file)

    def close(self) -> None:
        os.close(self._file)
