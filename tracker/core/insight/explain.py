"""Why min time is where it is, as one process sees it: what holds each segment, what is open here.

A segment's min time is the least over all segments that lead to it (rule 7), and there the least of
what is open, what has not reached every shard yet, and what fronts promise (rules 5, 6 and 8). Whatever
attains that least holds it. Whose the items of an open cell are, no checksum tells: nodes are therefore
listed with the segments in which they have consumed and created, the longest silent first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from heapq import nsmallest
from itertools import islice

import numpy as np

from tracker.core.cut.vectors import Vectors
from tracker.core.home.home import HomeNode
from tracker.core.insight.describe import ShardDescription
from tracker.core.log import KeyTick
from tracker.core.model import (
    Cells,
    Dropped,
    FrontId,
    HoldMove,
    NodeKey,
    StagedContribution,
    Unit,
    WrittenOffCell,
)
from tracker.core.model.slots import FOREVER, LOWEST_SLOT, add_delay, subtract_delay
from tracker.core.model.waits import WaitCause
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.replication.parts import OutboxEntry
from tracker.core.shard.cells import shown_items

MAX_EXPLAINED_CELLS = 10_000
MAX_EXPLAINED_NODES = 1_000
MAX_EXPLAINED_UNITS = 100
"""Of each segment, those of the lowest slots."""
MAX_HOLDS = 100
"""Of each segment: of more reasons the first are listed."""
MAX_EXPLAINED_ENTRIES = 10_000
"""Entries of a home log that are looked through for the ticks that a shard lacks."""
MAX_EXPLAINED_KEYS = 100
"""Keys of which missing ticks are listed, of each shard."""
MAX_EXPLAINED_STAGED = 1_000
"""Staged contributions that are looked through of one node."""
MAX_EXPLAINED_BATCHES = 100
"""Staged batches that are listed of one node."""
MAX_EXPLAINED_HOLDS = 20
"""Of one node, those of the lowest slots."""
MAX_STRIP_BINS = 1_000


class HoldKind(Enum):
    """What may hold a segment's min time."""

    OPEN = "open"
    """Items are open at `slot` in `segment`, in the cells of `shard`."""
    BEHIND = "behind"
    """`shard` has not applied `entries` of the home log of shard `home`, which touch `slot`."""
    PROMISE = "promise"
    """`front` of `node_id`, which feeds `segment`, promises no more than `slot`; or, where `shard` is
    set, that shard has heard of no more, and another one has."""
    JOINING = "joining"
    """`front` of `node_id` joins or leaves: `shard` has not reported it yet."""
    NOT_BEGUN = "not_begun"
    """`front` is declared and has not joined yet (no name: some of the declared number)."""
    UNHEARD = "unheard"
    """`shard` has not been heard since this process started."""
    VACANT = "vacant"
    """`front` of `node_id`, which fed `segment`, was evicted and has not come back, and no front is left
    there: it stands at `slot`."""
    KEPT_OPEN = "kept_open"
    """Nothing is open and no front is left, but the pipeline is declared open: it waits for more."""


@dataclass(frozen=True, slots=True)
class Hold:
    """One reason; which fields count is stated at its kind. Numbers that do not are -1, names empty."""

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
class StagedBatch:
    """What is staged of one batch of a query and not committed. parts: how many contributions;
    consumes: by segment the lowest slot in them."""

    query: str
    batch: int
    parts: int
    consumes: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class NodeExplanation:
    """A node at home at the asked process. silent_ms: since its last tick arrived, or the process
    started; gone: `evicted` or `retired`, else empty; consumes and creates: segment numbers; staged:
    batches that it has begun and not committed, oldest first; last_batches: (scope, id) of those that
    it has committed last; refused: why its last tick was refused, empty if it was not; what that tick was
    to consume counts in `consumes`. waits: what the node says that it waits for, since waits_ms; holds: the
    lowest of the hold_count slots that it holds."""

    key: NodeKey
    kind: str
    node_time: int
    connected: bool
    silent_ms: int
    gone: str
    consumes: tuple[int, ...]
    creates: tuple[int, ...]
    fronts: tuple[str, ...]
    staged: tuple[StagedBatch, ...] = ()
    last_batches: tuple[tuple[str, int], ...] = ()
    refused: str = ""
    waits: tuple[WaitCause, ...] = ()
    waits_ms: int = 0
    holds: tuple[HoldMove, ...] = ()
    hold_count: int = 0


