"""What fronts share whose batches stand in a record: a directory of files, or a journal, here or in a store.

A run takes the record (`fronts.holds`), and begins with what it holds beyond what the tracker has: that is
committed first. How far the front was when it left stands in the record too, since the tracker has forgotten it
by then.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Self

from fronts.batches import PublishedBatch
from fronts.front import JOIN_TIMEOUT_S, Front, Send
from fronts.holds import Hold
from fronts.once import Starting
from tracker.core.model import Batch
from tracker.core.model.slots import LOWEST_SLOT
from tracker.errors import Code, NotPublishedError, StateError


@dataclass(frozen=True, slots=True)
class RecordedBatch:
    """A batch in a front's record. batch: reads what it created, in the segment of that number."""

    number: int
    slot: int
    batch: Callable[[int], PublishedBatch]


class DurableFront(Starting):
    """A front with a record. Thread-safe; one at a time may run with a record."""

    _KEEPS_LAST: ClassVar[bool]
    """Whether the record always holds the last batch; else complete ones may be gone from it."""
    _ROLLED_BACK: ClassVar[str]
    """What to do where the record is not the one that the tracker knows."""

    def __init__(self, front: Front, record: str, hold: Hold) -> None:
        """record: where it is, for messages."""
        self._front, self._record, self._hold = front, record, hold
        self._segment_number = -1  # of the fed segment, once the front has joined

    @abstractmethod
    def _recorded(self, durable: int) -> Sequence[RecordedBatch]:
        """The batches in the record, by growing number. durable: the last one that the tracker has."""

    @abstractmethod
    def _prepare(self) -> None:
        """Makes the record if there is none; removes from it what a killed run did not publish."""

    @abstractmethod
    def _newest(self) -> int:
        """The number of the last batch in the record; -1 if there is none."""

    @property
    def front(self) -> Front:
        """The front beneath: its labels, waits and failure."""
        return self._front

    def start(
        self, timeout_s: float = JOIN_TIMEOUT_S, *, lock_timeout_s: float | None = None
    ) -> Self:
        """Takes the record, joins, and commits what earlier runs published; then as `Front.start`.
        Raises FencedError if another process has the front for `lock_timeout_s` seconds (None: as
        `timeout_s`), StateError if the record lacks what the tracker has not seen, is older than
        what it has, or was rewritten."""
        with self._once():
            self._hold.take(self._front, timeout_s if lock_timeout_s is None else lock_timeout_s)
            self._start_held(timeout_s)
        return self

    def _start_held(self, timeout_s: float) -> None:
        """As `start`, where the record has been taken already."""
        try:
            self._prepare()
            after, generation = self._hold.left_after()
            newest = self._newest() if generation >= 0 else None
            self._front.start(
                self._recover, timeout_s, left_after=after, left_in=generation, newest=newest
            )
        except BaseException:
            self._release()
            raise

    def wait_durable(self, timeout_s: float | None = None) -> bool:
        """As `Front.wait_durable`."""
        return self._front.wait_durable(timeout_s)

    def leave(self) -> None:
        """As `Front.leave`; a front of this name that is started later goes on from here."""
        held = self._hold.is_held
        note = partial(self._hold.note_leave, self._front.generation) if held else None
        self._front.leave(note=note)
        self._forget()
        self._release()

    def close(self) -> None:
        """As `Front.close`."""
        self._front.close()
        self._release()

    def _forget(self) -> None:
        """The front has left, and its lock is still held."""
        return None

    def _release(self) -> None:
        self._hold.release()

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
        durable = max(self._front.left_after, -1 if last is None else last.id)
        recorded = self._recorded(durable)
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
            raise StateError(
                f"front {self._front.identity!r}: {self._record} {held}; the tracker has those up to "
                f"{durable}: {self._ROLLED_BACK}",
                Code.STATE_ROLLED_BACK,
            )
        return [batch.batch(segment) for batch in recorded if batch.number >= durable]
