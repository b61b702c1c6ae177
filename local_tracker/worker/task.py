"""The Spark task that this code runs in, where it runs in one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"
_RUN = "spark.jobGroup.id"
_EXECUTION = "spark.sql.execution.id"


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """One attempt of one task of one micro-batch. Execution, stage and attempt ids start anew with
    each driver; the run tells them apart."""

    query: str
    run: str
    batch: int
    execution: int
    stage: int
    partition: int
    attempt: int


@dataclass(frozen=True, slots=True)
class SparkTask:
    """A running task. `attempt` is None where it belongs to no micro-batch."""

    attempt: TaskAttempt | None
    local_property: Callable[[str], str | None]


def current_task() -> SparkTask | None:
    """The running Spark task; None outside of Spark's workers."""
    # Not imported: where Spark runs this code, PySpark is loaded, and nowhere else is it needed.
    module = sys.modules.get("pyspark.taskcontext")
    context: Any = module.TaskContext.get() if module is not None else None
    if context is None:
        return None
    read: Callable[[str], str | None] = context.getLocalProperty
    query, batch, run = read(_QUERY), read(_BATCH), read(_RUN)
    if query is None or batch is None or run is None:
        return SparkTask(None, read)
    attempt = TaskAttempt(
        query=query,
        run=run,
        batch=int(batch),
        execution=int(read(_EXECUTION) or 0),
        stage=context.stageId(),
        partition=context.partitionId(),
        attempt=context.taskAttemptId(),
    )
    return SparkTask(attempt, read)
