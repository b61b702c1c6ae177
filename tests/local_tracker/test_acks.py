"""What user code calls: operators, steps, and where their acks go."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pytest

from local_tracker import acks
from local_tracker.agent.flushing import Flusher
from local_tracker.agent.server import Listener, Server
from local_tracker.agent.spool import Spool
from local_tracker.agent.staging import Stager
from local_tracker.worker import route
from tests.local_tracker.fakes import FakeUplink
from tests.waits import until
from tracker.core.model import HoldMove
from tracker.core.model.slots import FOREVER
from tracker.errors import InvalidError

Rows = list[tuple[int, int, int, int]]
BATCH = {
    "sql.streaming.queryId": "query-1",
    "streaming.sql.batchId": "7",
    "spark.jobGroup.id": "run-1",
    "spark.sql.execution.id": "3",
}


@dataclass
class FakeTaskContext:
    """What PySpark's TaskContext tells."""

    properties: dict[str, str] = field(default_factory=dict)
    attempt: int = 11

    def getLocalProperty(self, name: str) -> str | None:
        return self.properties.get(name)

    def stageId(self) -> int:
        return 5

    def partitionId(self) -> int:
        return 1

    def taskAttemptId(self) -> int:
        return self.attempt


InTask = Callable[..., FakeTaskContext]


@pytest.fixture
def in_task(monkeypatch: pytest.MonkeyPatch) -> InTask:
    """Makes the code of the test run in a Spark task."""

    def enter(properties: dict[str, str], attempt: int = 11) -> FakeTaskContext:
        context = FakeTaskContext(properties, attempt)
        module = ModuleType("pyspark.taskcontext")
        module.TaskContext = type("TaskContext", (), {"get": staticmethod(lambda: context)})  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "pyspark.taskcontext", module)
        return context

    return enter


@pytest.fixture
def uplink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeUplink]:
    """A local tracker in this process, for steps and contributions, on its way to a fake uplink."""
    fake = FakeUplink()
    spool = Spool(f"{tmp_path}/spool")
    flusher = Flusher(fake, spool, 1)
    listener = Listener(f"unix:{tmp_path}/s")
    server = Server(listener, fake, Stager(fake), flusher, "host-1")
    for name, value in {
        "SOCKET": f"unix:{tmp_path}/s", "PIPELINE": "p", "NODE_ID": "n", "DEADLINE_S": "20",
    }.items():  # fmt: skip
        monkeypatch.setenv(f"LOWMARK_{name}", value)
    yield fake
    server.stop(20)
    flusher.close(20)
    spool.close()
    listener.close()
    for handle in route._handles.by_settings.values():
        handle.close()
    route._handles.by_settings.clear()


@acks.operator("copy")
def copy(batches: Iterator[int]) -> Iterator[int]:
    for batch in batches:
        acks.consume("a", 5, batch)
        acks.create("b", 6, batch * 16)
        yield batch


def contributions(uplink: FakeUplink) -> list[tuple[object, Rows, Rows]]:
    return [
        (h.contribution.key, h.contribution.created.rows(), h.contribution.consumed.rows())
        for h in uplink.staged.values()
    ]


KEY = ("query-1", "run-1", 7, 3, "copy", 5, 1, 11)


# --- in a micro-batch -----------------------------------------------------------------------------


def test_an_operator_hands_over_once_when_its_partition_is_at_its_end(
    uplink: FakeUplink, in_task: InTask
) -> None:
    in_task(BATCH)
    results = copy(iter([1, 2, 4]))
    assert next(results) == 1
    assert contributions(uplink) == []
    assert list(results) == [2, 4]
    assert contributions(uplink) == [(KEY, [(1, 6, 7 * 16, 3)], [(0, 5, 7, 3)])]
    assert uplink.order == [], "nothing is committed before its batch"


def test_an_empty_partition_is_handed_over_too(uplink: FakeUplink, in_task: InTask) -> None:
    in_task(BATCH)
    assert list(copy(iter([]))) == []
    assert contributions(uplink) == [(KEY, [], [])]


