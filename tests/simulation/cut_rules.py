"""When may the reports of several shards be put together? A toy tracker that shows where it fails.

Ticks are applied by shards in the order of each node but otherwise in any order, so at no moment do
two shards describe the same state of the world. Two rules for combining what they report:

`PublishedRule`
    A shard's min time is accepted once its vector of node times is at most the element-wise minimum
    of the vectors heard last from all shards; announce the least of the accepted ones.
`CutRule`
    Take that element-wise minimum as a cut through everybody's ticks. A shard's low at the cut is
    the smaller of its lowest non-zero slot and of the lowest slots touched by the ticks that it has
    applied beyond the cut; announce the least low.

The first accepts, one shard after the other, vectors that each lie *below* the cut but need not be
*equal* there: a step that moves an item from a slot of one shard to a slot of another can be inside
the vector accepted for the first and outside the vector accepted for the second, so neither shows
the item. The second looks at all shards at one and the same cut.

The toy has one segment and fixed fronts; the real core is put to the same question in
`tests.simulation.faults`.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field

NOTHING = 10**9
"""A slot above all others: the low of a shard that holds nothing."""


@dataclass(frozen=True)
class ToyTick:
    """Tick `number` of a node: XOR deltas by slot, and a promise to label nothing below a slot."""

    node: str
    number: int
    deltas: tuple[tuple[int, int], ...] = ()
    promise: int | None = None


@dataclass(frozen=True)
class ToyReport:
    """What a shard says after applying a tick."""

    vector: dict[str, int]
    low: int
    promise: int
    tick: ToyTick
    touched: int

    @property
    def min_time(self) -> int:
        """What the shard alone would announce."""
        return min(self.low, self.promise)


class ToyShard:
    """The cells of slots `s` with `s % shards == number`, the vector, the fronts' promises."""

    def __init__(self, number: int, shards: int, nodes: list[str], fronts: list[str]) -> None:
        self.number, self.shards = number, shards
        self.vector = dict.fromkeys(nodes, 0)
        self.promises = dict.fromkeys(fronts, 0)
        self.cells: dict[int, int] = {}

    def apply(self, tick: ToyTick) -> ToyReport:
        assert tick.number == self.vector[tick.node] + 1, "ticks of a node come in order"
        self.vector[tick.node] = tick.number
        own = [(slot, value) for slot, value in tick.deltas if slot % self.shards == self.number]
        for slot, value in own:
            self.cells[slot] = self.cells.get(slot, 0) ^ value
            if not self.cells[slot]:
                del self.cells[slot]
        if tick.promise is not None:
            self.promises[tick.node] = tick.promise
        return ToyReport(
            vector=dict(self.vector),
            low=min(self.cells, default=NOTHING),
            promise=min(self.promises.values()),
            tick=tick,
            touched=min((slot for slot, _ in own), default=NOTHING),
        )


class Combiner(ABC):
    """What both rules need: the last report of each shard, and the cut through them."""

    def __init__(self, shards: int) -> None:
        self.announced = 0
        self.latest: list[ToyReport | None] = [None] * shards

    @abstractmethod
    def hear(self, shard: int, report: ToyReport) -> int:
        """Hears the reports of each shard in order; returns the min time (exclusive)."""

    def cut(self) -> dict[str, int]:
        """The element-wise minimum of the last vectors; empty before everybody has reported."""
        heard = [report.vector for report in self.latest if report is not None]
        if len(heard) < len(self.latest):
            return {}
        return {node: min(vector[node] for vector in heard) for node in heard[0]}


class PublishedRule(Combiner):
    """Accepts the min times of single shards."""

    def __init__(self, shards: int) -> None:
        super().__init__(shards)
        self.waiting: list[deque[ToyReport]] = [deque() for _ in range(shards)]
        self.accepted = [0] * shards

    def hear(self, shard: int, report: ToyReport) -> int:
        self.latest[shard] = report
        self.waiting[shard].append(report)
        cut = self.cut()
        for number, queue in enumerate(self.waiting):
            while cut and queue and all(queue[0].vector[node] <= cut[node] for node in cut):
                self.accepted[number] = queue.popleft().min_time
        self.announced = max(self.announced, min(self.accepted))
        return self.announced


