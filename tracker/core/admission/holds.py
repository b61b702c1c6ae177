"""Holds: time that nodes hold without an item in flight, by an item of their own (rule 11).

A node names a hold and says where it is to stand; its home makes of that the cells that the tick creates and
consumes, so that the hold moves with the rest of the tick, or not at all. A hold is begun only where something
keeps min time away meanwhile: else another process may have announced more by the time this one hears of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tracker.core.cut.graph import SegmentGraph
from tracker.core.home.home import HomeNode
from tracker.core.model import Cells, HeldSlot, HoldMove, RefusalCode, Refused, TickContent
from tracker.core.model.ack_values import hold_value
from tracker.core.model.names import unprintable
from tracker.core.model.slots import FOREVER, HIGHEST_SLOT, LOWEST_SLOT, add_delay
from tracker.core.pipeline.pipeline import Pipeline

MAX_HOLDS = 1_024
"""Of one node, at one time."""
MAX_HOLDS_OF_PIPELINE = 65_536
"""Of all nodes of a pipeline at one home, also of those that are gone: what they hold is never forgotten."""
MAX_HOLD_NAME_CHARACTERS = 256


def with_holds(
    pipeline: Pipeline, node: HomeNode, number: int, content: TickContent, floors: list[int]
) -> TickContent:
    """The content of a node's tick, with the cells of what it holds and lets go of. Raises Refused, changing
    nothing, where a hold cannot be so. floors: the pipeline's."""
    _check_names(pipeline, node, content.holds)
    created, consumed = [], []
    for move in content.holds:
        held = node.held.get(move.name)
        if held is None and move.slot == FOREVER:
            continue  # it was let go of before
        is_late = held is not None and held.slot < floors[held.segment]
        if held is not None and move.slot != FOREVER:
            _check_moved(pipeline, node, held, move)
            if move.slot == held.slot and not is_late:
                continue
        if move.slot != FOREVER:
            if held is None or is_late:
                _check_backed(pipeline, node, content, move, floors, held)
            key = node.key.incarnation, number
            created.append(_cell(node, HeldSlot(move.name, move.segment, move.slot, *key)))
        if held is not None:
            consumed.append(_cell(node, held))
    return replace(
        content,
        created=_joined(content.created, created),
        consumed=_joined(content.consumed, consumed),
    )


def _cell(node: HomeNode, held: HeldSlot) -> tuple[int, int, int, int]:
    value = hold_value(node.key.node_id, held.name, held.incarnation, held.number)
    return held.segment, held.slot, value, 1


def _joined(cells: Cells, rows: list[tuple[int, int, int, int]]) -> Cells:
    return Cells.concatenate((cells, Cells.of(rows))) if rows else cells


def _check_names(pipeline: Pipeline, node: HomeNode, moves: Sequence[HoldMove]) -> None:
    names = {move.name for move in moves}
    if len(names) < len(moves):
        raise _refuse(
            pipeline,
            f"a tick of node {node.key} names a hold twice; each stands at one slot when it is over",
        )
    for move in moves:
        if not 0 < len(move.name) <= MAX_HOLD_NAME_CHARACTERS:
            raise _refuse(
                pipeline,
                f"the name of a hold of node {node.key} has {len(move.name)} characters, and must have 1 to "
                f"{MAX_HOLD_NAME_CHARACTERS}: {move.name[:60]!r}",
            )
        if not 0 <= move.segment < len(pipeline.home.spec.segments):
            raise pipeline.home.unknown(
                f"hold {move.name!r} of node {node.key} names", move.segment
            )
        if not LOWEST_SLOT <= move.slot <= HIGHEST_SLOT and move.slot != FOREVER:
            raise _refuse(
                pipeline,
                f"hold {move.name!r} of node {node.key} names slot {move.slot}; a slot lies within "
                f"{LOWEST_SLOT} and {HIGHEST_SLOT}",
            )
    new = {move.name for move in moves if move.slot != FOREVER} - node.held.keys()
    if new:
        pipeline.home.check_printable("hold", unprintable(new))
        _check_room(pipeline, node, len(new))


def _check_room(pipeline: Pipeline, node: HomeNode, more: int) -> None:
    everywhere = sum(len(other.held) for other in pipeline.home.nodes.values())
    for whose, there, most in (
        (f"node {node.key}", len(node.held), MAX_HOLDS),
        ("all nodes at its home, with those that are gone,", everywhere, MAX_HOLDS_OF_PIPELINE),
    ):
        if there + more > most:
            raise _refuse(
                pipeline,
                f"{there} holds are those of {whose} and {more} more would pass the limit of {most}; let go of "
                "some first (lowmark explain names them)",
            )