def test_a_task_that_fails_or_is_not_read_to_its_end_hands_nothing_over(
    uplink: FakeUplink, in_task: InTask
) -> None:
    in_task(BATCH)

    def broken() -> Iterator[int]:
        yield 1
        raise RuntimeError("bad record")

    with pytest.raises(RuntimeError, match="bad record"):
        list(copy(broken()))
    limited = copy(iter([1, 2]))
    next(limited)
    limited.close()  # type: ignore[attr-defined]
    assert contributions(uplink) == []


def test_each_attempt_is_handed_over_by_itself(uplink: FakeUplink, in_task: InTask) -> None:
    in_task(BATCH)
    list(copy(iter([1])))
    in_task(BATCH, attempt=12)
    list(copy(iter([1])))
    assert [key for key, _, _ in contributions(uplink)] == [KEY, (*KEY[:-1], 12)]


@pytest.mark.parametrize("second", [[2], [1]])
def test_an_operator_that_is_evaluated_twice_in_one_attempt_fails_the_task(
    uplink: FakeUplink, in_task: InTask, second: list[int]
) -> None:
    in_task(BATCH)
    list(copy(iter([1])))
    with pytest.raises(acks.HandOverError, match="'copy' handed over twice"):
        list(copy(iter(second)))


def test_operators_within_one_another_keep_their_acks_apart(
    uplink: FakeUplink, in_task: InTask
) -> None:
    @acks.operator("outer")
    def outer(batches: Iterator[int]) -> Iterator[int]:
        for batch in batches:
            acks.create("b", 9, batch)
            yield batch

    in_task(BATCH)
    assert list(outer(copy(iter([1, 2])))) == [1, 2]
    assert {
        (h.contribution.operator, tuple(h.contribution.created.slots.tolist()))
        for h in uplink.staged.values()
    } == {("copy", (6,)), ("outer", (9,))}


def test_a_function_without_an_end_of_the_partition_is_refused(
    uplink: FakeUplink, in_task: InTask
) -> None:
    in_task(BATCH)

    @acks.operator("each group")
    def each(frame: int) -> int:
        acks.consume("a", 5, frame)
        return frame

    with pytest.raises(InvalidError, match=r"'each group' got one batch.*mapInPandas"):
        each(1)
    assert contributions(uplink) == []


def test_a_job_that_is_no_micro_batch_is_told_what_to_do(
    uplink: FakeUplink, in_task: InTask
) -> None:
    in_task({})
    with pytest.raises(InvalidError, match=r"tracked\.start.*lowmark\.mode to eager"):
        list(copy(iter([1])))


def test_acks_can_be_turned_off(uplink: FakeUplink, in_task: InTask) -> None:
    in_task({"lowmark.mode": "off"})
    assert list(copy(iter([1]))) == [1]
    assert contributions(uplink) == []
    with pytest.raises(InvalidError, match="no local tracker"):
        acks.min_time()


def test_settings_of_the_task_go_before_those_of_the_environment(
    uplink: FakeUplink, in_task: InTask
) -> None:
    in_task(BATCH | {"lowmark.node_id": "its-own"})
    list(copy(iter([1])))
    assert [key[0] for key in uplink.staged] == ["its-own"]


# --- eager ----------------------------------------------------------------------------------------


def test_a_step_is_durable_when_it_ends(uplink: FakeUplink) -> None:
    with acks.step():
        acks.consume("a", 5, 1)
        acks.create("b", 6, 2)
        assert uplink.order == []
    assert uplink.sums() == {(0, 5): 1, (1, 6): 2}
    assert uplink.order == [1], "both at once"


def test_a_step_that_fails_hands_nothing_over(uplink: FakeUplink) -> None:
    with pytest.raises(RuntimeError, match="no"), acks.step():
        acks.consume("a", 5, 1)
        raise RuntimeError("no")
    with acks.step():
        acks.consume("a", 5, 4)
    assert uplink.sums() == {(0, 5): 4}


