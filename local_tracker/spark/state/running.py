"""What is asked of a query while its driver lives, where its logs do not tell what is in its state.

Its progress says whether anything is left in state, the tracker of its watermarks how far each stream has
come, and the state itself which session windows are open. All of it may be unknown: then what is held stays
held.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import DataType, StructType, TimestampType

from local_tracker.spark.scala import class_name, iterated, optional

PROGRESS_WITHIN_S = 1.0
"""So long after its commit a batch's progress is waited for; then it is unknown."""
READ_EACH_S = 2.0
"""The state is read at most so often."""

_LOOK_AGAIN_S = 0.005
_AT_ONCE = frozenset({"dedupe", "dedupeWithinWatermark", "globalLimit"})
"""State operators that emit each row at once: what is in their state is never emitted."""
_NONE_LEFT_MS = 1 << 62
_AGGREGATION = "stateStoreSave"
_SESSIONS = "sessionWindowStateStoreSaveExec"

log = logging.getLogger("lowmark.spark")


class RunningQuery:
    """One run of a query in this driver. For one thread, its follower's."""

    def __init__(
        self, spark: SparkSession, query: StreamingQuery, checkpoint: str, planned_before: int
    ) -> None:
        """checkpoint: where it is. planned_before: the last batch that an earlier run had planned, -1 if
        none: Spark does not evaluate it again if it finds it in the sink."""
        self._spark, self._query, self._checkpoint = spark, query, checkpoint
        self._planned_before = planned_before
        self._progress: tuple[int, Mapping[str, Any]] | None = None
        self._operators: tuple[int, ...] | None = None
        self._can_read, self._read_at_ms, self._read_s = True, 0, 0.0

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
        return all(
            operator["numRowsTotal"] == 0
            for operator in progress["stateOperators"]
            if operator["operatorName"] not in _AT_ONCE
        )

    def left_ms(self, batch: int, watermark_ms: int) -> int | None:
        """A time before which no session window in state begins, in ms since 1970, after a batch that is
        over and had that watermark. None where that is not known: nothing can have ended since it was last
        asked, a later batch is over already, or this version of Spark cannot read state."""
        if not self._can_read or watermark_ms <= self._read_at_ms:
            return None
        time.sleep(max(0.0, self._read_s + READ_EACH_S - time.monotonic()))
        last = self._query._jsq.streamingQuery().lastProgress()
        if last is not None and int(last.batchId()) > batch:
            return None
        try:
            first_us = self._first_session_us(batch)
        except Exception as error:  # whatever there is, what is held stays held
            self._can_read = False
            log.warning(
                "the state of query %s cannot be read (%s): what its session windows hold is let go of when "
                "none is left in state", self._query.id, str(error).splitlines()[0],
            )  # fmt: skip
            return None
        finally:
            self._read_s = time.monotonic()
        self._read_at_ms = watermark_ms
        return _NONE_LEFT_MS if first_us is None else first_us // 1000 - 1

    def last_window_ms(self, batch: int) -> int | None:
        """When the last window ends that is in state after a batch, in ms since 1970: by then all is out that it
        absorbed. None where the state is not of one aggregation over windows, or cannot be read."""
        try:
            known = self._spark.read.format("state-metadata").load(self._checkpoint)
            operators = known.select("operatorId", "operatorName").distinct().collect()
            if [row["operatorName"] for row in operators] != [_AGGREGATION]:
                return None
            state = self._spark.read.format("statestore").option("batchId", batch)
            found = state.option("operatorId", operators[0]["operatorId"]).load(self._checkpoint)
            key = found.schema["key"].dataType
            assert isinstance(key, StructType)
            windows = [field.name for field in key.fields if _is_window(field.dataType)]
            if len(windows) != 1:
                return None
            last = found.agg(F.unix_micros(F.max(F.col("key").getField(windows[0])["end"]))).first()
        except Exception as error:  # whatever there is, what is held stays held
            log.warning(
                "the state of query %s cannot be read (%s): what batch %d holds is let go of when nothing is left "
                "in state", self._query.id, str(error).splitlines()[0], batch,
            )  # fmt: skip
            return None
        return None if last is None or last[0] is None else -(-int(last[0]) // 1000)

    def _first_session_us(self, batch: int) -> int | None:
        """When the first session window in state begins, in µs since 1970; None where none is left."""
        if self._operators is None:
            known = self._spark.read.format("state-metadata").load(self._checkpoint)
            rows = known.filter(F.col("operatorName") == _SESSIONS).select("operatorId").distinct()
            self._operators = tuple(int(row[0]) for row in rows.collect())
        begins: list[int] = []
        for operator in self._operators:
            state = self._spark.read.format("statestore").option("batchId", batch)
            found = state.option("operatorId", operator).load(self._checkpoint)
            first = found.agg(F.unix_micros(F.min("key.sessionStartTime"))).first()
            if first is not None and first[0] is not None:
                begins.append(int(first[0]))
        return min(begins, default=None)

    def _progress_of(self, batch: int) -> Mapping[str, Any] | None:
        """What the query has reported of a batch that is over, which it does shortly after the commit;
        None where it is not known, or not any more."""
        if self._progress is not None and self._progress[0] == batch:
            return self._progress[1]
        running, until_s = self._query._jsq.streamingQuery(), time.monotonic() + PROGRESS_WITHIN_S
        while (last := running.lastProgress()) is None or int(last.batchId()) < batch:
            if time.monotonic() > until_s or not self._query.isActive:
                return None
            time.sleep(_LOOK_AGAIN_S)
        for progress in reversed(list(running.recentProgress())):
            if int(progress.batchId()) == batch:
                self._progress = batch, json.loads(str(progress.json()))
                return self._progress[1]
        return None


def _is_window(of: DataType) -> bool:
    """Whether a column is of windows."""
    if not isinstance(of, StructType):
        return False
    return [field.name for field in of.fields] == ["start", "end"] and all(
        isinstance(field.dataType, TimestampType) for field in of.fields
    )


def _watermarks_ms(running: Any) -> list[int]:
    """The watermark of each stream that has come in this run, in ms since 1970. Once a batch of it is
    committed all streams are known, and each rises alone."""
    each = _field(_field(running, "watermarkTracker"), "operatorToWatermarkMap")
    found = [pair.productElement(1) for pair in iterated(each)]
    values = [value if isinstance(value, int) else optional(value) for value in found]
    return [int(value) for value in values if value is not None]


def _field(thing: Any, name: str) -> Any:
    """A private field of a Java object, of its class or one above."""
    of = thing.getClass()
    while of is not None:
        for field in of.getDeclaredFields():
            if field.getName() == name:
                field.setAccessible(True)
                return field.get(thing)
        of = of.getSuperclass()
    raise LookupError(f"{class_name(thing)} has no {name}")
