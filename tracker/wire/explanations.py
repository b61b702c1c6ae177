"""Between the contract's explanations and the core's: segments by name there, by number here."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from operator import attrgetter

from acker.v1 import pipeline_service_pb2 as pipeline_pb
from tracker.core.insight.describe import ShardDescription
from tracker.core.insight.explain import (
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
from tracker.core.log import Restart
from tracker.core.model import (
    Dropped,
    DroppedCells,
    HoldMove,
    PipelineSpec,
    WrittenOffCell,
)
from tracker.core.model.slots import FOREVER, LOWEST_SLOT
from tracker.wire.codec import Codec, by_name, derived
from tracker.wire.nodes import WAIT
from tracker.wire.refusals import invalid, segment_number
from tracker.wire.shards import shard_from_pb
from tracker.wire.ticks import KEY, UNIT


def query_from_pb(message: pipeline_pb.ExplainPipelineRequest, spec: PipelineSpec) -> ExplainQuery:
    """Raises Refused(UNKNOWN_SEGMENT), or Refused(INVALID) for a negative number of cells."""
    segment = segment_number(spec, message.segment) if message.segment else -1
    if message.max_cells < 0:
        raise invalid(f"max_cells is {message.max_cells}; it must not be negative")
    if message.strip_bins < 0 or (
        message.strip_bins
        and not (
            message.HasField("from_slot")
            and message.HasField("to_slot")
            and message.from_slot < message.to_slot
        )
    ):
        raise invalid(
            f"strip_bins is {message.strip_bins}; it must not be negative, and bins need a from_slot "
            "below a to_slot",
        )
    if message.strip_bins and message.to_slot - message.from_slot > FOREVER:
        raise invalid(
            f"a strip of {message.to_slot - message.from_slot} slots is asked for; the most is {FOREVER}: "
            "give a later from_slot"
        )
    return ExplainQuery(
        segment,
        message.from_slot if message.HasField("from_slot") else LOWEST_SLOT,
        message.to_slot if message.HasField("to_slot") else FOREVER,
        message.max_cells,
        message.at_slot if message.HasField("at_slot") else None,
        message.strip_bins,
    )


# --- answers --------------------------------------------------------------------------------------


def explanation_to_pb(
    explanation: PipelineExplanation, spec: PipelineSpec, addresses: dict[int, str]
) -> pipeline_pb.ExplainPipelineResponse:
    message = _explanations(spec.segments).to_pb(explanation)
    for shard in message.shards:
        shard.address = addresses.get(shard.shard, "")
    return message


def explanation_from_pb(
    message: pipeline_pb.ExplainPipelineResponse, spec: PipelineSpec
) -> PipelineExplanation:
    """Reasons of a kind that this version does not know are left out."""
    for segment in message.segments:
        unknown = [index for index, hold in enumerate(segment.holds) if hold.kind not in _KINDS]
        for index in reversed(unknown):
            del segment.holds[index]
    return _explanations(spec.segments).from_pb(message)


_KINDS = {kind.value for kind in HoldKind}
_HOLD_KIND = Codec(HoldKind, str, attrgetter("value"), HoldKind)


def _shard_to_pb(shard: ShardDescription) -> pipeline_pb.ShardState:
    return pipeline_pb.ShardState(
        shard=shard.shard, connected=shard.connected, entries_behind=shard.entries_behind
    )


@lru_cache(maxsize=64)
def _explanations(
    segments: tuple[str, ...],
) -> Codec[PipelineExplanation, pipeline_pb.ExplainPipelineResponse]:
    """Of a pipeline with these segments, which the contract names, and the core numbers."""
    named = by_name(segments)
    batch = derived(StagedBatch, pipeline_pb.StagedBatch, named)
    strip = derived(SegmentStrip, pipeline_pb.SegmentStrip, named)
    held = derived(HoldMove, pipeline_pb.NodeHold, named)
    return derived(
        PipelineExplanation,
        pipeline_pb.ExplainPipelineResponse,
        derived(SegmentExplanation, pipeline_pb.SegmentExplanation, _hold(named), UNIT),
        derived(OpenCell, pipeline_pb.OpenCell, named),
        derived(NodeExplanation, pipeline_pb.NodeExplanation, KEY, WAIT, batch, held, named),
        _written_off(named),
        _restart(derived(DroppedCells, pipeline_pb.DroppedCells, named)),
        Codec(ShardDescription, pipeline_pb.ShardState, _shard_to_pb, shard_from_pb),
        derived(MissingTicks, pipeline_pb.MissingTicks, KEY),
        derived(StoreState, pipeline_pb.StoreState),
        derived(Strip, pipeline_pb.Strip, strip),
    )


def _hold(named: Codec[int, str]) -> Codec[Hold, pipeline_pb.Hold]:
    codec = derived(Hold, pipeline_pb.Hold, named, _HOLD_KIND)

    def to_pb(hold: Hold) -> pipeline_pb.Hold:
        message = codec.to_pb(hold)
        if hold.slot == LOWEST_SLOT:
            message.ClearField("slot")
        return message

    def from_pb(message: pipeline_pb.Hold) -> Hold:
        hold = codec.from_pb(message)
        return hold if message.HasField("slot") else replace(hold, slot=LOWEST_SLOT)

    return Codec(Hold, pipeline_pb.Hold, to_pb, from_pb)


def _written_off(named: Codec[int, str]) -> Codec[WrittenOffCell, pipeline_pb.WrittenOffCell]:
    """Without the checksum, and whether it is watched, which are the process's own."""

    def to_pb(cell: WrittenOffCell) -> pipeline_pb.WrittenOffCell:
        return pipeline_pb.WrittenOffCell(
            segment=named.to_pb(cell.segment),
            slot=cell.slot,
            items=cell.items,
            node_id=cell.node_id,
            at_ms=cell.at_ms,
            came_back=cell.came_back,
        )

    def from_pb(c: pipeline_pb.WrittenOffCell) -> WrittenOffCell:
        segment = named.from_pb(c.segment)
        return WrittenOffCell(segment, c.slot, 0, c.items, c.node_id, c.at_ms, c.came_back, False)

    return Codec(WrittenOffCell, pipeline_pb.WrittenOffCell, to_pb, from_pb)


def _restart(
    dropped: Codec[DroppedCells, pipeline_pb.DroppedCells],
) -> Codec[Dropped, pipeline_pb.GenerationStart]:
    """The slot from which it was asked for is not reported, but where it began."""

    def to_pb(begun: Dropped) -> pipeline_pb.GenerationStart:
        return pipeline_pb.GenerationStart(
            generation=begun.restart.generation,
            from_slot=begun.floor,
            at_ms=begun.restart.at_ms,
            dropped=map(dropped.to_pb, begun.cells),
        )

    def from_pb(begun: pipeline_pb.GenerationStart) -> Dropped:
        restart = Restart(begun.generation, begun.from_slot, begun.at_ms)
        return Dropped(restart, begun.from_slot, tuple(map(dropped.from_pb, begun.dropped)))

    return Codec(Dropped, pipeline_pb.GenerationStart, to_pb, from_pb)
