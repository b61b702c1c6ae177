"""How long after a file has appeared its rows are known to be complete: Spark's watermark, Lowmark's min time."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import tracker
from benchmarks.figures import Figure
from benchmarks.spark_tracking import session
from fronts.files import FileFront
from local_tracker.spark.session.tracked import Tracked
from tracker.client import Subscriber
from tracker.core.model import PipelineSpec

ROWS = 1000
FILE_EVERY_S = 1.0
LOOK_EVERY_S = 0.02
TIMEOUT_S = 120.0
WARM_UP = 3
SCHEMA = "at timestamp"


def delays(files: int) -> Iterator[Figure]:
    """Seconds for each file, by both, of one query."""
    with (
        tempfile.TemporaryDirectory(prefix="lowmark-bench-") as directory,
        tracker.embedded() as embedded,
    ):
        embedded.register(PipelineSpec("p", ("in",), fronts=("front",)))
        given = Path(directory) / "in"
        given.mkdir()
        spark = session(os.cpu_count() or 1, directory)
        try:
            with FileFront(embedded.target, "p", "front", "in", given) as front:
                query = _start(spark, embedded.target, given, Path(directory))
                subscriber = embedded.subscriber("p")
                runs = [_file(front, query, subscriber) for _ in range(files + WARM_UP + 1)]
                query.stop()
        finally:
            spark.stop()
    # The last file's watermark would come with a file after it.
    counted = runs[WARM_UP:-1]
    yield Figure(
        "until a file's rows are known to be complete: Lowmark's min time",
        tuple(run.min_time_s for run in counted),
        "s",
        f"a file every {FILE_EVERY_S:g} s, tracked by units",
    )
    yield Figure(
        "until a file's rows lie below Spark's watermark, of no delay",
        tuple(run.watermark_s[0] for run in counted if run.watermark_s),
        "s",
        f"the same query and files; {sum(bool(run.watermark_s) for run in counted)} of {len(counted)}",
    )


@dataclass
class _Run:
    """What became of a file: seconds from its appearing. `watermark_s` is filled when it is passed."""

    min_time_s: float
    watermark_s: list[float]


def _file(front: FileFront, query: StreamingQuery, subscriber: Subscriber) -> _Run:
    written = front.write(pa.table({"at": [datetime.now(UTC)] * ROWS}))
    assert written is not None
    appeared, last = time.monotonic(), datetime.now(UTC)
    passed: list[float] = []
    threading.Thread(target=_watch, args=(query, last, appeared, passed), daemon=True).start()
    if not subscriber.wait_until(written.slot + 1, timeout_s=TIMEOUT_S):
        raise RuntimeError(f"a file was not complete within {TIMEOUT_S:g} s")
    taken = time.monotonic() - appeared
    time.sleep(max(0.0, FILE_EVERY_S - taken))
    return _Run(taken, passed)


def _watch(query: StreamingQuery, last: datetime, appeared: float, passed: list[float]) -> None:
    """Notes when the query's watermark has come to the moment of the file's rows."""
    wanted = last - timedelta(milliseconds=100)  # rows were stamped shortly before
    while query.isActive and time.monotonic() - appeared < TIMEOUT_S:
        progress = query.lastProgress
        shown = progress.get("eventTime", {}).get("watermark") if progress else None
        if shown and datetime.fromisoformat(shown.replace("Z", "+00:00")) >= wanted:
            passed.append(time.monotonic() - appeared)
            return
        time.sleep(LOOK_EVERY_S)


def _start(spark: SparkSession, target: str, given: Path, directory: Path) -> StreamingQuery:
    frame = spark.readStream.schema(SCHEMA).parquet(str(given)).withWatermark("at", "0 seconds")
    writer = (
        frame.writeStream.format("parquet")
        .option("path", str(directory / "out"))
        .option("checkpointLocation", str(directory / "cp"))
    )
    query: StreamingQuery = Tracked(spark, target, "p").start(writer, node_id="query", reads="in")
    return query
