"""6: sources, sinks, stateful operators and triggers.

Rows held in state are done when they have been absorbed and the batch is committed.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from examples.children import ROOT
from fronts import FileFront
from fronts.spark import SparkFront
from local_tracker.spark import OffsetRanges, TrackedQuery, TrackingError
from local_tracker.spark.jobs import JobNode
from tests.spark.support import SCHEMA
from tests.spark_matrix.registry import BOTH, Profile, row
from tests.spark_matrix.truth import Output
from tests.spark_matrix.world import World
from tracker.client import NodeClient
from tracker.core.ack_values import range_value
from tracker.core.model import Cells, Heartbeat, TickContent
from tracker.core.slots import FOREVER, slot_of
from tracker.core.units import slot_in_name, unit_name

ROCKSDB = Profile(
    "state",
    "local[2,2]",
    {
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        )
    },
)
WALL_SLOT_MS = 10


@row("6.1", "files to files: JSON into CSV")
def formats(world: World) -> None:
    world.open("parse")
    world.follow("cp", "parse")
    world.publish(3, 4, 6, fmt="json")
    frame = world.reader(2).json(world.pipeline.input)
    world.copy(world.tracked(), frame, fmt="csv").processAllAvailable()
    found = world.spark.read.schema(SCHEMA).csv(world.path("out")).collect()
    world.check(sorted(tuple(r) for r in found) == world.rows(), f"the sink holds {found}")
    world.finish()


@row("6.2", "the Parquet sink, partitioned by a column, read by a second query")
def partitioned_sink(world: World) -> None:
    world.open("parse", "after")
    world.follow("cp", "parse", world.sink("out", "after"))
    world.follow("cp-after", "after")
    world.publish(3, 4, 6)
    tracked = world.tracked()
    frame = world.source(2).withColumn("part", F.col("row") % 3)
    writer = frame.writeStream.format("parquet").partitionBy("part")
    writer = writer.option("path", world.path("out")).option("checkpointLocation", world.path("cp"))
    tracked.start(writer, node_id="parse", reads="parse", creates=["after"]).processAllAvailable()
    back = world.reader(2, f"{SCHEMA}, part long").parquet(world.path("out")).drop("part")
    world.copy(
        tracked, back, node="after", reads="after", out="after", checkpoint="cp-after"
    ).processAllAvailable()
    world.sink_is_all("after", "parquet")
    world.finish()


@row("6.3", "foreachBatch into partitioned Parquet, read by a second query")
def partitioned_writer(world: World) -> None:
    world.open("parse", "after")
    world.follow("cp", "parse", world.published("out", "after"))
    world.follow("cp-after", "after")
    world.publish(3, 4, 6)
    tracked = world.tracked()
    publish = tracked.writer(world.path("out"), partition_by=["part"])
    frame = world.source(2).withColumn("part", F.col("row") % 3)
    writer = frame.writeStream.foreachBatch(publish)
    writer = writer.option("checkpointLocation", world.path("cp"))
    tracked.start(writer, node_id="parse", reads="parse", creates=["after"]).processAllAvailable()
    back = world.reader(2, f"{SCHEMA}, part long").parquet(world.path("out")).drop("part")
    world.copy(
        tracked, back, node="after", reads="after", out="after", checkpoint="cp-after"
    ).processAllAvailable()
    world.sink_is_all("after", "parquet")
    world.finish()


def through_the_front(
    world: World, raw: DataFrame, schema: str, arrived: Callable[[], bool]
) -> int:
    """A raw stream, labelled and published by a Spark front, then copied; returns the rows."""
    front = SparkFront(world.target, world.name, "raw", "parse", world.path("raw"))
    stream = raw.writeStream.option("checkpointLocation", world.path("cp-raw"))
    query = front.start(stream.trigger(processingTime="200 milliseconds"))
    tracked = world.tracked()
    copy = world.copy(tracked, world.reader(4, schema).parquet(world.path("raw")))
    world.wait("rows have come", arrived, 60.0)
    query.processAllAvailable()
    front.stop(leave=True)
    copy.processAllAvailable()
    # A front's files are items from when they can be read; what they are labelled with is the slot of
    # their batch.
    for path in sorted(Path(world.path("raw")).glob("s*")):
        slot = slot_in_name(path.name)
        assert slot is not None
        world.truth.created("parse", unit_name(str(path)), slot)
        batch = int(path.name.rsplit("-", 1)[1].split(".")[0])
        stamp = (world.directory / "cp-raw/offsets" / str(batch)).read_text().splitlines()[1]
        moment_ms = int(stamp.partition('"batchTimestampMs":')[2].partition(",")[0])
        world.check(slot >= slot_of(moment_ms * 1_000_000, 10_000_000), f"{path.name} is too early")
    raw_rows = sorted(map(str, world.spark.read.parquet(world.path("raw")).collect()))
    rows = sorted(map(str, world.spark.read.parquet(world.path("out")).collect()))
    world.check(rows == raw_rows, f"{len(raw_rows)} rows were labelled, the sink holds {len(rows)}")
    world.await_end()
    return len(rows)


@row("6.4", "a rate source through the Spark front")
def rate(world: World) -> None:
    world.open("parse", fronts={}, elsewhere=["raw"])
    world.follow("cp", "parse")
    raw = world.spark.readStream.format("rate").option("rowsPerSecond", 20).load()
    rows = through_the_front(
        world, raw, "timestamp timestamp, value long",
        lambda: len(list(Path(world.path("raw")).glob("s*"))) >= 3,
    )  # fmt: skip
    world.check(rows > 0, "the source has made no rows")


@contextmanager
def lines_over_a_socket(lines: list[str]) -> Iterator[int]:
    """Serves lines to whoever connects; yields the port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connections = []

        def serve() -> None:
            try:
                while True:
                    connection, _ = server.accept()
                    connections.append(connection)
                    connection.sendall("".join(f"{line}\n" for line in lines).encode())
            except OSError:
                return  # closed

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            for connection in connections:
                connection.close()
            thread.join()


