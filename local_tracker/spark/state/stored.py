"""What is in the state of a query after one of its batches, read from its checkpoint: PySpark 4.0 and later can.

The columns that Spark takes for event times are marked as such in the schema of its state, as in a plan. The state of
a batch is there as long as its logs are.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType, TimestampType

from local_tracker.spark.state.bounds import Latest

AT_ONCE = frozenset({"dedupe", "dedupeWithinWatermark", "globalLimit"})
"""State operators that emit each row at once: what is in their state is never emitted."""
NONE_LEFT_MS = 1 << 62

_AGGREGATION = "stateStoreSave"
_JOIN = "symmetricHashJoin"
_SESSIONS = "sessionWindowStateStoreSaveExec"
_EVENT_TIME = "spark.watermarkDelayMs"
"""In the metadata of each column that Spark takes for an event time."""


class StoredState:
    """Of one query. Whatever cannot be read raises, also because this version of Spark cannot."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        self._spark, self._checkpoint = spark, checkpoint
        self._found: tuple[tuple[int, str], ...] | None = None

    def latest(self, batch: int) -> Latest:
        """After a committed batch. Raises LookupError where an operator's state has no event time that is known."""
        row_us, end_us = list[int](), list[int]()
        for operator, name in self._operators():
            if name in AT_ONCE:
                continue
            if name not in (_AGGREGATION, _JOIN):
                raise LookupError(f"the event times in the state of {name} are not known")
            for side in ("left", "right") if name == _JOIN else (None,):
                state = self._state(batch, operator, side)
                part = "key" if side is None else "value"
                rows, ends = _times(state, part, name)
                row_us += _largest_us(state, rows)
                end_us += _largest_us(state, ends)
        return Latest(max(row_us, default=None), max(end_us, default=None))

    def left_ms(self, batch: int) -> int:
        """A time before which no session window begins that is in state after a committed batch, in ms since 1970;
        `NONE_LEFT_MS` where none is left. Raises LookupError where the checkpoint tells of no operator that has
        any, which is not to say that none is left."""
        sessions = [operator for operator, name in self._operators() if name == _SESSIONS]
        if not sessions:
            raise LookupError("the checkpoint does not tell where its session windows are")
        begins: list[int] = []
        for operator in sessions:
            found = self._state(batch, operator)
            first = found.agg(F.unix_micros(F.min("key.sessionStartTime"))).first()
            if first is not None and first[0] is not None:
                begins.append(int(first[0]))
        return min(begins) // 1000 - 1 if begins else NONE_LEFT_MS

    def _operators(self) -> tuple[tuple[int, str], ...]:
        """Number and name of each."""
        if self._found is None:
            known = self._spark.read.format("state-metadata").load(self._checkpoint)
            rows = known.select("operatorId", "operatorName").distinct().collect()
            self._found = tuple(sorted((int(row[0]), str(row[1])) for row in rows))
        return self._found

    def _state(self, batch: int, operator: int, side: str | None = None) -> DataFrame:
        reader = self._spark.read.format("statestore").option("batchId", batch)
        reader = reader.option("operatorId", operator)
        if side is not None:
            reader = reader.option("joinSide", side)
        return reader.load(self._checkpoint)


def _times(state: DataFrame, part: str, operator: str) -> tuple[list[Column], list[Column]]:
    """The event times in a part of a state's rows, and the ends of windows of them."""
    rows, ends = list[Column](), list[Column]()
    for field in _event_times(state.schema[part].dataType):
        column = F.col(part).getField(field.name)
        if isinstance(field.dataType, TimestampType):
            rows.append(column)
        elif _is_window(field.dataType):
            ends.append(column["end"])
        else:
            raise LookupError(f"{field.name} in the state of {operator} is of no known type")
    if not rows and not ends:
        raise LookupError(f"there is no event time in the state of {operator}")
    return rows, ends


def _event_times(of: DataType) -> Iterator[StructField]:
    assert isinstance(of, StructType)
    return (field for field in of.fields if _EVENT_TIME in (field.metadata or {}))


def _is_window(of: DataType) -> bool:
    """Whether a column is of windows."""
    if not isinstance(of, StructType):
        return False
    return [field.name for field in of.fields] == ["start", "end"] and all(
        isinstance(field.dataType, TimestampType) for field in of.fields
    )


def _largest_us(state: DataFrame, columns: list[Column]) -> list[int]:
    """The largest of each column that has any, in µs since 1970."""
    if not columns:
        return []
    found = state.agg(*(F.unix_micros(F.max(column)) for column in columns)).first()
    return [int(value) for value in found or () if value is not None]
