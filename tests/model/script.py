"""What the nodes of the small model do: a front and a worker, each at home at another of two shards, or both at
the only one; three slots, a few items.

The worker's steps cross the shards: of an item at slot 0 it makes a child at slot 1 and holds time there, and by
the step that consumes the child it moves its hold to slot 2, where that stays. Each step zeroes a cell of one shard and fills one of the other, which is
where a wrong cut announces too early. A *story* is a part of the script with or without a crash, small
enough that every interleaving of it can be taken.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tracker.core.cut.graph import SegmentGraph
from tracker.core.model import (
    Cells,
    Edge,
    FrontJoin,
    Heartbeat,
    HoldMove,
    NodeKey,
    PipelineSpec,
    TickContent,
)
from tracker.core.model.ack_values import hold_value
from tracker.core.model.routing import RoutingTable
from tracker.core.model.slots import FOREVER

PIPELINE = PipelineSpec("p", ("a", "b"), (Edge("a", "b"),), fronts=("F",))
GRAPH = SegmentGraph(PIPELINE)
CUT = replace(PIPELINE, edges=())
GROWN = replace(PIPELINE, segments=("a", "b", "c"), edges=(Edge("a", "b"), Edge("b", "c")))
"""What the pipeline becomes in stories in which it is changed: without its edge, or with one more, to a new segment."""
ROUTINGS = {shards: RoutingTable.uniform(shards, block_slots=1) for shards in (1, 2)}
"""By how many shards there are."""
LAST_PROMISE = 3


def _homed_at(shard: int, kind: str) -> str:
    return next(f"{kind}{n}" for n in range(99) if ROUTINGS[2].home("p", f"{kind}{n}") == shard)


NODE_IDS = (_homed_at(0, "front"), _homed_at(1, "worker"))
FIRST_TICK = (2, 1)
"""Number of each node's first scripted tick: the front has joined by tick 1."""


@dataclass(frozen=True, slots=True)
class Item:
    """One item: created by a node's tick (node and tick, counted from 0), consumed by another, if at
    all."""

    segment: int
    slot: int
    value: int
    created: tuple[int, int]
    consumed: tuple[int, int] | None
    is_held: bool = False
    """Whether its node holds time by it: its tick names where it stands, and its home makes the cells, of a value
    that `System.value` knows."""


FRONT, WORKER = 0, 1
HOLD = "h"


ITEMS = (
    Item(0, 0, 0xA1, (FRONT, 0), (WORKER, 0)),
    Item(1, 1, 0xB1, (WORKER, 0), (WORKER, 1)),
    Item(1, 1, 0, (WORKER, 0), (WORKER, 1), is_held=True),
    Item(1, 2, 0, (WORKER, 1), None, is_held=True),
)
CHILD = Item(2, 2, 0xC1, (WORKER, 1), None)
"""What the worker makes in the new segment, once the operator has been answered."""
PROMISE = (FRONT, 1)
"""The front's tick that promises `LAST_PROMISE`; it is handed over when what it created is durable."""
JOIN = TickContent(joins=(FrontJoin("F", 0),))


def items(change: PipelineSpec | None) -> tuple[Item, ...]:
    """All items of a story with this change."""
    return (*ITEMS, CHILD) if change == GROWN else ITEMS


def _content(node: int, tick: int, change: PipelineSpec | None) -> TickContent:
    known = items(change)

    def cells(which: list[Item]) -> Cells:
        return Cells.of((i.segment, i.slot, i.value, 1) for i in which if not i.is_held)

    return TickContent(
        created=cells([i for i in known if i.created == (node, tick)]),
        consumed=cells([i for i in known if i.consumed == (node, tick)]),
        heartbeats=(Heartbeat("F", LAST_PROMISE),) if (node, tick) == PROMISE else (),
        holds=tuple(
            HoldMove(HOLD, item.segment, item.slot)
            for item in known
            if item.is_held and item.created == (node, tick)
        ),
    )


def _scripts(change: PipelineSpec | None) -> tuple[tuple[TickContent, ...], ...]:
    return tuple(
        tuple(_content(node, tick, change) for tick in range(count))
        for node, count in ((FRONT, 2), (WORKER, 2))
    )


SCRIPTS, GROWN_SCRIPTS = _scripts(None), _scripts(GROWN)


