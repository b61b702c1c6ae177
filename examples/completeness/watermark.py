"""Spark's watermark: real queries, each counting the flights of each hour with a delay of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from examples.completeness.answers import Answer, Answers, minutes_text
from examples.completeness.flights import HOUR, Flight
from examples.sessions import session

BATCH = 30
"""Minutes between two files of what has been loaded since; each is a batch."""
SCHEMA = "scheduled TIMESTAMP"
PUBLISHED, MADE = "raw", "made"
SETTINGS = {
    # An hour comes out with the batch without data behind the one that has moved the watermark.
    "spark.sql.streaming.noDataMicroBatches.enabled": "true",
    "spark.sql.shuffle.partitions": "1",
}


class Windowed:
    """A query that emits an hour when its watermark has passed the hour's end. Flights that come later are dropped by
    Spark, whatever they are."""

    def __init__(self, spark: SparkSession, directory: Path, delay: int) -> None:
        """delay: of the watermark, in minutes."""
        self.now = 0
        """The minute of the replay, which what is emitted is emitted in."""
        self.answers = Answers(f"Spark's watermark, {minutes_text(delay)} behind")
        flights = spark.readStream.schema(SCHEMA).json(str(directory / PUBLISHED))
        counted = (
            flights.withWatermark("scheduled", f"{delay} minutes")
            .groupBy(F.window("scheduled", "1 hour"))
            .agg(F.count("*").alias("flights"))
        )
        hours = counted.select(
            F.expr("unix_seconds(window.start) div 3600").alias("hour"), "flights"
        )
        self.query: StreamingQuery = (
            hours.writeStream.outputMode("append").foreachBatch(self._emitted)
            .option("checkpointLocation", str(directory / f"checkpoint-{delay}"))
            .start()
        )  # fmt: skip

    def _emitted(self, hours: DataFrame, _: int) -> None:
        for row in hours.collect():
            self.answers.told[row["hour"]] = Answer(self.now, row["flights"])


def watermarks(
    coming: Sequence[tuple[int, Sequence[Flight]]], directory: Path, delays: Sequence[int]
) -> list[Answers]:
    """What a query says of the flights with each delay, in minutes; its files are in `directory`. coming: as `batches`
    makes it. Raises what Spark raises."""
    for name in (PUBLISHED, MADE):
        (directory / name).mkdir(parents=True)
    with session("completeness", directory, SETTINGS) as spark:
        queries = [Windowed(spark, directory, delay) for delay in delays]
        for now, flights in coming:
            for windowed in queries:
                windowed.now = now
            _publish(directory, now, flights)
            for windowed in queries:
                windowed.query.processAllAvailable()
        for windowed in queries:
            windowed.query.stop()
        return [windowed.answers for windowed in queries]


def batches(flights: Sequence[Flight]) -> Iterator[tuple[int, list[Flight]]]:
    """What is loaded in each half hour in which anything is, with the minute of its end."""
    by_end: dict[int, list[Flight]] = {}
    for flight in sorted(flights, key=lambda flight: flight.loaded):
        by_end.setdefault(-(-flight.loaded // BATCH) * BATCH, []).append(flight)
    yield from by_end.items()


def _publish(directory: Path, now: int, flights: Sequence[Flight]) -> None:
    """As a file that the queries see whole, or not at all."""
    lines = [
        json.dumps({"scheduled": datetime.fromtimestamp(60 * flight.scheduled, UTC).isoformat()})
        for flight in flights
    ]
    made = directory / MADE / f"{now // HOUR}-{now % HOUR}.json"
    made.write_text("\n".join(lines) + "\n")
    made.rename(directory / PUBLISHED / made.name)
