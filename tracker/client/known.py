"""What a node knows of itself, in a file of its own: which incarnation it got last, in which generation of its pipeline,
and how many of its ticks were acknowledged under it.

A tracker whose store was put back to an older state cannot tell that by itself; who comes back and knows more
can. The record is never ahead of the tracker. On this machine it is written over in place after each
acknowledgement, and not synced: behind by what a machine that lost power had not written down. In an object
store it is replaced as a whole, at most once in RECORDED_EVERY_S and at the end: behind by what was
acknowledged since, when the process is killed.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import zlib
from abc import ABC, abstractmethod
from contextlib import suppress
from hashlib import blake2b
from typing import NamedTuple

from tracker.errors import StateError
from tracker.files import STORES, Files, FilesError, Stores, child, scheme, text_of

RECORDED_EVERY_S = 10.0
"""In an object store: how much time lies between two requests that record, at least."""
CLOSED_WITHIN_S = 5.0
"""In an object store: how long the end of a node waits for its last record."""

_WORD = "lowmark-known-2"
_MOST_BYTES = 512

log = logging.getLogger("lowmark.node")


def known_beside(record: str | os.PathLike[str], pipeline: str, node_id: str) -> str:
    """The file of a node beside its durable record, a directory by its path or location: hidden from who
    reads that. As a text, of which `location` makes the location."""
    name = blake2b(f"{pipeline}\0{node_id}".encode(), digest_size=8).hexdigest()
    return text_of(child(os.fspath(record), f".lowmark-{name}.known"))


def known_at(where: str | os.PathLike[str], stores: Stores = STORES) -> Known:
    """The record at a path, or in a store. Raises LowmarkError where there is no way to the store."""
    try:
        at = stores.location(os.fspath(where))
        return StoredKnown(at, stores.files(at)) if scheme(at) else KnownFile(at)
    except FilesError as error:
        raise StateError(f"{os.fspath(where)} cannot be read: {error}") from error


class Acknowledged(NamedTuple):
    """The last incarnation, the number of its last tick that was acknowledged, and the generation of the pipeline in which it
    was given; 0 where nothing is known."""

    incarnation: int = 0
    ticks: int = 0
    generation: int = 0


class Known(ABC):
    """The record of one node. One process writes it at a time: the one whose key is open. where: for
    messages."""

    where: str

    def read(self) -> Acknowledged:
        """What is recorded. Raises LowmarkError if the record cannot be read."""
        content = self._content()
        if not content:
            return Acknowledged()  # not there, or made and not written
        with suppress(ValueError):
            _, incarnation, ticks, generation, _ = content.decode().split()
            known = Acknowledged(int(incarnation), int(ticks), int(generation))
            if _line(known) == content:
                return known
        raise StateError(
            f"{self.where} is damaged: it said which ticks the tracker had acknowledged, and without it nobody "
            "notices if they are gone; restore it, or remove it where the tracker has surely lost nothing"
        )

    @abstractmethod
    def record(self, known: Acknowledged) -> None:
        """The tracker has this durably. Does not wait; what cannot be written stays behind, which is
        allowed."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def delete(self) -> None:
        """The node is gone for good; the record is closed. Raises LowmarkError."""

    @abstractmethod
    def _content(self) -> bytes: ...


class KnownFile(Known):
    """A local or mounted file. It may not be there yet, nor its directory: then nothing is known, and
    nothing recorded before that is made."""

    def __init__(self, path: str) -> None:
        self.where = os.path.abspath(path)
        self._file = -1

    def record(self, known: Acknowledged) -> None:
        with suppress(OSError):
            if self._file < 0:
                self._file = os.open(self.where, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            os.pwrite(self._file, _line(known), 0)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def delete(self) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self.where)

    def _content(self) -> bytes:
        try:
            with open(self.where, "rb") as file:
                return file.read(_MOST_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return b""
        except OSError as error:
            raise StateError(f"{self.where} cannot be read: {error}") from error


class StoredKnown(Known):
    """A file in a store, written by a thread of its own from the first record on."""

    def __init__(self, where: str, files: Files, every_s: float = RECORDED_EVERY_S) -> None:
        self.where, self._files, self._every_s = where, files, every_s
        self._changed = threading.Condition()
        self._wanted: Acknowledged | None = None
        self._written: Acknowledged | None = None
        self._closing, self._has_failed = False, False
        self._thread: threading.Thread | None = None

    def read(self) -> Acknowledged:
        """What this process has recorded itself, it knows before the store does."""
        with self._changed:
            wanted = self._wanted
        return super().read() if wanted is None else wanted

    def record(self, known: Acknowledged) -> None:
        with self._changed:
            self._wanted = known
            if self._thread is None and not self._closing:
                self._thread = threading.Thread(target=self._run, name="lowmark-known", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closing, thread = True, self._thread
            self._changed.notify_all()
        if thread is not None:
            thread.join(CLOSED_WITHIN_S)

    def delete(self) -> None:
        try:
            self._files.delete(self.where)
        except FilesError as error:
            raise StateError(f"{self.where} cannot be deleted: {error}") from error

    def _content(self) -> bytes:
        try:
            return self._files.read_whole(self.where, _MOST_BYTES) or b""
        except FilesError as error:
            raise StateError(f"{self.where} cannot be read: {error}") from error

    def _run(self) -> None:
        """Writes what is new, at once and then once an interval; the last of it when the node ends."""
        due_at = 0.0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or self._wanted != self._written)
                self._changed.wait_for(lambda: self._closing, max(0.0, due_at - time.monotonic()))
                wanted, is_last = self._wanted, self._closing
            if wanted is not None and wanted != self._written:
                self._write(wanted)
            due_at = time.monotonic() + self._every_s
            if is_last:
                return

    def _write(self, wanted: Acknowledged) -> None:
        try:
            self._files.create(self.where, _line(wanted))
            self._written = wanted
        except (FilesError, OSError) as error:
            if not self._has_failed:
                log.warning("%s stays behind what the tracker acknowledged: %s", self.where, error)
            self._has_failed = True


def _line(known: Acknowledged) -> bytes:
    said = " ".join([_WORD, *(f"{number:020d}" for number in known)])
    return f"{said} {zlib.crc32(said.encode()):08x}\n".encode()