@row("6.5", "a socket source through the Spark front")
def socket_source(world: World) -> None:
    world.open("parse", fronts={}, elsewhere=["raw"])
    world.follow("cp", "parse")
    lines = [f"line {number}" for number in range(20)]
    with lines_over_a_socket(lines) as port:
        raw = world.spark.readStream.format("socket").option("host", "127.0.0.1")
        rows = through_the_front(
            world, raw.option("port", port).load(), "value string",
            lambda: sum(
                world.spark.read.parquet(str(path)).count()
                for path in Path(world.path("raw")).glob("s*")
            ) == len(lines),
        )  # fmt: skip
    world.check(rows == len(lines), f"{len(lines)} lines were sent, {rows} have come through")


def timed(frame: DataFrame) -> DataFrame:
    """Rows with an event time: a second for each slot."""
    return frame.withColumn("at", F.timestamp_seconds(F.col("slot"))).withWatermark(
        "at", "2 seconds"
    )


def stateful(
    world: World,
    build: Callable[[DataFrame], DataFrame],
    mode: str,
    expected: list[tuple[Any, ...]] | None,
) -> None:
    """Batches into state; a last file far ahead lets the watermark pass all others."""
    world.open("parse")
    world.follow("cp", "parse")
    tracked = world.tracked()
    publish = tracked.writer(world.path("out"), "json")
    writer = build(world.source(2)).writeStream.outputMode(mode).foreachBatch(publish)
    query = tracked.start(
        writer.option("checkpointLocation", world.path("cp")), node_id="parse", reads="parse"
    )
    world.publish(3, 3, 5, 8)
    query.processAllAvailable()
    world.publish(30)
    query.processAllAvailable()
    if expected is not None:
        world.sink_is(expected)
    world.finish()


