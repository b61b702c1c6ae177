"""Between the contract's freshness and the core's."""

from __future__ import annotations

from collections.abc import Iterable

from acker.v1 import pipeline_service_pb2 as pipeline_pb
from tracker.core.freshness import Lag, Level, SegmentFreshness, WindowLevels


def freshness_to_pb(segments: Iterable[SegmentFreshness]) -> pipeline_pb.GetFreshnessResponse:
    return pipeline_pb.GetFreshnessResponse(
        segments=[
            pipeline_pb.SegmentFreshness(
                segment=segment.segment,
                lag_ms=segment.now.lag_ms,
                age_ms=segment.now.age_ms,
                windows=[
                    pipeline_pb.FreshnessWindow(
                        seconds=window.seconds,
                        lag=_level_to_pb(window.lag),
                        age=_level_to_pb(window.age),
                    )
                    for window in segment.windows
                ],
            )
            for segment in segments
        ]
    )


def freshness_from_pb(message: pipeline_pb.GetFreshnessResponse) -> tuple[SegmentFreshness, ...]:
    return tuple(
        SegmentFreshness(
            segment.segment,
            Lag(segment.lag_ms, segment.age_ms),
            tuple(
                WindowLevels(window.seconds, _level_from_pb(window.lag), _level_from_pb(window.age))
                for window in segment.windows
            ),
        )
        for segment in message.segments
    )


def _level_to_pb(level: Level) -> pipeline_pb.FreshnessLevel:
    return pipeline_pb.FreshnessLevel(
        samples=level.samples,
        p50_ms=level.p50_ms,
        p95_ms=level.p95_ms,
        p99_ms=level.p99_ms,
        most_ms=level.most_ms,
        within=level.within,
    )


def _level_from_pb(level: pipeline_pb.FreshnessLevel) -> Level:
    return Level(
        level.samples, level.p50_ms, level.p95_ms, level.p99_ms, level.most_ms, level.within
    )