@dataclass(frozen=True)
class System:
    """The shards of a story, as it begins; most_shards: with those that come. homes: by node its home; first_entry: in which entry of its home's log each node's
    first scripted tick stands, if it has that home for itself: after the registration (at the registrar), the
    node's joining, and the ticks before. keys: by node; a home counts incarnations over all of its nodes."""

    shards: int
    routing: RoutingTable
    homes: tuple[int, ...]
    first_entry: tuple[int, ...]
    keys: tuple[NodeKey, ...]
    most_shards: int

    @classmethod
    def of(cls, shards: int, most_shards: int = 0) -> System:
        routing = ROUTINGS[shards]
        homes = tuple(routing.home("p", node_id) for node_id in NODE_IDS)
        registrar = routing.registrar("p")
        first = tuple(
            1 + (registrar == home) + tick for home, tick in zip(homes, FIRST_TICK, strict=True)
        )
        keys = tuple(
            NodeKey(node_id, 1 + homes[:node].count(homes[node]))
            for node, node_id in enumerate(NODE_IDS)
        )
        return cls(shards, routing, homes, first, keys, max(shards, most_shards))

    def value(self, item: Item) -> int:
        """The ack value of an item; a hold's is made by its home."""
        if not item.is_held:
            return item.value
        node, tick = item.created
        key = self.keys[node]
        return hold_value(key.node_id, HOLD, key.incarnation, FIRST_TICK[node] + tick)


SYSTEMS = {shards: System.of(shards) for shards in ROUTINGS}


def is_ready(node: int, handed: tuple[int, ...], durable: tuple[int, ...]) -> bool:
    """Whether a node can hand over its next tick: an item is consumed once its creator has handed it
    over (it was published before that), and a front promises when what it created is durable."""
    tick = handed[node]
    if (node, tick) == PROMISE:
        return durable[FRONT] >= tick
    return all(
        item.created[0] == node or handed[item.created[0]] > item.created[1]
        for item in ITEMS
        if item.consumed == (node, tick)
    )


@dataclass(frozen=True, slots=True)
class Story:
    """A part of the script. done: by node, how many ticks are processed before it begins; last: how
    many there are at its end; crashes: how many may come in between, of any shard at any moment."""

    name: str
    done: tuple[int, ...]
    last: tuple[int, ...]
    crashes: int
    shards: int = 2
    change: PipelineSpec | None = None
    """What an operator has the pipeline become: without an edge once nobody will use it any more, with another one at
    any moment."""

    @property
    def scripts(self) -> tuple[tuple[TickContent, ...], ...]:
        return GROWN_SCRIPTS if self.change == GROWN else SCRIPTS

    def may_ask(self, durable: tuple[int, ...]) -> bool:
        """Whether the operator may ask for the change by now."""
        return self.change == GROWN or (self.change == CUT and durable[WORKER] >= 1)

    def waits(self, node: int, tick: int, answered: bool) -> bool:
        """Whether a tick waits for the operator's answer."""
        return self.change == GROWN and (node, tick) == CHILD.created and not answered


STORIES = (
    Story("all ticks at one shard, two crashes", (0, 0), (2, 2), 2, shards=1),
    Story("all ticks, no crash", (0, 0), (2, 2), 0),
    Story("the worker's ticks, a crash", (2, 0), (2, 2), 1),
    Story("the front's ticks and the worker's first, a crash", (0, 0), (2, 1), 1),
    Story("an edge is taken away, a crash at one shard", (0, 0), (2, 2), 1, shards=1, change=CUT),
    Story("a segment is added, a crash at one shard", (0, 0), (2, 2), 1, shards=1, change=GROWN),
    Story("an edge is taken away behind the worker's first step", (2, 0), (2, 1), 0, change=CUT),
    Story("a segment is added before the worker's last step", (2, 1), (2, 2), 0, change=GROWN),
)


def frontier(
    ticks: tuple[int, ...], last: tuple[int, ...], change: PipelineSpec | None = None
) -> tuple[int, ...]:
    """By segment the lowest slot at which an item is, or can still come to be, once `ticks` (a count
    by node) are durable and `last` are all that there will be: told by the script alone, which knows
    every item. A front that has not promised may label from slot 0 on. change: what the pipeline becomes, if that was
    asked for."""
    promised = ticks[FRONT] > PROMISE[1]
    spec = change or PIPELINE
    graph, lows = SegmentGraph(spec), [FOREVER] * len(spec.segments)
    for segment, slot in [
        (0, LAST_PROMISE if promised else 0),
        *not_processed(ticks, last, items(change)),
    ]:
        for reached in graph.reached_from(segment):
            lows[reached] = min(lows[reached], slot + graph.distance(segment, reached))
    return tuple(lows)


def not_processed(
    ticks: tuple[int, ...], last: tuple[int, ...], known: tuple[Item, ...] = ITEMS
) -> list[tuple[int, int]]:
    """Segment and slot of what is in flight, or can come to be, but for what a front may still label."""

    def is_in(of: tuple[int, int] | None, counts: tuple[int, ...]) -> bool:
        return of is not None and of[1] < counts[of[0]]

    return [
        (item.segment, item.slot)
        for item in known
        if is_in(item.created, last) and not is_in(item.consumed, ticks)
    ]
