"""Between the contract's freshness and the core's."""

from __future__ import annotations

from collections.abc import Iterable

from acker.v1 import pipeline_service_pb2 as pipeline_pb
from tracker.core.insight.freshness import Lag, Level, SegmentFreshness, WindowLevels
from tracker.wire.codec import derived

_WINDOW = derived(
    WindowLevels, pipeline_pb.FreshnessWindow, derived(Level, pipeline_pb.FreshnessLevel)
)


def freshness_to_pb(segments: Iterable[SegmentFreshness]) -> pipeline_pb.GetFreshnessResponse:
    message = pipeline_pb.GetFreshnessResponse()
    for segment in segments:
        message.segments.add(
            segment=segment.segment,
            lag_ms=segment.now.lag_ms,
            age_ms=segment.now.age_ms,
            windows=map(_WINDOW.to_pb, segment.windows),
            lags_ms=segment.lags_ms,
        )
    return message


def freshness_from_pb(message: pipeline_pb.GetFreshnessResponse) -> tuple[SegmentFreshness, ...]:
    return tuple(
        SegmentFreshness(
            segment.segment,
            Lag(segment.lag_ms, segment.age_ms),
            tuple(map(_WINDOW.from_pb, segment.windows)),
            tuple(segment.lags_ms),
        )
        for segment in message.segments
    )
