"""What is measured of one pipeline at one process: this shard's own part, and what it has announced.

Sums over the processes are right for what shards own (open slots, late items) and for what homes own
(fronts, staged contributions). Min times are each process's own word: they agree but for a moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tracker.core.model.slots import FOREVER, LOWEST_SLOT
from tracker.core.model.waits import WaitKind
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.shard.cells import shown_items


@dataclass(frozen=True, slots=True)
class SegmentMeasures:
    """`lag_slots`: how far min time is behind the newest promise of a front; None where no front is
    known, or the segment is complete. `unchanged_ns`: since this process last moved its min time, or
    started."""

    segment: str
    min_time: int
    lag_slots: int | None
    unchanged_ns: int
    open_slots: int
    open_items: int
    open_units: int
    late_items: int
    written_off_items: int


@dataclass(frozen=True, slots=True)
class FrontMeasures:
    """A front whose home this is. `promise`: the least at any shard; `behind_slots`: how far it is
    behind the newest promise of the pipeline's fronts."""

    node_id: str
    front: str
    promise: int
    behind_slots: int
    silent_ns: int


@dataclass(frozen=True, slots=True)
class PipelineMeasures:
    """One pipeline as one process measures it. `waiting`: by what they wait for, as they say, the nodes
    whose home this is; those whose last tick was refused count as refused."""

    pipeline: str
    slack_ns: int
    complete: bool
    generation: int
    keys: int
    staged: int
    known_fronts: int
    waiting: Mapping[str, int]
    segments: tuple[SegmentMeasures, ...]
    fronts: tuple[FrontMeasures, ...]


def measure(state: Pipeline, at_home: Callable[[str], bool], now_ns: int) -> PipelineMeasures:
    """`at_home`: whether a node's home is this shard. Costs by the number of segments and fronts."""
    known = state.combiner.known_fronts()
    promises = {front: state.combiner.least_promise(front) for front in known}
    newest = max((slot for slot in promises.values() if slot < FOREVER), default=None)
    fronts = tuple(
        FrontMeasures(
            front[0],
            front[1],
            promise,
            0 if newest is None else max(0, newest - promise),
            now_ns - state.front_heard_ns.get(front, now_ns),
        )
        for front, promise in promises.items()
        if at_home(front[0])
    )
    return PipelineMeasures(
        state.spec.name,
        state.spec.slack_ns,
        state.min_time == FOREVER,
        state.generation,
        len(state.shard.keys),
        state.home.staged_count,
        len(promises),
        _waiting(state),
        tuple(_segment(state, number, newest, now_ns) for number in range(len(state.published))),
        fronts,
    )


def _waiting(state: Pipeline) -> dict[str, int]:
    """By each kind of wait, how many nodes."""
    counts = {kind.value: 0 for kind in WaitKind}
    for node in state.home.nodes.values():
        kinds = {wait.kind for wait in node.waits}
        if node.refused and not node.evicted:
            kinds.add(WaitKind.REFUSED)
        for kind in kinds:
            counts[kind.value] += 1
    return counts


def _segment(state: Pipeline, number: int, newest: int | None, now_ns: int) -> SegmentMeasures:
    shard, min_time = state.shard, state.min_times[number]
    lag = None if newest is None or newest == LOWEST_SLOT else max(0, newest - min_time)
    return SegmentMeasures(
        state.spec.segments[number],
        min_time,
        None if min_time == FOREVER else lag,
        now_ns - state.moved_ns[number],
        shard.cells.open_slots[number],
        shown_items(shard.cells.open_items[number]),
        len(shard.units[number]) if number in shard.units else 0,
        shard.late[number].items if number in shard.late else 0,
        shown_items(shard.written_off.items.get(number, 0)),
    )
