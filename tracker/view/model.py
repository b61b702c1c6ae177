"""What is shown of a pipeline, worked out once: texts, tables, JSON and the dashboard's page render it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from tracker.client import Explanation, PipelineInfo
from tracker.core.insight.describe import FrontDescription
from tracker.core.insight.diagnosis import Cause, diagnose
from tracker.core.insight.explain import NodeExplanation, OpenCell, SegmentExplanation
from tracker.core.model.cells import WrittenOffCell
from tracker.core.model.slots import FOREVER, LOWEST_SLOT, slot_start_ns
from tracker.core.model.specs import PipelineSpec, TimeKind
from tracker.core.model.ticks import Unit


@dataclass(frozen=True, slots=True)
class Standing:
    """Why a segment stands: as the process explains it that has announced most, with the causes that all of them
    together have, and the names of open units, whoever keeps them."""

    segment: SegmentExplanation
    causes: tuple[Cause, ...]
    units: tuple[Unit, ...]


@dataclass(frozen=True, slots=True)
class FrontView:
    """A front. promise: a slot; None before it has promised one, and while it joins or leaves.
    behind_slots: how far it is behind the newest promise of any; None where nothing can be compared."""

    front: FrontDescription
    promise: int | None
    behind_slots: int | None


def newest_promise(info: PipelineInfo) -> int | None:
    """The furthest slot up to which a front has labelled its items; None if no front has."""
    promises = [f.heartbeat for f in info.state.fronts if LOWEST_SLOT < f.heartbeat < FOREVER]
    return max(promises, default=None)


def lag_slots(slot: int, info: PipelineInfo) -> int | None:
    """How far a min time is behind the newest promise of the pipeline's fronts: what came in and is
    not known to be processed. None where there is nothing to compare."""
    newest = newest_promise(info)
    if newest is None or slot == FOREVER:
        return None
    return max(0, newest - slot)


def span_ns(slots: int, spec: PipelineSpec) -> int | None:
    """How long so many slots last; None where they are numbers, which last no time."""
    return None if spec.time is TimeKind.NUMBER else slots * spec.slack_ns


def age_ns(slot: int, spec: PipelineSpec) -> int | None:
    """How far a slot is behind the clock on the wall; None when complete, and where slots are numbers."""
    if slot == FOREVER or spec.time is TimeKind.NUMBER:
        return None
    return time.time_ns() - slot_start_ns(slot, spec.slack_ns)


def fronts_of(info: PipelineInfo) -> Iterator[FrontView]:
    """The fronts, as described."""
    newest = newest_promise(info)
    for front in info.state.fronts:
        promise = front.heartbeat if front.settled and front.heartbeat > LOWEST_SLOT else None
        behind = None
        if promise is not None and newest is not None:
            behind = max(0, newest - promise)
        yield FrontView(front, promise, behind)


def standings_of(explanation: Explanation) -> tuple[Standing, ...]:
    """Why each segment stands."""
    units: dict[str, list[Unit]] = {name: [] for name in explanation.spec.segments}
    for part in explanation.parts:
        for segment in part.segments:
            units[segment.segment] += segment.units
    told = diagnose(
        explanation.spec,
        explanation.parts,
        explanation.silent_shards,
        explanation.silent_after_ms,
    )
    return tuple(
        Standing(each.segment, each.causes, tuple(units[each.segment.segment])) for each in told
    )


def cells_of(explanation: Explanation) -> list[OpenCell]:
    """The open cells that the shards listed, by slot."""
    cells = [cell for part in explanation.parts for cell in part.cells]
    return sorted(cells, key=lambda cell: (cell.slot, cell.segment))


def nodes_of(explanation: Explanation) -> list[NodeExplanation]:
    """All nodes: those without a stream of ticks first, the longest silent of them first."""
    nodes = [node for part in explanation.parts for node in part.nodes]
    return sorted(nodes, key=lambda node: (node.connected, -node.silent_ms))


def written_off_of(explanation: Explanation) -> list[WrittenOffCell]:
    """What operators have written off, by when."""
    cells = [cell for part in explanation.parts for cell in part.written_off]
    return sorted(cells, key=lambda cell: cell.at_ms)