@dataclass(frozen=True, slots=True)
class MissingTicks:
    """Ticks `first` to `last` of a key, `ticks` of them, that `shard` is not known to have."""

    shard: int
    key: NodeKey
    first: int
    last: int
    ticks: int


@dataclass(frozen=True, slots=True)
class StoreState:
    """How an asked process gets on with its store. waiting_ms: how long the write under way has
    lasted; error: why its last attempt failed, empty if it did not."""

    waiting_ms: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class SegmentStrip:
    """By bin how many cells of a segment are open, and how many items are in them."""

    segment: int
    cells: tuple[int, ...]
    items: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Strip:
    """What is open over time: bins of `width` slots from `from_slot` on. Segments where nothing is open
    are left out."""

    from_slot: int
    width: int
    segments: tuple[SegmentStrip, ...]


@dataclass(frozen=True, slots=True)
class PipelineExplanation:
    """One process's part: the cells, unit names and nodes are its own, the rest is what it has heard.
    cells: by slot, as many as asked for; open_cells: how many there are of those asked for; missing:
    ticks of nodes at home here that other shards lack; store: filled in by whoever runs the process."""

    shard: int
    segments: tuple[SegmentExplanation, ...]
    cells: tuple[OpenCell, ...]
    open_cells: int
    nodes: tuple[NodeExplanation, ...]
    written_off: tuple[WrittenOffCell, ...]
    restarts: tuple[Dropped, ...]
    shards: tuple[ShardDescription, ...]
    missing: tuple[MissingTicks, ...] = ()
    generation: int = 0
    store: StoreState = StoreState()
    strip: Strip | None = None


@dataclass(frozen=True, slots=True)
class ExplainQuery:
    """What to explain: one segment by number or all (-1), cells with from_slot <= slot < to_slot. at:
    what keeps min time from this slot, not just from moving; strip_bins: into how many bins what is
    open there is counted (0: none; both slots must then be given)."""

    segment: int = -1
    from_slot: int = LOWEST_SLOT
    to_slot: int = FOREVER
    max_cells: int = 100
    at: int | None = None
    strip_bins: int = 0


def holds(
    pipeline: Pipeline, vectors: Vectors, segment: int, at: int | None = None
) -> tuple[Hold, ...]:
    """What keeps a segment's min time where it is; with `at`, all that keeps it from that slot."""
    return tuple(islice(_holds(pipeline, vectors, segment, at), MAX_HOLDS))


def _holds(pipeline: Pipeline, vectors: Vectors, segment: int, at: int | None) -> Iterator[Hold]:
    announced = pipeline.announced[segment]
    if announced == FOREVER or (at is not None and announced >= at):
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
        fed = combiner.fed_by(front)
        if any(graph.distance(u, segment) != FOREVER for u in fed):
            for number, view in combiner.views.items():
                if front not in view.fronts:
                    yield Hold(
                        HoldKind.JOINING, min(fed), shard=number, node_id=front[0], front=front[1]
                    )
    ways = graph.ways_into(segment)
    vacant = pipeline.vacant()
    own = {u: combiner.own(u, vacant) for u, _ in ways}
    least = min(add_delay(own[u], distance) for u, distance in ways)
    if least == FOREVER:
        if pipeline.spec.open:
            yield Hold(HoldKind.KEPT_OPEN)
        return
    bound = least if at is None else max(least, at - 1)
    for u, distance in ways:
        if add_delay(own[u], distance) <= bound:
            yield from _of_own(pipeline, vectors, u, subtract_delay(bound, distance))


