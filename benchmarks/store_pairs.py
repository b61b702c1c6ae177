"""What tracking by units costs a query whose files are in an object store: pairs of runs on an S3 server.

A run copies 5 million rows in ten batches, one after the other without a pause, with its checkpoint, source
and sink on the server. Compared is each batch with the one of that number in the other run of its pair: from
its beginning to that of the next, so that whatever tracking does beside the query counts. The first batch,
in which a query begins, is in the whole runs alone, as are the join before it, and the wait until the tracker
has the last one. Requests are those that the server has answered, over whole runs. Batches of one pair
share what else the machine did, so a pair is worth one ratio: the middle one of its batches.
"""

from __future__ import annotations

import os
import statistics
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

import tracker
from benchmarks.added import CORES, watched
from benchmarks.figures import Budget, Figure, Finding, Skipped, are_told, shown
from benchmarks.limits import time_for
from benchmarks.pairs import FEWEST_ROUNDS, Bar, ratios, take_turns
from benchmarks.scratch import scratch
from benchmarks.spark_tracking import FILES, made_tables, processor_s, session
from local_tracker.spark.session.tracked import Tracked
from local_tracker.spark.session.tracked_query import TrackedQuery
from tests.connectors.parts.cache import Unavailable
from tests.connectors.parts.jars import spark_jars
from tests.connectors.parts.s3 import S3Server
from tests.connectors.s3_requests import S3Client
from tracker.client.embedded import EmbeddedTracker
from tracker.core.model import Cells, Edge, PipelineSpec, TickContent, Unit
from tracker.core.model.ack_values import unit_value

ROWS, BATCHES = 5_000_000, FILES
BUCKET = "bench"
PAIRS_S = 600.0
"""How long pairs that cannot tell may go on."""
_ROOM_BYTES = 8 << 30
_WAIT_S = 120.0


@dataclass(frozen=True)
class Cost:
    """Of one run. seconds: from its start until the tracker has it all; batches: seconds from the beginning
    of each batch to that of the next, but for the first and the last; requests: answered by the server; used_s: of processors, for
    tracking and what runs in its place untracked, over all batches."""

    seconds: float
    processor_s: float
    batches: tuple[float, ...]
    requests: int
    used_s: float


class Copy(ABC):
    """A query that copies what is in a store into the store."""

    what: str
    """As the table calls it."""
    bar: Bar

    def __init__(self, spark: SparkSession, server: S3Server) -> None:
        self.spark, self.client = spark, S3Client(server, BUCKET)

    @abstractmethod
    def write_input(self) -> list[str]:
        """Writes the input of all batches; returns the units' names, in order."""

    @abstractmethod
    def writer(self, run: str) -> DataStreamWriter:
        """Of a query that copies one unit in each batch, into a folder of its own in the store."""

    def put_rows(self, folder: str) -> list[str]:
        """A file of rows for each batch; returns their locations."""
        places = []
        for slot, rows in enumerate(made_tables(ROWS)):
            key, file = f"{folder}/s{slot}-front-{slot:08d}.parquet", BytesIO()
            pq.write_table(rows, file)
            assert self.client.put(key, file.getvalue()) == 200
            places.append(f"s3a://{BUCKET}/{key}")
        return places


class Pairs:
    """Runs of a copy, untracked and tracked by turns."""

    def __init__(
        self, copy: Copy, server: S3Server, embedded: EmbeddedTracker, units: Sequence[str]
    ) -> None:
        self._copy, self._server, self._embedded, self._units = copy, server, embedded, units
        self._runs = 0

    def measure(self, looks: int) -> list[Figure]:
        found = take_turns(
            {"plain": self.untracked, "tracked": self.tracked},
            FEWEST_ROUNDS,
            lambda costs: are_told(figures(self._copy, **costs)),
            looks=looks,
            has_time=time_for(PAIRS_S),
        )
        return list(figures(self._copy, **found))

    def untracked(self) -> Cost:
        return self._measured(lambda writer, _: writer.start())

    def tracked(self) -> Cost:
        def start(writer: DataStreamWriter, pipeline: str) -> TrackedQuery:
            started = Tracked(self._copy.spark, self._embedded.target, pipeline)
            return started.start(writer, node_id="query", reads="in", creates=["out"])

        return self._measured(start)

    def _measured(
        self, start: Callable[[DataStreamWriter, str], StreamingQuery | TrackedQuery]
    ) -> Cost:
        self._runs += 1
        name = f"run{self._runs}"
        self._register(name)
        writer = self._copy.writer(name)
        self._copy.spark._jvm.System.gc()
        requests, used = self._server.requests(), processor_s()
        run = watched(self._copy.spark, writer, lambda writer: start(writer, name))
        return Cost(
            run.seconds, processor_s() - used, batch_seconds(run.query.recentProgress),
            self._server.requests() - requests, run.used_s,
        )  # fmt: skip

    def _register(self, pipeline: str) -> None:
        """A pipeline in which the input has been created."""
        spec = PipelineSpec(pipeline, ("in", "out"), (Edge("in", "out"),), fronts=("front",))
        self._embedded.register(spec)
        with self._embedded.node(pipeline, "front") as node:
            node.join()
            node.join_front("front", "in")
            units = tuple(Unit(0, name, slot) for slot, name in enumerate(self._units))
            cells = Cells.of((0, unit.slot, unit_value(unit.name), 1) for unit in units)
            node.commit(TickContent(created=cells, units_created=units)).result(_WAIT_S)


