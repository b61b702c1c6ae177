"""Which offsets of a topic may be labelled by the records' own timestamps, and with which slot.

Each partition is read in the order of its offsets, and partitions have come differently far in time. A
record is labelled with the slot of its timestamp, or of an earlier record of its partition if that is
higher. What is labelled together, of all partitions, is in the order of slots: so a slot is given out only
when no partition can still bring a record below it. A partition that has been read to its end for a while
is not waited for: what it brings then may be late, and gets the slot that the front has come to.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tracker.core.model.slots import LOWEST_SLOT, slot_of
from tracker.errors import Code, StateError

MAX_PIECES = 100_000
"""Pieces of one slot each that a partition may be ahead of the others; then it is not read on."""


@dataclass(frozen=True, slots=True)
class TimedEnds:
    """Offsets that have one slot: by partition, up to which."""

    slot: int
    ends: Mapping[str, int]


@dataclass(slots=True)
class _Partition:
    """pieces: the end of what has each slot, by slots that grow. highest: of what has been read."""

    pieces: dict[int, int] = field(default_factory=dict)
    highest: int = LOWEST_SLOT
    end: int = 0
    is_idle: bool = False


class TimeMerge:
    """Merges the partitions of one topic by time. Not thread-safe."""

    def __init__(self, slack_ns: int) -> None:
        self._slack_ns = slack_ns
        self._partitions: dict[str, _Partition] = {}
        self.late = 0
        """Records that were labelled with a later slot than that of their timestamp."""
        self.floor = LOWEST_SLOT
        """The slot below which no record will be labelled any more; `ready` raises it."""

    def begin(self, partition: str, offset: int) -> None:
        """A partition is read from an offset on; it is waited for."""
        self._partitions.setdefault(partition, _Partition(end=offset))

    def take(self, partition: str, offset: int, time_ns: int) -> None:
        """A record was read, behind all before it of its partition."""
        state = self._partitions[partition]
        own = slot_of(time_ns, self._slack_ns)
        slot = max(own, state.highest, self.floor)
        self.late += slot > own
        state.highest, state.is_idle = slot, False
        state.pieces[slot] = state.end = offset + 1

    def at_end(self, partition: str, end: int) -> None:
        """A partition has been read to its end for a while: up to there is no record more."""
        state = self._partitions[partition]
        if end > state.end:  # the last offsets held no record
            slot = max(state.highest, self.floor)
            state.highest = slot
            state.pieces[slot] = state.end = end
        state.is_idle = True

    def is_ahead(self, partition: str) -> bool:
        """Whether a partition is not to be read on until the others have come further."""
        return len(self._partitions[partition].pieces) >= MAX_PIECES

    def ready(self) -> list[TimedEnds]:
        """What may be labelled now, in the order of slots. Beyond the floor there is more to come, but for
        the floor's own slot where all partitions have been read to their ends."""
        waited = [state.highest for state in self._partitions.values() if not state.is_idle]
        highest = [state.highest for state in self._partitions.values()]
        self.floor = max(self.floor, min(waited) if waited else max(highest, default=LOWEST_SLOT))
        below = self.floor if waited else self.floor + 1
        found: dict[int, dict[str, int]] = defaultdict(dict)
        for name, state in self._partitions.items():
            for slot in [slot for slot in state.pieces if slot < below]:
                found[slot][name] = state.pieces.pop(slot)
        return [TimedEnds(slot, found[slot]) for slot in sorted(found)]


@dataclass(frozen=True, slots=True)
class TimedRecord:
    """A record's place and timestamp: nanoseconds since 1970."""

    partition: str
    offset: int
    time_ns: int


class Records(Protocol):
    """The records of a topic, as they are read."""

    def add(self, partition: str, offset: int) -> None:
        """A partition is read from an offset on."""

    def read(self) -> list[TimedRecord]:
        """Some that come next; none if there are none for a moment. Of a partition in their order."""

    def reached(self, partition: str) -> int | None:
        """The offset at which a partition had no more, if that was so when it was read last."""

    def pause(self, partitions: Iterable[str]) -> None:
        """These are not read for now; all others are."""

    def close(self) -> None: ...


class TimedTopic:
    """What of a topic may be labelled by its records' timestamps. Not thread-safe."""

    def __init__(
        self,
        records: Records,
        slack_ns: int,
        idle_s: float,
        horizon: Callable[[], int],
        steady_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """idle_s: a partition that has been at its end for so long is not waited for. horizon: the first slot so far ahead
        of the clock that the tracker would take no label there."""
        self.merge = TimeMerge(slack_ns)
        self._slack_ns, self._horizon = slack_ns, horizon
        self._records, self._idle_s, self._steady_s = records, idle_s, steady_s
        self._at_end_since: dict[str, float] = {}
        self._known: set[str] = set()

    def ready(self, ends: Mapping[str, int], begin: Callable[[str], int]) -> list[TimedEnds]:
        """Reads on; what may be labelled. ends: how far each partition has come; begin: from where one is
        to be read that is new. Raises StateError for a record beyond the horizon."""
        for name in sorted(ends.keys() - self._known):
            self._known.add(name)
            self.merge.begin(name, begin(name))
            self._records.add(name, begin(name))
        horizon = self._horizon()
        for record in self._records.read():
            self._check(record, horizon)
            self.merge.take(record.partition, record.offset, record.time_ns)
        now_s = self._steady_s()
        for name, end in ends.items():
            if not self._is_at_end(name, end):
                self._at_end_since.pop(name, None)
            elif now_s - self._at_end_since.setdefault(name, now_s) >= self._idle_s:
                self.merge.at_end(name, end)
        self._records.pause([name for name in sorted(self._known) if self.merge.is_ahead(name)])
        return self.merge.ready()

    def rest(
        self, ends: Mapping[str, int], begin: Callable[[str], int], timeout_s: float
    ) -> list[TimedEnds]:
        """Reads up to the ends, where nothing will ever come behind them; all that is left. Raises
        StateError if that takes longer."""
        until_s = self._steady_s() + timeout_s
        found = self.ready(ends, begin)
        while behind := [name for name, end in ends.items() if not self._is_at_end(name, end)]:
            if self._steady_s() > until_s:
                raise StateError(
                    f"partition {behind[0]!r} was not read up to offset {ends[behind[0]]} within "
                    f"{timeout_s:g} s",
                    Code.STATE_TOPIC,
                )
            found += self.ready(ends, begin)
        for name, end in ends.items():
            self.merge.at_end(name, end)
        return found + self.merge.ready()

    def _check(self, record: TimedRecord, horizon: int) -> None:
        """Before anything is labelled with its slot: all later records would get that too, and none be taken."""
        slot = slot_of(record.time_ns, self._slack_ns)
        if slot >= horizon:
            raise StateError(
                f"offset {record.offset} of {record.partition!r} has the timestamp {record.time_ns // 1_000_000} ms, slot "
                f"{slot}; the limit is the clock of this machine + horizon_slots, slot {horizon}: correct the clock of its "
                f"producer or of this machine, and remove the records up to it (kafka-delete-records), or raise the "
                f"limit (lowmark pipelines apply), and start the front again",
                Code.STATE_TOPIC,
            )

    def _is_at_end(self, name: str, end: int) -> bool:
        reached = self._records.reached(name)
        return reached is not None and reached >= end
