"""The Spark side: queries that come and go while the others run, in one driver.

    python -m tests.change.driver TARGET ROOT [SABOTAGE]

Takes a JSON line for each step, {"step": "add", "floor": slot}, {"step": "detach"} or {"step": "end"}, and says `done` when it is
made, with the moments between which `enrich` did not run, if it was started again.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter

from examples.children import tell
from examples.flights.data import DAY_NS
from examples.flights.driver import (
    NICENESS,
    enriched,
    run_queries,
    start_aggregate,
    start_parse,
    wait_until_idle,
    writing,
)
from examples.flights.letters import Letter, letter_values, write_letters
from examples.flights.pipeline import NAME
from examples.flights.queries import flights_in
from examples.flights.witness import FileSink, FileSource, PublishedSink, WitnessedQuery
from examples.history import Recorder
from examples.sessions import make_session
from lowmark import Tracked, TrackedQuery, acks
from lowmark.spark import BatchWriter
from tests.change.pipeline import ADDED, LATE_LETTERS, LATE_MIN, REMOVED, ChangePlaces
from tests.waits import until

DAY_S = DAY_NS // 10**9
CARRIER_SCHEMA = "row BIGINT, carrier STRING"
DELAYED_SCHEMA = "row BIGINT, scheduled_s BIGINT, dep_delay_min INT"


def written_for(reader: str, flights: DataFrame) -> DataFrame:
    """What `enrich` writes for one of its readers."""
    match reader:
        case "carriers":
            return flights.select("row", "carrier")
        case "delayed":
            late = flights.where(F.col("dep_delay_min") >= LATE_MIN)
            return late.select("row", "scheduled_s", "dep_delay_min")
        case _:
            return flights


def to_letters(directory: Path, floor: int) -> Callable[[Iterator[pa.RecordBatch]], Any]:
    """Hands each delayed flight to the node of dead letters, too: over an edge that is new, so under no slot below what had
    been announced there when it came. floor: that slot."""

    def handed_over(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        letters = []
        for batch in batches:
            for flight in batch.to_pylist():
                slot = max(flight["scheduled_s"] // DAY_S, floor)
                letters.append(Letter(flight["row"], slot, "", "left late"))
            yield batch
        if letters:
            task = TaskContext.get()
            assert task is not None
            number = task.getLocalProperty("streaming.sql.batchId")
            name = f"{LATE_LETTERS}-{number}-{task.partitionId()}.jsonl"
            write_letters(directory, name, letters)
            slots = [letter.slot for letter in letters]
            acks.create("dead_letters", slots, letter_values([letter.row for letter in letters]))

    return acks.operator(ADDED)(handed_over)


class EndingError(Exception):
    """The query is about to be ended, and begins no batch."""


class Queries:
    """Those that run; `take` makes a step. straggler: the query of the removed segment runs on, unseen by the tracker."""

    def __init__(
        self, spark: SparkSession, tracked: Tracked, places: ChangePlaces, *, straggler: bool
    ) -> None:
        self._spark, self._tracked, self._places = spark, tracked, places
        self._straggler = straggler
        self._readers = ["aggregate", REMOVED]
        self._writers: dict[str, BatchWriter] = {}
        self._untracked: list[str] = []
        self._publishing = threading.Lock()
        self._published = -1
        """The last batch of which something is published, or is being."""
        self._is_ending = False
        self.running: list[TrackedQuery] = []

    def start(self) -> list[TrackedQuery]:
        spark, tracked, places = self._spark, self._tracked, self._places
        self.running += [
            start_parse(spark, tracked, places),
            self._start_enrich(),
            start_aggregate(spark, tracked, places),
            self._start_carriers(),
        ]
        return self.running

    def take(self, line: str) -> None:
        """Makes the step of a line; says what went wrong."""
        asked = json.loads(line)
        try:
            match asked["step"]:
                case "add":
                    self._readers.append(ADDED)
                    moments = self._restart_enrich()
                    self.running.append(self._start_delayed(asked["floor"]))
                case "detach":
                    self._readers.remove(REMOVED)
                    self._untracked += [REMOVED] if self._straggler else []
                    moments = self._restart_enrich()
                case _:
                    moments = {}
                    self._end_carriers()
        except Exception as error:
            tell("failed", step=asked["step"], reason=f"{error!r}")
        else:
            tell("done", step=asked["step"], **moments)

    def _start_enrich(self) -> TrackedQuery:
        readers, untracked, places = tuple(self._readers), tuple(self._untracked), self._places
        for reader in readers:
            if reader not in self._writers:
                where = str(places.written_for(reader))
                self._writers[reader] = self._tracked.writer(where, creates=[reader])

        def publish(flights: DataFrame, batch: int) -> None:
            with self._publishing:
                if self._is_ending:
                    raise EndingError
                self._published = batch
                flights.persist()
                for reader in readers:
                    self._writers[reader](written_for(reader, flights), batch)
                for reader in untracked:
                    more = written_for(reader, flights)
                    more.write.mode("append").parquet(str(places.written_for(reader)))
                flights.unpersist()

        return self._tracked.start(
            writing(places, "enrich", enriched(self._spark, places)).foreachBatch(publish),
            node_id="enrich", reads="enrich", creates=readers,
        )  # fmt: skip

    def _restart_enrich(self) -> dict[str, int]:
        """Ends the query between two batches, and starts it with the readers of now: one of which something is published
        would have its tick made by those of now. Says when it had ended, by the clock that stamps files."""
        (enrich,) = [query for query in self.running if query.name == "enrich"]
        self.running.remove(enrich)
        with self._publishing:
            self._is_ending = True
        commit = self._places.checkpoint("enrich") / "commits" / str(self._published)
        until(lambda: self._published < 0 or commit.exists())
        enrich.stop()
        stopped_ns, self._is_ending = time.time_ns(), False
        self.running.append(self._start_enrich())
        return {"stopped_ns": stopped_ns}

    def _carriers(self) -> DataStreamWriter:
        places = self._places
        flights = flights_in(self._spark, str(places.written_for(REMOVED)), CARRIER_SCHEMA)
        writer = writing(places, REMOVED, flights).format("parquet")
        return writer.option("path", str(places.table(REMOVED)))

    def _start_carriers(self) -> TrackedQuery:
        return self._tracked.start(self._carriers(), node_id=REMOVED, reads=REMOVED)

    def _end_carriers(self) -> None:
        (carriers,) = [query for query in self.running if query.name == REMOVED]
        self.running.remove(carriers)
        wait_until_idle([carriers])
        carriers.stop()
        if self._straggler:
            self._carriers().start()

    def _start_delayed(self, floor: int) -> TrackedQuery:
        places = self._places
        flights = flights_in(self._spark, str(places.written_for(ADDED)), DELAYED_SCHEMA)
        letters = to_letters(places.malformed, floor)
        marked = flights.coalesce(1).mapInArrow(letters, DELAYED_SCHEMA)
        writer = writing(places, ADDED, marked).format("parquet")
        return self._tracked.start(
            writer.option("path", str(places.table(ADDED))), node_id=ADDED, reads=ADDED
        )


def witnessed(places: ChangePlaces) -> list[WitnessedQuery]:
    """The queries as the witness sees them, also those that have not begun."""

    def query(name: str, **sinks: Any) -> WitnessedQuery:
        checkpoint = places.checkpoint(name)
        return WitnessedQuery(name, checkpoint, FileSource(checkpoint), sinks)

    readers = ("aggregate", REMOVED, ADDED)
    return [
        query("parse", enrich=FileSink(places.parsed)),
        query("enrich", **{name: PublishedSink(places.written_for(name)) for name in readers}),
        *(query(name) for name in readers),
    ]


def main(target: str, root: str, sabotage: str = "") -> int:
    """Runs the queries until standard input is closed; 1 if one of them has ended by itself."""
    places = ChangePlaces(Path(root))
    os.nice(NICENESS)
    spark = make_session("change", places.root)
    tracked = Tracked(spark, target, NAME)
    recorder = Recorder(places.histories / "driver.jsonl")
    queries = Queries(spark, tracked, places, straggler=sabotage == "straggler")
    status = run_queries(spark, tracked, queries.start, witnessed(places), recorder, queries.take)
    spark.stop()
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
