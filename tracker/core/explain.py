"""Why min time is where it is, as one process sees it: what holds each segment, what is open here.

A segment's min time is the least over all segments that lead to it (rule 7), and there the least of
what is open, what has not reached every shard yet, and what fronts promise (rules 5, 6 and 8). Whatever
attains that least holds it. Whose the items of an open cell are, no checksum tells: nodes are therefore
listed with the segments in which they have consumed and created, the longest silent first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from tracker.core.cut import Vectors
from tracker.core.describe import ShardDescription
from tracker.core.home import HomeNode
from tracker.core.model import NodeKey, Unit
from tracker.core.pipeline import Dropped, Pipeline
from tracker.core.slots import FOREVER, LOWEST_SLOT, add_delay
from tracker.core.written_off import WrittenOffCell

MAX_EXPLAINED_CELLS = 10_000
MAX_EXPLAINED_NODES = 1_000
MAX_EXPLAINED_UNITS = 100
"""Of each segment, those of the lowest slots."""
MAX_HOLDS = 100
"""Of each segment: of more reasons of one kind the first are said."""


class HoldKind(Enum):
    """What may hold a segment's min time."""

    OPEN = "open"
    """Items are open at `slot` in `segment`, in the cells of `shard`."""
    BEHIND = "behind"
    """`shard` has not applied `entries` of the home log of shard `home`, which touch `slot`."""
    PROMISE = "promise"
    """`front` of `node_id`, which feeds `segment`, promises no more than `slot`."""
    JOINING = "joining"
    """`front` of `node_id` joins or leaves: `shard` has not said so yet."""
    NOT_BEGUN = "not_begun"
    """`front` is declared and has not joined yet (no name: some of the declared number)."""
    UNHEARD = "unheard"
    """`shard` has not been heard since this process started."""
    KEPT_OPEN = "kept_open"
    """Nothing is open and no front is left, but the pipeline is declared open: it waits for more."""


@dataclass(frozen=True, slots=True)
class Hold:
    """One reason; which fields count is said at its kind. Numbers that do not are -1, names empty."""

    kind: HoldKind
    segment: int = -1
    slot: int = LOWEST_SLOT
    shard: int = -1
    home: int = -1
    entries: int = 0
    node_id: str = ""
    front: str = ""


@dataclass(frozen=True, slots=True)
class OpenCell:
    """A cell of the asked process that is open; `items` is advisory."""

    segment: int
    slot: int
    checksum: int
    items: int


@dataclass(frozen=True, slots=True)
class SegmentExplanation:
    """One segment. standing_ms: since the asked process last moved its min time, or started; holds:
    all that keeps it there; units: those open of the lowest slots, if the asked process keeps their
    names."""

    segment: str
    min_time: int
    standing_ms: int
    holds: tuple[Hold, ...]
    units: tuple[Unit, ...]


@dataclass(frozen=True, slots=True)
class NodeExplanation:
    """A node at home at the asked process. silent_ms: since its last tick arrived, or the process
    started; gone: `evicted` or `retired`, else empty; consumes and creates: segment numbers."""

    key: NodeKey
    kind: str
    node_time: int
    connected: bool
    silent_ms: int
    gone: str
    consumes: tuple[int, ...]
    creates: tuple[int, ...]
    fronts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PipelineExplanation:
    """One process's part: the cells, unit names and nodes are its own, the rest is what it has heard.
    cells: by slot, as many as asked for; open_cells: how many there are of those asked for."""

    shard: int
    segments: tuple[SegmentExplanation, ...]
    cells: tuple[OpenCell, ...]
    open_cells: int
    nodes: tuple[NodeExplanation, ...]
    written_off: tuple[WrittenOffCell, ...]
    restarts: tuple[Dropped, ...]
    shards: tuple[ShardDescription, ...]


@dataclass(frozen=True, slots=True)
class ExplainQuery:
    """What to explain: one segment by number or all (-1), cells with from_slot <= slot < to_slot."""

    segment: int = -1
    from_slot: int = LOWEST_SLOT
    to_slot: int = FOREVER
    max_cells: int = 100


def holds(pipeline: Pipeline, vectors: Vectors, segment: int) -> tuple[Hold, ...]:
    """What keeps a segment's min time where it is."""
    found: list[Hold] = []
    for number, hold in enumerate(_holds(pipeline, vectors, segment)):
        if number >= MAX_HOLDS:
            break
        found.append(hold)
    return tuple(found)


