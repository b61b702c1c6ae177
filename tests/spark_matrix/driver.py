"""A driver that kills itself and its JVM by SIGKILL at one place of the commit order.

    python -m tests.spark_matrix.driver TARGET PIPELINE DIRECTORY SINK POINT BATCH MASTER PARTITIONS

SINK is `file` or `writer`. POINT says where batch BATCH finds its end:

    tasks     the input is fixed (`offsets/N`), and a task begins
    sink      the tasks are over, the sink has not committed
    commit    the sink has committed, `commits/N` is not there
    tick      `commits/N` is there, the tick was not handed over
    sent      the tick was handed over, and no answer awaited
    durable   the tick is durable
    none      nowhere: it runs to the end of the input

It ends with status 3 if the place was missed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from examples.history import Recorder
from local_tracker import acks
from local_tracker.spark.formats.published import Manifest, PublishedBatches
from local_tracker.spark.query.follow import Follower
from local_tracker.spark.query.ticks import QueryTicks
from local_tracker.spark.session.tracked import Tracked, TrackedQuery
from tests.spark.support import SCHEMA, Batches, parse_operator
from tests.spark_matrix.recording import recording
from tests.spark_matrix.registry import Profile
from tests.spark_matrix.sessions import make_session
from tracker.client import NodeClient
from tracker.core.model import TickContent

MISSED = 3
AFTER = "after"
"""The segment of who reads the sink."""

_never = lambda batch: False  # noqa: E731


def start(
    spark: SparkSession, tracked: Tracked, directory: Path, sink: str, task: Any = None,
    written: Any = _never,
) -> TrackedQuery:  # fmt: skip
    """The query: one file a batch, so that batch N is the front's file N; its code acknowledges."""
    frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    frame = frame.parquet(str(directory / "in"))
    if task is not None:
        frame = frame.mapInArrow(task, SCHEMA)
    frame = frame.mapInArrow(parse_operator(), SCHEMA).repartition("row")
    if sink == "file":
        writer = frame.writeStream.format("parquet").option("path", str(directory / "out"))
    else:
        publish = tracked.writer(str(directory / "out"))

        def each_batch(rows: DataFrame, batch: int) -> None:
            publish(rows, batch)
            written(batch)

        writer = frame.writeStream.foreachBatch(each_batch)
    writer = writer.option("checkpointLocation", str(directory / "cp"))
    return tracked.start(writer, node_id="parse", reads="parse", creates=[AFTER])


class Killer:
    """Ends this process and its JVM, as a machine that fails would."""

    def __init__(self, jvm: int, directory: Path, batch: int) -> None:
        self.jvm, self.directory, self.batch = jvm, directory, batch

    @classmethod
    def of(cls, directory: Path, batch: int) -> Killer:
        """Of the driver that has this session, or the server of this session beside it."""
        gateway = SparkContext._gateway
        assert gateway is not None
        return cls(gateway.proc.pid, directory, batch)

    def die(self) -> None:
        os.kill(self.jvm, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def die_at(self, batch: int) -> None:
        if batch == self.batch:
            self.die()

    def in_task(self) -> Any:
        """For `mapInArrow`: dies when a task of the batch begins."""
        jvm, driver, wanted = self.jvm, os.getpid(), str(self.batch)

        def stage(batches: Batches) -> Batches:
            from pyspark import TaskContext

            context: Any = TaskContext.get()
            if context.getLocalProperty("streaming.sql.batchId") == wanted:
                os.kill(driver, signal.SIGKILL)
                os.kill(jvm, signal.SIGKILL)
                signal.pause()
            yield from batches

        return stage

    def watch(self, point: str, out: str = "out", checkpoint: str = "cp") -> None:
        """For a file sink, which has no place for our code: looks without a pause, since the gaps are
        some milliseconds wide."""
        offsets = self.directory / checkpoint / "offsets" / str(self.batch)
        listed = self.directory / out / "_spark_metadata" / str(self.batch)
        over = self.directory / checkpoint / "commits" / str(self.batch)
        while not offsets.exists():
            time.sleep(0.002)  # paces: the gaps are some milliseconds wide
        before = set(os.listdir(self.directory / out))
        if point == "commit":
            while not os.path.exists(listed):
                pass
        else:
            while not self._written(before):
                if os.path.exists(listed):
                    os._exit(MISSED)
        os.kill(self.jvm, signal.SIGKILL)
        if os.path.exists(over if point == "commit" else listed):
            os._exit(MISSED)
        os.kill(os.getpid(), signal.SIGKILL)

    def _written(self, before: set[str]) -> bool:
        """Whether a task's file is whole: Parquet ends with its magic."""
        for name in set(os.listdir(self.directory / "out")) - before:
            if name.endswith(".parquet"):
                with open(self.directory / "out" / name, "rb") as file:
                    if file.seek(0, os.SEEK_END) > 8:
                        file.seek(-4, os.SEEK_END)
                        return file.read() == b"PAR1"
        return False

    def plant(self, point: str, sink: str) -> None:
        """Replaces a step of the commit order by one that dies at it."""
        if point == "sink" and sink == "writer":
            write_manifest = PublishedBatches._write_manifest

            def dying_manifest(batches: PublishedBatches, manifest: Manifest) -> Manifest:
                self.die_at(manifest.batch)
                return write_manifest(batches, manifest)

            PublishedBatches._write_manifest = dying_manifest  # type: ignore[method-assign,assignment]
        elif point == "tick":
            commit = Follower._commit

            def dying_commit(follower: Follower, batch: int, record: Any) -> None:
                self.die_at(batch)
                commit(follower, batch, record)

            Follower._commit = dying_commit  # type: ignore[method-assign,assignment]
        elif point == "sent":
            hand_over = NodeClient.commit

            def dying_hand_over(
                node: NodeClient, content: TickContent, *options: Any, **more: Any
            ) -> Future[int]:
                future = hand_over(node, content, *options, **more)
                if content.batch is not None:
                    self.die_at(content.batch.id)
                return future

            NodeClient.commit = dying_hand_over  # type: ignore[method-assign,assignment]
        elif point == "durable":
            durable = QueryTicks.durable

            def dying_durable(ticks: QueryTicks, batch: int) -> None:
                self.die_at(batch)
                durable(ticks, batch)

            QueryTicks.durable = dying_durable  # type: ignore[method-assign,assignment]


def main(
    target: str, pipeline: str, directory: Path, sink: str, point: str, batch: int, master: str,
    partitions: str,
) -> None:  # fmt: skip
    profile = Profile("driver", master, {"spark.sql.shuffle.partitions": partitions})
    spark = make_session(profile, directory / "spark")
    killer = Killer.of(directory, batch)
    recorder = Recorder(directory / "history" / f"driver-{os.getpid()}.jsonl")
    killer.plant(point, sink)
    with recording(lambda _: recorder):
        tracked = Tracked(spark, target, pipeline)
        tracked.track(acks)
        task = killer.in_task() if point == "tasks" else None
        written = killer.die_at if point == "commit" else _never
        query = start(spark, tracked, directory, sink, task, written)
        if sink == "file" and point in ("sink", "commit"):
            threading.Thread(target=killer.watch, args=(point,), daemon=True).start()
        query.processAllAvailable()
        query.stop()
    spark.stop()
    sys.exit(0 if point == "none" else MISSED)


if __name__ == "__main__":
    main(
        sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4], sys.argv[5], int(sys.argv[6]),
        sys.argv[7], sys.argv[8],
    )  # fmt: skip