@row("6.6", "groupBy with a watermark, append mode, no-data batches", quick=True)
def grouped_append(world: World) -> None:
    stateful(
        world,
        lambda frame: timed(frame).groupBy("at").agg(F.count("row").alias("n")).select(
            F.col("at").cast("long").alias("slot"), "n"
        ),
        "append",
        [(8, 3), (4, 5), (4, 8)],
    )  # fmt: skip
    inputless = [
        batch for batch in world.batches("cp")
        if batch and world.offsets("cp", batch) == world.offsets("cp", batch - 1)
    ]  # fmt: skip
    world.check(bool(inputless), "there was no batch without data")


@row("6.7", "groupBy, update mode")
def grouped_update(world: World) -> None:
    # Each file comes in a batch of its own, but for how many of slot 3 come first: the last count is
    # what a table of them would show.
    def build(frame: DataFrame) -> DataFrame:
        return frame.groupBy("slot").agg(F.count("row").alias("n"))

    stateful(world, build, "update", None)
    last: dict[int, int] = {}
    for n, slot in world.sink_rows():
        last[slot] = max(n, last.get(slot, 0))
    world.check(last == {3: 8, 5: 4, 8: 4, 30: 4}, f"the last counts are {last}")


@row("6.8", "dropDuplicates")
def drop_duplicates(world: World) -> None:
    stateful(
        world,
        lambda frame: timed(frame).dropDuplicates(["slot"]).select("slot"),
        "append",
        [(3,), (5,), (8,), (30,)],
    )


@row("6.9", "transformWithState", ROCKSDB)
def transform_with_state(world: World) -> None:
    def build(frame: DataFrame) -> DataFrame:
        import pandas as pd
        from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
        from pyspark.sql.types import IntegerType, StructField, StructType

        class Counting(StatefulProcessor):
            def init(self, handle: StatefulProcessorHandle) -> None:
                schema = StructType([StructField("n", IntegerType())])
                self._seen = handle.getValueState("seen", schema)

            def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
                n = sum(len(part) for part in rows)
                n += self._seen.get()[0] if self._seen.exists() else 0
                self._seen.update((n,))
                yield pd.DataFrame({"key": [key[0]], "n": [n]})

            def close(self) -> None: ...

        return (
            frame.withColumn("key", F.col("row") % 2)
            .groupBy("key")
            .transformWithStateInPandas(Counting(), "key long, n int", "update", "none")
        )

    stateful(world, build, "update", None)
    counts = [n for key, n in world.sink_rows() if key == 1]
    world.check(max(counts) == 10, f"the counts of odd rows are {counts}")


@row("6.10", "a stream-stream join with itself, each file once")
def self_joined(world: World) -> None:
    world.open("parse")
    world.follow("cp", "parse")
    world.publish(3, 4, 6)
    right = world.source(1).select(F.col("row").alias("r"))
    both = world.source(1).join(right, F.col("row") == F.col("r")).select("slot", "row")
    world.copy(world.tracked(), both).processAllAvailable()
    world.sink_is_all("out", "parquet")
    world.finish()


@row("6.11", "trigger availableNow, three times")
def available_now(world: World) -> None:
    world.open("parse")
    world.follow("cp", "parse")
    for slots in ((3, 4, 5), (), (8,)):
        world.publish(*slots)
        query = world.copy(world.tracked(), world.source(2), trigger={"availableNow": True})
        query.awaitTermination()
    world.sink_is_all("out", "parquet")
    world.finish()


@row("6.12", "trigger processingTime")
def processing_time(world: World) -> None:
    world.open("parse")
    world.follow("cp", "parse")
    trigger = {"processingTime": "100 milliseconds"}
    query = world.copy(world.tracked(), world.source(2), trigger=trigger)
    for slot in range(3, 9):
        world.publish(slot)
    query.processAllAvailable()
    world.sink_is_all("out", "parquet")
    world.finish()