def _holds(pipeline: Pipeline, vectors: Vectors, segment: int) -> Iterator[Hold]:
    if pipeline.announced[segment] == FOREVER:
        return
    shard, combiner, graph = pipeline.shard, pipeline.combiner, pipeline.graph
    if not shard.begun:
        joined = {name for _, name in shard.joined}
        missing = [name for name in pipeline.spec.fronts if name not in joined] or [""]
        yield from (Hold(HoldKind.NOT_BEGUN, front=name) for name in missing)
        return
    unheard = [number for number, view in combiner.views.items() if not view.heard]
    if unheard:
        yield from (Hold(HoldKind.UNHEARD, shard=number) for number in unheard)
        return
    for front in combiner.unsettled_fronts:
        fed = {v.fronts[front].segment for v in combiner.views.values() if front in v.fronts}
        if any(graph.distance(u, segment) != FOREVER for u in fed):
            for number, view in combiner.views.items():
                if front not in view.fronts:
                    yield Hold(
                        HoldKind.JOINING, min(fed), shard=number, node_id=front[0], front=front[1]
                    )
    ways = [(u, graph.distance(u, segment)) for u in range(graph.size)]
    ways = [(u, distance) for u, distance in ways if distance != FOREVER]
    own = {u: min(combiner.low(u), combiner.promise(u)) for u, _ in ways}
    least = min(add_delay(own[u], distance) for u, distance in ways)
    if least == FOREVER:
        if pipeline.spec.open:
            yield Hold(HoldKind.KEPT_OPEN)
        return
    for u, distance in ways:
        if add_delay(own[u], distance) == least:
            yield from _of_own(pipeline, vectors, u, own[u])


def _of_own(pipeline: Pipeline, vectors: Vectors, segment: int, slot: int) -> Iterator[Hold]:
    """What holds a segment at a slot of its own."""
    combiner = pipeline.combiner
    for number, view in combiner.views.items():
        low = view.lows.get(segment)
        if low is not None and low.slot == slot:
            yield Hold(HoldKind.OPEN, segment, slot, shard=number)
    touched = combiner.lowest_touched(segment)
    if touched is not None and touched[0] == slot:
        _, home, last = touched
        for number, missing in vectors.behind(home, last):
            yield Hold(HoldKind.BEHIND, segment, slot, shard=number, home=home, entries=missing)
    for (node_id, front), (promise, fed) in combiner.settled_fronts.items():
        if fed == segment and promise == slot:
            yield Hold(HoldKind.PROMISE, segment, slot, node_id=node_id, front=front)


def explain_segment(
    pipeline: Pipeline, vectors: Vectors, segment: int, now_ns: int
) -> SegmentExplanation:
    names = pipeline.shard.names(segment).lowest(segment, MAX_EXPLAINED_UNITS)
    return SegmentExplanation(
        pipeline.spec.segments[segment],
        pipeline.said[segment],
        max(0, now_ns - pipeline.moved_ns[segment]) // 1_000_000,
        holds(pipeline, vectors, segment),
        tuple(names),
    )


def explain_cells(pipeline: Pipeline, query: ExplainQuery) -> tuple[tuple[OpenCell, ...], int]:
    """The lowest open cells asked for, and how many there are."""
    cells = pipeline.shard.cells.open_cells()
    asked = (cells.slots >= query.from_slot) & (cells.slots < query.to_slot)
    if query.segment >= 0:
        asked &= cells.segments == query.segment
    rows = sorted(cells.select(asked).rows(), key=lambda row: (row[1], row[0]))
    most = min(query.max_cells, MAX_EXPLAINED_CELLS)
    return tuple(OpenCell(*row) for row in rows[:most]), len(rows)


def explain_nodes(pipeline: Pipeline, now_ns: int) -> tuple[NodeExplanation, ...]:
    """The nodes at home here, the longest silent first."""
    nodes = sorted(pipeline.home.nodes.values(), key=lambda node: node.last_heard_ns)
    return tuple(_explain_node(node, now_ns) for node in nodes[:MAX_EXPLAINED_NODES])


def _explain_node(node: HomeNode, now_ns: int) -> NodeExplanation:
    return NodeExplanation(
        node.key,
        node.kind,
        node.durable,
        node.session is not None,
        max(0, now_ns - node.last_heard_ns) // 1_000_000,
        "retired" if node.retired else "evicted" if node.evicted else "",
        tuple(sorted(node.consumes)),
        tuple(sorted(node.creates)),
        tuple(sorted(node.fronts)),
    )
