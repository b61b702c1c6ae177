"""What nodes have done, item by item: the tables that the proof takes as fixed from the beginning.

Nobody in the tracker knows them. The nodes of a run write down what each of their ticks creates, consumes and promises; entries that
a home logs by itself are ticks, too, of nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tracker.core.cut.graph import SegmentGraph
from tracker.core.model import PipelineSpec

Place = tuple[int, int]
"""A segment by its number, and a slot of it."""
SLOTS = 7
"""Items and promises lie in slots 0 to SLOTS - 1: min times rise no higher than SLOTS - 1."""


@dataclass(eq=False)
class Front:
    """One joining of a front, by a tick of its node."""

    name: str
    node: str
    front: str
    segment: int
    joins: Tick
    leaves: Tick | None = None
    granted: int | None = None
    promised: int = 0


@dataclass(eq=False)
class Item:
    """An item, or a hold: what it comes of, where it is, and what has become of it. value: of a hold it is known when its home has
    taken the tick."""

    name: str
    place: Place
    creator: Tick
    labeller: Front
    parent: Item | None
    value: int = 0
    hold: str | None = None
    consumer: Tick | None = None

    @property
    def labelled(self) -> bool:
        return self.parent is None


@dataclass(eq=False)
class Tick:
    """A tick, or an entry that a home has logged by itself. generation: that it is of; begins: that whoever applies it begins, if it is in none
    so late."""

    name: str
    node: str
    generation: int = 0
    begins: int = 0
    created: list[Item] = field(default_factory=list)
    consumed: list[Item] = field(default_factory=list)
    joins: list[Front] = field(default_factory=list)
    leaves: list[Front] = field(default_factory=list)
    promises: list[tuple[Front, int]] = field(default_factory=list)
    home: int = 0

    @property
    def items(self) -> list[Item]:
        return [*self.created, *self.consumed]


class Ledger:
    """All that there is in a run."""

    def __init__(self, spec: PipelineSpec) -> None:
        self.spec, self.graph = spec, SegmentGraph(spec)
        self.ticks: list[Tick] = []
        self.items: list[Item] = []
        self.fronts: list[Front] = []
        self.finishing = False
        """Whether nodes begin nothing new, and do what is left."""
        self.said = [0] * self.graph.size
        """By segment the largest min time that anybody has told."""
        self.gone: set[str] = set()
        """Nodes that an operator says are gone."""

    @property
    def places(self) -> list[Place]:
        return [(segment, slot) for segment in range(self.graph.size) for slot in range(SLOTS)]

    def reaches(self, a: Place, b: Place) -> bool:
        return a[1] + self.graph.distance(a[0], b[0]) <= b[1]

    def tick(self, name: str, node: str, generation: int, begins: int) -> Tick:
        self.ticks.append(Tick(name, node, generation, begins))
        return self.ticks[-1]

    def item(
        self, place: Place, creator: Tick, labeller: Front, parent: Item | None, hold: str | None = None
    ) -> Item:  # fmt: skip
        name = f"{'hold' if hold else 'item'} {len(self.items) + 1} at {place}"
        made = Item(name, place, creator, labeller, parent, hold=hold)
        self.items.append(made)
        creator.created.append(made)
        return made

    def front(self, node: str, front: str, segment: int, joins: Tick) -> Front:
        name = f"{front} of {node}, joining {len(self.fronts) + 1}"
        made = Front(name, node, front, segment, joins)
        self.fronts.append(made)
        joins.joins.append(made)
        return made
