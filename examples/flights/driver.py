"""The Spark side of the demo: one driver with the three tracked queries.

    python -m examples.flights.driver TARGET ROOT

Says what happens as JSON lines on standard output: `ready`, then `progress` for each micro-batch, or
`failed`. Runs until its standard input is closed.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter, StreamingQueryListener

from examples.children import tell
from examples.flights import queries
from examples.flights.letters import Letter, letter_values, write_letters
from examples.flights.pipeline import NAME, QUERIES, Places
from examples.flights.witness import FileSink, FileSource, Witness, WitnessedQuery
from examples.history import Recorder, recording_ticks
from examples.sessions import make_session
from lowmark import Tracked, TrackedQuery, acks
from lowmark.nodes import slot_in_name

TRIGGER = "700 milliseconds"
NICENESS = 5
WATCH_INTERVAL_S = 0.5
IDLE_TIMEOUT_S = 20.0
IDLE_POLL_S = 0.05


def tracked_parser(
    directory: Path, slot_of: Callable[[Mapping[str, Any]], int]
) -> Callable[[Iterator[pa.RecordBatch]], Any]:
    """The first query's parser: malformed rows go to a side output, each as an item of the segment
    `dead_letters` from the moment at which the micro-batch commits. slot_of: under which a raw row
    came in."""

    def hand_over(malformed: queries.Malformed) -> None:
        letters = [Letter(row, slot, line, why) for row, slot, line, why in malformed]
        task = TaskContext.get()
        assert task is not None
        batch = task.getLocalProperty("streaming.sql.batchId")
        write_letters(directory, f"{batch}-{task.partitionId()}.jsonl", letters)
        slots = [letter.slot for letter in letters]
        acks.create("dead_letters", slots, letter_values([letter.row for letter in letters]))

    return acks.operator("parse")(queries.parser(hand_over, slot_of))


def slot_of_file(raw: Mapping[str, Any]) -> int:
    """The slot under which an airport published a raw row, from the name of its file."""
    slot = slot_in_name(raw["file_name"])
    if slot is None:
        raise ValueError(f"{raw['file_name']!r} was not published by a front: no slot in its name")
    return slot


def writing(places: Places, name: str, frame: DataFrame) -> DataStreamWriter:
    """A query, with its name, its checkpoint and how often it looks for more."""
    return (
        frame.writeStream.queryName(name)
        .option("checkpointLocation", str(places.checkpoint(name)))
        .trigger(processingTime=TRIGGER)
    )


def start_parse(spark: SparkSession, tracked: Tracked, places: Places) -> TrackedQuery:
    """The first query."""
    raw = queries.raw_flights(spark, str(places.raw))
    parsed = queries.parsed(raw, tracked_parser(places.malformed, slot_of_file))
    return tracked.start(
        writing(places, "parse", parsed).format("parquet").option("path", str(places.parsed)),
        node_id="parse", reads="parse", creates=["enrich"],
    )  # fmt: skip


def enriched(spark: SparkSession, places: Places) -> DataFrame:
    """What the second query writes."""
    flights = queries.flights_in(spark, str(places.parsed), queries.FLIGHT_SCHEMA)
    return queries.enriched(spark, flights)


def start_aggregate(spark: SparkSession, tracked: Tracked, places: Places) -> TrackedQuery:
    """The last query."""
    write_totals = tracked.writer(str(places.totals))

    def publish(totals: DataFrame, batch: int) -> None:
        write_totals(totals.withColumn("batch", F.lit(batch)).coalesce(1), batch)

    flights = queries.flights_in(spark, str(places.enriched), queries.ENRICHED_SCHEMA)
    totals = queries.aggregated(flights)
    return tracked.start(
        writing(places, "aggregate", totals).outputMode("update").foreachBatch(publish),
        node_id="aggregate", reads="aggregate",
    )  # fmt: skip


def start_queries(spark: SparkSession, tracked: Tracked, places: Places) -> list[TrackedQuery]:
    """The three queries, each a node of the pipeline."""
    parse = start_parse(spark, tracked, places)
    writer = writing(places, "enrich", enriched(spark, places))
    enrich = tracked.start(
        writer.format("parquet").option("path", str(places.enriched)),
        node_id="enrich", reads="enrich", creates=["aggregate"],
    )  # fmt: skip
    return [parse, enrich, start_aggregate(spark, tracked, places)]


def witnessed(places: Places) -> list[WitnessedQuery]:
    """The queries as the witness sees them."""
    parse, enrich, aggregate = (places.checkpoint(query) for query in QUERIES)
    return [
        WitnessedQuery("parse", parse, FileSource(parse), {"enrich": FileSink(places.parsed)}),
        WitnessedQuery(
            "enrich", enrich, FileSource(enrich), {"aggregate": FileSink(places.enriched)}
        ),
        WitnessedQuery("aggregate", aggregate, FileSource(aggregate)),
    ]


class ProgressTeller(StreamingQueryListener):
    """Says how many rows each query has read."""

    def __init__(self) -> None:
        self._rows: Counter[str] = Counter()

    def onQueryStarted(self, event: Any) -> None: ...

    def onQueryIdle(self, event: Any) -> None: ...

    def onQueryTerminated(self, event: Any) -> None: ...

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        self._rows[progress.name] += progress.numInputRows
        tell("progress", query=progress.name, rows=self._rows[progress.name])


def wait_until_idle(running: list[TrackedQuery]) -> None:
    """Waits, for a while, until no query is in a batch: one that is interrupted within foreachBatch
    may break in Spark's handling of the interruption, and then does not end."""
    deadline_s = time.monotonic() + IDLE_TIMEOUT_S
    while time.monotonic() < deadline_s:
        statuses = [query.status for query in running if query.isActive]
        if not any(status["isTriggerActive"] for status in statuses):
            return
        time.sleep(IDLE_POLL_S)


