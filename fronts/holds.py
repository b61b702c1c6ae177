"""What keeps a second run of a front out, and where it stands how far the front was when it left.

Two runs would give different batches one number. On this machine a file is locked, for as long as the process
lives. In a store nothing is locked: the tracker says whether another run has a session, and each run begins by
taking over the log of what the front has published, so that whoever had it can publish nothing more.
"""

from __future__ import annotations

import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from fronts.front import Front
from fronts.locks import take_lock
from tracker.errors import Code, FencedError, TrackingError
from tracker.files import AwayError, Chain, Files, FilesError, Record, TakenOverError

_MAX_RECORD_BYTES = 64
_WHOLE_RECORD = re.compile(rb"(-?\d+) (\d+)\n")

LEFT = ".left"
"""Suffix of the lock file of a front that has left, once it is put away."""

_ASKED_EVERY_S = 0.5
"""How often the tracker is asked whether another run has ended."""
_AWAY_PAUSE_S = 1.0

_T = TypeVar("_T")


class Hold(ABC):
    """That this run, and no other, has the front's record. owner: names this run to the tracker, if that
    is to let no other one in meanwhile."""

    owner = ""

    @property
    @abstractmethod
    def is_held(self) -> bool: ...

    @abstractmethod
    def take(self, front: Front, timeout_s: float) -> None:
        """Raises FencedError where another process has the front for longer."""

    @abstractmethod
    def left_after(self) -> tuple[int, int]:
        """The number of the last batch when the front left, and the pipeline's generation then; -1 and -1
        if it has not left."""

    @abstractmethod
    def note_leave(self, generation: int, batch: int) -> None:
        """Notes durably that the front leaves after a batch, which the tracker has."""

    @abstractmethod
    def release(self) -> None: ...


class LockFile(Hold):
    """A lock on a local or mounted file, which holds the note too."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None  # open while the front runs

    @property
    def is_held(self) -> bool:
        return self._fd is not None

    def take(self, front: Front, timeout_s: float) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = take_lock(self.path, timeout_s, front.identity)

    def adopt(self, fd: int) -> None:
        """Holds by a descriptor of `path` that is locked already; it is closed in the end."""
        self._fd = fd

    def left_after(self) -> tuple[int, int]:
        """A note that was not written whole counts as none: then the front had not left yet."""
        assert self._fd is not None
        return _left_after(os.pread(self._fd, _MAX_RECORD_BYTES, 0))

    def put_away(self) -> None:
        """The front has left, and its note is kept where nobody takes it for the lock of one that has died."""
        self.path.rename(self.path.with_suffix(LEFT))

    def note_leave(self, generation: int, batch: int) -> None:
        """Of one width always: an older note is never half gone."""
        assert self._fd is not None
        os.pwrite(self._fd, b"%020d %020d\n" % (batch, generation), 0)
        os.fsync(self._fd)

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def left_in(put_away: Path) -> int:
    """The pipeline's generation in which a front left whose lock file was put away; -1 if that cannot be read."""
    return _left_after(put_away.read_bytes())[1]


def _left_after(record: bytes) -> tuple[int, int]:
    found = _WHOLE_RECORD.fullmatch(record)
    return (int(found[1]), int(found[2])) if found else (-1, -1)


class StoredLog(Hold):
    """A log in a store, of what the front publishes and of its leaving. Of several runs that take it, the
    last one has it."""

    def __init__(self, files: Files, directory: str) -> None:
        self.owner = uuid4().hex
        self.directory = directory
        self.records: list[Record] = []
        """Of earlier runs, in order, once the log is taken."""
        self._files, self._chain = files, Chain(files, directory)
        self._held = False

    @property
    def is_held(self) -> bool:
        return self._held

    def take(self, front: Front, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                front.check_alone(max(1.0, timeout_s))
                break
            except FencedError:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(_ASKED_EVERY_S)
        self.records = self._chain.take()
        self._held = True

    def left_after(self) -> tuple[int, int]:
        for record in reversed(self.records):
            assert record.value is not None
            if "left" in record.value:
                return int(record.value["left"]), int(record.value["generation"])
        return -1, -1

    def note_leave(self, generation: int, batch: int) -> None:
        self._chain.append({"left": batch, "generation": generation})

    def release(self) -> None:
        self._held = False

    def append(self, value: dict[str, Any], timeout_s: float) -> int:
        """Adds a record, which is published by that; returns its number. Raises TrackingError where
        another run has the log now, or it is not known whether the record is in it."""
        try:
            return insist(partial(self._chain.append, value), timeout_s)
        except TakenOverError as error:
            raise TrackingError(
                f"{error}; nothing of this batch was published", Code.TRACKING_FRONT
            ) from error
        except (FilesError, OSError) as error:
            raise TrackingError(
                f"{self.directory} may hold a batch that cannot be taken back ({error}); start the front again, "
                f"which goes by what is there",
                Code.TRACKING_FRONT,
            ) from error

    def delete(self, records: list[int]) -> None:
        """Lets go of records that nobody needs any more. What is not deleted now is later."""
        self._chain.delete(records)


def insist(ask: Callable[[], _T], timeout_s: float) -> _T:
    """What a store answers that may be away for a while. Raises AwayError after `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return ask()
        except AwayError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(_AWAY_PAUSE_S)
