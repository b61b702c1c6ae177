"""The names of a segment's open units, and under which slot each was created."""

from __future__ import annotations

import heapq

from tracker.core.model import Unit
from tracker.core.model.slots import LOWEST_SLOT
from tracker.core.model.units import slot_in_name

MAX_GIVEN_UP = 10_000
"""Names of a segment that are remembered behind min time, the last ones."""


class UnitNames:
    """A unit leaves when its reader has consumed it. Where the consumption came first (its creator was
    killed between publishing and committing) the name stays until min time has passed its slot: then
    nothing of it can be in flight. While another shard may still hand names over, those consumed here
    before they came are remembered."""

    def __init__(self) -> None:
        self._given_up: dict[str, int] = {}
        """Names that nobody had consumed when min time passed them, since they were written off: who reads one after all asks for
        its slot. Those that tell it are not asked for, and may have been consumed before they came."""
        self._slots: dict[str, int] = {}
        self._by_slot: list[tuple[int, str]] = []  # may hold names that have left
        self.early: dict[str, None] = {}
        """Names consumed before they were handed over."""

    def __len__(self) -> int:
        return len(self._slots)

    def add(self, name: str, slot: int) -> None:
        """A unit was created. One that is known to be consumed is not open any more."""
        if self.early.pop(name, name) is None:
            return
        self._given_up.pop(name, None)
        self._slots[name] = slot
        heapq.heappush(self._by_slot, (slot, name))
        if len(self._by_slot) > 2 * len(self._slots) + 1024:
            self._by_slot = sorted((slot, name) for name, slot in self._slots.items())

    def remove(self, name: str, slot: int | None, *, remember: bool = False) -> None:
        """A unit of that slot was consumed (None: whatever its slot was). One that is not here is passed over, or remembered; one of
        another slot stays: it was created under the name of one that was consumed."""
        known = self.slot(name)
        if known is not None and slot in (None, known):
            if self._slots.pop(name, None) is None:
                del self._given_up[name]
        elif known is None and remember:
            self.early[name] = None

    def take(self, name: str, slot: int) -> None:
        """Another shard hands a name over."""
        self.add(name, slot)

    def slot(self, name: str) -> int | None:
        """The slot of a unit that is open, or was written off; None if it has not arrived, or is gone."""
        return self._slots.get(name, self._given_up.get(name))

    @property
    def lowest_slot(self) -> int:
        """The slot of those that are open of the lowest one; below all slots if none is."""
        known = self._by_slot
        while known and self._slots.get(known[0][1]) != known[0][0]:
            heapq.heappop(known)
        return known[0][0] if known else LOWEST_SLOT - 1

    def forget_below(self, min_time: int) -> None:
        """Everything below `min_time` is complete: names of units there are let go of."""
        while self._by_slot and self._by_slot[0][0] < min_time:
            slot, name = heapq.heappop(self._by_slot)
            if self._slots.get(name) == slot:
                del self._slots[name]
                if slot_in_name(name) is None:
                    self._given_up[name] = slot
        while len(self._given_up) > MAX_GIVEN_UP:
            del self._given_up[next(iter(self._given_up))]

    def lowest(self, segment: int, most: int) -> list[Unit]:
        """Those that are open of the lowest slots, by slot."""
        open_units = ((slot, name) for name, slot in self._slots.items())
        return [Unit(segment, name, slot) for slot, name in heapq.nsmallest(most, open_units)]

    def units(self, segment: int) -> list[Unit]:
        """All that are open, behind those that were written off."""
        known = (*self._given_up.items(), *self._slots.items())
        return [Unit(segment, name, slot) for name, slot in known]