def _of_own(pipeline: Pipeline, vectors: Vectors, segment: int, slot: int) -> Iterator[Hold]:
    """What holds a segment at `slot` or below, by its own."""
    combiner = pipeline.combiner
    for number, view in combiner.views.items():
        low = view.lows.get(segment)
        if low is not None and low.slot <= slot:
            yield Hold(HoldKind.OPEN, segment, low.slot, shard=number)
    touched = combiner.lowest_touched(segment)
    if touched is not None and touched[0] <= slot:
        at, home, last = touched
        for number, missing in vectors.behind(home, last):
            yield Hold(HoldKind.BEHIND, segment, at, shard=number, home=home, entries=missing)
    fronts = combiner.settled_fronts.items() if combiner.promise(segment) <= slot else ()
    for front, (promise, fed) in fronts:
        if fed == segment and promise <= slot:
            for number in _have_heard_least(pipeline, front):
                yield Hold(
                    HoldKind.PROMISE, segment, promise, number, node_id=front[0], front=front[1]
                )
    vacant = pipeline.vacant().get(segment, FOREVER)
    if combiner.promise(segment) == FOREVER and vacant <= slot:
        for place in pipeline.shard.vacancies.of(segment):
            yield Hold(HoldKind.VACANT, segment, vacant, node_id=place.node_id, front=place.front)


def _have_heard_least(pipeline: Pipeline, front: FrontId) -> list[int]:
    """The shards that have heard less of a front's promise than others; [-1] if all know the same."""
    heard = {
        number: view.fronts[front].heartbeat for number, view in pipeline.combiner.views.items()
    }
    least = min(heard.values())
    if all(promise == least for promise in heard.values()):
        return [-1]
    return [number for number, promise in heard.items() if promise == least]


def explain_segment(
    pipeline: Pipeline, vectors: Vectors, segment: int, now_ns: int, at: int | None = None
) -> SegmentExplanation:
    names = pipeline.shard.names(segment).lowest(segment, MAX_EXPLAINED_UNITS)
    return SegmentExplanation(
        pipeline.spec.segments[segment],
        pipeline.min_times[segment],
        max(0, now_ns - pipeline.moved_ns[segment]) // 1_000_000,
        holds(pipeline, vectors, segment, at),
        tuple(names),
    )


def explain_cells(pipeline: Pipeline, query: ExplainQuery) -> tuple[tuple[OpenCell, ...], int]:
    """The lowest open cells asked for, and how many there are."""
    cells = pipeline.shard.cells.open_cells()
    asked = (cells.slots >= query.from_slot) & (cells.slots < query.to_slot)
    if query.segment >= 0:
        asked &= cells.segments == query.segment
    cells = cells.select(asked)
    most = min(query.max_cells, MAX_EXPLAINED_CELLS)
    # Only what is listed becomes Python objects: a million cells may be open.
    order = np.lexsort((cells.segments, cells.slots))[:most]
    listed = Cells(
        cells.segments[order], cells.slots[order], cells.checksums[order], cells.counts[order]
    )
    return tuple(OpenCell(s, t, x, shown_items(n)) for s, t, x, n in listed.rows()), len(cells)


