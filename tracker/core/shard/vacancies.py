"""Places of fronts that were evicted: eviction is not leaving (rule 8).

A front that leaves in order has said all that it had to say. One that was evicted may come back, and
until then its place is vacant: a segment without fronts, and with a vacant place, is not done, but stands
where those that left in order had promised, or where min time is. The place is taken again by a front of
the same node and name, in whatever segment, and is given up where an operator retires the node, or begins
the pipeline anew. Every shard knows all of them, from the homes' logs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tracker.core.model import HOLD_FRONT, FrontName, Vacancy
from tracker.core.model import durable as d
from tracker.core.model.slots import LOWEST_SLOT

MAX_VACANCIES = 10_000
"""Of one pipeline. A silent front is not evicted beyond that, but holds min time, until operators retire
the nodes that are gone for good."""


_PLACES = {"vacancies": d.values("node_id", "front")}


@dataclass(eq=False)
class Vacancies:
    """Those of one pipeline at one shard."""

    _places: dict[FrontName, Vacancy] = d.survives(_PLACES)
    _left: dict[int, int] = d.survives({"left": d.ITEMS})
    _of: Counter[str] = d.follows("`_places`", Counter)
    """How many of them are a node's, by its id."""

    def derive(self) -> None:
        """Works out whose the places are."""
        self._of = Counter(node_id for node_id, _ in self._places)

    def __len__(self) -> int:
        return len(self._places)

    @property
    def places(self) -> tuple[Vacancy, ...]:
        """All, those of fronts that were evicted first before others."""
        return tuple(self._places.values())

    @property
    def left(self) -> Mapping[int, int]:
        """By segment the furthest promise of its fronts that left in order."""
        return self._left

    def of(self, segment: int) -> list[Vacancy]:
        return [place for place in self.places if place.segment == segment]

    def segments(self) -> set[int]:
        """The segments in which a place is vacant."""
        return {place.segment for place in self.places}

    def knows(self, node_id: str) -> bool:
        """Whether a place is vacant that a front of this node had."""
        return node_id in self._of

    def _give_up(self, front: FrontName) -> None:
        if self._places.pop(front, None) is not None:
            self._of[front[0]] -= 1
            if not self._of[front[0]]:
                del self._of[front[0]]

    def evicted(self, front: FrontName, segment: int) -> None:
        """A front was evicted. One by which a hold was to begin is none that anybody waits for."""
        if not front[1].startswith(HOLD_FRONT):
            self._await(front, segment)

    def _await(self, front: FrontName, segment: int) -> None:
        self._give_up(front)
        self._places[front] = Vacancy(*front, segment)
        self._of[front[0]] += 1

    def unfed(self) -> set[int]:
        """The segments that wait for their first front."""
        return {place.segment for place in self.places if not place.node_id}

    def declared(self, segment: int, name: str) -> None:
        """A segment is new: it waits for its first front, unless it is fed. name: the segment's."""
        self._await(("", name), segment)

    def fed(self, segment: int) -> None:
        """A segment waits for no first front any more: one has come, or what feeds it waits for none."""
        for place in self.of(segment) if self._places else ():
            if not place.node_id:
                self._give_up(("", place.front))

    def removed(self, segment: int) -> None:
        """A segment takes nothing more: nobody is waited for there."""
        for place in self.of(segment):
            self._give_up((place.node_id, place.front))

    def joined(self, front: FrontName, segment: int) -> None:
        """A front has come, or has come back."""
        self._give_up(front)
        self.fed(segment)

    def retired(self, node_id: str) -> None:
        """It is an operator's word that the fronts of a node have left."""
        for front in [front for front in self._places if front[0] == node_id]:
            self._give_up(front)

    def left_in_order(self, segment: int, promised: int | None) -> None:
        """A front has left a segment behind a promise, if it has made one."""
        if promised is not None:
            self._left[segment] = max(promised, self._left.get(segment, LOWEST_SLOT))
