"""The truth of one simulated pipeline: items that exist, and labels that fronts may still give.

The world knows nothing of ticks. A step of a node changes it at the moment at which the step can no
longer be undone (its output is published), which may be long before its tick reaches the tracker.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.core.graphs import NumberedEdge, numbered_edges
from tracker.core.model import PipelineSpec

FrontId = tuple[str, str]


@dataclass(slots=True, eq=False)
class Item:
    """An item in flight. `hops`: how many generations of children it may still have; `unit`: its
    name, if it is known to the tracker by name."""

    segment: int
    slot: int
    value: int
    hops: int
    unit: str | None = None
    claimed: bool = False


@dataclass(slots=True, eq=False)
class WorldFront:
    """A front as it really is. `may_label_from`: the lowest label that it may still give; None
    while it may give none (not granted yet, or down: then the tracker has to tell it again)."""

    segment: int
    may_label_from: int | None = None
    last_label: int | None = None
    left: bool = False


@dataclass(slots=True)
class World:
    """One pipeline's truth. `version` grows with each change."""

    spec: PipelineSpec
    items: dict[Item, None] = field(default_factory=dict)
    fronts: dict[FrontId, WorldFront] = field(default_factory=dict)
    joined: set[str] = field(default_factory=set)
    edges: list[NumberedEdge] = field(init=False)
    ways_out: list[list[tuple[int, int]]] = field(init=False)
    version: int = 0

    def __post_init__(self) -> None:
        self.edges = numbered_edges(self.spec)
        self.ways_out = [
            [(target, delay) for source, target, delay in self.edges if source == number]
            for number in range(len(self.spec.segments))
        ]

    @property
    def begun(self) -> bool:
        """Whether every declared front has said that it joins."""
        if self.spec.fronts:
            return self.joined.issuperset(self.spec.fronts)
        return len(self.joined) >= self.spec.front_count

    def step(self, consumed: list[Item], created: list[Item]) -> None:
        """One whole step of a node: it can no longer be undone."""
        for item in consumed:
            del self.items[item]
        for item in created:
            self.items[item] = None
        self.version += 1

    def front_joins(self, front: FrontId, segment: int) -> None:
        """A front sends word that it will feed a segment."""
        known = self.fronts.get(front)
        if known is None or known.left:
            last_label = known.last_label if known else None
            self.fronts[front] = WorldFront(segment, last_label=last_label)
        self.joined.add(front[1])
        self.version += 1

    def front_granted(self, front: FrontId, slot: int) -> None:
        """The tracker has let a front label from a slot on. What it does later, it does knowingly."""
        known = self.fronts[front]
        if known.may_label_from is None and not known.left:
            known.may_label_from = max(slot, slot if known.last_label is None else known.last_label)
            self.version += 1

    def front_binds_itself(self, front: FrontId, slot: int, *, label: bool) -> None:
        """A front labels with a slot, or resolves to label nothing below it."""
        known = self.fronts[front]
        assert known.may_label_from is not None
        assert slot >= known.may_label_from, "a front broke its own promise: fix the simulator"
        known.may_label_from = slot
        if label:
            known.last_label = slot
        self.version += 1

    def front_forgets(self, front: FrontId) -> None:
        """A front's process dies: what it resolved and did not write down is gone."""
        if front in self.fronts:
            self.fronts[front].may_label_from = None
            self.version += 1

    def front_leaves(self, front: FrontId) -> None:
        """A front has written down that it will label nothing any more."""
        known = self.fronts[front]
        known.left, known.may_label_from = True, None
        self.version += 1
