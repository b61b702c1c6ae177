"""Pipelines: their settings, their limits, their state."""

from __future__ import annotations

from dataclasses import asdict

from acker.v1 import pipeline_service_pb2 as pipeline_pb
from acker.v1 import types_pb2 as pb
from tracker.core.describe import (
    FrontDescription,
    NodeDescription,
    PipelineDescription,
    SegmentDescription,
)
from tracker.core.model import Edge, FrontPolicy, Limits, PipelineSpec, SilentFront, TimeKind
from tracker.core.slots import DEFAULT_SLACK_NS
from tracker.wire.refusals import invalid
from tracker.wire.ticks import key_from_pb, key_to_pb

_SILENT = {
    pb.SILENT_FRONT_UNSPECIFIED: SilentFront.HOLD,
    pb.SILENT_FRONT_HOLD: SilentFront.HOLD,
    pb.SILENT_FRONT_EVICT: SilentFront.EVICT,
}
_SILENT_OUT = {
    SilentFront.HOLD: pb.SILENT_FRONT_HOLD,
    SilentFront.EVICT: pb.SILENT_FRONT_EVICT,
}
_TIME = {
    pb.TIME_KIND_UNSPECIFIED: TimeKind.ARRIVAL,
    pb.TIME_KIND_ARRIVAL: TimeKind.ARRIVAL,
    pb.TIME_KIND_EVENT: TimeKind.EVENT,
    pb.TIME_KIND_NUMBER: TimeKind.NUMBER,
}
_TIME_OUT = {
    TimeKind.ARRIVAL: pb.TIME_KIND_ARRIVAL,
    TimeKind.EVENT: pb.TIME_KIND_EVENT,
    TimeKind.NUMBER: pb.TIME_KIND_NUMBER,
}


def spec_to_pb(spec: PipelineSpec) -> pb.PipelineSpec:
    return pb.PipelineSpec(
        name=spec.name,
        segments=spec.segments,
        edges=[pb.Edge(source=e.source, target=e.target, delay=e.delay) for e in spec.edges],
        fronts=spec.fronts,
        front_count=spec.front_count,
        open=spec.open,
        start_slot=spec.start_slot,
        slack_ns=spec.slack_ns,
        horizon_slots=spec.horizon_slots,
        silent_front=_SILENT_OUT[spec.silent_front],
        evict_after_ms=spec.evict_after_ms,
        max_open_cells=spec.max_open_cells,
        max_open_units=spec.max_open_units,
        max_nodes=spec.max_nodes,
        max_staged=spec.max_staged,
        front_policies=[
            pb.FrontPolicy(
                front=policy.front,
                silent_front=_SILENT_OUT[policy.silent_front],
                evict_after_ms=policy.evict_after_ms,
            )
            for policy in spec.front_policies
        ],
        time=_TIME_OUT[spec.time],
        lateness_slots=spec.lateness_slots,
    )


def spec_from_pb(message: pb.PipelineSpec) -> PipelineSpec:
    """A pipeline; limits that are 0 take their defaults. Raises Refused(INVALID)."""
    if message.silent_front not in _SILENT:
        raise invalid(f"pipeline {message.name!r}: silent_front {message.silent_front} is unknown")
    for policy in message.front_policies:
        if policy.silent_front not in _SILENT:
            raise invalid(
                f"pipeline {message.name!r}: silent_front {policy.silent_front} of front "
                f"{policy.front!r} is unknown"
            )
    if message.time not in _TIME:
        raise invalid(f"pipeline {message.name!r}: time {message.time} is unknown")
    limits = {
        name: getattr(message, name)
        for name in (
            "horizon_slots",
            "max_open_cells",
            "max_open_units",
            "max_nodes",
            "max_staged",
        )
        if getattr(message, name)
    }
    return PipelineSpec(
        name=message.name,
        segments=tuple(message.segments),
        edges=tuple(Edge(e.source, e.target, e.delay) for e in message.edges),
        fronts=tuple(message.fronts),
        front_count=message.front_count,
        open=message.open,
        start_slot=message.start_slot,
        slack_ns=message.slack_ns or DEFAULT_SLACK_NS,
        silent_front=_SILENT[message.silent_front],
        evict_after_ms=message.evict_after_ms,
        front_policies=tuple(
            FrontPolicy(p.front, _SILENT[p.silent_front], p.evict_after_ms)
            for p in message.front_policies
        ),
        time=_TIME[message.time],
        lateness_slots=message.lateness_slots,
        **limits,
    )


def state_to_pb(state: PipelineDescription) -> pipeline_pb.PipelineState:
    message = pipeline_pb.PipelineState(
        min_time=state.min_time,
        complete=state.complete,
        begun=state.begun,
        late_items=state.late_items,
        written_off_items=state.written_off_items,
        generation=state.generation,
    )
    for segment in state.segments:
        message.segments.add(
            segment=segment.segment,
            min_time=segment.min_time,
            low=segment.low,
            open_slots=segment.open_slots,
            open_items=segment.open_items,
        )
    for front in state.fronts:
        message.fronts.add(
            node_id=front.node_id,
            front=front.front,
            segment=front.segment,
            heartbeat=front.heartbeat,
            silent_ms=front.silent_ms,
            settled=front.settled,
        )
    for node in state.nodes:
        message.nodes.add(key=key_to_pb(node.key), node_time=node.node_time)
    return message


def state_from_pb(message: pipeline_pb.PipelineState) -> PipelineDescription:
    return PipelineDescription(
        min_time=message.min_time,
        complete=message.complete,
        begun=message.begun,
        segments=tuple(
            SegmentDescription(s.segment, s.min_time, s.low, s.open_slots, s.open_items)
            for s in message.segments
        ),
        fronts=tuple(
            FrontDescription(f.node_id, f.front, f.segment, f.heartbeat, f.silent_ms, f.settled)
            for f in message.fronts
        ),
        nodes=tuple(NodeDescription(key_from_pb(n.key), n.node_time) for n in message.nodes),
        late_items=message.late_items,
        written_off_items=message.written_off_items,
        generation=message.generation,
    )


def limits_to_pb(limits: Limits) -> pb.PipelineLimits:
    return pb.PipelineLimits(**asdict(limits))


def limits_from_pb(message: pb.PipelineLimits) -> Limits:
    return Limits(
        message.horizon_slots,
        message.max_open_cells,
        message.max_open_units,
        message.max_nodes,
        message.max_staged,
    )
