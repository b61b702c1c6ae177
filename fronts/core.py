"""The labelling core of a front: which slot comes next, what may be promised, what to commit.

    label -> seal -> (the shell publishes) -> published -> next_tick -> durable -> next_tick ...

A label is `max(clock's slot, last label, grant)`: it never goes backwards (rule 8). In a pipeline with rounds
it is at round 0 of its time. Labels gather in
the open batch; sealed, it has a number and is published by whoever holds this; published, the next
tick creates it. Only when that tick is durable does a later one promise slots beyond it (rule 1): a
promise is at most the lowest label of anything that no durable tick has created. One tick is out at a
time, and takes along all that was published meanwhile. Pure: the clock's readings are arguments.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fronts.batches import PublishedBatch
from fronts.clock import ClockReport, ClockWatch
from tracker.core.model import Batch, Cells, Heartbeat, TickContent
from tracker.core.model.rounds import Rounds
from tracker.core.model.slots import FOREVER, HIGHEST_SLOT, LOWEST_SLOT, slot_of, slot_start_ns
from tracker.errors import Code, StateError

MAX_OPEN_ITEMS = 1_000_000
"""Labels in one batch."""
MAX_WAITING_BATCHES = 1_000
"""Batches that are published and not durable in the tracker: then publishing has to wait."""
MAX_CELLS_PER_TICK = 200_000
MAX_UNITS_PER_TICK = 50_000
"""A tick takes batches up to these, and at least one; below what a home refuses."""
_ANY_NUMBER = 2**40


@dataclass(frozen=True, slots=True, eq=False)
class SealedBatch:
    """A batch that is to be published. slots: the labels of its items (int64), by ordinal from 0."""

    number: int
    slots: NDArray[np.int64]


class FrontCore:
    """One front of one segment. Methods raise StateError out of turn."""

    def __init__(
        self,
        front: str,
        segment: int,
        slack_ns: int,
        rounds: int = 1,
        *,
        max_open_items: int = MAX_OPEN_ITEMS,
    ) -> None:
        """segment: the number of the segment it feeds; slack_ns: the pipeline's width of a slot; rounds: how
        many of them each time has: labels and promises are whole times."""
        self.front, self.segment, self.slack_ns = front, segment, slack_ns
        self._times = Rounds(rounds)
        self.max_open_items = max_open_items
        self.clock = ClockWatch(slack_ns * rounds)
        self.granted, self.leaving, self.left = False, False, False
        self.last_durable = -1
        """Number of the last batch that is durable in the tracker; -1 if none is."""
        self.promised = LOWEST_SLOT
        """The last promise that is durable in the tracker."""
        self.clock_reports: list[ClockReport] = []
        """What was noticed of the clock; whoever reads it empties it."""
        self._floor = LOWEST_SLOT  # nothing is labelled below: last label, grant, last promise
        self._next_number = 0  # of the open batch
        self._open: list[NDArray[np.int64]] = []
        self._open_items = 0
        self._sealed: SealedBatch | None = None
        self._waiting: deque[PublishedBatch] = deque()  # published, not durable, by number
        self._in_flight: tuple[int, int] | None = None  # of the tick: batches taken, promise
        self._takes_leave = False
        """Whether the tick that is out lets the front leave."""
        self._promise_first = False
        """Whether the last tick was refused, so that a promise goes by itself before it is repeated."""
        self._most_taken = _ANY_NUMBER
        """Batches that a tick takes at most: fewer after a refusal, more again after each that is durable."""

    # --- starting ---------------------------------------------------------------------------------

    def recover(
        self,
        published: Iterable[PublishedBatch],
        last: Batch | None,
        left_after: int = -1,
        replay_from: int = LOWEST_SLOT,
    ) -> None:
        """Goes on from the batches that were published before, in the order of their numbers, and the
        last one that the tracker has durably. Batches up to that one may be left out. `left_after`:
        the last one when an earlier run left for good, of which the tracker knows no more. Items below
        `replay_from`, where the pipeline began anew, are complete: they are not created again. Raises
        StateError if they contradict each other."""
        self._need(not self.granted, "recovers after it was granted")
        self.last_durable = max(left_after, -1 if last is None else last.id)
        newest = self.last_durable
        previous = -1
        for batch in published:
            if batch.number <= previous:
                raise StateError(
                    f"front {self.front!r}: published batch {batch.number} comes after {previous}; "
                    "give them in the order of their numbers, each once",
                    Code.STATE_ORDER,
                )
            if last is not None and batch.number == last.id:
                self._compare(batch, last)
            counts = batch.from_slot(replay_from)
            if batch.number > self.last_durable and counts is not None:
                self._waiting.append(counts)
            elif counts is None and not self._waiting:
                self.last_durable = max(self.last_durable, batch.number)  # it is complete
            previous = batch.number
            newest = max(newest, batch.number)
            self._floor = max(self._floor, batch.high)
        self._next_number = newest + 1

    def _compare(self, batch: PublishedBatch, last: Batch) -> None:
        if batch.fingerprint != last.fingerprint:
            raise StateError(
                f"front {self.front!r}: published batch {batch.number} differs from the one that the "
                f"tracker has under that number (fingerprint {batch.fingerprint.hex()}, not "
                f"{last.fingerprint.hex()}): what was published was rolled back or rewritten; "
                "restore it, or start under a new front name",
                Code.STATE_ROLLED_BACK,
            )

    def grant(self, slot: int, heartbeat: int, clock_ns: int) -> None:
        """Every shard has answered: it may label from `slot` on; `heartbeat` is its last durable
        promise, of an earlier run."""
        self.granted = True
        self.promised = heartbeat
        self._floor = min(self._times.next_whole(max(self._floor, slot, heartbeat)), HIGHEST_SLOT)
        self.clock_reports += self.clock.granted(clock_ns, slot_start_ns(slot, self.slack_ns))

    def pass_over_late(self, slot: int) -> list[int]:
        """Leaves out what lies below `slot`, from which it may label, of the batches of earlier runs that
        are not durable; returns the numbers of those of which anything does. Of a front that was evicted,
        min time did not wait: such items cannot be created any more, and whoever consumes them consumes
        them late. What is at or above `slot` is created, under the batch's number; of one of which nothing is, the
        number alone is told, so that the next run does not look for it."""
        earlier, self._waiting = self._waiting, deque()
        for batch in earlier:
            self._waiting.append(batch.from_slot(slot) or batch.of_nothing(self._floor))
        return [batch.number for batch in earlier if batch.low < slot]

    # --- labelling --------------------------------------------------------------------------------

    def label(self, clock_ns: int, steady_ns: int | None = None) -> tuple[int, int, int]:
        """Labels an item: its slot, the number of the open batch, its ordinal in it from 0."""
        number, ordinal, slots = self.label_many(clock_ns, 1, steady_ns)
        return int(slots[0]), number, ordinal

    def label_many(
        self, clock_ns: int, count: int, steady_ns: int | None = None
    ) -> tuple[int, int, NDArray[np.int64]]:
        """Labels `count` items with one reading of the clock: the number of the open batch, the first
        one's ordinal, and their slots (int64, length `count`)."""
        slot = self._read(clock_ns, steady_ns)
        return self._take(np.full(count, slot, np.int64))

    def label_at(self, clock_ns: ArrayLike) -> tuple[int, int, NDArray[np.int64]]:
        """Labels items of which each has a reading of the clock (int64 nanoseconds), in their order;
        else as `label_many`."""
        readings = np.asarray(clock_ns, np.int64)
        if readings.ndim != 1:
            raise StateError(
                f"readings of shape {readings.shape} are not one array of items", Code.STATE_ORDER
            )
        if not len(readings):
            return self._take(np.empty(0, np.int64))
        self.clock_reports += self.clock.read_array(readings)
        highest = np.maximum.accumulate(readings)
        whole = highest // (self.slack_ns * self._times.per_time) * self._times.per_time
        return self._take(np.clip(whole, self._floor, HIGHEST_SLOT))

    def _take(self, slots: NDArray[np.int64]) -> tuple[int, int, NDArray[np.int64]]:
        self._need(self.granted, "labels before it was granted")
        self._need(not self.leaving, "labels after it has left")
        if self._open_items + len(slots) > self.max_open_items:
            raise StateError(
                f"front {self.front!r}: {self._open_items} items are labelled in the open batch, "
                f"{len(slots)} more would pass the limit of {self.max_open_items}; publish first",
                Code.STATE_ORDER,
            )
        first = self._open_items
        if len(slots):
            self._open.append(slots)
            self._open_items += len(slots)
            self._floor = int(slots[-1])
        return self._next_number, first, slots

    def _read(self, clock_ns: int, steady_ns: int | None) -> int:
        """The slot that an item would get now."""
        self.clock_reports += self.clock.read(clock_ns, steady_ns)
        whole = self._times.whole(slot_of(clock_ns, self.slack_ns))
        return min(max(whole, self._floor), HIGHEST_SLOT)

    # --- publishing -------------------------------------------------------------------------------

    @property
    def open_items(self) -> int:
        """How many items are labelled and not in a published batch."""
        sealed = 0 if self._sealed is None else len(self._sealed.slots)
        return self._open_items + sealed

    @property
    def sealed(self) -> SealedBatch | None:
        """The batch that is to be published, if one is sealed."""
        return self._sealed

    @property
    def newest_published(self) -> int:
        """Number of the last batch that was published; -1 if none was."""
        return self._waiting[-1].number if self._waiting else self.last_durable

    @property
    def waiting(self) -> int:
        """How many published batches are not durable in the tracker."""
        return len(self._waiting)

    def seal(self) -> SealedBatch | None:
        """The batch to publish: the one that was sealed before, if it was not published, else the
        open one, which is sealed by this; None if no item is labelled."""
        if self._sealed is None and self._open_items:
            self._sealed = SealedBatch(self._next_number, np.concatenate(self._open))
            self._open, self._open_items = [], 0
            self._next_number += 1
        return self._sealed

    def published(self, batch: PublishedBatch) -> None:
        """The sealed batch can be seen by readers, and holds `batch`."""
        sealed = self._sealed
        self._need(
            sealed is not None and sealed.number == batch.number,
            f"published batch {batch.number}, which is not sealed",
        )
        assert sealed is not None
        self._need(
            int(sealed.slots[0]) <= batch.low and batch.high <= int(sealed.slots[-1]),
            f"published batch {batch.number} with slots {batch.low} to {batch.high}, labelled were "
            f"{sealed.slots[0]} to {sealed.slots[-1]}",
        )
        self._waiting.append(batch)
        self._sealed = None

    def withdraw(self) -> None:
        """Nothing of the sealed batch has got out, nor will: its labels are void."""
        self._need(self._sealed is not None, "withdraws a batch, and none is sealed")
        if not self._open_items:
            self._next_number -= 1
        self._sealed = None

    # --- committing -------------------------------------------------------------------------------

    def next_tick(self, clock_ns: int, steady_ns: int | None = None) -> TickContent | None:
        """What to commit now; None if there is nothing new, or a tick is out."""
        if not self.granted or self._in_flight is not None or self.left:
            return None
        if self._waiting:
            low = min(batch.low for batch in self._waiting)
            if self._promise_first and low > self.promised:
                self._in_flight = (0, low)
                return TickContent(heartbeats=(Heartbeat(self.front, low),))
            return self._creating_tick()
        if self.leaving:
            self._in_flight = (0, self.promised)
            self._takes_leave = True
            return TickContent(leaves=(self.front,))
        promise = self._promise(clock_ns, steady_ns)
        if promise <= self.promised:
            return None
        self._in_flight = (0, promise)
        return TickContent(heartbeats=(Heartbeat(self.front, promise),))

    def _creating_tick(self) -> TickContent:
        """Takes as many published batches as fit. It may promise their lowest slot, not more."""
        taken: list[PublishedBatch] = []
        cells = units = 0
        for batch in self._waiting:
            cells, units = cells + len(batch.created), units + len(batch.units)
            full = cells > MAX_CELLS_PER_TICK or units > MAX_UNITS_PER_TICK
            if taken and (full or len(taken) >= self._most_taken):
                break
            taken.append(batch)
        promise = max(self.promised, min(batch.low for batch in self._waiting))
        heartbeats = (Heartbeat(self.front, promise),) if promise > self.promised else ()
        last = taken[-1]
        self._in_flight = (len(taken), promise)
        return TickContent(
            created=Cells.concatenate(batch.created for batch in taken),
            heartbeats=heartbeats,
            batch=Batch(self.front, last.number, last.fingerprint),
            units_created=tuple(unit for batch in taken for unit in batch.units),
        )

    def _promise(self, clock_ns: int, steady_ns: int | None) -> int:
        """The slot below which nothing will be labelled any more; no batch waits."""
        if self._sealed is not None:
            return int(self._sealed.slots[0])
        if self._open_items:
            return int(self._open[0][0])
        self._floor = self._read(clock_ns, steady_ns)
        return self._floor

    def durable(self) -> None:
        """The tick that is out is durable."""
        self._need(self._in_flight is not None, "hears of a durable tick, and none is out")
        assert self._in_flight is not None
        taken, self.promised = self._in_flight
        for _ in range(taken):
            self.last_durable = self._waiting.popleft().number
        if taken:
            self._most_taken = min(2 * self._most_taken, _ANY_NUMBER)
        self.left = self._takes_leave
        self._promise_first = self._promise_first and not taken
        self._in_flight = None

    def refused(self) -> None:
        """Nothing of the tick that is out was applied; `next_tick` gives it again, after a promise
        by itself: the items may lie beyond the horizon because this very front holds min time. Then with
        half of the batches: a table may have room for some, and never for all at once."""
        self._need(self._in_flight is not None, "hears of a refused tick, and none is out")
        assert self._in_flight is not None
        taken, _ = self._in_flight
        if taken:
            self._most_taken = max(1, taken // 2)
        self._in_flight, self._takes_leave = None, False
        self._promise_first = True

    def leave(self) -> None:
        """Labels nothing more; once all that was published is durable, `next_tick` takes leave."""
        self._need(self.granted, "leaves before it was granted")
        self._need(
            not self.open_items,
            f"leaves with {self.open_items} labelled items that are not published; publish first",
        )
        self.leaving = True

    def _need(self, held: bool, what: str) -> None:
        if not held:
            raise StateError(f"front {self.front!r} {what}", Code.STATE_ORDER)

    def validate(self) -> None:
        """Raises AssertionError if the parts contradict each other."""
        numbers = [batch.number for batch in self._waiting]
        if self._sealed is not None:
            numbers.append(self._sealed.number)
        assert numbers == sorted(set(numbers)), numbers
        assert all(self.last_durable < n < self._next_number for n in numbers), numbers
        assert self._open_items == sum(map(len, self._open)) <= self.max_open_items
        slots = [np.array([b.low, b.high], np.int64) for b in self._waiting]
        if self._sealed is not None:
            slots.append(self._sealed.slots)
        slots += self._open
        if slots:
            labels = np.concatenate(slots)
            assert self._sealed is None or (np.diff(self._sealed.slots) >= 0).all()
            assert labels.max() <= self._floor, (labels.max(), self._floor)
            if self.granted and not self._waiting:
                assert self.promised <= labels.min(), (self.promised, labels.min())
        if self._in_flight is not None:
            taken, promise = self._in_flight
            assert self.promised <= promise <= HIGHEST_SLOT and taken <= len(self._waiting)
            if slots and not self._waiting:
                assert promise <= labels.min()
        assert LOWEST_SLOT <= self._floor < FOREVER