@row("6.13", "rows of state emitted later: the query is a front of its output", quick=True)
def emits_from_state(world: World) -> None:
    now = slot_of(time.time_ns(), WALL_SLOT_MS * 1_000_000)
    world.open("parse", "after", elsewhere=["windows"], start_slot=now)
    world.follow("cp", "parse", world.published("out", "after"), emits_from_state=True)
    world.follow("cp-after", "after")
    tracked = world.tracked()
    publish = tracked.writer(world.path("out"))
    counted = (
        world.source(2)
        .withColumn("at", F.timestamp_seconds(F.col("row")))
        .withWatermark("at", "2 seconds")
        .groupBy("at")
        .agg(F.min("slot").alias("slot"), F.count("row").alias("n"))
        .select("slot", F.col("at").cast("long").alias("row"))
    )
    writer = counted.writeStream.outputMode("append").foreachBatch(publish)
    query = tracked.start(
        writer.option("checkpointLocation", world.path("cp")), node_id="parse", reads="parse",
        creates=["after"], emits="windows",
    )  # fmt: skip
    world.publish(now + 1, now + 2)
    query.processAllAvailable()
    world.publish(now + 3, rows=8)
    query.processAllAvailable()
    # A reader of the output waits for what is still in the state: the front holds it at its promise.
    after = world.pipeline.segments.index("after")
    moved = world.pipeline.describe().segments[after].min_time
    world.check(moved < FOREVER, "the output is complete, and state is still to be emitted")
    world.wait(
        "the driver promises between batches",
        lambda: (
            world.pipeline.describe().segments[after].min_time > moved
            or world.pipeline.describe().segments[after].open_items
        ),
    )
    query.stop(leave=True)
    world.copy(
        tracked, world.reader(3).parquet(world.path("out")), node="after", reads="after",
        out="after", checkpoint="cp-after",
    ).processAllAvailable()  # fmt: skip
    emitted = sorted(row for row, _ in world.sink_rows("after", "parquet"))
    # The watermark is two seconds behind row 15 and lets go of what it has reached; at the beginning it
    # stands at 0, so row 0 comes too late for Spark.
    world.check(emitted == list(range(1, 14)), f"emitted were the windows {emitted}")
    world.finish()


class Partitioned:
    """A partitioned source as a file of lines, and the producer that publishes into it."""

    def __init__(self, world: World, partitions: int) -> None:
        self.path, self._world = world.path("log.jsonl"), world
        self.ends = dict.fromkeys((str(number) for number in range(partitions)), 0)
        self.batches: list[dict[str, Any]] = []
        Path(self.path).touch()
        self._node = NodeClient(world.target, world.name, "producer", kind="front")
        self._node.join()
        self._node.join_front("producer", "parse")
        world.at_end(self._node.close)

    def publish(self, partition: str, slot: int, count: int) -> None:
        """Records of one slot at the end of a partition, their tick, and a promise beyond it."""
        begin = self.ends[partition]
        end = self.ends[partition] = begin + count
        line = {"partition": partition, "begin": begin, "end": end, "slot": slot}
        self.batches.append(line)
        with open(self.path, "a") as file:
            file.write(json.dumps(line) + "\n")
        for offset in range(begin, end):
            self._world.truth.created("parse", f"{partition}/{offset}", slot)
        cells = Cells.of([(0, slot, range_value(partition, begin, end), count)])
        self._node.commit(TickContent(created=cells)).result(30)
        promise = (Heartbeat("producer", slot + 1),)
        self._node.commit(TickContent(heartbeats=promise)).result(30)

    def leave(self) -> None:
        self._node.leave_front("producer").result(30)

    def pieces(self, partition: str, begin: int, end: int) -> list[tuple[int, int, int]]:
        """A range in pieces of one slot."""
        cut = [
            (max(begin, each["begin"]), min(end, each["end"]), each["slot"])
            for each in self.batches
            if each["partition"] == partition
        ]
        return [piece for piece in cut if piece[0] < piece[1]]

    def items(self, before: Any, after: Any) -> list[tuple[str, int]]:
        """What lies between two offsets, for the truth."""
        return [
            (f"{partition}/{offset}", slot)
            for partition, end in after.items()
            for first, last, slot in self.pieces(partition, (before or {}).get(partition, 0), end)
            for offset in range(first, last)
        ]