def batch_seconds(progress: Iterable[Any]) -> tuple[float, ...]:
    """Seconds from the beginning of each batch to that of the next, without the first, in which the query
    begins."""
    began = [
        datetime.fromisoformat(report["timestamp"]).timestamp()
        for report in progress
        if report["numInputRows"]
    ]
    assert len(began) == BATCHES, f"the query has reported {len(began)} batches of {BATCHES}"
    return tuple(after - before for before, after in pairwise(began[1:]))


def find(
    kind: type[Copy], jar_sets: Sequence[str], settings: dict[str, str], budget: Budget
) -> Iterable[Finding]:
    try:
        with _copied(kind, jar_sets, settings) as pairs:
            return pairs.measure(budget.looks)
    except Unavailable as error:
        return [Skipped(kind.what, str(error))]


@contextmanager
def _copied(kind: type[Copy], jar_sets: Sequence[str], settings: dict[str, str]) -> Iterator[Pairs]:
    """A server with the copy's input, a session and a tracker."""
    jars = {"spark.jars": spark_jars(*jar_sets)}
    with scratch(_ROOM_BYTES) as directory, tracker.embedded() as embedded, ExitStack() as ending:
        server = S3Server(Path(directory) / "s3", BUCKET).start()
        ending.callback(server.discard)
        cores = os.cpu_count() or 1
        spark = session(cores, directory, {**jars, **server.spark_settings(), **settings})
        ending.callback(spark.stop)
        copy = kind(spark, server)
        yield Pairs(copy, server, embedded, copy.write_input())


def figures(
    copy: Copy | type[Copy], plain: Sequence[Cost], tracked: Sequence[Cost]
) -> Iterable[Figure]:
    batches = tuple(
        statistics.median(ratios(a.batches, b.batches)) for a, b in zip(tracked, plain, strict=True)
    )
    usual_s = statistics.median(seconds for cost in plain for seconds in cost.batches)
    case = f"{copy.what}, {ROWS:,} rows in {BATCHES} batches"
    added = tuple(
        (a.used_s - b.used_s) / BATCHES / CORES for a, b in zip(tracked, plain, strict=True)
    )
    yield Figure(
        f"{case}, a batch: untracked and what units add / untracked", tuple(1 + each / usual_s for each in added), "",
        f"a batch untracked, {shown(usual_s)} s; {1000 * statistics.median(added):.1f} ms are added", copy.bar,
    )  # fmt: skip
    yield Figure(
        "... by the clock: units / untracked", batches, "", "the batch of that number; the middle one of each pair of runs",
    )  # fmt: skip
    whole = [(a.seconds, b.seconds) for a, b in zip(tracked, plain, strict=True)]
    usual_s = statistics.median(cost.seconds for cost in plain)
    yield Figure(
        "... the whole run, from its start until the tracker has all", ratios(*zip(*whole, strict=True)),
        "", f"the same untracked: {shown(usual_s)} s",
    )  # fmt: skip
    used = [(a.processor_s, b.processor_s) for a, b in zip(tracked, plain, strict=True)]
    yield Figure(
        "... the same by processor time", ratios(*zip(*used, strict=True)), "",
        "all processes, the server too",
    )  # fmt: skip
    yield Figure(
        "... requests a batch, untracked", tuple(cost.requests / BATCHES for cost in plain), "",
        "as the server has answered them, of a whole run",
    )  # fmt: skip
    more = tuple((a.requests - b.requests) / BATCHES for a, b in zip(tracked, plain, strict=True))
    yield Figure("... requests a batch, added by tracking", more, "", "tracked less untracked")
