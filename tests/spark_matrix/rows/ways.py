"""6, continued: the ways to track a query other than by the files of Spark's own sinks.

Rows, ranges of offsets, what is emitted from state, sinks of the user's own, batch jobs, and queries that
were never told.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

from fronts.files import FileFront
from fronts.front import FrontOptions
from local_tracker.spark.formats.ranges import OffsetRanges
from local_tracker.spark.session.attached import AttachedQuery
from local_tracker.spark.session.jobs import JobNode
from local_tracker.spark.session.options import TrackingOptions
from local_tracker.spark.session.tracked import TrackedQuery
from tests.cluster.children import Running
from tests.spark.support import SCHEMA
from tests.spark_matrix.registry import BOTH, LOCAL, row
from tests.spark_matrix.truth import Output
from tests.spark_matrix.world import World
from tests.waits import HANG_S
from tracker.client import NodeClient
from tracker.core.model import Cells, Heartbeat, TickContent
from tracker.core.model.ack_values import range_value
from tracker.core.model.slots import FOREVER, slot_of
from tracker.core.model.units import slot_in_name, unit_name
from tracker.errors import TrackingError

WALL_SLOT_MS = 10


@row(
    "6.13",
    "rows of state emitted later: the query, started again, is a front of its output",
    quick=True,
)
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
    writer = writer.option("checkpointLocation", world.path("cp"))

    def start() -> TrackedQuery:
        return tracked.start(
            writer, node_id="parse", reads="parse", creates=["after"],
            options=TrackingOptions(emits="windows"),
        )  # fmt: skip

    query = start()
    world.publish(now + 1, now + 2)
    query.processAllAvailable()
    query.stop()  # the state outlives it, and so does what it has promised
    query = start()
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

    def publish(self, partition: str, slot: int, count: int, *, more: bool = False) -> None:
        """Records of one slot at the end of a partition, their tick, and a promise beyond it; not
        beyond it if there is `more` of the slot to come."""
        begin = self.ends[partition]
        end = self.ends[partition] = begin + count
        line = {"partition": partition, "begin": begin, "end": end, "slot": slot}
        self.batches.append(line)
        with open(self.path, "a") as file:
            file.write(json.dumps(line) + "\n")
        for offset in range(begin, end):
            self._world.truth.created("parse", f"{partition}/{offset}", slot)
        cells = Cells.of([(0, slot, range_value(partition, begin, end), count)])
        self._node.commit(TickContent(created=cells)).result(HANG_S)
        promise = (Heartbeat("producer", slot if more else slot + 1),)
        self._node.commit(TickContent(heartbeats=promise)).result(HANG_S)

    def leave(self) -> None:
        self._node.leave_front("producer").result(HANG_S)

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
        options = TrackingOptions(ranges={"0": OffsetRanges("parse", log.pieces)})
        return tracked.start(writer, node_id="parse", reads={}, options=options)

    query = start()
    for slot in (3, 4, 6):
        log.publish("0", slot, 7, more=True)
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


@row("6.15", "tracked by rows: every row an item, whatever file it is in", *BOTH, quick=LOCAL)
def by_rows(world: World) -> None:
    world.open("parse", "after", fronts={}, elsewhere=["rows"])
    by_slot = {"parse": "global_time", "after": "global_time"}
    world.follow("cp", "parse", world.sink("out", "after"), rows="global_time")
    world.follow("cp-after", "after", rows="global_time")
    front = FileFront(
        world.target,
        world.name,
        "rows",
        "parse",
        world.path("in"),
        items="rows",
        options=FrontOptions(
            clock=lambda: world.clock_slot * WALL_SLOT_MS * 1_000_000, heartbeat_interval_ms=20
        ),
    )
    number = 0
    with front:
        for slot in (3, 4, 6):
            world.clock_slot = slot
            front.write([{"row": number + n} for n in range(6)])
            number += 6
        world.clock_slot = 8
        front.wait_durable(HANG_S)
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


@row(
    "6.16", "lowmark query attach: a query that was never told, in another process, which is killed"
)
def attached(world: World) -> None:
    world.open("parse", "after")
    world.follow("cp", "parse", world.sink("out", "after"))
    world.follow("cp-after", "after")
    # Nothing here knows of Lowmark.
    plain = world.source(1).writeStream.format("parquet").option("path", world.path("out"))
    world.publish(3, 4)
    query = plain.option("checkpointLocation", world.path("cp")).start()
    query.processAllAvailable()
    command = (
        "tests.spark_matrix.recorded", str(world.recorder.path.with_name("attach.jsonl")), "--",
        "query", "attach", "--checkpoint", world.path("cp"), "--pipeline", world.name, "--node-id", "parse",
        "--reads", "parse", "--creates", "after", "--sink", world.path("out"),
        "--target", world.target,
    )  # fmt: skip
    log = Path(world.path("attach.log"))
    with Running(*command, "--once", errors=log) as first:
        first.ends_well()
    following = Running(*command, errors=log)
    world.at_end(following.discard)
    following.start()
    for slot in (6, 7):
        world.publish(slot)
    query.processAllAvailable()
    world.wait("attach has told it", lambda: not world.open_items("parse"))
    following.kill()
    world.publish(9)
    query.processAllAvailable()  # nobody follows
    following.start()
    world.copy(
        world.tracked(), world.reader(2).parquet(world.path("out")), node="after", reads="after",
        out="after", checkpoint="cp-after",
    ).processAllAvailable()  # fmt: skip
    world.check(following.stop() == 0, f"attach says {following.errors()}")
    world.check(
        any("committed up to batch 4" in line for _, line in following.lines),
        f"attach says {following.lines}",
    )
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
            frame.write, world.path("out"), node_id="parse", reads="parse", creates=["after"]
        )

    done: set[Path] = set()
    world.check(run() == 0, "it was not the first run")
    world.job_done("out", 0)
    world.publish(6, 7)

    class Killed(BaseException): ...

    def die(*_: Any) -> None:
        raise Killed

    # Published, and not told: what a kill between the two leaves.
    tell = JobNode._commit_run
    JobNode._commit_run = die  # type: ignore[method-assign,assignment]
    try:
        run()
        world.fail("the run was not cut off")
    except Killed:
        pass
    finally:
        JobNode._commit_run = tell  # type: ignore[method-assign]
    min_time = world.pipeline.describe().segments[0].min_time
    world.check(min_time <= 6, f"min time {min_time} is beyond a job that was not told")
    world.job_done("out", 1)
    world.publish(9)
    world.check(run() == 2, "the run was not the third")
    world.job_done("out", 2)
    try:
        frame = world.spark.read.schema(SCHEMA).parquet(world.pipeline.input)
        tracked.job(
            frame.write, world.path("out"), node_id="parse", reads="parse", creates=["after"]
        )
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
        creates=["after"], options=TrackingOptions(noted=world.path("notes")),
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


@row("6.19", "Kafka: logs in its format, written here, since no connector is at hand")
def kafka_logs(world: World) -> None:
    world.open("parse", fronts={}, elsewhere=["producer"])
    log = Partitioned(world, 2)
    checkpoint = world.directory / "cp"
    for folder in ("offsets", "commits", "sources/0"):
        (checkpoint / folder).mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id":"2b7c9f0e-61de-4a43-8d49-0f6d9f1c5a77"}')
    # Kafka's source writes where it begins, behind a byte that old versions looked for.
    (checkpoint / "sources/0/0").write_text('\0v1\n{"flights":{"0":0,"1":0}}')

    def pieces(partition: str, begin: int, end: int) -> list[tuple[int, int, int]]:
        return log.pieces(partition, begin, end)

    def items(before: Any, after: Any) -> list[tuple[str, int]]:
        def named(offset: Any) -> dict[str, int]:
            return {f"flights/{p}": end for p, end in (offset or {}).get("flights", {}).items()}

        return log.items(named(before), named(after))

    world.follow("cp", "parse", ranges=items)
    log.ends = {"flights/0": 0, "flights/1": 0}
    following = AttachedQuery(
        world.target, world.name, "parse", str(checkpoint), reads={},
        ranges={"0": OffsetRanges("parse", pieces)},
    ).start()  # fmt: skip
    world.at_end(following.close)
    for batch, (slot, ends) in enumerate([(3, (5, 0)), (4, (8, 7)), (6, (16, 7)), (8, (16, 18))]):
        log.publish("flights/0", slot, 8, more=True)
        log.publish("flights/1", slot, 9)
        offsets = {"flights": {str(partition): end for partition, end in enumerate(ends)}}
        write_batch(checkpoint, batch, json.dumps(offsets, separators=(",", ":")))
        world.check(following.wait_durable(world.patience_s), "the batch was not told in time")
    last = {"flights": {"0": log.ends["flights/0"], "1": log.ends["flights/1"]}}
    write_batch(checkpoint, 4, json.dumps(last))
    world.check(following.wait_durable(world.patience_s), "the batch was not told in time")
    log.leave()
    world.await_end()


def write_batch(checkpoint: Path, batch: int, offsets: str) -> None:
    """What Spark writes of a batch, each file whole."""
    header = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1_700_000_000_000 + batch})
    for folder, text in (
        ("offsets", f"v1\n{header}\n{offsets}"),
        ("commits", 'v1\n{"nextBatchWatermarkMs":0}'),
    ):
        hidden = checkpoint / folder / f".{batch}"
        hidden.write_text(text)
        hidden.rename(checkpoint / folder / str(batch))
