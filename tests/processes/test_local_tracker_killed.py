"""Local trackers as processes, killed or told to end in the middle of a query's batches and of steps.

Two fronts publish files, the tasks of a query acknowledge what they make of them through a local
tracker, a subscriber listens. What was handed over counts once, whatever became of who handed it over.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster.children import Running
from tests.cluster.relay import Relay
from tests.cluster.tracker import local_tracker, socket_in
from tests.processes.everything import PIPELINE, Everything
from tests.processes.query import NODE_ID, PARTITIONS, Query
from tests.processes.reading import File, FileReader
from tests.processes.worker import OPERATOR
from tests.waits import HANG_S, until
from tracker.core.model.routing import RoutingTable

Ack = tuple[str, int, int]
"""Segment, slot and ack value."""
SHORT_DEADLINE_S = 2.0  # expires: nobody is there to answer
SHARDS = 2
"""What hands over does not know how many there are: it is sent to the home of its node."""


def worker(name: str, node_id: str, directory: Path) -> Running:
    return Running(
        "tests.processes.worker", socket_in(directory), PIPELINE, node_id,
        errors=directory / f"worker-{name}.log",
    )  # fmt: skip


# --- transactional --------------------------------------------------------------------------------


class Tracked:
    """Everything, with a query whose tasks hand over through `local`. The network between that and
    the query's home is `network`."""

    def __init__(self, everything: Everything, directory: Path, stack: ExitStack) -> None:
        addresses = everything.target.split(",")
        home = RoutingTable.uniform(len(addresses)).home(PIPELINE, NODE_ID)
        self.everything = everything
        self.network = Relay(addresses[home])
        stack.callback(self.network.close)
        self.local = local_tracker(self.network.address, PIPELINE, directory, mode="transactional")
        stack.callback(self.local.discard)
        workers = [worker(str(number), NODE_ID, directory) for number in range(PARTITIONS)]
        self.query = Query(everything.target, everything.files, workers)
        stack.callback(self.query.close)

    def start(self) -> None:
        self.everything.start(self.query)
        self.local.start()


@pytest.fixture
def tracked(tmp_path: Path) -> Iterator[Tracked]:
    with ExitStack() as stack:
        everything = Everything(SHARDS, tmp_path)
        stack.callback(everything.discard)
        tracked = Tracked(everything, tmp_path, stack)
        tracked.start()
        yield tracked


def test_what_was_staged_stays_staged_when_the_local_tracker_is_killed(tracked: Tracked) -> None:
    """Killed after the first task of a batch and before the second, which meets another process."""
    tracked.everything.goes_on()
    kept: list[int] = []

    def kill_after_the_first(partition: int, failures: int) -> None:
        if partition == 1 and not kept:
            tracked.local.kill()
            kept.extend(c.partition for c in tracked.query.staged())
            tracked.local.start()

    tracked.query.before_task = kill_after_the_first
    tracked.everything.goes_on()
    assert kept == [0]
    assert all(attempt.error is None for attempt in tracked.query.attempts), "no task has failed"
    tracked.everything.finish()
    tracked.everything.check()


Held = tuple[str, ...]


@pytest.mark.parametrize("held", [("up", "down"), ("down",)], ids=["lost", "unanswered"])
def test_a_hand_over_in_flight_fails_in_time_and_its_retry_counts_once(
    tracked: Tracked, held: Held
) -> None:
    """The local tracker is killed while the last task's hand-over is on its way to the query's home:
    it is lost, or it is staged there although nobody hears of it. Either way its task fails, since
    nobody can tell, and the next attempt hands over the same."""
    tracked.everything.goes_on()
    query, network = tracked.query, tracked.network
    failed: list[int] = []  # the attempts that are staged after the failure

    def kill_in_flight(partition: int, failures: int) -> None:
        if partition == 1 and failures == 0:
            if "up" in held:
                network.until_held(OPERATOR.encode())
            else:
                until(lambda: len(query.staged()) == PARTITIONS)
            tracked.local.kill()

    def hold_the_last_task(partition: int, failures: int) -> None:
        if partition == 1 and failures == 0:
            query.deadline_s = SHORT_DEADLINE_S
            network.hold(*held)
        elif partition == 1:  # it failed while the local tracker was gone: in time
            query.before_task = query.while_task = lambda partition, failures: None
            query.deadline_s = HANG_S
            network.lose()
            failed.extend(c.attempt for c in query.staged() if c.partition == 1)
            tracked.local.start()

    query.before_task, query.while_task = hold_the_last_task, kill_in_flight
    tracked.everything.goes_on()

    (attempt,) = [attempt for attempt in query.attempts if attempt.error is not None]
    assert attempt.error is not None
    code, message = attempt.error
    assert code == "hand_over.deadline"
    assert f"the acks of operator '{OPERATOR}': not durable within 2 s" in message
    assert failed == ([] if "up" in held else [attempt.id])
    tracked.everything.finish()
    tracked.everything.check()


# --- eager ----------------------------------------------------------------------------------------


class Steps(FileReader):
    """Reads in a worker process: a step consumes some files and makes items of the second segment,
    the next consumes those."""

    def __init__(self, directory: Path, worker: Running) -> None:
        super().__init__(directory)
        self._worker = worker
        self.count = 0
        self.before_step: Callable[[], None] = lambda: None
        self.while_step: Callable[[], None] = lambda: None

    def _open(self) -> None:
        self._worker.start()
        self._worker.until_says("ready")

    def _close(self) -> None:
        self._worker.discard()

    def _consume(self, files: Sequence[File]) -> None:
        made = [("out", file.slot, file.child) for file in files]
        file_done_ns = time.monotonic_ns()
        self._step([("in", file.slot, file.value) for file in files], made)
        child_done_ns = time.monotonic_ns()
        self._step(made, [])
        for file in files:
            self._done(file, file_done_ns, child_done_ns)

    def _step(self, consumed: list[Ack], created: list[Ack]) -> None:
        self.before_step()
        place = len(self._worker.lines)
        self._worker.tell(json.dumps({"consumed": consumed, "created": created}))
        self.count += 1
        self.while_step()
        assert json.loads(self._worker.until_line(place)) == {"error": None}


def test_an_eager_local_tracker_that_is_told_to_end_loses_nothing(tmp_path: Path) -> None:
    """It is told while steps come; those that meet no local tracker any more meet the next one."""
    with ExitStack() as stack:
        everything = Everything(SHARDS, tmp_path)
        stack.callback(everything.discard)
        local = local_tracker(everything.target, PIPELINE, tmp_path)
        stack.callback(local.discard)
        steps = Steps(everything.files, worker("0", "host", tmp_path))
        stack.callback(steps.close)
        ended: list[int] = []

        def end_now_and_then() -> None:
            if steps.count % 5 == 0 and len(ended) < 3:
                ended.append(local.stop())
                local.start()

        steps.while_step = end_now_and_then
        everything.start(steps)
        local.start()
        while len(ended) < 3:
            everything.goes_on()
        assert ended == [0, 0, 0], "all that it took was durable each time"
        everything.finish()
        everything.check()