def explain_strip(pipeline: Pipeline, query: ExplainQuery) -> Strip:
    """What is open over time, in bins that are as wide as it takes to have no more than asked for."""
    bins = min(query.strip_bins, MAX_STRIP_BINS)
    width = max(1, -(-(query.to_slot - query.from_slot) // bins))
    found = []
    for segment in range(len(pipeline.spec.segments)):
        cells = pipeline.shard.cells.segment_cells(segment, query.to_slot)
        cells = cells.select(cells.slots >= query.from_slot)
        if len(cells):
            places = (cells.slots - query.from_slot) // width
            counts = np.bincount(places, minlength=bins)
            items = np.bincount(places, np.maximum(cells.counts, 0), minlength=bins)
            found.append(
                SegmentStrip(
                    segment, tuple(counts.tolist()), tuple(items.astype(np.int64).tolist())
                )
            )
    return Strip(query.from_slot, width, tuple(found))


def missing_ticks(
    pipeline: str, outbox: Iterable[OutboxEntry], confirmed: Mapping[int, int]
) -> tuple[MissingTicks, ...]:
    """The ticks in a home log that shards have not confirmed, by shard and key. outbox: the entries
    that some shard has not confirmed, in order; confirmed: by shard the last entry that it has."""
    found: dict[tuple[int, NodeKey], tuple[int, int, int]] = {}
    for item in islice(outbox, MAX_EXPLAINED_ENTRIES):
        if not isinstance(item.entry, KeyTick) or item.entry.tick.pipeline != pipeline:
            continue
        tick = item.entry.tick
        for shard, last in confirmed.items():
            if item.number <= last:
                continue
            first, _, ticks = found.get((shard, tick.key), (tick.number, 0, 0))
            if ticks or len(found) < MAX_EXPLAINED_KEYS * len(confirmed):
                found[shard, tick.key] = (first, tick.number, ticks + 1)
    return tuple(MissingTicks(shard, key, *told) for (shard, key), told in found.items())


def explain_nodes(pipeline: Pipeline, now_ns: int) -> tuple[NodeExplanation, ...]:
    """The nodes at home here, the longest silent first."""
    nodes = sorted(
        pipeline.home.nodes.values(), key=lambda node: (node.evicted, node.last_heard_ns)
    )
    staged = pipeline.home.staged
    return tuple(
        _explain_node(node, staged.get(node.key.node_id, {}).values(), now_ns)
        for node in nodes[:MAX_EXPLAINED_NODES]
    )


def _explain_node(
    node: HomeNode, staged: Iterable[StagedContribution], now_ns: int
) -> NodeExplanation:
    return NodeExplanation(
        node.key,
        node.kind,
        node.durable,
        node.session is not None,
        max(0, now_ns - node.last_heard_ns) // 1_000_000,
        "retired" if node.retired else "evicted" if node.evicted else "",
        tuple(sorted(node.consumes | node.refused_consumes)),
        tuple(sorted(node.creates)),
        tuple(sorted(node.fronts)),
        _staged_batches(staged),
        tuple((batch.scope, batch.id) for batch in node.last_batches()),
        node.refused,
        node.waits,
        max(0, now_ns - node.waits_since_ns) // 1_000_000 if node.waits else 0,
        _lowest_holds(node),
        len(node.holds),
    )


def _lowest_holds(node: HomeNode) -> tuple[HoldMove, ...]:
    lowest = nsmallest(MAX_EXPLAINED_HOLDS, node.holds.values(), key=lambda held: held.slot)
    return tuple(HoldMove(held.name, held.segment, held.slot) for held in lowest)


def _staged_batches(staged: Iterable[StagedContribution]) -> tuple[StagedBatch, ...]:
    parts: dict[tuple[str, int], int] = {}
    lowest: dict[tuple[str, int], dict[int, int]] = {}
    for each in islice(staged, MAX_EXPLAINED_STAGED):
        batch = (each.query, each.batch)
        parts[batch] = parts.get(batch, 0) + 1
        slots = lowest.setdefault(batch, {})
        for segment, slot, _, _ in each.consumed.rows():
            slots[segment] = min(slot, slots.get(segment, slot))
    oldest = sorted(parts, key=lambda batch: batch[1])[:MAX_EXPLAINED_BATCHES]
    return tuple(
        StagedBatch(*batch, parts[batch], tuple(sorted(lowest[batch].items()))) for batch in oldest
    )
