"""What is rarely needed of a query that is tracked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from local_tracker.spark.formats.ranges import OffsetRanges
from local_tracker.spark.query.emits import EventTime
from local_tracker.spark.state.chosen import State
from tracker.errors import TrackingError


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingOptions:
    """What `Tracked.start` is rarely given. Raises TrackingError for a value that can't be."""

    ranges: Mapping[str, OffsetRanges] = field(default_factory=dict)
    """Sources that are not files and whose offsets number their records, by number (`"0"`, in the order of the
    plan)."""

    emits: str | EventTime | None = None
    """The name of the front that the query is of the one segment that it creates in, where it emits from its state; in
    a pipeline of event time an `EventTime`."""

    state: State = None
    """Whether min time waits for what is only in the query's state: "hold" (as None, by its plan), "free", or
    `HeldFor`, in milliseconds."""

    noted: str | None = None
    """The local directory where a sink of the user's own notes what it commits (`note_commit`)."""

    may_publish_nothing: bool = False
    """A batch with input need not publish what the query creates by `writer`, or note it; else it fails."""

    operators: Sequence[str] = ()
    """The operators that acknowledge: a batch with input files in which one handed nothing over fails."""

    take_over: bool = False
    """End another query of this node id."""

    max_batches_behind: int | None = None
    """How many batches the query may run ahead of the tracker before it is stopped, at least 1; None: 10 fewer than
    `spark.sql.streaming.minBatchesToRetain`. It must be fewer, or a driver that was killed could find its logs
    purged."""

    def __post_init__(self) -> None:
        behind = self.max_batches_behind
        if behind is not None and behind < 1:
            raise TrackingError(
                f"max_batches_behind={behind}: a query must be let run 1 ahead, or more"
            )
        if isinstance(self.operators, str):
            raise TrackingError(f"operators={self.operators!r} is one text; give a list of names")
        if wrong := [n for n, each in self.ranges.items() if not isinstance(each, OffsetRanges)]:
            raise TrackingError(
                f"ranges names source {wrong[0]!r} with {self.ranges[wrong[0]]!r}, which is no OffsetRanges"
            )
