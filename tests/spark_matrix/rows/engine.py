"""6: sources, sinks, stateful operators and triggers.

Rows held in state are done when they have been absorbed and the batch is committed.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from fronts.spark import SparkFront
from tests.spark.support import SCHEMA
from tests.spark_matrix.registry import Profile, row
from tests.spark_matrix.world import World
from tracker.core.model.slots import slot_of
from tracker.core.model.units import slot_in_name, unit_name

ROCKSDB = Profile(
    "state",
    "local[2,2]",
    {
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        )
    },
)


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
    world: World, raw: DataFrame, schema: str, arrived: Callable[[], bool], *, again: bool = False
) -> int:
    """A raw stream, labelled and published by a Spark front, then copied; returns the rows. again: the front
    is stopped in between and started again, for which its source must be one that can be read again."""
    stream = raw.writeStream.option("checkpointLocation", world.path("cp-raw"))
    stream = stream.trigger(processingTime="200 milliseconds")

    def start() -> tuple[SparkFront, StreamingQuery]:
        front = SparkFront(world.target, world.name, "raw", "parse", world.path("raw"))
        return front, front.start(stream)

    front, query = start()
    tracked = world.tracked()
    copy = world.copy(tracked, world.reader(4, schema).parquet(world.path("raw")))
    world.wait("rows have come", arrived)
    # Not `processAllAvailable`: a source of rates has more on a slow machine, whatever was processed.
    begun = [
        int(path.name)
        for path in (world.directory / "cp-raw/offsets").iterdir()
        if path.name.isdigit()
    ]
    world.wait("what has begun is over", lambda: world.batches("cp-raw")[-1:] >= [max(begun)])
    if again:
        front.stop()  # without leaving: a killed driver would be the same to the tracker
        before, (front, query) = len(world.batches("cp-raw")), start()
        world.wait(
            "it has gone on", lambda: len(world.batches("cp-raw")) > before or not query.isActive
        )
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


@row("6.4", "a rate source through the Spark front, started again", quick=True)
def rate(world: World) -> None:
    world.open("parse", fronts={}, elsewhere=["raw"])
    world.follow("cp", "parse")
    raw = world.spark.readStream.format("rate").option("rowsPerSecond", 20).load()
    rows = through_the_front(
        world, raw, "timestamp timestamp, value long",
        lambda: len(list(Path(world.path("raw")).glob("s*"))) >= 3, again=True,
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


@row("6.6", "groupBy with a watermark, append mode, no-data batches")
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
