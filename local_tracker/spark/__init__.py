"""Tracked Spark queries: `Tracked(spark, target, pipeline).start(writer, node_id=...)`.

`logs` and `compose` are pure; `follower`, `query_ticks` and `tracked` run in the driver. Importing
this package imports none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from local_tracker.spark.completed import CompletedReader, Taken, slot_of_timestamp
    from local_tracker.spark.follower import FollowerLimits, TrackingError
    from local_tracker.spark.ranges import NotYetPublished, OffsetRanges, PublishedRanges
    from local_tracker.spark.tracked import BatchWriter, Tracked, TrackedQuery

__all__ = [
    "BatchWriter", "CompletedReader", "FollowerLimits", "NotYetPublished", "OffsetRanges",
    "PublishedRanges", "Taken", "Tracked", "TrackedQuery", "TrackingError", "slot_of_timestamp",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in ("CompletedReader", "Taken", "slot_of_timestamp"):
        from local_tracker.spark import completed

        return getattr(completed, name)
    if name in ("FollowerLimits", "TrackingError"):
        from local_tracker.spark import follower

        return getattr(follower, name)
    if name in ("NotYetPublished", "OffsetRanges", "PublishedRanges"):
        from local_tracker.spark import ranges

        return getattr(ranges, name)
    if name in __all__:
        from local_tracker.spark import tracked

        return getattr(tracked, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
