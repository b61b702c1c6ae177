"""Pipelines: their settings, their limits, their state."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from acker.v1 import pipeline_service_pb2 as pipeline_pb
from acker.v1 import types_pb2 as pb
from tracker.core.insight.describe import (
    FrontDescription,
    NodeDescription,
    PipelineDescription,
    SegmentDescription,
)
from tracker.core.model import LIMITS, Edge, FrontPolicy, PipelineSpec, SilentFront, TimeKind
from tracker.wire.codec import Codec, derived
from tracker.wire.refusals import invalid
from tracker.wire.ticks import KEY

_SILENT = {
    pb.SILENT_FRONT_UNSPECIFIED: SilentFront.HOLD,
    pb.SILENT_FRONT_HOLD: SilentFront.HOLD,
    pb.SILENT_FRONT_EVICT: SilentFront.EVICT,
}
_TIME = {
    pb.TIME_KIND_UNSPECIFIED: TimeKind.ARRIVAL,
    pb.TIME_KIND_ARRIVAL: TimeKind.ARRIVAL,
    pb.TIME_KIND_EVENT: TimeKind.EVENT,
    pb.TIME_KIND_NUMBER: TimeKind.NUMBER,
}
# Of two numbers for one meaning the last one, which says it, is written.
_SILENT_OUT = {meaning: number for number, meaning in _SILENT.items()}
_TIME_OUT = {meaning: number for number, meaning in _TIME.items()}

EDGE = derived(Edge, pb.Edge)
_SPEC = derived(
    PipelineSpec,
    pb.PipelineSpec,
    EDGE,
    derived(FrontPolicy, pb.FrontPolicy, Codec(SilentFront, int, _SILENT_OUT.get, _SILENT.get)),
    Codec(SilentFront, int, _SILENT_OUT.get, _SILENT.get),
    Codec(TimeKind, int, _TIME_OUT.get, _TIME.get),
)
_DEFAULTED = {"slack_ns", "rounds", *LIMITS}


spec_to_pb = _SPEC.to_pb


def spec_from_pb(message: pb.PipelineSpec) -> PipelineSpec:
    """A pipeline; its slack, rounds and limits that are 0 take their defaults. Raises Refused(INVALID)."""
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
    spec = _SPEC.from_pb(message)
    # Each edge has come with names of its own: of segments that are there, one is kept.
    names = {name: name for name in (*spec.segments, *spec.fronts)}
    spec = replace(
        spec,
        edges=tuple(
            Edge(names.get(e.source, e.source), names.get(e.target, e.target), e.delay)
            for e in spec.edges
        ),
    )
    defaults: dict[str, Any] = {
        field.name: field.default
        for field in fields(PipelineSpec)
        if field.name in _DEFAULTED and not getattr(spec, field.name)
    }
    return replace(spec, **defaults) if defaults else spec


SPEC = Codec(PipelineSpec, pb.PipelineSpec, spec_to_pb, spec_from_pb)

STATE = derived(
    PipelineDescription,
    pipeline_pb.PipelineState,
    derived(SegmentDescription, pipeline_pb.SegmentState),
    derived(FrontDescription, pipeline_pb.FrontState),
    derived(NodeDescription, pipeline_pb.NodeState, KEY),
)
state_to_pb, state_from_pb = STATE.to_pb, STATE.from_pb
