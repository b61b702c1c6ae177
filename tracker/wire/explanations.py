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
    message = pipeline_pb.ExplainPipelineResponse(
        shard=explanation.shard,
        open_cells=explanation.open_cells,
        generation=explanation.generation,
        store=pipeline_pb.StoreState(
            waiting_ms=explanation.store.waiting_ms, error=explanation.store.error
        ),
    )
    for segment in explanation.segments:
        message.segments.add(
            segment=segment.segment,
            min_time=segment.min_time,
            standing_ms=segment.standing_ms,
            holds=[_hold_to_pb(hold, names) for hold in segment.holds],
            units=[unit_to_pb(unit) for unit in segment.units],
        )
    for cell in explanation.cells:
        message.cells.add(
            segment=names[cell.segment], slot=cell.slot, checksum=cell.checksum, items=cell.items
        )
    for node in explanation.nodes:
        message.nodes.add(
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
    for lost in explanation.written_off:
        message.written_off.add(
            segment=names[lost.segment],
            slot=lost.slot,
            items=lost.items,
            node_id=lost.node_id,
            at_ms=lost.at_ms,
            came_back=lost.came_back,
        )
    for begun in explanation.restarts:
        start = message.restarts.add(
            generation=begun.restart.generation, from_slot=begun.floor, at_ms=begun.restart.at_ms
        )
        for dropped in begun.cells:
            start.dropped.add(
                segment=names[dropped.segment],
                cells=dropped.cells,
                items=dropped.items,
                lowest=dropped.lowest,
                highest=dropped.highest,
            )
    for shard in explanation.shards:
        message.shards.add(
            shard=shard.shard,
            address=addresses.get(shard.shard, ""),
            connected=shard.connected,
            entries_behind=shard.entries_behind,
        )
    for missing in explanation.missing:
        message.missing.add(
            shard=missing.shard,
            key=key_to_pb(missing.key),
            first=missing.first,
            last=missing.last,
            ticks=missing.ticks,
        )
    if explanation.strip is not None:
        message.strip.from_slot = explanation.strip.from_slot
        message.strip.width = explanation.strip.width
        for strip in explanation.strip.segments:
            message.strip.segments.add(
                segment=names[strip.segment], cells=strip.cells, items=strip.items
            )
    return message


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


def explanation_from_pb(
    message: pipeline_pb.ExplainPipelineResponse, spec: PipelineSpec
) -> PipelineExplanation:
    """Reasons of a kind that this version does not know are left out."""
    number = {name: place for place, name in enumerate(spec.segments)}
    return PipelineExplanation(
        message.shard,
        tuple(
            SegmentExplanation(
                segment.segment,
                segment.min_time,
                segment.standing_ms,
                tuple(_hold_from_pb(h, number) for h in segment.holds if h.kind in _KINDS),
                tuple(unit_from_pb(unit) for unit in segment.units),
            )
            for segment in message.segments
        ),
        tuple(OpenCell(number[c.segment], c.slot, c.checksum, c.items) for c in message.cells),
        message.open_cells,
        tuple(
            NodeExplanation(
                key_from_pb(node.key),
                node.kind,
                node.node_time,
                node.connected,
                node.silent_ms,
                node.gone,
                tuple(number[name] for name in node.consumes),
                tuple(number[name] for name in node.creates),
                tuple(node.fronts),
                tuple(_staged_from_pb(staged, number) for staged in node.staged),
                tuple((batch.scope, batch.id) for batch in node.last_batches),
                node.refused,
                tuple(wait_from_pb(wait) for wait in node.waits),
                node.waits_ms,
            )
            for node in message.nodes
        ),
        tuple(
            WrittenOffCell(
                number[c.segment], c.slot, 0, c.items, c.node_id, c.at_ms, c.came_back, False
            )
            for c in message.written_off
        ),
        tuple(
            Dropped(
                Restart(begun.generation, begun.from_slot, begun.at_ms),
                begun.from_slot,
                tuple(
                    DroppedCells(number[d.segment], d.cells, d.items, d.lowest, d.highest)
                    for d in begun.dropped
                ),
            )
            for begun in message.restarts
        ),
        tuple(ShardDescription(s.shard, s.connected, s.entries_behind) for s in message.shards),
        tuple(
            MissingTicks(m.shard, key_from_pb(m.key), m.first, m.last, m.ticks)
            for m in message.missing
        ),
        message.generation,
        StoreState(message.store.waiting_ms, message.store.error),
        Strip(
            message.strip.from_slot,
            message.strip.width,
            tuple(
                SegmentStrip(number[each.segment], tuple(each.cells), tuple(each.items))
                for each in message.strip.segments
            ),
        )
        if message.HasField("strip")
        else None,
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