class CutRule(Combiner):
    """Looks at every shard at one and the same cut."""

    def __init__(self, shards: int) -> None:
        super().__init__(shards)
        self.beyond: list[list[ToyReport]] = [[] for _ in range(shards)]

    def hear(self, shard: int, report: ToyReport) -> int:
        self.latest[shard] = report
        self.beyond[shard].append(report)
        cut = self.cut()
        if cut:
            lows = []
            for number, last in enumerate(self.latest):
                assert last is not None
                self.beyond[number] = [
                    r for r in self.beyond[number] if r.tick.number > cut[r.tick.node]
                ]
                lows += [last.min_time, *(r.touched for r in self.beyond[number])]
            self.announced = max(self.announced, min(lows))
        return self.announced


RULES: dict[str, type[Combiner]] = {"published": PublishedRule, "cut": CutRule}


@dataclass
class _World:
    """Items in flight, as nodes see them: the truth that no announcement may pass."""

    rng: random.Random
    last_slot: int
    items: list[tuple[int, int, int]] = field(default_factory=list)  # (slot, value, hops left)

    def create(self, slot: int, hops: int) -> tuple[int, int]:
        value = self.rng.getrandbits(64) | 1
        self.items.append((slot, value, hops))
        return slot, value

    def frontier(self) -> int:
        return min((slot for slot, _, _ in self.items), default=self.last_slot + 1)


def random_schedule(seed: int, rule: str, steps: int = 500) -> bool:
    """Runs one schedule; True if the rule announced a slot that still had an item (a false
    completion). The same seed gives the same schedule to every rule."""
    rng = random.Random(seed)
    shards, workers = 2, rng.choice([2, 3])
    nodes = ["front", *(f"worker{i}" for i in range(workers))]
    world = _World(rng, last_slot=3)
    toy = [ToyShard(number, shards, nodes, ["front"]) for number in range(shards)]
    combiner = RULES[rule](shards)
    # How eagerly a shard takes a node's ticks: links that lag in different ways make the vectors
    # of two shards incomparable, which is what it takes.
    eagerness = {(node, s): rng.choice([0.05, 1.0]) for node in nodes for s in range(shards)}
    links: dict[tuple[str, int], deque[ToyTick]] = {link: deque() for link in eagerness}
    reports: list[deque[ToyReport]] = [deque() for _ in range(shards)]
    numbers = dict.fromkeys(nodes, 0)

    def commit(node: str, deltas: list[tuple[int, int]], promise: int | None = None) -> None:
        numbers[node] += 1
        tick = ToyTick(node, numbers[node], tuple(deltas), promise)
        for shard in range(shards):
            links[node, shard].append(tick)

    commit("front", [world.create(0, rng.randint(2, 6))])
    commit("front", [], promise=world.last_slot + 1)
    for _ in range(steps):
        action = rng.random()
        if action < 0.08:
            worker, deltas = rng.choice(nodes[1:]), []
            if world.items and rng.random() < 0.5:  # else the tick is empty
                slot, value, hops = world.items.pop(rng.randrange(len(world.items)))
                deltas.append((slot, value))
                if hops:
                    later = min(world.last_slot, slot + rng.choice([0, 1, 1, 2]))
                    deltas.append(world.create(later, hops - 1))
            commit(worker, deltas)
        elif action < 0.65:
            node, shard = rng.choice(nodes), rng.randrange(shards)
            if links[node, shard] and rng.random() < eagerness[node, shard]:
                reports[shard].append(toy[shard].apply(links[node, shard].popleft()))
        else:
            shard = rng.randrange(shards)
            if reports[shard] and combiner.hear(shard, reports[shard].popleft()) > world.frontier():
                return True
    return False