def ended_by_parent(heard: Callable[[str], None] = lambda _: None) -> threading.Event:
    """Set when standard input is closed, by the parent or by its end. heard: is given each line that comes before."""
    ended = threading.Event()

    def wait() -> None:
        for line in sys.stdin:
            heard(line)
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    return ended


def run_queries(
    spark: SparkSession,
    tracked: Tracked,
    start: Callable[[], list[TrackedQuery]],
    watched: Sequence[WitnessedQuery],
    recorder: Recorder,
    heard: Callable[[str], None] = lambda _: None,
) -> int:
    """Runs the queries that `start` starts, before the witness, until standard input is closed. heard: is given each line
    that comes there; it may change the list that `start` has returned. Returns 1 if one of them has ended by itself."""
    ended = ended_by_parent(heard)
    spark.streams.addListener(ProgressTeller())
    tracked.track(acks)
    witness = Witness(recorder, watched)
    status = 0
    with recording_ticks(recorder):
        running = start()
        witness.start()
        tell("ready")
        while status == 0 and not ended.wait(WATCH_INTERVAL_S):
            for query in list(running):
                if not query.isActive and query in running:
                    tell("failed", query=query.name, reason=str(query.exception()))
                    status = 1
        wait_until_idle(running)
        tracked.stop()
        witness.close()
    recorder.close()
    return status


def main(target: str, root: str) -> int:
    """Runs the queries until standard input is closed; 1 if one of them has ended by itself."""
    places = Places(Path(root))
    # The tracker and the airports do little, and are not to wait for Spark on a small machine.
    os.nice(NICENESS)
    spark = make_session("flights", places.root)
    tracked = Tracked(spark, target, NAME)
    recorder = Recorder(places.histories / "driver.jsonl")
    status = run_queries(
        spark, tracked, lambda: start_queries(spark, tracked, places), witnessed(places), recorder
    )
    spark.stop()
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
