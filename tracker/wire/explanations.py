"""Between the contract's explanations and the core's: segments by name there, by number here."""

from __future__ import annotations

from acker.v1 import pipeline_service_pb2 as pipeline_pb
from tracker.core.describe import ShardDescription
from tracker.core.explain import (
    ExplainQuery,
    Hold,
    HoldKind,
    MissingTicks,
    NodeExplanation,
    OpenCell,
    PipelineExplanation,
    SegmentExplanation,
    SegmentStrip,
    StagedBatch,
    StoreState,
    Strip,
)
from tracker.core.messages import Restart
from tracker.core.model import PipelineSpec, RefusalCode, Refused
from tracker.core.pipeline import Dropped, DroppedCells
from tracker.core.slots import FOREVER, LOWEST_SLOT
from tracker.core.written_off import WrittenOffCell
from tracker.wire.nodes import wait_from_pb, wait_to_pb
from tracker.wire.ticks import key_from_pb, key_to_pb, unit_from_pb, unit_to_pb


def query_from_pb(message: pipeline_pb.ExplainPipelineRequest, spec: PipelineSpec) -> ExplainQuery:
    """Raises Refused(UNKNOWN_SEGMENT), or Refused(INVALID) for a negative number of cells."""
    if message.segment and message.segment not in spec.segments:
        raise Refused(
            RefusalCode.UNKNOWN_SEGMENT,
            f"pipeline {spec.name!r} has no segment {message.segment[:60]!r}; it has "
            f"{', '.join(spec.segments[:20])}",
        )
    if message.max_cells < 0:
        raise Refused(
            RefusalCode.INVALID, f"max_cells is {message.max_cells}; it must not be negative"
        )
    if message.strip_bins < 0 or (
        message.strip_bins
        and not (
            message.HasField("from_slot")
            and message.HasField("to_slot")
            and message.from_slot < message.to_slot
        )
    ):
        raise Refused(
            RefusalCode.INVALID,
            f"strip_bins is {message.strip_bins}; it must not be negative, and bins need a from_slot "
            "below a to_slot",
        )
    return ExplainQuery(
        spec.segments.index(message.segment) if message.segment else -1,
        message.from_slot if message.HasField("from_slot") else LOWEST_SLOT,
        message.to_slot if message.HasField("to_slot") else FOREVER,
        message.max_cells,
        message.at_slot if message.HasField("at_slot") else None,
        message.strip_bins,
    )


def explanation_to_pb(
    explanation: PipelineExplanation, spec: PipelineSpec, addresses: dict[int, str]
) -> pipeline_pb.ExplainPipelineResponse:
    names = spec.segments
    strip = explanation.strip
    return pipeline_pb.ExplainPipelineResponse(
        shard=explanation.shard,
        open_cells=explanation.open_cells,
        generation=explanation.generation,
        store=pipeline_pb.StoreState(
            waiting_ms=explanation.store.waiting_ms, error=explanation.store.error
        ),
        segments=[_segment_to_pb(segment, names) for segment in explanation.segments],
        cells=[
            pipeline_pb.OpenCell(
                segment=names[c.segment], slot=c.slot, checksum=c.checksum, items=c.items
            )
            for c in explanation.cells
        ],
        nodes=[_node_to_pb(node, names) for node in explanation.nodes],
        written_off=[_written_off_to_pb(cell, names) for cell in explanation.written_off],
        restarts=[_restart_to_pb(dropped, names) for dropped in explanation.restarts],
        shards=[
            pipeline_pb.ShardState(
                shard=shard.shard,
                address=addresses.get(shard.shard, ""),
                connected=shard.connected,
                entries_behind=shard.entries_behind,
            )
            for shard in explanation.shards
        ],
        missing=[
            pipeline_pb.MissingTicks(
                shard=m.shard, key=key_to_pb(m.key), first=m.first, last=m.last, ticks=m.ticks
            )
            for m in explanation.missing
        ],
        strip=None if strip is None else _strip_to_pb(strip, names),
    )


def explanation_from_pb(
    message: pipeline_pb.ExplainPipelineResponse, spec: PipelineSpec
) -> PipelineExplanation:
    """Reasons of a kind that this version does not know are left out."""
    number = {name: index for index, name in enumerate(spec.segments)}
    return PipelineExplanation(
        message.shard,
        tuple(_segment_from_pb(segment, number) for segment in message.segments),
        tuple(OpenCell(number[c.segment], c.slot, c.checksum, c.items) for c in message.cells),
        message.open_cells,
        tuple(_node_from_pb(node, number) for node in message.nodes),
        tuple(_written_off_from_pb(cell, number) for cell in message.written_off),
        tuple(_restart_from_pb(restart, number) for restart in message.restarts),
        tuple(ShardDescription(s.shard, s.connected, s.entries_behind) for s in message.shards),
        tuple(
            MissingTicks(m.shard, key_from_pb(m.key), m.first, m.last, m.ticks)
            for m in message.missing
        ),
        message.generation,
        StoreState(message.store.waiting_ms, message.store.error),
        _strip_from_pb(message.strip, number) if message.HasField("strip") else None,
    )


def _segment_to_pb(
    segment: SegmentExplanation, names: tuple[str, ...]
) -> pipeline_pb.SegmentExplanation:
    return pipeline_pb.SegmentExplanation(
        segment=segment.segment,
        min_time=segment.min_time,
        standing_ms=segment.standing_ms,
        holds=[_hold_to_pb(hold, names) for hold in segment.holds],
        units=[unit_to_pb(unit) for unit in segment.units],
    )


