"""What is asked of a query while its driver lives, where its logs do not tell what is in its state.

Its progress says whether anything is left in state, the tracker of its watermarks how far each stream has
come, and the state itself what is in it. All of it may be unknown: then what is held stays held.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from local_tracker.spark.scala import iterated, private_field
from local_tracker.spark.state.bounds import Latest
from local_tracker.spark.state.stored import AT_ONCE, StoredState
from local_tracker.spark.versions import watermark_ms

PROGRESS_WITHIN_S = 1.0
"""So long after its commit a batch's progress is waited for; then it is unknown."""
READ_EACH_S = 2.0
"""The state is read at most so often."""

READ_TRIES = 3
"""So often in a row reading it may fail; then it is not read any more."""

_LOOK_AGAIN_S = 0.005
_RUNS = "addBatch"
"""What takes time where a batch is run, and only there."""
_COUNTS_ROWS = "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows"
_WITH_TIMERS = "transformWithState"
_TIMERS_AND_MORE = "rocksdbNumInternalColFamiliesKeys"
"""The metric of a state operator that counts its timers, and what Spark keeps for itself beside the state."""
_T = TypeVar("_T")

log = logging.getLogger("lowmark.spark")


class RunningQuery:
    """One run of a query in this driver. For one thread, its follower's."""

    def __init__(
        self, spark: SparkSession, query: StreamingQuery, checkpoint: str, planned_before: int
    ) -> None:
        """checkpoint: where it is. planned_before: the last batch that an earlier run had planned, -1 if
        none: Spark does not evaluate it again if it finds it in the sink."""
        self._query, self._planned_before = query, planned_before
        self._progress: tuple[int, Mapping[str, Any]] | None = None
        self._stored, self._tries, self._read_s = StoredState(spark, checkpoint), READ_TRIES, 0.0
        self._asked_at_ms = 0

    def absorbed_ms(self, batch: int, longest_delay_ms: int) -> int | None:
        """An upper bound of the event times of all streams that this run has absorbed, with those of a
        batch that is over; None if it is not known."""
        if not self._ran(batch):
            return None
        try:
            watermarks = _watermarks_ms(self._query._jsq.streamingQuery())
        except Exception as error:  # of another version of Spark, whose classes look otherwise
            log.warning("the watermarks of query %s cannot be seen: %s", self._query.id, error)
            return None
        return max(watermarks) + longest_delay_ms if watermarks else None

    def was_evaluated(self, batch: int) -> bool:
        """Whether it is known that rows of a batch have passed a watermark in this run."""
        progress = self._progress_of(batch)
        return progress is not None and "max" in progress.get("eventTime", {})

    def _ran(self, batch: int) -> bool:
        """Whether it is known that a batch was evaluated by this run."""
        if batch == self._planned_before:
            return self.was_evaluated(batch)
        return batch > self._planned_before

    def is_empty(self, batch: int) -> bool:
        """Whether it is known that nothing is left in state, after a batch that is over, that is emitted
        later. Of a batch that Spark found in its sink, and did not evaluate, it reports an empty state."""
        progress = self._progress_of(batch) if self._ran(batch) else None
        if progress is None or not progress.get("stateOperators"):
            return False
        return self._counts_rows() and all(
            _has_nothing(operator)
            for operator in progress["stateOperators"]
            if operator["operatorName"] not in AT_ONCE
        )

    def _counts_rows(self) -> bool:
        """Whether the query counts the rows of its state: where it does not, it reports 0."""
        session = private_field(self._query._jsq.streamingQuery(), "sparkSessionForStream")
        return str(session.conf().get(_COUNTS_ROWS, "true")).lower() == "true"

    def left_ms(self, batch: int, watermark_ms: int) -> int | None:
        """A time before which no session window in state begins, in ms since 1970, after a batch that is
        over and had that watermark. None where that is not known, as `latest`, or nothing can have ended since it
        was last asked."""
        if watermark_ms <= self._asked_at_ms:
            return None
        left_ms = self._read(batch, self._stored.left_ms)
        if left_ms is not None:
            self._asked_at_ms = watermark_ms
        return left_ms

    def latest(self, batch: int) -> Latest | None:
        """What is latest in state after a batch that is over. None where that is not known: a later batch is over
        already, or the state cannot be read."""
        return self._read(batch, self._stored.latest)

    def _read(self, batch: int, read: Callable[[int], _T]) -> _T | None:
        """What is read of the state after a batch, now and then."""
        if not self._tries:
            return None
        time.sleep(max(0.0, self._read_s + READ_EACH_S - time.monotonic()))
        if self._last_reported(self._planned_before - 1) > batch:
            return None
        try:
            found = read(batch)
            self._tries = READ_TRIES
        except Exception as error:  # whatever there is, what is held stays held
            never = isinstance(error, LookupError | AnalysisException)
            self._tries = 0 if never else self._tries - 1
            if not self._tries:
                log.warning(
                    "the state of query %s cannot be read (%s): what only it tells is held until none is left in "
                    "state", self._query.id, str(error).splitlines()[0],
                )  # fmt: skip
            return None
        finally:
            self._read_s = time.monotonic()
        return found

    def _progress_of(self, batch: int) -> Mapping[str, Any] | None:
        """What the query has reported of a batch that is over, which it does shortly after the commit;
        None where it is not known, or not any more."""
        if self._progress is not None and self._progress[0] == batch:
            return self._progress[1]
        running, until_s = self._query._jsq.streamingQuery(), time.monotonic() + PROGRESS_WITHIN_S
        while self._last_reported(-1) < batch:
            if time.monotonic() > until_s or not self._query.isActive:
                return None
            time.sleep(_LOOK_AGAIN_S)
        for progress in reversed(list(running.recentProgress())):
            if int(progress.batchId()) == batch and _has_run(progress):
                self._progress = batch, json.loads(str(progress.json()))
                return self._progress[1]
        return None

    def _last_reported(self, before: int) -> int:
        """The last batch that it has reported to be over; before: what that is before its first report."""
        last = self._query._jsq.streamingQuery().lastProgress()
        if last is None:
            return before
        return int(last.batchId()) - (not _has_run(last))


def _has_run(progress: Any) -> bool:
    """Whether a report is of a batch that has run. While a query waits for data, it reports the batch that it has yet
    to run, with the state as the one before has left it."""
    return bool(progress.durationMs().containsKey(_RUNS))


def _has_nothing(operator: Mapping[str, Any]) -> bool:
    """Whether an operator's state is empty, by its progress. Timers of `transformWithState` are no rows of it, and may
    be all that is left of a row."""
    if operator["numRowsTotal"]:
        return False
    if not str(operator["operatorName"]).startswith(_WITH_TIMERS):
        return True
    return bool(operator["customMetrics"].get(_TIMERS_AND_MORE) == 0)


def _watermarks_ms(running: Any) -> list[int]:
    """The watermark of each stream that has come in this run, in ms since 1970. Once a batch of it is
    committed all streams are known, and each rises alone."""
    each = private_field(private_field(running, "watermarkTracker"), "operatorToWatermarkMap")
    found = [pair.productElement(1) for pair in iterated(each)]
    return [value for each in found if (value := watermark_ms(each)) is not None]
