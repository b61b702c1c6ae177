"""8: what does not wait for micro-batches: real-time mode, and long tasks in eager mode.

In eager mode each step counts once and as a whole, though the local tracker is killed again and again: the worker
hands a step over until it is answered, and the local tracker keeps it in its spool. A worker that dies
between the answer and its own note of it does not know that the step has counted, so steps and notes
must be of one piece where a worker may die; that is the worker's business.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from local_tracker.spark.formats.ranges import OffsetRanges
from local_tracker.spark.session.options import TrackingOptions
from tests.cluster.children import Running
from tests.spark_matrix.registry import row
from tests.spark_matrix.rows.ways import Partitioned
from tests.spark_matrix.world import World
from tracker.core.model.units import unit_name

REAL_TIME = {
    "spark.sql.streaming.realTimeMode.minBatchDuration": "1000",
    "spark.sql.streaming.realTimeMode.allowlistCheck": "false",  # Python's foreach is not listed
}


@row(
    "8.1", "real-time mode: rows flow at once, min time moves when their batch commits", quick=True
)
def real_time(world: World) -> None:
    """Spark has the mode for Kafka, and for a source in memory of its own, whose offsets number the
    records of partitions just so."""
    world.open("parse", fronts={}, elsewhere=["producer"])
    log = Partitioned(world, 2)
    world.follow("cp", "parse", ranges=log.items)
    stream, frame = memory_stream(world.spark, 2)
    seen = world.path("seen")

    def take(each: Any) -> None:
        with open(seen, "a") as file:
            file.write(each[0] + "\n")

    for name, value in REAL_TIME.items():
        world.spark.conf.set(name, value)
    world.at_end(lambda: [world.spark.conf.unset(name) for name in REAL_TIME])
    writer = frame.selectExpr("upper(value) AS v").writeStream.foreach(take).outputMode("update")
    writer = writer.option("checkpointLocation", world.path("cp")).trigger(realTime="1 second")
    query = world.tracked().start(
        writer,
        node_id="parse",
        reads={},
        options=TrackingOptions(ranges={"0": OffsetRanges("parse", log.pieces)}),
    )
    sequence = world.spark.sparkContext._jvm.PythonUtils.toSeq
    expected = []
    for slot in (3, 4, 6):
        for partition in (0, 1):
            begin = log.ends[str(partition)]
            words = [f"p{partition} o{begin + n}" for n in range(3)]
            expected += [word.upper() for word in words]
            stream.addData(partition, sequence(words))
            log.publish(str(partition), slot, len(words), more=partition == 0)
    wanted = dict(log.ends)
    world.wait(
        "all is committed",
        lambda: (
            (batches := world.batches("cp"))
            and json.loads(world.offsets("cp", batches[-1])[0]) == wanted
        ),
    )
    query.stop()
    found = Path(seen).read_text().splitlines()
    world.check(sorted(found) == sorted(expected), f"the sink has seen {found}")
    log.leave()
    world.await_end()


def memory_stream(spark: SparkSession, partitions: int) -> tuple[Any, DataFrame]:
    """Spark's own source for its tests of real-time mode: what data is added to, and its frame."""
    jvm: Any = spark.sparkContext._jvm
    made = getattr(
        getattr(jvm.org.apache.spark.sql.execution.streaming.sources, "LowLatencyMemoryStream$"),
        "MODULE$",
    )
    stream = made.apply(
        spark._jsparkSession, partitions, jvm.org.apache.spark.sql.Encoders.STRING()
    )
    return stream, DataFrame(stream.toDF(), spark)


class LongTask:
    """The worker's process, started anew as often as is wanted."""

    def __init__(self, world: World) -> None:
        self.world, self.done = world, Path(world.path("done"))
        self._taken = 0
        self.process = Running(
            "tests.spark_matrix.long_task", world.pipeline.input, str(self.done), "parse",
            errors=Path(world.path("long-task.log")),
            environment={
                "LOWMARK_TARGET": world.target, "LOWMARK_PIPELINE": world.name,
                "LOWMARK_NODE_ID": "long-task", "LOWMARK_DIRECTORY": world.path("lowmark"),
                "LOWMARK_PYTHON": self._recording_interpreter(),
            },
        )  # fmt: skip
        world.at_end(self.process.discard)

    def _recording_interpreter(self) -> str:
        """What runs as the local tracker's interpreter: its ticks belong to the history."""
        history = self.world.recorder.path.with_name("local-tracker.jsonl")
        script = Path(self.world.path("interpreter"))
        command = f"{sys.executable} -m tests.spark_matrix.recorded {history} -- local-tracker"
        script.write_text(f'#!/bin/sh\nshift 2\nexec {command} "$@"\n')
        script.chmod(0o700)
        return str(script)

    def await_done(self, count: int) -> None:
        """Until it has said that so many more files are done."""
        for _ in range(count):
            begun_ns, name = self.process.until_line(self._taken).split()
            self._taken += 1
            path = f"{self.world.pipeline.input}/{name}"
            # Done when the step is handed over; so nothing may be announced before.
            self.world.recorder.consumed("parse", unit_name(path), int(begun_ns))


def local_tracker(world: World) -> int:
    """The process id of the worker's local tracker."""
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            continue
        if b"local-tracker" in words and world.name.encode() in words:
            return int(folder.name)
    return 0


@row("8.2", "a long task that is not Spark's, eager: local tracker and task killed")
def long_task(world: World) -> None:
    world.open("parse")
    task = LongTask(world)
    task.process.start()
    world.publish(3, 4)
    task.await_done(2)
    os.kill(world.wait("it has a local tracker", lambda: local_tracker(world)), signal.SIGKILL)
    world.publish(6, 7)
    task.await_done(2)
    # Between two steps: what is done is noted, and the next one is not begun.
    task.process.kill()
    world.publish(9)
    task.process.start()
    task.await_done(1)
    task.process.tell("finish")
    task.process.ends_well()
    world.check(
        len(task.done.read_text().splitlines()) == 5, "files were taken twice or not at all"
    )
    world.finish()