@row("6.14", "a Python data source with partitioned offsets, tracked by ranges", *BOTH)
def partitioned_offsets(world: World) -> None:
    world.open("parse", fronts={}, elsewhere=["producer"])
    log = Partitioned(world, 2)
    world.follow("cp", "parse", ranges=log.items)
    world.spark.dataSource.register(partitioned_source())
    tracked = world.tracked()
    frame = world.spark.readStream.format("partitioned").option("path", log.path).load()
    writer = frame.writeStream.format("parquet").option("path", world.path("out"))
    writer = writer.option("checkpointLocation", world.path("cp"))

    def start() -> TrackedQuery:
        ranges = {"0": OffsetRanges("parse", log.pieces)}
        return tracked.start(writer, node_id="parse", reads={}, ranges=ranges)

    query = start()
    for slot in (3, 4, 6):
        log.publish("0", slot, 7)
        log.publish("1", slot, 4)
        query.processAllAvailable()
    query.stop()
    log.publish("1", 9, 6)
    Path(log.path + ".closed").touch()
    query = start()
    query.processAllAvailable()
    cut = {line["end"] for line in log.batches} - {0}
    taken = {json.loads(world.offsets("cp", batch)[0])["0"] for batch in world.batches("cp")}
    world.check(bool(taken - cut), "the batches have cut none of the producer's ranges")
    world.sink_is(
        [(offset, p) for p, end in log.ends.items() for offset in range(end)], "out", "parquet"
    )
    log.leave()
    world.await_end()


def partitioned_source() -> Any:
    """The data source's class, made here so that it travels by value."""
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

    class RangePartition(InputPartition):
        def __init__(self, partition: str, begin: int, end: int) -> None:
            self.partition, self.begin, self.end = partition, begin, end

    class Reader(DataSourceStreamReader):
        def __init__(self, path: str) -> None:
            self.path = path

        def initialOffset(self) -> dict[str, int]:
            return {"0": 0, "1": 0}

        def latestOffset(self, *more: Any) -> dict[str, int]:
            import json
            import os

            ends = {"0": 0, "1": 0}
            with open(self.path) as file:
                for line in file:
                    value = json.loads(line)
                    ends[value["partition"]] = value["end"]
            # Until the log is closed, five records are read at a time: that cuts what was published.
            if not os.path.exists(self.path + ".closed"):
                ends = {p: end - end % 5 for p, end in ends.items()}
            return ends

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> Any:
            return [RangePartition(p, start[p], end[p]) for p in end if start[p] < end[p]]

        def read(self, partition: Any) -> Any:
            for offset in range(partition.begin, partition.end):
                yield (partition.partition, offset)

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "partitioned"

        def schema(self) -> str:
            return "partition string, offset long"

        def streamReader(self, schema: Any) -> Any:
            return Reader(self.options["path"])

    return Source