def _check_moved(pipeline: Pipeline, node: HomeNode, held: HeldSlot, move: HoldMove) -> None:
    segments = pipeline.spec.segments
    if move.segment != held.segment:
        raise _refuse(
            pipeline,
            f"hold {move.name!r} of node {node.key} stands in segment {segments[held.segment]!r}, and cannot "
            f"go to {segments[move.segment]!r}; begin another one there, in the tick that lets go of it",
        )
    if move.slot < held.slot:
        raise _refuse(
            pipeline,
            f"hold {move.name!r} of node {node.key} stands at slot {held.slot} of segment "
            f"{segments[held.segment]!r}, and cannot move back to {move.slot}: a hold only moves up",
        )


def _check_backed(
    pipeline: Pipeline,
    node: HomeNode,
    content: TickContent,
    move: HoldMove,
    floors: list[int],
    late: HeldSlot | None,
) -> None:
    """Raises Refused unless something of the node keeps min time from the slot until this tick counts. late: the
    hold as it stands, where min time has passed it."""
    lowest = created_from(pipeline, node, content, move.segment, floors)
    if lowest <= move.slot:
        return
    if not pipeline.activates and move.slot >= created_from(
        pipeline, node, content, move.segment, floors, pipeline.remaining
    ):
        raise _refuse(
            pipeline,
            f"the edge by which hold {move.name!r} of node {node.key} is to begin in segment "
            f"{pipeline.spec.segments[move.segment]!r} is new, and not every shard is known to reckon with it; ask again",
            RefusalCode.NOT_READY,
        )
    if late is not None:
        raise _refuse(
            pipeline,
            f"hold {move.name!r} of node {node.key} stands at slot {late.slot} of segment "
            f"{pipeline.spec.segments[late.segment]!r}, where min time {floors[late.segment]} is announced: it was "
            "begun for what had come too late, or was written off, and holds nothing; let go of it, and begin it "
            "anew from there on, in a tick that consumes what it stands for, or by NodeClient.hold",
            RefusalCode.BELOW_MIN_TIME,
        )
    keeps = "nothing" if lowest == FOREVER else f"nothing below slot {lowest}"
    raise _refuse(
        pipeline,
        f"hold {move.name!r} of node {node.key} is to begin at slot {move.slot} of segment "
        f"{pipeline.spec.segments[move.segment]!r}, where min time {floors[move.segment]} is announced, and "
        f"{keeps} keeps min time from it until then: begin it in the tick that consumes what it stands for, or "
        "beside a hold or front of the node that is there (NodeClient.hold joins a front for it)",
        RefusalCode.BELOW_MIN_TIME,
    )


def created_from(
    pipeline: Pipeline,
    node: HomeNode,
    content: TickContent,
    segment: int,
    floors: list[int],
    graph: SegmentGraph | None = None,
) -> int:
    """From which slot on something of a node keeps min time of a segment until its tick counts, by the graph that is
    declared, or another one; FOREVER if nothing."""
    ways = graph or pipeline.declared
    return min(_reached(pipeline, node, content, segment, floors, ways), default=FOREVER)


def _reached(
    pipeline: Pipeline,
    node: HomeNode,
    content: TickContent,
    segment: int,
    floors: list[int],
    graph: SegmentGraph,
) -> Iterator[int]:
    """From which slots on the node may create in a segment: for what the tick consumes, not too late, for what
    the node holds, and for its fronts."""
    distance = graph.distance
    consumed, late = content.consumed, None
    if len(consumed):
        late = consumed.below(floors)
    if late is not None:
        consumed = consumed.select(~late)
    known = [*consumed.lowest_slots().items()]
    for front, claim in node.fronts.items():
        granted = node.granted(front)
        if granted is not None and claim.segment not in pipeline.home.removed:
            known.append((claim.segment, max(granted, claim.promise)))
    yield held_from(pipeline, node, segment, graph)
    for u, slot in known:
        yield add_delay(slot, distance(u, segment))


def held_from(
    pipeline: Pipeline, node: HomeNode, segment: int, graph: SegmentGraph | None = None
) -> int:
    """From which slot on a node may create in a segment by what it holds, by the graph that is declared, or another one; FOREVER
    if nowhere."""
    if not node.held:
        return FOREVER
    floors, distance = pipeline.floors(), (graph or pipeline.declared).distance
    return min(
        (
            add_delay(held.slot, distance(held.segment, segment))
            for held in node.held.values()
            if held.slot >= floors[held.segment]
        ),
        default=FOREVER,
    )


def _refuse(pipeline: Pipeline, message: str, code: RefusalCode = RefusalCode.INVALID) -> Refused:
    return Refused(code, f"pipeline {pipeline.spec.name!r}: {message}")
