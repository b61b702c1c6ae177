"""Queries that are fronts of what they emit, by event time, and a driver of them that kills itself.

    python -m tests.spark_matrix.visible TARGET PIPELINE DIRECTORY SHAPE POINT BATCH

The points are moments (`tracker.testing.moments`), from `tick` on; status 3 says that the point was missed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from examples.history import Recorder
from local_tracker.spark.query.emits import EventTime
from local_tracker.spark.session.options import TrackingOptions
from local_tracker.spark.session.tracked import Tracked, TrackedQuery
from tests.spark.support import SCHEMA
from tests.spark_matrix.recording import recording
from tests.spark_matrix.registry import Profile
from tests.spark_matrix.sessions import make_session
from tracker.testing.killing import Killer
from tracker.testing.moments import MISSED, Moment

SHOWN, FRONT = "shown", "windows"
SLOT_MS, DELAY_MS = 10, 50
LATE_MS = 400
_JOINED_WITHIN_MS = 30

Rows = Callable[[], DataFrame]


def time_ms(slot: int, row: int) -> int:
    """The event time of a row: up to three slots before its file's, and of every seventh far before."""
    return slot * SLOT_MS - row % 4 * SLOT_MS - (LATE_MS if is_late(row) else 0)


def is_late(row: int) -> bool:
    return row % 7 == 6


@dataclass(frozen=True)
class Shape:
    """A query. results: of its rows, which have a time `at`; each has its last instant, `last_us`. lasts: those
    that a row at a millisecond must have a part in, where its time alone tells. span_ms: as it is to be
    given."""

    results: Callable[[Rows], DataFrame]
    lasts: Callable[[int], Iterable[int]] | None = None
    span_ms: int | None = None


def _windows(frame: DataFrame, window: Column, *keys: Column) -> DataFrame:
    grouped = frame.groupBy(window.alias("window"), *keys).agg(F.count("*").alias("n"))
    return grouped.select((F.unix_micros("window.end") - 1).alias("last_us"), "n")


def _chained(rows: Rows) -> DataFrame:
    inner = rows().groupBy(F.window("at", "100 milliseconds")).agg(F.count("*").alias("n"))
    return _windows(inner, F.window(F.window_time("window"), "200 milliseconds"))


def _outer(rows: Rows) -> DataFrame:
    left = rows().where("row % 2 = 0").select("row", F.col("at").alias("l_at"))
    right = (
        rows()
        .where("row % 6 = 1")
        .select((F.col("row") - 1).alias("r_row"), F.col("at").alias("r_at"))
    )
    within = f"r_at >= l_at and r_at <= l_at + interval {_JOINED_WITHIN_MS} milliseconds"
    joined = left.join(right, F.expr(f"row = r_row and {within}"), "leftOuter")
    return joined.select(F.unix_micros("l_at").alias("last_us"), F.col("r_row").alias("n"))


def _ends(size_ms: int, slide_ms: int) -> Callable[[int], Iterable[int]]:
    def lasts(at_ms: int) -> Iterable[int]:
        latest = at_ms - at_ms % slide_ms
        return [(begin + size_ms) * 1000 - 1 for begin in range(latest, at_ms - size_ms, -slide_ms)]

    return lasts


SHAPES: Mapping[str, Shape] = {
    "tumbling": Shape(
        lambda rows: _windows(rows(), F.window("at", "100 milliseconds")), _ends(100, 100)
    ),
    "sliding": Shape(
        lambda rows: _windows(rows(), F.window("at", "100 milliseconds", "40 milliseconds")),
        _ends(100, 40),
    ),
    "groups": Shape(
        lambda rows: rows().groupBy("at").agg(F.count("*").alias("n")).select(
            F.unix_micros("at").alias("last_us"), "n"
        ),
        lambda at_ms: [at_ms * 1000],
    ),
    "chained": Shape(_chained),
    "sessions": Shape(
        lambda rows: _windows(rows(), F.session_window("at", "50 milliseconds"), F.expr("row % 2"))
    ),
    "outer": Shape(_outer, span_ms=_JOINED_WITHIN_MS + 1),
}  # fmt: skip


def start(spark: SparkSession, tracked: Tracked, directory: Path, shape: str) -> TrackedQuery:
    """The query: one file a batch; nobody whose reading is tracked reads what it writes."""

    def rows() -> DataFrame:
        read = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        late = F.when(F.expr("row % 7 = 6"), LATE_MS).otherwise(0)
        at_ms = F.col("slot") * SLOT_MS - F.expr("row % 4") * SLOT_MS - late
        timed = read.parquet(str(directory / "in")).withColumn("at", F.timestamp_millis(at_ms))
        return timed.withWatermark("at", f"{DELAY_MS} milliseconds")

    of = SHAPES[shape]
    writer = (
        of.results(rows)
        .writeStream.format("json")
        .outputMode("append")
        .option("path", str(directory / "out"))
        .option("checkpointLocation", str(directory / "cp"))
    )
    emits = EventTime(FRONT, SHOWN, of.span_ms)
    options = TrackingOptions(emits=emits)
    return tracked.start(writer, node_id="parse", reads="parse", options=options)


def main(target: str, pipeline: str, directory: Path, shape: str, point: str, batch: int) -> None:
    profile = Profile("driver", "local[2]", {"spark.sql.shuffle.partitions": "2"})
    spark = make_session(profile, directory / "spark")
    Killer.here(batch).plant(Moment(point))
    recorder = Recorder(directory / "history" / f"driver-{os.getpid()}.jsonl")
    with recording(lambda _: recorder):
        query = start(spark, Tracked(spark, target, pipeline), directory, shape)
        query.processAllAvailable()
        query.stop()
    spark.stop()
    sys.exit(MISSED)


if __name__ == "__main__":
    _, _target, _pipeline, _directory, _shape, _point, _batch = sys.argv
    main(_target, _pipeline, Path(_directory), _shape, _point, int(_batch))