@row("6.15", "tracked by rows: every row an item, whatever file it is in", *BOTH, quick=True)
def by_rows(world: World) -> None:
    world.open("parse", "after", fronts={}, elsewhere=["rows"])
    by_slot = {"parse": "global_time", "after": "global_time"}
    world.follow("cp", "parse", world.sink("out", "after"), rows="global_time")
    world.follow("cp-after", "after", rows="global_time")
    front = FileFront(
        world.target, world.name, "rows", "parse", world.path("in"), items="rows",
        clock=lambda: world.clock_slot * WALL_SLOT_MS * 1_000_000, heartbeat_interval_ms=20,
    )  # fmt: skip
    number = 0
    with front:
        for slot in (3, 4, 6):
            world.clock_slot = slot
            front.write([{"row": number + n} for n in range(6)])
            number += 6
        world.clock_slot = 8
        front.wait_durable(30)
        tracked = world.tracked()
        schema = "row long, global_time long"
        # Some rows are dropped, others doubled: each that comes out is an item of its own.
        some = world.reader(2, schema + ", ack_value long").parquet(world.path("in"))
        some = some.filter("row % 3 != 0").select(
            F.explode(F.array("row", -F.col("row"))).alias("row"), "global_time"
        )
        world.copy(tracked, some, creates=["after"], rows=by_slot).processAllAvailable()
        world.copy(
            tracked, world.reader(1, schema).parquet(world.path("out")), node="after",
            reads="after", out="after", checkpoint="cp-after", rows={"after": "global_time"},
        ).processAllAvailable()  # fmt: skip
        front.leave()
    kept = [n for n in range(number) if n % 3]
    found = sorted(row for _, row in world.sink_rows("after", "parquet"))
    world.check(found == sorted([*kept, *(-n for n in kept)]), f"the sink holds {found}")
    for path in sorted(Path(world.path("in")).glob("s*")):
        of_file = slot_in_name(path.name)
        assert of_file is not None
        for place in range(6):
            world.truth.created("parse", f"{unit_name(str(path))}#{place}", of_file)
    world.await_end()


@row("6.16", "lowmark attach: a query that was never told, from a batch on, in another process")
def attached(world: World) -> None:
    world.open("parse", "after")
    world.follow("cp", "parse", world.sink("out", "after"))
    world.follow("cp-after", "after")
    # Nothing here knows of Lowmark.
    plain = world.source(1).writeStream.format("parquet").option("path", world.path("out"))
    world.publish(3, 4)
    query = plain.option("checkpointLocation", world.path("cp")).start()
    query.processAllAvailable()
    history = str(world.recorder.path.with_name("attach.jsonl"))
    command = [
        sys.executable, "-m", "tests.spark_matrix.recorded", history, "--", "attach", "--checkpoint", world.path("cp"),
        "--pipeline", world.name, "--node-id", "parse", "--reads", "parse", "--creates", "after",
        "--sink", world.path("out"), "--target", world.target,
    ]  # fmt: skip
    first = subprocess.run(
        [*command, "--once"], timeout=60, capture_output=True, check=False, cwd=ROOT
    )
    world.check(first.returncode == 0, f"attach --once says {first.stdout + first.stderr!r}")
    following = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
    world.at_end(following.kill)
    for slot in (6, 7, 9):
        world.publish(slot)
    query.processAllAvailable()
    world.copy(
        world.tracked(), world.reader(2).parquet(world.path("out")), node="after", reads="after",
        out="after", checkpoint="cp-after",
    ).processAllAvailable()  # fmt: skip
    following.terminate()
    said, errors = following.communicate(timeout=60)
    world.check(following.returncode == 0, f"attach says {said + errors!r}")
    world.check(b"told up to batch 4" in said, f"attach says {said!r}")
    world.sink_is_all("after", "parquet")
    world.finish()