def test_a_decorated_function_is_a_step(uplink: FakeUplink) -> None:
    @acks.operator("one")
    def one(item: int) -> int:
        acks.consume("a", 5, item)
        return item + 1

    assert one(3) == 4
    assert uplink.sums() == {(0, 5): 3}


def test_what_an_iterator_yielded_is_a_step_once_the_next_is_asked_for(uplink: FakeUplink) -> None:
    results = copy(iter([1, 2]))
    next(results)
    assert uplink.sums() == {}
    next(results)
    assert uplink.sums() == {(0, 5): 1, (1, 6): 16}
    assert list(results) == []
    assert uplink.sums() == {(0, 5): 3, (1, 6): 48}


def test_a_long_running_spark_task_may_be_eager(uplink: FakeUplink, in_task: InTask) -> None:
    in_task({"lowmark.mode": "eager"})
    list(copy(iter([1, 2])))
    assert uplink.sums() == {(0, 5): 3, (1, 6): 48}
    assert contributions(uplink) == []


def test_steps_have_no_place_in_a_micro_batch(uplink: FakeUplink, in_task: InTask) -> None:
    in_task(BATCH)
    with pytest.raises(InvalidError, match="decorate the function"), acks.step():
        pass


def test_acks_outside_of_a_step_are_refused(uplink: FakeUplink) -> None:
    with pytest.raises(InvalidError, match="acks belong to a step"):
        acks.consume("a", 5, 1)


