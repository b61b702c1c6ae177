"""What fronts share whose batches stand in a local record: a directory of files, or a journal.

A lock keeps a second run of the front out, since two runs would give different batches one number. A
run begins with what the record holds beyond what the tracker has: that is committed first. How far the
front was when it left stands in the lock file, since the tracker has forgotten it by then.
"""

from __future__ import annotations

import os
import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Self

from fronts.batches import PublishedBatch
from fronts.core import RolledBackError
from fronts.front import JOIN_TIMEOUT_S, Front, NotPublishedError, Send
from fronts.locks import take_lock
from tracker.client.closing import Closing
from tracker.core.model import Batch
from tracker.core.model.slots import LOWEST_SLOT

_MAX_RECORD_BYTES = 64
_WHOLE_RECORD = re.compile(rb"(-?\d+) (\d+)\n")


@dataclass(frozen=True, slots=True)
class RecordedBatch:
    """A batch in a front's record. batch: reads what it created, in the segment of that number."""

    number: int
    slot: int
    batch: Callable[[int], PublishedBatch]


class DurableFront(Closing):
    """A front with a record. Thread-safe; one at a time may run with a record."""

    _KEEPS_LAST: ClassVar[bool]
    """Whether the record always holds the last batch; else complete ones may be gone from it."""
    _ROLLED_BACK: ClassVar[str]
    """What to do where the record is not the one that the tracker knows."""

    def __init__(self, front: Front, record: Path, lock_path: Path) -> None:
        self._front, self._record, self.lock_path = front, record, lock_path
        self._segment_number = -1  # of the fed segment, once the front has joined
        self._lock_fd: int | None = None  # open while the front runs

    @abstractmethod
    def _recorded(self) -> Sequence[RecordedBatch]:
        """The batches in the record, by growing number."""

    @abstractmethod
    def _prepare(self) -> None:
        """Makes the record if there is none; removes from it what a killed run did not publish."""

    @property
    def front(self) -> Front:
        """The front beneath: its labels, waits and failure."""
        return self._front

    def start(
        self, timeout_s: float = JOIN_TIMEOUT_S, *, lock_timeout_s: float | None = None
    ) -> Self:
        """Takes the record, joins, and commits what earlier runs published; then as `Front.start`.
        Raises FrontHeldError if another process has the front for `lock_timeout_s` seconds (None: as
        `timeout_s`), RolledBackError if the record lacks what the tracker has not seen, is older than
        what it has, or was rewritten."""
        self.lock_path.parent.mkdir(parents=True, exist_ok=True)
        patience_s = timeout_s if lock_timeout_s is None else lock_timeout_s
        lock_fd = take_lock(self.lock_path, patience_s, self._front.identity)
        return self.start_locked(lock_fd, timeout_s)

    def start_locked(self, lock_fd: int, timeout_s: float = JOIN_TIMEOUT_S) -> Self:
        """As `start`, with `lock_path` open and locked already; it is closed in the end."""
        self._lock_fd = lock_fd
        try:
            self._prepare()
            after, generation = _left_after(lock_fd)
            self._front.start(self._recover, timeout_s, left_after=after, left_in=generation)
        except BaseException:
            self._release()
            raise
        return self

    def wait_durable(self, timeout_s: float | None = None) -> bool:
        """As `Front.wait_durable`."""
        return self._front.wait_durable(timeout_s)

    def leave(self) -> None:
        """As `Front.leave`; a front of this name that is started later goes on from here."""
        fd = self._lock_fd
        record = None if fd is None else partial(_record_leave, fd, self._front.generation)
        self._front.leave(note=record)
        self._forget()
        self._release()

    def close(self) -> None:
        """As `Front.close`."""
        self._front.close()
        self._release()

    def _forget(self) -> None:
        """The front has left, and its lock is still held."""
        return None

    def __enter__(self) -> Self:
        return self if self._lock_fd is not None else self.start()

    def _release(self) -> None:
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def _publish_now(self, count: int, send: Send, timeout_s: float) -> int:
        """As `Front.publish_now`; where nothing was published, raises what kept it from that."""
        try:
            return self._front.publish_now(count, send, timeout_s)
        except NotPublishedError as error:
            assert error.__cause__ is not None
            raise error.__cause__ from None

    def _recover(self, segment: int, last: Batch | None) -> list[PublishedBatch]:
        """The batches that the tracker may not have, and the last one that it has, to compare. It has
        none where the pipeline was restarted: those below the first slot then are complete, and may be
        gone."""
        self._segment_number = segment
        recorded = self._recorded()
        durable = max(self._front.left_after, -1 if last is None else last.id)
        if durable < 0 and self._front.replay_from > LOWEST_SLOT:
            # The last one gives the next number, if nothing else does.
            recorded = [r for r in recorded if r.slot >= self._front.replay_from] or recorded[-1:]
            durable = recorded[0].number - 1 if recorded else -1
        newest = recorded[-1].number if recorded else -1
        numbers = [batch.number for batch in recorded if batch.number > durable]
        expected = range(durable + 1, durable + 1 + len(numbers))
        gap = next(
            (pair for pair in zip(numbers, expected, strict=True) if pair[0] != pair[1]), None
        )
        if gap is not None or (self._KEEPS_LAST and newest < durable):
            held = (
                f"holds batch {gap[0]} where {gap[1]} was expected"
                if gap
                else f"ends with {newest}"
            )
            raise RolledBackError(
                f"front {self._front.identity!r}: {self._record} {held}; the tracker has those up to "
                f"{durable}: {self._ROLLED_BACK}"
            )
        return [batch.batch(segment) for batch in recorded if batch.number >= durable]


def sync(path: Path) -> None:
    """Makes a file's contents, or a directory's names, durable."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _left_after(fd: int) -> tuple[int, int]:
    """The number of the last batch when the front left, by its lock file, and the pipeline's generation
    then; -1 and 0 if it has not left. A record that was not written whole counts as none: then the front
    had not left yet."""
    found = _WHOLE_RECORD.fullmatch(os.pread(fd, _MAX_RECORD_BYTES, 0))
    return (int(found[1]), int(found[2])) if found else (-1, 0)


def _record_leave(fd: int, generation: int, batch: int) -> None:
    """Records durably, in the lock file, that the front leaves after a batch, which the tracker has. Of
    one width always: an older record is never half gone."""
    os.pwrite(fd, b"%020d %020d\n" % (batch, generation), 0)
    os.fsync(fd)