@row("6.17", "a plain batch job as a node; killed before its tick, then run again", quick=True)
def batch_job(world: World) -> None:
    world.open("parse", "after")
    world.follow("cp-after", "after")
    world.publish(3, 4)
    tracked = world.tracked()

    def run() -> int:
        new = sorted(set(Path(world.pipeline.input).glob("s*")) - done)
        frame = world.spark.read.schema(SCHEMA).parquet(*map(str, new))
        done.update(new)
        return tracked.job(
            frame, world.path("out"), node_id="parse", reads="parse", creates=["after"]
        )

    done: set[Path] = set()
    world.check(run() == 0, "it was not the first run")
    world.job_done("out", 0)
    world.publish(6, 7)

    class Killed(BaseException): ...

    def die(*_: Any) -> None:
        raise Killed

    # Published, and not told: what a kill between the two leaves.
    tell = JobNode._tell
    JobNode._tell = die  # type: ignore[method-assign,assignment]
    try:
        run()
        world.fail("the run was not cut off")
    except Killed:
        pass
    finally:
        JobNode._tell = tell  # type: ignore[method-assign]
    min_time = world.pipeline.describe().segments[0].min_time
    world.check(min_time <= 6, f"min time {min_time} is beyond a job that was not told")
    world.job_done("out", 1)
    world.publish(9)
    world.check(run() == 2, "the run was not the third")
    world.job_done("out", 2)
    try:
        frame = world.spark.read.schema(SCHEMA).parquet(world.pipeline.input)
        tracked.job(frame, world.path("out"), node_id="parse", reads="parse", creates=["after"])
        world.fail("input was read twice")
    except TrackingError as error:
        world.check("has been read by its run 0" in str(error), f"it says {error}")
    world.copy(
        tracked, world.reader(2).parquet(world.path("out")), node="after", reads="after",
        out="after", checkpoint="cp-after",
    ).processAllAvailable()  # fmt: skip
    world.sink_is_all("after", "parquet")
    world.finish()


@row("6.18", "a Python data source that writes: its commit messages say what it created", *BOTH)
def commit_messages(world: World) -> None:
    world.open("parse", "after")
    world.follow("cp", "parse", Output("noted", world.directory / "out", ("after",)))
    world.follow("cp-after", "after")
    Path(world.path("out")).mkdir()
    world.spark.dataSource.register(noting_sink())
    tracked = world.tracked(with_acks=True)  # ships what the sink's commit imports
    writer = world.source(2).repartition(2).writeStream.format("noting")
    writer = writer.option("path", world.path("out")).option("notes", world.path("notes"))
    query = tracked.start(
        writer.option("checkpointLocation", world.path("cp")), node_id="parse", reads="parse",
        creates=["after"], noted=world.path("notes"),
    )  # fmt: skip
    for slot in (3, 5):
        world.publish(slot, slot + 1)
        query.processAllAvailable()
    back = world.reader(3).json(world.path("out"))
    world.copy(
        tracked, back, node="after", reads="after", out="after", checkpoint="cp-after"
    ).processAllAvailable()
    world.sink_is_all("after", "parquet")
    world.finish()


def noting_sink() -> Any:
    """The data source's class, made here so that it travels by value."""
    from dataclasses import dataclass

    from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage

    @dataclass
    class Written(WriterCommitMessage):
        name: str

    class Writer(DataSourceStreamWriter):
        def __init__(self, options: Any) -> None:
            self.out, self.notes = options["path"], options["notes"]

        def write(self, rows: Any) -> Any:
            import json
            import uuid

            # Hidden until the commit: a killed attempt's is never seen.
            name = f"{uuid.uuid4().hex}.json"
            with open(f"{self.out}/.{name}", "w") as file:
                for each in rows:
                    file.write(json.dumps({"slot": each[0], "row": each[1]}) + "\n")
            return Written(name)

        def commit(self, messages: Any, batchId: int) -> None:
            import os

            from local_tracker.worker.noted import note_commit

            placed = []
            for message in messages:
                target = f"{self.out}/b{batchId:08d}-{message.name}"
                os.rename(f"{self.out}/.{message.name}", target)
                placed.append(f"file://{target}")
            note_commit(self.notes, batchId, placed)

        def abort(self, messages: Any, batchId: int) -> None: ...

    class Sink(DataSource):
        @classmethod
        def name(cls) -> str:
            return "noting"

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            return Writer(self.options)

    return Sink
