"""What tracking costs a Spark query: the same query untracked, by units and by rows, by turns.

    python -m benchmarks.spark_tracking --rows 5000000 --rounds 5
    python -m benchmarks.spark_tracking --workload words --rows 1000000 --rounds 5

`copy` is Parquet to Parquet; `words` counts words through a Python UDF; `tap` hands all rows through a
Python function of `mapInArrow`, which may acknowledge them. Each run reads all rows in `--batches`
batches, and ends when the tracker has them all. Told are medians and ranges, of the time that has passed
and of the processor time of all processes (driver, JVM, Python workers, tracker), which other work on the
machine disturbs less; ratios are of the runs of one round. What decides is what tracking adds (`benchmarks/added.py`). Files lie in memory where there is room, and the
JVM collects its garbage before each run: what disks and heaps do by themselves is more than tracking costs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

import tracker
from benchmarks import flights
from benchmarks.added import Watched, watched
from benchmarks.bars import BARS
from benchmarks.figures import Budget, Figure, are_told, shown
from benchmarks.limits import time_for
from benchmarks.pairs import FEWEST_ROUNDS, ratios, take_turns
from benchmarks.scratch import scratch
from examples.flights.data import FLIGHTS
from fronts.files import FileFront
from fronts.front import FrontOptions
from local_tracker import acks
from local_tracker.spark.query.rows import row_cells
from local_tracker.spark.session.tracked import Tracked
from local_tracker.spark.session.tracked_query import TrackedQuery
from tracker.client.embedded import EmbeddedTracker
from tracker.core.model import Cells, Edge, PipelineSpec, TickContent, Unit
from tracker.core.model.ack_values import unit_value
from tracker.core.model.units import slot_in_name, unit_name

WAYS = ("untracked", "units", "rows")
FLIGHTS_WAYS = ("untracked", "units")
TAPPED_WAYS = ("untracked", "units", "acks by array", "acks by row")
PLAIN = ("copy", "words", "tap")
"""Workloads over rows that are made up; the others are queries of the flights demo."""
SCHEMA = "row long, text string, amount double, global_time long, ack_value long"
FILES = 10
WORDS = 8
_WAIT_S = 120.0
_ROOM_BYTES = 8 << 30


@dataclass(frozen=True)
class Cost:
    """Of a run. processor_s: of all processes."""

    run: Watched
    processor_s: float

    @property
    def seconds(self) -> float:
        return self.run.seconds


CASE_S = 900.0
"""How long rounds of a case that cannot tell may go on."""


@dataclass(frozen=True)
class Case:
    """A workload, in how many batches, in how many partitions for each core (0: as Spark likes)."""

    workload: str
    rows: int
    batches: int = 1
    partitions: int = 0
    barred: bool = False

    def __str__(self) -> str:
        batches = "1 batch" if self.batches == 1 else f"{self.batches} batches"
        partitions = f", {self.partitions} partitions a core" if self.partitions else ""
        names = {
            "copy": "bare Parquet copy",
            "words": "word count in a Python UDF",
            "tap": "rows through mapInArrow",
            "parse": "the flights demo's parsing of lines",
            "enrich": "the flights demo's joins",
        }
        return f"{names[self.workload]}, {self.rows:,} rows in {batches}{partitions}"


def find(budget: Budget) -> Iterable[Figure]:
    rounds = budget.pick(1, FEWEST_ROUNDS)
    cases = [Case("words", 1_000_000, barred=True), Case("copy", 5_000_000, barred=True)]
    if budget is Budget.QUICK:
        cases = [Case("copy", 500_000)]
    if budget is not Budget.QUICK:
        cases += [Case(workload, FLIGHTS) for workload in ("parse", "enrich")]
    if budget is Budget.FULL:
        cases += [Case("words", 1_000_000, 10), Case("copy", 5_000_000, 10)]
        cases += [Case("copy", 5_000_000, 1, 1), Case("copy", 5_000_000, 1, 4)]
        cases += [Case("tap", 1_000_000)]
    cores = os.cpu_count() or 1
    with scratch(_ROOM_BYTES) as directory, running(cores, directory) as (spark, embedded):
        for place, case in enumerate(cases):
            given = Path(directory) / f"case{place}"
            names = write_input(embedded, given / "in", case.rows, f"made{place}", case.workload)
            bench = Bench(embedded, spark, given, names, case.batches, f"case{place}")
            bench.divide(cores * case.partitions)
            turns = rounds if case.barred else max(1, rounds // 4)
            costs = measure(
                bench, case.workload, turns,
                partial(_are_told, case), budget.looks,
            )  # fmt: skip
            yield from _figures(case, costs)
            shutil.rmtree(given)


def _are_told(case: Case, costs: dict[str, list[Cost]]) -> bool:
    return are_told(_figures(case, costs))


def _figures(case: Case, costs: dict[str, list[Cost]]) -> Iterable[Figure]:
    plain = costs["untracked"]
    seconds = statistics.median(cost.seconds for cost in plain)
    against = f"the same untracked: {shown(seconds)} s"
    if case.workload == "words":
        against += f", {1e6 * _udf_s():.1f} µs a row in the UDF"
    for way, runs in costs.items():
        if way == "untracked":
            continue
        bar = BARS[f"{case.workload} by {way}"] if case.barred else None
        added = [a.run.added_s(b.run) for a, b in zip(runs, plain, strict=True)]
        yield Figure(
            f"{case}: untracked and what {way} add / untracked", tuple(1 + each / seconds for each in added),
            "", f"{against}; {1000 * statistics.median(added):.0f} ms are added", bar,
        )  # fmt: skip
        passed = ratios([cost.seconds for cost in runs], [cost.seconds for cost in plain])
        yield Figure(f"... by the clock: {way} / untracked", passed, "", "run by run")
        # Where a worker ended unwaited for, what it had used is gone from the sum.
        pairs = [(a.processor_s, b.processor_s) for a, b in zip(runs, plain, strict=True)]
        if used := tuple(a / b for a, b in pairs if min(a, b) > 0):
            yield Figure(f"... by processor time: {way} / untracked", used, "", "all processes")


def _udf_s() -> float:
    """What the UDF itself takes for a row, in seconds of processors."""
    text = " ".join(f"word{n:03d}" for n in range(WORDS))
    calls = 20_000

    def count() -> None:
        for _ in range(calls):
            counted(text)

    return min(_timed(count) for _ in range(3)) / calls


def main() -> None:
    options = arguments()
    with (
        scratch(_ROOM_BYTES) as directory,
        running(options.cores, directory) as (spark, embedded),
    ):
        given = Path(directory) / "in"
        names = write_input(embedded, given, options.rows, workload=options.workload)
        bench = Bench(embedded, spark, Path(directory), names, options.batches)
        tell(options, measure(bench, options.workload, options.rounds))
        tell_reading(names)


@contextmanager
def running(cores: int, directory: str) -> Iterator[tuple[SparkSession, EmbeddedTracker]]:
    """A session, and a tracker in this process. The session comes first: it forks to start its JVM, and gRPC's
    threads do not bear that while they work."""
    spark = session(cores, directory)
    try:
        with tracker.embedded() as embedded:
            yield spark, embedded
    finally:
        spark.stop()


def session(cores: int, directory: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Spark as it comes, but for what it shows, where it leaves things, and the settings."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master(f"local[{cores}]")
    for name, value in (settings or {}).items():
        builder = builder.config(name, value)
    spark = (
        builder.config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.warehouse.dir", f"{directory}/warehouse")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--workload", choices=(*PLAIN, "parse", "enrich"), default="copy")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, choices=(1, 2, 5, 10), default=1)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    return parser.parse_args()


def write_input(
    embedded: EmbeddedTracker, directory: Path, rows: int, pipeline: str = "made",
    workload: str = "copy",
) -> list[str]:  # fmt: skip
    """Files of labelled rows, as a front publishes them; returns their unit names."""
    embedded.register(PipelineSpec(pipeline, ("in",), fronts=("front",)))
    made = made_tables(rows) if workload in PLAIN else flights.tables(workload, rows)
    slots = iter(range(FILES + 1))
    slot = next(slots)
    paths = []
    front = FileFront(
        embedded.target,
        pipeline,
        "front",
        "in",
        directory,
        items="rows",
        options=FrontOptions(clock=lambda: slot * 10_000_000),
    )
    with front:
        for table in made:
            written = front.write(table)
            assert written is not None
            paths.append(str(written.path))
            slot = next(slots, slot)
    return [unit_name(path) for path in paths]


def made_tables(rows: int) -> Iterator[pa.Table]:
    random = np.random.default_rng(7)
    words = np.array([f"word{n:03d}" for n in range(1000)])
    for first in range(0, rows, rows // FILES):
        count = min(rows // FILES, rows - first)
        texts = [" ".join(row) for row in words[random.integers(0, 1000, (count, WORDS))]]
        yield pa.table(
            {
                "row": np.arange(first, first + count),
                "text": texts,
                "amount": random.random(count),
            }
        )


class Bench:
    """Runs of one query over the same input, each with a pipeline, a checkpoint and a sink of its own."""

    def __init__(
        self, embedded: EmbeddedTracker, spark: SparkSession, directory: Path, names: Sequence[str],
        batches: int, name: str = "case",
    ) -> None:  # fmt: skip
        self.embedded, self.spark, self.directory, self.names = embedded, spark, directory, names
        self.name = name
        self.files_per_batch = -(-len(names) // batches)
        self.runs = 0

    def divide(self, partitions: int) -> None:
        """In how many partitions files are read; 0: as Spark likes."""
        names = ("spark.sql.files.minPartitionNum", "spark.sql.files.maxPartitionBytes")
        for name in names:
            self.spark.conf.unset(name)
        if partitions:
            self.spark.conf.set(names[0], str(partitions))
            self.spark.conf.set(names[1], "10g")

    def run(self, workload: str, way: str) -> Cost:
        self.runs += 1
        out = self.directory / f"run{self.runs}"
        pipeline = f"{self.name}-run{self.runs}"
        if way != "untracked":
            self._register(pipeline, way)
        writer = self._writer(workload, way, out)
        self.spark._jvm.System.gc()
        used_s = processor_s()
        cost = Cost(self._watched(writer, way, pipeline), processor_s() - used_s)
        shutil.rmtree(out)
        return cost

    def _watched(self, writer: DataStreamWriter, way: str, pipeline: str) -> Watched:
        def start(writer: DataStreamWriter) -> StreamingQuery | TrackedQuery:
            if way == "untracked":
                return writer.start()
            session = Tracked(self.spark, self.embedded.target, pipeline)
            if way.startswith("acks"):
                session.track(acks)
            columns = {"in": "global_time", "out": "global_time"} if way == "rows" else None
            return session.start(writer, node_id="query", reads="in", creates=["out"], rows=columns)

        return watched(self.spark, writer, start)

    def _register(self, pipeline: str, way: str) -> None:
        """A pipeline in which the input has been created, by files or by rows."""
        edge = Edge("in", "out")
        self.embedded.register(PipelineSpec(pipeline, ("in", "out"), (edge,), fronts=("front",)))
        with self.embedded.node(pipeline, "front") as node:
            node.join()
            node.join_front("front", "in")
            if way == "rows":
                content = TickContent(created=row_cells(0, self.names, "global_time"))
            else:
                units = tuple(Unit(0, name, slot_in_name(name) or 0) for name in self.names)
                cells = Cells.of((0, unit.slot, unit_value(unit.name), 1) for unit in units)
                content = TickContent(created=cells, units_created=units)
            node.commit(content).result(_WAIT_S)

    def _writer(self, workload: str, way: str, out: Path) -> DataStreamWriter:
        return (
            self._frame(workload, way)
            .writeStream.format("parquet")
            .option("path", str(out / "out"))
            .option("checkpointLocation", str(out / "cp"))
        )

    def _frame(self, workload: str, way: str) -> DataFrame:
        given = str(self.directory / "in")
        if workload not in PLAIN:
            return flights.frame(workload, self.spark, given)
        frame: DataFrame = (
            self.spark.readStream.schema(SCHEMA)
            .option("maxFilesPerTrigger", self.files_per_batch)
            .parquet(given)
        )
        if workload == "words":
            frame = frame.withColumn("text", F.udf(counted, "string")("text"))
        if workload == "tap":
            frame = frame.mapInArrow(tap(way), SCHEMA)
        return frame


def counted(text: str) -> str:
    """Words with their numbers: some microseconds a row."""
    found: dict[str, int] = {}
    for word in text.split():
        found[word] = found.get(word, 0) + 1
    return " ".join(f"{word}:{number}" for word, number in sorted(found.items()))


def tap(way: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Hands rows through. Where it acknowledges, an item for each row comes and goes, by arrays or by a
    call a row: the task does all that tracking takes, and nothing stays open."""

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    @acks.operator("tap")
    def by_array(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            slots, values = (batch.column(n).to_numpy() for n in ("global_time", "ack_value"))
            acks.create("in", slots, values)
            acks.consume("in", slots, values)
            yield batch

    @acks.operator("tap")
    def by_row(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            slots, values = (batch.column(n).to_pylist() for n in ("global_time", "ack_value"))
            for slot, value in zip(slots, values, strict=True):
                acks.create("in", slot, value)
                acks.consume("in", slot, value)
            yield batch

    return {"acks by array": by_array, "acks by row": by_row}.get(way, pass_on)


def measure(
    bench: Bench, workload: str, rounds: int,
    told: Callable[[dict[str, list[Cost]]], bool] = lambda _: True, looks: int = 1,
) -> dict[str, list[Cost]]:  # fmt: skip
    """By turns: of each round, what each way has cost."""
    ways = FLIGHTS_WAYS if workload not in PLAIN else TAPPED_WAYS if workload == "tap" else WAYS
    runs = {way: (lambda way=way: bench.run(workload, way)) for way in ways}
    return take_turns(runs, rounds, told, looks=looks, has_time=time_for(CASE_S))


def tell(options: argparse.Namespace, costs: dict[str, list[Cost]]) -> None:
    print(
        f"{options.workload}: {options.rows:,} rows, {options.batches} batches, "
        f"{options.cores} cores, {options.rounds} rounds"
    )
    print(f"{'':14}{'passed s':>26}{'ratio':>8}{'processors s':>26}{'ratio':>8}")
    for way, runs in costs.items():
        cells = [f"{way:14}"]
        for kind in ("seconds", "processor_s"):
            values = [getattr(cost, kind) for cost in runs]
            middle = statistics.median(values)
            plain = [getattr(cost, kind) for cost in costs["untracked"]]
            ratio = statistics.median(ratios(values, plain))
            cells.append(f"{middle:10.2f} ({min(values):.2f}..{max(values):.2f})".rjust(26))
            cells.append(f"{ratio:8.3f}")
        print("".join(cells))


def tell_reading(names: Sequence[str]) -> None:
    """What it takes the driver to read rows back, by itself."""
    rows = sum(count for *_, count in row_cells(0, names, "global_time").rows())
    seconds = min(_timed(lambda: row_cells(0, names, "global_time")) for _ in range(3))
    print(
        f"reading {rows:,} rows back: {seconds:.3f} s of processors, {rows / seconds:,.0f} rows/s"
    )


def _timed(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def processor_s() -> float:
    """Processor time of this process and all that it has started, as far as they live or were waited
    for, in seconds."""
    ticks: dict[int, int] = {}
    by_parent: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            ticks[int(entry.name)] = sum(map(int, fields[11:15]))
            by_parent.setdefault(int(fields[1]), []).append(int(entry.name))
    total, open_ = 0, [os.getpid()]
    while open_:
        process = open_.pop()
        total += ticks.get(process, 0)
        open_ += by_parent.get(process, ())
    return total / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