def _segment_from_pb(
    message: pipeline_pb.SegmentExplanation, number: dict[str, int]
) -> SegmentExplanation:
    return SegmentExplanation(
        message.segment,
        message.min_time,
        message.standing_ms,
        tuple(_hold_from_pb(h, number) for h in message.holds if h.kind in _KINDS),
        tuple(unit_from_pb(unit) for unit in message.units),
    )


def _node_to_pb(node: NodeExplanation, names: tuple[str, ...]) -> pipeline_pb.NodeExplanation:
    return pipeline_pb.NodeExplanation(
        key=key_to_pb(node.key),
        kind=node.kind,
        node_time=node.node_time,
        connected=node.connected,
        silent_ms=node.silent_ms,
        gone=node.gone,
        consumes=[names[number] for number in node.consumes],
        creates=[names[number] for number in node.creates],
        fronts=node.fronts,
        staged=[_staged_to_pb(staged, names) for staged in node.staged],
        last_batches=[
            pipeline_pb.CommittedBatch(scope=scope, id=number)
            for scope, number in node.last_batches
        ],
        refused=node.refused,
        waits=[wait_to_pb(wait) for wait in node.waits],
        waits_ms=node.waits_ms,
    )


def _node_from_pb(message: pipeline_pb.NodeExplanation, number: dict[str, int]) -> NodeExplanation:
    return NodeExplanation(
        key_from_pb(message.key),
        message.kind,
        message.node_time,
        message.connected,
        message.silent_ms,
        message.gone,
        tuple(number[name] for name in message.consumes),
        tuple(number[name] for name in message.creates),
        tuple(message.fronts),
        tuple(_staged_from_pb(staged, number) for staged in message.staged),
        tuple((batch.scope, batch.id) for batch in message.last_batches),
        message.refused,
        tuple(wait_from_pb(wait) for wait in message.waits),
        message.waits_ms,
    )


def _written_off_to_pb(cell: WrittenOffCell, names: tuple[str, ...]) -> pipeline_pb.WrittenOffCell:
    return pipeline_pb.WrittenOffCell(
        segment=names[cell.segment],
        slot=cell.slot,
        items=cell.items,
        node_id=cell.node_id,
        at_ms=cell.at_ms,
        came_back=cell.came_back,
    )


def _written_off_from_pb(
    message: pipeline_pb.WrittenOffCell, number: dict[str, int]
) -> WrittenOffCell:
    return WrittenOffCell(
        number[message.segment],
        message.slot,
        0,
        message.items,
        message.node_id,
        message.at_ms,
        message.came_back,
        False,
    )


def _restart_to_pb(dropped: Dropped, names: tuple[str, ...]) -> pipeline_pb.GenerationStart:
    return pipeline_pb.GenerationStart(
        generation=dropped.restart.generation,
        from_slot=dropped.floor,
        at_ms=dropped.restart.at_ms,
        dropped=[
            pipeline_pb.DroppedCells(
                segment=names[cells.segment],
                cells=cells.cells,
                items=cells.items,
                lowest=cells.lowest,
                highest=cells.highest,
            )
            for cells in dropped.cells
        ],
    )


def _restart_from_pb(message: pipeline_pb.GenerationStart, number: dict[str, int]) -> Dropped:
    return Dropped(
        Restart(message.generation, message.from_slot, message.at_ms),
        message.from_slot,
        tuple(
            DroppedCells(number[d.segment], d.cells, d.items, d.lowest, d.highest)
            for d in message.dropped
        ),
    )


def _strip_to_pb(strip: Strip, names: tuple[str, ...]) -> pipeline_pb.Strip:
    return pipeline_pb.Strip(
        from_slot=strip.from_slot,
        width=strip.width,
        segments=[
            pipeline_pb.SegmentStrip(
                segment=names[each.segment], cells=each.cells, items=each.items
            )
            for each in strip.segments
        ],
    )


def _strip_from_pb(message: pipeline_pb.Strip, number: dict[str, int]) -> Strip:
    return Strip(
        message.from_slot,
        message.width,
        tuple(
            SegmentStrip(number[each.segment], tuple(each.cells), tuple(each.items))
            for each in message.segments
        ),
    )


def _staged_to_pb(staged: StagedBatch, names: tuple[str, ...]) -> pipeline_pb.StagedBatch:
    return pipeline_pb.StagedBatch(
        query=staged.query,
        batch=staged.batch,
        parts=staged.parts,
        consumes=[
            pipeline_pb.StagedSlot(segment=names[segment], slot=slot)
            for segment, slot in staged.consumes
        ],
    )


def _staged_from_pb(message: pipeline_pb.StagedBatch, number: dict[str, int]) -> StagedBatch:
    return StagedBatch(
        message.query,
        message.batch,
        message.parts,
        tuple((number[each.segment], each.slot) for each in message.consumes),
    )


def _hold_to_pb(hold: Hold, names: tuple[str, ...]) -> pipeline_pb.Hold:
    return pipeline_pb.Hold(
        kind=hold.kind.value,
        segment=names[hold.segment] if hold.segment >= 0 else "",
        slot=hold.slot if hold.slot != LOWEST_SLOT else None,
        shard=hold.shard,
        home=hold.home,
        entries=hold.entries,
        node_id=hold.node_id,
        front=hold.front,
    )


_KINDS = {kind.value for kind in HoldKind}


def _hold_from_pb(message: pipeline_pb.Hold, number: dict[str, int]) -> Hold:
    return Hold(
        HoldKind(message.kind),
        number[message.segment] if message.segment else -1,
        message.slot if message.HasField("slot") else LOWEST_SLOT,
        message.shard,
        message.home,
        message.entries,
        message.node_id,
        message.front,
    )
