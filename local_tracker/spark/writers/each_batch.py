"""What all writers for `foreachBatch` have in common: whose batch it is that calls, and that it calls once."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import DataFrame

from local_tracker.spark.query.logs import CheckpointLog
from local_tracker.spark.query.plans import Routes
from tracker.errors import TrackingError


class WritingQuery(Protocol):
    """What is asked of the query whose batch is written."""

    @property
    def checkpoint(self) -> CheckpointLog: ...
    @property
    def routes(self) -> Routes: ...
    def slots_to_write(self, batch: int) -> tuple[dict[int, int], bool]: ...
    def check_acks(self, batch: int, run: str) -> None: ...


class Calls:
    """The calls to those who write to one place: one in each batch of a query's run."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._last: dict[str, tuple[str, int]] = {}  # by query

    def begin(self, frame: DataFrame, batch: int) -> tuple[str, str]:
        """The ids of the query whose batch calls, and of its run. Raises TrackingError outside of
        `foreachBatch`, and where a batch calls for the second time."""
        context = frame.sparkSession.sparkContext
        query_id = context.getLocalProperty("sql.streaming.queryId")
        run = context.getLocalProperty("spark.jobGroup.id")
        if query_id is None or run is None:
            raise TrackingError("a tracked.writer(...) is for use within foreachBatch only")
        if self._last.get(query_id) == (run, batch):
            raise TrackingError(
                f"the writer for {self._place} was called twice in batch {batch}: make one "
                f"tracked.writer(...) for each output"
            )
        self._last[query_id] = run, batch
        return query_id, run
