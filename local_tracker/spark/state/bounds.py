"""Up to which event time a query has absorbed, and what that says of its state, batch by batch."""

from __future__ import annotations

from local_tracker.spark.logs import CheckpointLog
from local_tracker.spark.state.entries import UNKNOWN, Told
from local_tracker.spark.state.rules import StateKind, StatePlan


class LogBounds:
    """By the watermarks that Spark logs of each batch."""

    def __init__(self, plan: StatePlan, log: CheckpointLog) -> None:
        self._plan, self._log = plan, log

    def told(self, batch: int) -> Told:
        """What is known of a batch that is over, from what may be purged later. Raises LogError."""
        marks = self._log.watermarks(batch)
        absorbed_ms = self._plan.absorbed_ms(marks.next_ms)
        if absorbed_ms is None or self._plan.kind is not StateKind.BOUNDED:
            return Told(marks.at_ms, UNKNOWN)
        bound_ms = self._plan.bound_ms(absorbed_ms)
        return Told(marks.at_ms, bound_ms, bound_ms)
