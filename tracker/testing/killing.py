"""A driver that kills itself and its JVM by SIGKILL at one moment of the commit order, as a machine that fails would.

Steps that are Lowmark's are replaced by ones that die at them. Where Spark alone takes a step, its files are watched
without a pause, since the gaps are some milliseconds wide; what was missed is found to be so, and said (`MISSED`).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from local_tracker.spark.formats.published import Manifest, PublishedBatches
from local_tracker.spark.query.follow import Follower
from local_tracker.spark.query.ticks import QueryTicks
from tracker.client import NodeClient
from tracker.core.model import TickContent
from tracker.testing.moments import MISSED, Moment

_LOOK_S = 0.002
"""Between two looks for what is far from the gap that is to be caught."""
_PARQUET_END = b"PAR1"
_BATCH = "streaming.sql.batchId"


class Killer:
    """Ends this process and its JVM."""

    def __init__(self, jvm: int, batch: int | None = None) -> None:
        """batch: the one that is to be caught; None: the first that comes to the moment."""
        self.jvm, self.batch = jvm, batch

    @classmethod
    def here(cls, batch: int | None = None) -> Killer:
        """Of the driver that has this session, or the server of this session beside it."""
        gateway = SparkContext._gateway
        assert gateway is not None
        return cls(gateway.proc.pid, batch)

    def die(self) -> None:
        os.kill(self.jvm, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def die_at(self, batch: int) -> None:
        if self.batch in (None, batch):
            self.die()

    def plant(self, moment: Moment) -> None:
        """Replaces a step of Lowmark's by one that dies at it; of the moments that Spark's own steps lie between, none is
        planted."""
        if moment is Moment.SINK:
            write_manifest = PublishedBatches._write_manifest

            def dying_manifest(batches: PublishedBatches, manifest: Manifest) -> Manifest:
                self.die_at(manifest.batch)
                return write_manifest(batches, manifest)

            PublishedBatches._write_manifest = dying_manifest  # type: ignore[method-assign,assignment]
        elif moment is Moment.TICK:
            commit = Follower._commit

            def dying_commit(follower: Follower, batch: int, record: Any) -> None:
                self.die_at(batch)
                commit(follower, batch, record)

            Follower._commit = dying_commit  # type: ignore[method-assign,assignment]
        elif moment is Moment.SENT:
            hand_over = NodeClient.commit

            def dying_hand_over(
                node: NodeClient, content: TickContent, *options: Any, **more: Any
            ) -> Future[int]:
                future = hand_over(node, content, *options, **more)
                if content.batch is not None:
                    self.die_at(content.batch.id)
                return future

            NodeClient.commit = dying_hand_over  # type: ignore[method-assign,assignment]
        elif moment is Moment.DURABLE:
            durable = QueryTicks.durable

            def dying_durable(ticks: QueryTicks, batch: int) -> None:
                self.die_at(batch)
                durable(ticks, batch)

            QueryTicks.durable = dying_durable  # type: ignore[method-assign,assignment]

    # --- where Spark alone takes the step -----------------------------------------------------------

    def in_task(self) -> Any:
        """For `mapInArrow` in the plan of a query: dies when a task of the batch begins."""
        jvm, driver, wanted = self.jvm, os.getpid(), self.batch

        def stage(batches: Iterator[Any]) -> Iterator[Any]:
            from pyspark import TaskContext

            context: Any = TaskContext.get()
            if wanted is None or context.getLocalProperty(_BATCH) == str(wanted):
                os.kill(driver, signal.SIGKILL)
                os.kill(jvm, signal.SIGKILL)
                signal.pause()
            yield from batches

        return stage

    def watch_tasks(self, context: SparkContext, run: str) -> None:
        """Dies as soon as tasks of a query run, whichever its plan; run: its id of this start."""
        jobs = context.statusTracker()
        while True:
            known = (jobs.getJobInfo(job) for job in jobs.getJobIdsForGroup(run))
            if any(job is not None and job.status == "RUNNING" for job in known):
                self.die()
            time.sleep(_LOOK_S)

    def watch_files(self, moment: Moment, out: Path, checkpoint: Path) -> None:
        """Dies between the tasks of a file sink's batch and its commit (SINK), or between that and Spark's own (COMMIT)."""
        log = out / "_spark_metadata"
        batch = max(_numbers(log), default=-1) + 1 if self.batch is None else self.batch
        offsets, listed, over = (
            str(folder / str(batch))
            for folder in (checkpoint / "offsets", log, checkpoint / "commits")
        )
        while not os.path.exists(offsets):
            time.sleep(_LOOK_S)
        before = set(_files(out))
        if moment is Moment.COMMIT:
            while not os.path.exists(listed):
                pass
        else:
            while not any(_is_whole(path) for path in set(_files(out)) - before):
                if os.path.exists(listed):
                    os._exit(MISSED)
        os.kill(self.jvm, signal.SIGKILL)
        if os.path.exists(over if moment is Moment.COMMIT else listed):
            os._exit(MISSED)
        os.kill(os.getpid(), signal.SIGKILL)


def _numbers(log: Path) -> Iterator[int]:
    names = os.listdir(log) if log.exists() else []
    return (int(name.split(".")[0]) for name in names if name.split(".")[0].isdigit())


def _files(out: Path) -> Iterator[str]:
    """Files of data, in the folders of partitions too."""
    for folder, below, names in os.walk(out):
        below[:] = [name for name in below if not name.startswith(("_", "."))]
        yield from (os.path.join(folder, name) for name in names if not name.startswith(("_", ".")))


def _is_whole(path: str) -> bool:
    """Whether a task has written it to its end, as far as its format shows that."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            if not path.endswith(".parquet") or size <= 2 * len(_PARQUET_END):
                return size > 0 and not path.endswith(".parquet")
            file.seek(-len(_PARQUET_END), os.SEEK_END)
            return file.read() == _PARQUET_END
    except FileNotFoundError:  # an attempt's, which is taken away again
        return False
