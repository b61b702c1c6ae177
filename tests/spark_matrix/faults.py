"""What goes wrong in tasks: functions for `mapInArrow` that travel by value, and executors to kill."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession

from tests.spark.support import Batches

Stage = Callable[[Batches], Batches]


def at_the_end(action: Callable[[Any], None]) -> Stage:
    """Does something in a task when all before it has been read, and so has handed over."""

    def stage(batches: Batches) -> Batches:
        kept = list(batches)
        action(TaskContext.get())
        yield from kept

    return stage


def at_the_begin(action: Callable[[Any], None]) -> Stage:
    """Does something in a task before anything is read."""

    def stage(batches: Batches) -> Batches:
        action(TaskContext.get())
        yield from batches

    return stage


def once(marker: str, action: Callable[[], None]) -> Callable[[Any], None]:
    """An action for one task of partition 0, whichever comes first; `marker` is a file that says so."""

    def act(context: Any) -> None:
        if context.partitionId() != 0:
            return
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        action()

    return act


def kill_own_jvm() -> Callable[[], None]:
    """Ends the JVM that the task runs in by SIGKILL: an executor, or in local mode the driver's."""

    def kill() -> None:
        pid = os.getppid()
        while Path(f"/proc/{pid}/comm").read_text().strip() != "java":
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(pid, signal.SIGKILL)
        signal.pause()  # this process ends with it

    return kill


def executors(spark: SparkSession) -> list[int]:
    """The process ids of the executors of a session on a local cluster."""
    application = spark.sparkContext.applicationId
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if (
                application in words
                and "org.apache.spark.executor.CoarseGrainedExecutorBackend" in words
            ):
                found.append(int(folder.name))
    return sorted(found)
