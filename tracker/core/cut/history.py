"""When a segment's min time reached which slot: a record of announcements that is thinned and bounded.

Of the announcements that pass a multiple of a step, the first is kept: exact for every multiple of the
step, wherever min time jumped, and the first one after it for slots in between. There are two steps, a
fine one for the recent past and a coarse one for the rest; each forgets its oldest entries beyond a limit.
The last one before a segment is complete is kept in any case: up to there it was known where the data went.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from tracker.core.model import durable as d
from tracker.core.model.slots import FOREVER

FINE_STEP_NS, COARSE_STEP_NS = 60 * 10**9, 3600 * 10**9
"""A minute and an hour, as slots of the pipeline's slack, at least one slot. Where slots are numbers and
not moments, each one is as wide as an hour: all of them are kept."""
MAX_FINE_ENTRIES, MAX_COARSE_ENTRIES = 2_880, 8_784
"""Two days of minutes and a year of hours, of each segment."""
MAX_ENTRIES = MAX_FINE_ENTRIES + MAX_COARSE_ENTRIES


@dataclass(frozen=True, slots=True)
class Reached:
    """When min time reached a slot. at_ms: unix time of the first announcement at or beyond it that is
    remembered, in milliseconds; None if it has not been reached, or if that is forgotten or was never known,
    which `reached` tells apart. min_time: what was announced then; the slot itself if there is none. exact: none before
    it was at or beyond the slot; otherwise one may have been that is not remembered."""

    slot: int
    reached: bool
    at_ms: int | None
    min_time: int
    exact: bool = False


class Steps:
    """The first announcements that passed each multiple of `step` slots."""

    def __init__(self, step: int, most: int, since: int) -> None:
        """since: nothing is remembered of slots up to this one."""
        self.step, self.most, self.since = step, most, since
        self.slots, self.at_ms = array("q"), array("q")

    def record(self, slot: int, at_ms: int, before: int) -> None:
        """before: the last one that was announced, kept or not."""
        last = self.slots[-1] if self.slots else self.since
        if slot // self.step <= last // self.step and slot != FOREVER:
            return
        if slot == FOREVER and before > last:
            self.slots.append(before)
            self.at_ms.append(0)  # it was not kept until now
        self.slots.append(slot)
        self.at_ms.append(at_ms)
        if len(self.slots) > self.most:
            # A tenth at once: deleting from the front costs the length.
            gone = max(1, self.most // 10)
            self.since = self.slots[gone - 1]
            del self.slots[:gone], self.at_ms[:gone]

    def when(self, slot: int) -> Reached | None:
        """When min time reached a slot beyond `since`; None if it had not by the newest entry."""
        index = bisect_left(self.slots, slot)
        if index == len(self.slots):
            return None
        before = self.slots[index - 1] if index else self.since
        # What was announced between two entries is below the next multiple of the step.
        passed = slot >= (before // self.step + 1) * self.step
        exact = passed or self.slots[index] == slot
        at_ms = self.at_ms[index]
        by_ms = self.at_ms[-1] if self.slots[-1] == FOREVER else 0
        return Reached(slot, True, at_ms or by_ms or None, self.slots[index], exact and at_ms != 0)


class History:
    """One segment's."""

    def __init__(self, start_slot: int, slack_ns: int) -> None:
        fine, coarse = (max(1, each // slack_ns) for each in (FINE_STEP_NS, COARSE_STEP_NS))
        self.tiers = (
            Steps(fine, MAX_FINE_ENTRIES, start_slot),
            Steps(coarse, MAX_COARSE_ENTRIES, start_slot),
        )
        self.newest = start_slot

    def record(self, slot: int, at_ms: int) -> None:
        """Min time `slot` was announced at `at_ms`, 0 if that is not known; slots grow."""
        for tier in self.tiers:
            tier.record(slot, at_ms, self.newest)
        self.newest = slot

    @property
    def remembered(self) -> set[int]:
        """The slots of all announcements that are kept."""
        return {slot for tier in self.tiers for slot in tier.slots}

    def when(self, slot: int) -> Reached:
        """When min time reached a slot."""
        if slot > self.newest:
            return Reached(slot, False, None, slot)
        for tier in self.tiers:
            if slot > tier.since:
                told = tier.when(slot)
                if told is not None:
                    return told
                break
        return Reached(slot, True, None, slot)


@dataclass(frozen=True, slots=True)
class HistorySnapshot:
    """One segment's history in one of its steps (by their order): when which min time was announced,
    as arrays of int64: slots, and as many unix times in milliseconds; nothing is remembered of slots up to `since`."""

    segment: int
    tier: int
    since: int
    slots: array[int]
    at_ms: array[int]


def _saved(histories: list[History]) -> Iterator[HistorySnapshot]:
    # Of a segment that was added later it is kept since when.
    first = min(tier.since for history in histories for tier in history.tiers)
    for segment, history in enumerate(histories):
        for number, tier in enumerate(history.tiers):
            if tier.slots or tier.since != first:
                yield HistorySnapshot(segment, number, tier.since, tier.slots[:], tier.at_ms[:])


def _restore(histories: list[History], saved: HistorySnapshot) -> None:
    tier = histories[saved.segment].tiers[saved.tier]
    tier.since = saved.since
    tier.slots, tier.at_ms = saved.slots[:], saved.at_ms[:]


HISTORIES = d.each(HistorySnapshot, _saved, _restore)
"""How the histories of a pipeline's segments are saved."""