def test_threads_of_user_code_acknowledge_through_their_step(uplink: FakeUplink) -> None:
    with acks.step() as step:
        threads = [threading.Thread(target=step.consume, args=("a", 5, 1 << n)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert uplink.sums() == {(0, 5): 255}


def test_an_unknown_segment_is_refused_with_those_that_exist(uplink: FakeUplink) -> None:
    with pytest.raises(acks.HandOverError, match="no segment 'c'; its segments are: a, b"):  # noqa: SIM117
        with acks.step():
            acks.consume("c", 5, 1)


def test_fronts_join_promise_and_leave(uplink: FakeUplink) -> None:
    grant = acks.join_front("f", "b")
    assert (grant.slot, grant.heartbeat, grant.segment) == (7, -5, 1)
    acks.heartbeat("f", 9)
    acks.leave_front("f")
    assert [h.slot for content, _ in uplink.flushes.values() for h in content.heartbeats] == [9]
    assert uplink.left_fronts == ["f"]


# --- holding time ---------------------------------------------------------------------------------


def held(uplink: FakeUplink) -> list[tuple[str, int, int]]:
    """(name, segment, slot) of all that flushes have said of holds, in their order."""
    return [
        (move.name, move.segment, move.slot)
        for number in uplink.order
        for move in uplink.flushes[number][0].holds
    ]


def test_a_hold_begins_in_the_step_that_consumes_what_it_stands_for(uplink: FakeUplink) -> None:
    with acks.step():
        acks.consume("a", 5, 1)
        task = acks.hold("b", 6, "job 7")
    with acks.step():
        acks.create("b", 6, 2)
        task.move_to(8)
    first, second = (uplink.flushes[number][0] for number in uplink.order)
    assert (first.consumed.rows(), first.holds) == ([(0, 5, 1, 1)], (HoldMove("job 7", 1, 6),))
    assert (second.created.rows(), second.holds) == ([(1, 6, 2, 1)], (HoldMove("job 7", 1, 8),))


def test_a_block_that_ends_well_lets_go_of_its_hold(uplink: FakeUplink) -> None:
    with acks.step():
        acks.consume("a", 5, 1)
        task = acks.hold("b", 6, "job 7")
    with task:
        task.move_to(7)
    task.release()
    assert held(uplink) == [("job 7", 1, 6), ("job 7", 1, 7), ("job 7", 1, FOREVER)]
    assert acks.holds() == {}


def test_a_block_that_fails_leaves_it_to_whoever_does_the_work_again(uplink: FakeUplink) -> None:
    with acks.step():
        acks.consume("a", 5, 1)
        task = acks.hold("b", 6, "job 7")
    with pytest.raises(RuntimeError, match="bad record"), task:
        raise RuntimeError("bad record")
    again = acks.holds()["job 7"]
    assert (again.segment, again.name, again.slot) == ("b", "job 7", 6)
    again.release()
    assert acks.holds() == {}


def test_a_step_that_fails_holds_nothing(uplink: FakeUplink) -> None:
    with pytest.raises(RuntimeError, match="bad record"), acks.step():
        acks.hold("b", 6, "job 7")
        raise RuntimeError("bad record")
    assert held(uplink) == []


def test_a_hold_only_moves_up(uplink: FakeUplink) -> None:
    with acks.step():
        task = acks.hold("b", 6, "job 7")
    with pytest.raises(InvalidError, match=r"'job 7' stands at slot 6 .* cannot move back to 5"):
        task.move_to(5)


def test_a_micro_batch_holds_nothing_by_its_tasks(uplink: FakeUplink, in_task: InTask) -> None:
    in_task(BATCH)

    @acks.operator("holds")
    def holds(batches: Iterator[int]) -> Iterator[int]:
        for batch in batches:
            acks.hold("b", 6, "job 7")
            yield batch

    with pytest.raises(InvalidError, match="holds time in a micro-batch"):
        list(holds(iter([1])))


def test_what_user_code_holds_can_be_tested_without_any_tracker() -> None:
    with acks.recording() as recorded:
        with acks.step():
            acks.consume("in", 5, 1)
            task = acks.hold("out", 6, "job 7")
        assert recorded.holds == {"job 7": HoldMove("job 7", 1, 6)}
        task.release()
    assert recorded.holds == {}


def test_min_time_is_relayed_by_one_subscription(uplink: FakeUplink) -> None:
    answers: list[int] = []
    asking = threading.Thread(target=lambda: answers.append(acks.min_time("b")))
    asking.start()
    heard = until(lambda: uplink.watching)
    assert heard is not None
    heard.put(0, 4)
    heard.put(1, 9)
    heard.put(None, 3)
    asking.join()
    assert answers == [9]
    assert acks.min_time() == 3
    assert uplink.watching is heard
    heard.put(0, 12)
    assert (acks.min_time(), acks.min_time("a")) == (3, 12)
    heard.put(None, 8)
    assert acks.min_time() == 8


# --- anywhere -------------------------------------------------------------------------------------


def test_user_code_can_be_tested_without_any_tracker(monkeypatch: pytest.MonkeyPatch) -> None:
    with acks.recording() as recorded:
        assert list(copy(iter([1, 2]))) == [1, 2]
        with acks.step():
            acks.create("c", 1, 1)
    assert recorded.segments == ["a", "b", "c"]
    assert recorded.consumed.rows() == [(0, 5, 3, 2)]
    assert recorded.created.rows() == [(1, 6, 48, 2), (2, 1, 1, 1)]


def test_acks_that_have_nowhere_to_go_are_an_error_and_not_lost() -> None:
    with pytest.raises(InvalidError, match="LOWMARK_PIPELINE, LOWMARK_NODE_ID"), acks.step():
        pass


@pytest.mark.parametrize(
    ("name", "value"),
    [("MODE", "fast"), ("DEADLINE_S", "0"), ("FLUSH_WINDOW_MS", "soon"), ("FLUSH", "soon")],
)
def test_a_setting_that_makes_no_sense_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"LOWMARK_{name}", value)
    with pytest.raises(InvalidError, match=f"{name.lower()} is '{value}'"), acks.step():
        pass


@pytest.mark.parametrize("name", ["", None])
def test_an_operator_needs_a_name(name: str) -> None:
    with pytest.raises(InvalidError, match="named by a text"):
        acks.operator(name)
