"""The Spark side: a query that counts flights by hour and airport, and one that loads what it emits.

    python -m examples.windows.driver TARGET ROOT STATE

STATE is that of `TrackingOptions`: `hold`, or `free`. Says `ready` on standard output when both run. Runs until its
standard input is closed; `failed` if a query ends before.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Literal, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from examples.children import tell
from examples.sessions import make_session
from examples.windows.flights import DELAY_HOURS
from lowmark import Tracked, TrackedQuery
from lowmark.spark import TrackingOptions

NAME = "windows"
FLIGHT_SCHEMA = "row BIGINT, at TIMESTAMP, origin STRING, cancelled BOOLEAN"
HOUR_SCHEMA = "hour BIGINT, origin STRING, flights BIGINT, cancelled BIGINT"
WATCH_INTERVAL_S = 0.2


def hourly(flights: DataFrame) -> DataFrame:
    """Flights by hour and airport; an hour comes out when the watermark has passed its end."""
    counted = (
        flights.withWatermark("at", f"{DELAY_HOURS} hours")
        .groupBy(F.window("at", "1 hour"), "origin")
        .agg(
            F.count("row").alias("flights"),
            F.count_if(F.col("cancelled")).alias("cancelled"),
        )
    )
    hour = F.expr("unix_seconds(window.start) div 3600").alias("hour")
    return counted.select(hour, "origin", "flights", "cancelled")


def start_queries(
    spark: SparkSession, tracked: Tracked, root: Path, state: Literal["hold", "free"]
) -> list[TrackedQuery]:
    flights = spark.readStream.schema(FLIGHT_SCHEMA).json(str(root / "raw"))
    hours = (
        hourly(flights).writeStream.queryName("hours").outputMode("append").format("parquet")
        .option("path", str(root / "hours"))
        .option("checkpointLocation", str(root / "checkpoints" / "hours"))
    )  # fmt: skip
    counting = tracked.start(
        hours, node_id="hours", reads="flights", creates=["hours"],
        options=TrackingOptions(state=state),
    )  # fmt: skip
    emitted = spark.readStream.schema(HOUR_SCHEMA).parquet(str(root / "hours"))
    load = tracked.writer(str(root / "loaded"))
    loaded = emitted.writeStream.queryName("load").foreachBatch(
        lambda frame, batch: load(frame.coalesce(1), batch)
    )
    loading = tracked.start(
        loaded.option("checkpointLocation", str(root / "checkpoints" / "load")),
        node_id="load", reads="hours",
    )  # fmt: skip
    return [counting, loading]


def main(target: str, root: Path, state: Literal["hold", "free"]) -> int:
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    # An hour comes out with the batch without data that follows the burst whose watermark has passed it.
    spark = make_session(NAME, root, {"spark.sql.streaming.noDataMicroBatches.enabled": "true"})
    tracked = Tracked(spark, target, NAME)
    queries = start_queries(spark, tracked, root, state)
    tell("ready")
    status = 0
    while status == 0 and not ended.wait(WATCH_INTERVAL_S):
        for query in queries:
            if not query.isActive:
                tell("failed", query=query.name, reason=str(query.exception()))
                status = 1
    tracked.stop()
    spark.stop()
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), cast(Literal["hold", "free"], sys.argv[3])))
