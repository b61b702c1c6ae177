"""A query of micro-batches, without Spark: what its driver does is done here, its tasks run in workers.

A batch consumes files as a whole. User code in its tasks makes an item of the second segment for each,
and consumes those that the batch before has made; its acks are staged by a transactional local tracker
and counted when the batch commits, as `local_tracker.spark` does it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local_tracker.spark.query.compose import Evaluations, count_contributions
from tests.cluster.children import Running, discard
from tests.processes.everything import PIPELINE
from tests.processes.reading import IN, File, FileReader
from tests.waits import HANG_S
from tracker.client import NodeClient
from tracker.core.model import Batch, Cells, StagedContribution, TickContent, Unit

NODE_ID = "query"
PARTITIONS = 2
MAX_FAILURES = 4
"""Attempts of a task, as Spark's `spark.task.maxFailures`."""
_QUERY, _RUN = "query-id", "run-id"


@dataclass(frozen=True)
class Attempt:
    """One attempt of a task: its id, and why it failed (code and message), if it did."""

    id: int
    partition: int
    error: tuple[str, str] | None


class Query(FileReader):
    """Runs one batch after the other, and one task after the other. Its hooks are called in its own
    thread, with the partition of a task and how many of its attempts have failed."""

    def __init__(self, target: str, directory: Path, workers: Sequence[Running]) -> None:
        """workers: one for each partition, started with the query."""
        super().__init__(directory)
        self._node = NodeClient(target, PIPELINE, NODE_ID, kind="query")
        self._workers = workers
        self.attempts: list[Attempt] = []
        self.deadline_s = HANG_S
        """How long a hand-over may take before its task fails."""
        self.before_task: Callable[[int, int], None] = lambda partition, failures: None
        self.while_task: Callable[[int, int], None] = lambda partition, failures: None
        self._batch = 0
        self._made: list[list[tuple[File, int]]] = [[] for _ in range(PARTITIONS)]
        """By partition: files whose items the next batch consumes, and when each was done."""

    def staged(self) -> list[StagedContribution]:
        """What is staged, at the query's home, for the batch that runs."""
        return self._node.list_contributions(_QUERY, self._batch)

    def _open(self) -> None:
        self._node.join(HANG_S)
        for worker in self._workers:
            worker.start()
        for worker in self._workers:
            worker.until_says("ready")

    def _end(self) -> None:
        self._consume([])

    def _close(self) -> None:
        self._node.close()
        discard(self._workers)

    # --- a batch ----------------------------------------------------------------------------------

    def _consume(self, files: Sequence[File]) -> None:
        parts = [files[partition::PARTITIONS] for partition in range(PARTITIONS)]
        for partition, part in enumerate(parts):
            self._run_task(partition, part)
        user_created, user_consumed = count_contributions(
            _QUERY, self._batch, self.staged(),
            Evaluations((_RUN,), stage_tasks=lambda stage: PARTITIONS),
        )  # fmt: skip
        units = Cells.of((IN, file.slot, file.value, 1) for file in files)
        content = TickContent(
            created=user_created,
            consumed=Cells.concatenate([units, user_consumed]),
            units_consumed=tuple(Unit(IN, file.unit, file.slot) for file in files),
            batch=Batch(_QUERY, self._batch, str(self._batch).encode()),
        )
        now_ns = time.monotonic_ns()
        self._node.commit(content).result(HANG_S)
        for file, done_ns in (made for part in self._made for made in part):
            self._done(file, done_ns, now_ns)
        self._made = [[(file, now_ns) for file in part] for part in parts]
        self._batch += 1

    def _run_task(self, partition: int, files: Sequence[File]) -> None:
        """Attempts a task until it succeeds, as Spark's scheduler does."""
        for failures in range(MAX_FAILURES):
            self.before_task(partition, failures)
            attempt, worker = len(self.attempts), self._workers[partition]
            place = len(worker.lines)
            worker.tell(json.dumps(self._order(partition, attempt, files)))
            self.while_task(partition, failures)
            error = json.loads(worker.until_line(place))["error"]
            self.attempts.append(Attempt(attempt, partition, error and (error[0], error[1])))
            if error is None:
                return
        raise AssertionError(f"a task failed {MAX_FAILURES} times, last with {error}")

    def _order(self, partition: int, attempt: int, files: Sequence[File]) -> dict[str, Any]:
        return {
            "task": {
                "query": _QUERY, "run": _RUN, "batch": self._batch, "execution": self._batch,
                "stage": self._batch, "partition": partition, "attempt": attempt,
            },
            "deadline_s": self.deadline_s,
            "created": [("out", file.slot, file.child) for file in files],
            "consumed": [("out", file.slot, file.child) for file, _ in self._made[partition]],
        }  # fmt: skip
