"""What is asked of a tracker in Spark: by a session of either kind, and by a driver that is killed.

    python -m tests.spark_matrix.progress TARGET PIPELINE DIRECTORY POINT BATCH

POINT is `connected`: all of it in a Spark Connect session, whose server is started for it; it prints one JSON object with
what was wrong. Or it is a point of `driver.py`: a stream of periods writes files, and is killed there in batch BATCH;
`none`: it ends when it has written all that there are.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from local_tracker.spark.progress.asked import Asked
from local_tracker.spark.progress.registered import register
from tests.spark_matrix.connected import connected
from tests.spark_matrix.registry import LOCAL
from tests.spark_matrix.sessions import make_session
from tests.waits import HANG_S
from tracker.client import Admin
from tracker.client.connection import parse_targets
from tracker.testing.killing import Killer
from tracker.testing.moments import Moment
from tracker.view.tables import TABLES

EVERY, SLOTS = "100ms", 10
"""A period of the tests' pipelines, and its slots."""
MOVING = (
    "at", "age_ms", "silent_ms", "lag_ms", "lag_slots", "node_time", "state", "holds", "advice",
)  # fmt: skip
"""Columns that change while nothing happens, or name how long that has been so."""
AWAY = "127.0.0.1:9"
STARTS = 30
"""How often a stream is started where Spark gave up on a Python process of its own that took more than 10 s to start, as on
a busy machine: it cannot be told to wait longer."""


def run_stream(writer: Any) -> None:
    """Starts a stream that ends by itself, and waits for that."""
    for left in reversed(range(STARTS)):
        query = writer.start()
        try:
            query.awaitTermination()
            return
        except PySparkException as error:
            if not left or "failed to connect back" not in str(error):
                raise


def into_files(frame: DataFrame, directory: Path) -> Any:
    writer = frame.writeStream.format("parquet").option("path", str(directory / "out"))
    return writer.option("checkpointLocation", str(directory / "cp"))


def stream_of(spark: SparkSession, format: str, pipeline: str, **options: str) -> DataFrame:
    return spark.readStream.format(format).options(pipeline=pipeline, **options).load()


def all_keys(pipeline: str, segment: str, min_time: int) -> list[str]:
    """Of the periods that are complete, counted one by one."""
    keys, begin = [], 0
    while begin + SLOTS <= min_time:
        keys.append(f"{pipeline}/{segment}/{begin}..{begin + SLOTS}")
        begin += SLOTS
    return keys


class Asking:
    """All that may be asked, about a pipeline that rests."""

    def __init__(self, spark: SparkSession, target: str, pipeline: str, directory: Path) -> None:
        self.spark, self.target, self.pipeline = spark, target, pipeline
        self.directory = directory
        with Admin(target) as admin:
            self.segments = admin.pipeline(pipeline).state.segments

    def faults(self) -> Iterator[str]:
        register(self.spark, self.target, timeout_s=HANG_S)
        yield from self.tables()
        yield from self.functions()
        yield from self.streams()
        yield from self.away()

    def tables(self) -> Iterator[str]:
        asked = Asked(parse_targets(self.target), None, HANG_S)
        for name, table in TABLES.items():
            options = {"table": name, "pipeline": self.pipeline}
            columns = [column for column in table.types if column not in MOVING]
            found = self.spark.read.format("lowmark").option("table", name).load()
            rows = found.where(f"pipeline = '{self.pipeline}'").select(*columns).collect()
            own = asked.rows("lowmark", options, None)
            wanted = [tuple(row[list(table.types).index(c)] for c in columns) for row in own]
            if name in ("min_times", "status") and len(rows) != len(self.segments) + 1:
                yield f"table {name} has {rows}"
            seen = [_naive(tuple(row)) for row in rows]
            if name != "causes" and seen != [_naive(row) for row in wanted]:
                yield f"table {name} has {seen}, and the tracker says {wanted}"

    def functions(self) -> Iterator[str]:
        name, first = self.pipeline, self.segments[0]
        status = self.spark.sql(f"SELECT * FROM lowmark_status('{name}')").collect()
        if [row.segment for row in status] != [None, *(each.segment for each in self.segments)]:
            yield f"lowmark_status gives {status}"
        (row,) = self.spark.sql(
            f"SELECT min_time FROM lowmark_min_time('{name}', '{first.segment}')"
        ).collect()
        if row.min_time != first.min_time:
            yield f"lowmark_min_time gives {row}, and it is {first.min_time}"
        if not self.spark.sql(f"SELECT * FROM lowmark_nodes('{name}')").count():
            yield "lowmark_nodes gives nothing"

    def streams(self) -> Iterator[str]:
        announced = stream_of(self.spark, "lowmark", self.pipeline)
        segment = self.segments[0].segment
        complete = stream_of(
            self.spark, "lowmark.completed", self.pipeline, segment=segment, every=EVERY
        )
        wanted = {
            "announced": sorted(f"{each.segment} {each.min_time}" for each in self.segments),
            "completed": all_keys(self.pipeline, segment, self.segments[0].min_time),
        }
        for name, frame in (("announced", announced), ("completed", complete)):
            directory = self.directory / name
            for _ in range(2):  # the second has nothing to add
                run_stream(into_files(frame, directory).trigger(availableNow=True))
            rows = self.spark.read.parquet(str(directory / "out")).collect()
            if name == "announced":
                found = sorted(f"{row.segment} {row.min_time}" for row in rows if row.segment)
            else:
                found = [row.key for row in sorted(rows, key=lambda row: row.from_slot)]
            if found != wanted[name]:
                yield f"the stream {name} gave {found}, not {wanted[name]}"

    def away(self) -> Iterator[str]:
        register(self.spark, AWAY, timeout_s=0.2)  # expires: what its user reads then is tested
        asks: dict[str, Callable[[], object]] = {
            "a table": lambda: self.spark.read.format("lowmark").load().collect(),
            "a function": lambda: self.spark.sql("SELECT * FROM lowmark_status('p')").collect(),
            "a stream": lambda: run_stream(
                into_files(stream_of(self.spark, "lowmark", "p"), self.directory / "away")
            ),
        }
        for what, ask in asks.items():
            try:
                ask()
                said = "nothing"
            except PySparkException as error:
                said = str(error)
            if f"the tracker at {AWAY} did not answer" not in said or "Traceback" in said:
                yield f"of a tracker that is away {what} says {said}"


def _naive(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Sessions show moments without their zone, UTC."""
    return tuple(value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value for value in row)


def main(target: str, pipeline: str, directory: Path, point: str, batch: int) -> int:
    if point == "connected":
        spark = connected(directory)
        print(json.dumps(list(Asking(spark, target, pipeline, directory).faults())), flush=True)
        spark.stop()
        return 0
    spark = make_session(LOCAL, directory / "spark")
    register(spark, target, timeout_s=HANG_S)
    frame = stream_of(spark, "lowmark.completed", pipeline, segment="parse", every=EVERY)
    if point == "none":
        run_stream(into_files(frame, directory).trigger(availableNow=True))
        return 0
    killer = Killer.here(batch)
    if point == "tasks":
        frame = frame.mapInArrow(killer.in_task(), frame.schema)
    else:
        os.makedirs(directory / "out", exist_ok=True)
        watched = (Moment(point), directory / "out", directory / "cp")
        threading.Thread(target=killer.watch_files, args=watched, daemon=True).start()
    run_stream(into_files(frame, directory))
    return 1  # it runs until it is killed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4], int(sys.argv[5])))
