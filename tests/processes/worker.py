"""A Python worker as a process of its own: runs tasks and steps of user code as it is told.

    python -m tests.processes.worker SOCKET PIPELINE NODE_ID

One JSON line an order: `consumed` and `created` (rows of segment name, slot, ack value), and for a task
`task` (the ids that Spark gives to an attempt) and `deadline_s`. One JSON line an answer: `error`, which
is null, or the code and the message with which the task or step failed. It says `ready` at first.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from pyspark.taskcontext import TaskContext

from local_tracker import acks
from tracker.errors import HandOverError

OPERATOR = "tests-user-code"


def main(socket: str, pipeline: str, node_id: str) -> None:
    os.environ.update(LOWMARK_SOCKET=socket, LOWMARK_PIPELINE=pipeline, LOWMARK_NODE_ID=node_id)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps({"error": run(json.loads(line))}), flush=True)


def run(order: dict[str, Any]) -> tuple[str, str] | None:
    """Carries out an order; returns why it failed."""
    task = order.get("task")
    TaskContext._setTaskContext(task_context(task, order["deadline_s"]) if task else None)
    try:
        if task:
            list(user_code(iter([order])))
        else:
            with acks.step():
                acknowledge(order)
    except HandOverError as error:
        return error.code, str(error)
    return None


@acks.operator(OPERATOR)
def user_code(batches: Iterator[dict[str, Any]]) -> Iterator[None]:
    """What a query would pass to `mapInArrow`: a partition of one batch."""
    for batch in batches:
        acknowledge(batch)
        yield None


def acknowledge(order: dict[str, Any]) -> None:
    for segment, slot, value in order["consumed"]:
        acks.consume(segment, slot, value)
    for segment, slot, value in order["created"]:
        acks.create(segment, slot, value)


def task_context(task: dict[str, Any], deadline_s: float) -> TaskContext:
    """What Spark's worker sets up before it runs a task, from what the JVM tells it."""
    context = TaskContext()
    context._stageId = task["stage"]
    context._partitionId = task["partition"]
    context._taskAttemptId = task["attempt"]
    context._localProperties = {
        "sql.streaming.queryId": task["query"],
        "streaming.sql.batchId": str(task["batch"]),
        "spark.jobGroup.id": task["run"],
        "spark.sql.execution.id": str(task["execution"]),
        "lowmark.deadline_s": str(deadline_s),
    }
    return context


if __name__ == "__main__":
    main(*sys.argv[1:])
