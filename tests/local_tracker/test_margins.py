"""Hand-overs at their margins: whose record it is, of which pipeline, which process is there now, and what a step that is done again
finds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tracker
from local_tracker import acks
from local_tracker.agent.flushing import Flusher
from local_tracker.agent.lifetime import CHANGED
from local_tracker.agent.main import Agent, Options
from local_tracker.agent.server import Listener, Server
from local_tracker.agent.spool import Spool
from local_tracker.agent.staging import Stager
from local_tracker.agent.uplink import ClosedError, LocalTrackerUplink, MinTimes, TrackerUplink
from local_tracker.core.window import Flush, Step
from local_tracker.worker.handle import Handle
from local_tracker.worker.protocol import Deadline, HandedOver
from tests.local_tracker.fakes import FakeUplink, hands_over, one_cell, refusing
from tests.local_tracker.test_acks import uplink  # noqa: F401 - a fixture
from tests.local_tracker.test_counted_once import Disk
from tests.waits import HANG_S, until
from tracker.client.embedded import EmbeddedTracker
from tracker.core.model import (
    Cells,
    Heartbeat,
    HoldMove,
    PipelineSpec,
    StagedContribution,
    TickContent,
)
from tracker.core.model.slots import FOREVER
from tracker.errors import Code, HandOverError


class Upper:
    """A local tracker at a socket, until it ends."""

    def __init__(self, above: FakeUplink, socket: Path, spool: Path) -> None:
        self.listener, self.spool = Listener(f"unix:{socket}"), Spool(str(spool))
        self.flusher = Flusher(above, self.spool, 1)
        self.server = Server(self.listener, above, Stager(above), self.flusher, "upper")

    def end(self, grace_s: float = HANG_S) -> None:
        self.server.stop(grace_s)
        self.flusher.close(grace_s)
        self.spool.close()
        self.listener.close()


def test_a_step_that_is_in_the_spool_is_not_refused_by_the_next_process_which_knows_fewer_segments(
    tmp_path: Path,
) -> None:
    """It has asked a process of the tracker that is behind."""
    above = FakeUplink()
    above.segments = ("a", "b", "c")
    away = threading.Event()

    def unreachable(number: int, content: TickContent) -> None:
        away.set()
        raise HandOverError("the tracker is away", Code.HAND_OVER_UNREACHABLE)

    above.before_flush = unreachable
    first = Upper(above, tmp_path / "s", tmp_path / "spool")
    handle = Handle(f"unix:{tmp_path}/s", "p", HANG_S)
    worker, told = hands_over(handle, one_cell(2, 5, 1))
    assert away.wait(HANG_S)
    first.end(0)
    first.flusher._thread.join(HANG_S)
    above.segments, above.before_flush = ("a", "b"), lambda number, content: None
    second = Upper(above, tmp_path / "s", tmp_path / "spool")
    worker.join(HANG_S)
    handle.close()
    second.end()
    assert above.sums() == {(2, 5): 1}
    assert not any(code.startswith("refused.") for code in told), told


def refused_after_a_power_failure(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    way_up: Callable[[Spool], LocalTrackerUplink | TrackerUplink],
    steps: list[Step],
) -> list[BaseException | None]:
    """A flush is split, since its first step is refused; the others are durable, and come again behind a power failure: what becomes
    of them then."""
    disk = Disk(monkeypatch)

    @contextmanager
    def begun() -> Iterator[tuple[Spool, Flusher]]:
        spool = Spool(str(path))
        up = way_up(spool)
        flusher = Flusher(up, spool, 50, flush=Flush.AT_WINDOW_END)
        yield spool, flusher
        flusher.close(HANG_S)
        up.close(leave=False)
        spool.close()

    with monkeypatch.context() as power, begun() as (spool, flusher):
        futures = [flusher.submit(step, False, Deadline(HANG_S)) for step in steps]
        assert futures[0].exception(HANG_S)
        assert [f.exception(HANG_S) for f in futures[1:]] == [None, None]
        power.setattr(spool, "sync", lambda: None)  # it does not come to its end in order
    disk.loses_power(path)
    with begun() as (spool, flusher):
        return [
            flusher.submit(step, True, Deadline(HANG_S), spool.identity).exception(HANG_S)
            for step in steps[1:]
        ]


def test_steps_of_a_flush_that_was_split_are_not_said_to_be_refused_after_a_power_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    above = FakeUplink()
    upper = Upper(above, tmp_path / "s", tmp_path / "upper.spool")
    above.before_flush = refusing(8)

    def way_up(spool: Spool) -> LocalTrackerUplink:
        return LocalTrackerUplink(f"unix:{tmp_path}/s", "p", lambda: spool.identity, "lower")

    steps = [Step(f"w{n}", 1, one_cell(0, 5, item)) for n, item in enumerate((8, 1, 2))]
    told = refused_after_a_power_failure(tmp_path / "spool", monkeypatch, way_up, steps)
    upper.end()
    assert above.sums() == {(0, 5): 1 ^ 2}
    assert told == [None, None]


def test_what_a_split_flush_has_moved_is_not_said_to_be_refused_after_a_power_failure(
    running: EmbeddedTracker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "spool"
    front = running.node("p", "front")
    front.join()
    front.join_front("f", "a")
    front.commit(TickContent(created=one_cell(0, 5, 1))).result(HANG_S)

    def way_up(_: Spool) -> TrackerUplink:
        return TrackerUplink(running.target, "p", "host-1", f"{path}.known")

    none = Cells.empty()
    steps = [
        Step("bad", 1, one_cell(0, 2**40, 4)),
        Step("w1", 1, none, one_cell(0, 5, 1), (), (HoldMove("h", 0, 5),)),
        Step("w2", 1, none, none, (), (HoldMove("h", 0, 7),)),
    ]
    told = refused_after_a_power_failure(path, monkeypatch, way_up, steps)
    assert told == [None, None]


def test_a_flush_that_went_to_another_record_than_it_was_recorded_for_counts_once(
    tmp_path: Path,
) -> None:
    """The one above ended in order while nothing was flushed, and another one, with a record of its own, took its place
    for a while."""
    one, two = FakeUplink(), FakeUplink()
    first = Upper(one, tmp_path / "s", tmp_path / "one")

    def begin(path: Path) -> tuple[Spool, LocalTrackerUplink, Flusher]:
        spool = Spool(str(path))
        up = LocalTrackerUplink(f"unix:{tmp_path}/s", "p", lambda: spool.identity, "lower")
        return spool, up, Flusher(up, spool, 1)

    step = Step("w", 1, one_cell(0, 5, 1))
    spool, up, flusher = begin(tmp_path / "lower")
    first.end()
    second = Upper(two, tmp_path / "s", tmp_path / "two")
    spool.done = lambda *_: None  # type: ignore[method-assign] # it is killed before it has written that down
    flusher.submit(step, False, Deadline(HANG_S)).result(HANG_S)
    flusher.close(HANG_S)
    up.close(leave=False)
    spool.close()
    second.end()
    assert two.sums() == {(0, 5): 1}
    first = Upper(one, tmp_path / "s", tmp_path / "one")
    spool, up, flusher = begin(tmp_path / "lower")
    flusher.submit(step, True, Deadline(HANG_S), spool.identity).exception(HANG_S)
    flusher.close(HANG_S)
    up.close(leave=False)
    spool.close()
    first.end()
    assert one.sums() == {}


def test_a_hold_is_let_go_of_by_the_step_that_is_done_again(uplink: FakeUplink) -> None:  # noqa: F811
    with acks.step():
        acks.consume("a", 5, 1)
        held = acks.hold("a", 5, "job")

    def refused(number: int, content: TickContent) -> None:
        raise HandOverError("no room", Code.REFUSED_FULL)

    uplink.before_flush = refused
    for nth in range(2):
        try:
            with acks.step():
                acks.create("b", 6, 2)
                held.release()
        except HandOverError:
            assert nth == 0
            uplink.before_flush = lambda number, content: None
    assert acks.holds() == {}


def test_a_hold_may_begin_anew_behind_its_end(running: EmbeddedTracker) -> None:
    node = running.node("p", "front")
    node.join()
    node.join_front("f", "a")
    hold = node.hold("a", 10, "h")
    hold.release()
    again = node.hold("a", 20, "h")
    assert again.slot == again.durable_slot == 20


def test_a_hold_whose_end_was_refused_is_still_known(running: EmbeddedTracker) -> None:
    node = running.node("p", "front")
    node.join()
    node.join_front("f", "a")
    hold = node.hold("a", 10, "h")
    ended = hold.release(TickContent(created=one_cell(0, 2**40, 4)))
    anew = node.commit(TickContent(holds=(HoldMove("h", 0, 20),)))
    for future in (ended, anew):
        assert future.exception(HANG_S)
    node.flush(HANG_S)
    assert node.holds["h"].slot == 10
    hold.release().result(HANG_S)


def test_a_promise_is_not_refused_since_a_front_of_somebody_else_is_not_there(
    running: EmbeddedTracker,
) -> None:
    up = TrackerUplink(running.target, "p", "host-1")
    up.open()
    up.join_front("f", "a", Deadline(HANG_S))
    gone = up._node.leave_front("gone")  # as a worker's, in its thread
    content = TickContent(heartbeats=(Heartbeat("f", 20),))
    try:
        try:
            up.flush(1, content, b"1", again=False, above="")
        except TimeoutError:  # it is asked again
            up.flush(1, content, b"1", again=True, above="")
    finally:
        assert gone.exception(HANG_S)
        up.close(leave=False)


def test_a_hold_may_begin_anew_behind_its_end_where_the_node_has_no_front(
    running: EmbeddedTracker,
) -> None:
    front, node = running.node("p", "front"), running.node("p", "timers")
    front.join()
    front.join_front("f", "a")
    node.join()
    hold = node.hold("a", 10, "h")
    hold.release()
    again = node.hold("a", 20, "h")
    assert again.slot == again.durable_slot == 20


@pytest.mark.parametrize("levels", [1, 2])
def test_it_ends_when_its_pipeline_was_restarted_though_workers_do_no_more_than_join_fronts(
    running: EmbeddedTracker, tmp_path: Path, levels: int
) -> None:
    """Else each worker that begins with a front is refused, however often it is started again."""

    def started(up: TrackerUplink | LocalTrackerUplink, stack: ExitStack, name: str) -> Flusher:
        stack.callback(up.close, False)
        spool = Spool(f"{tmp_path}/{name}.spool")
        stack.callback(spool.close)
        flusher = Flusher(up, spool, 1)
        stack.callback(flusher.close, HANG_S)
        listener = Listener(f"unix:{tmp_path}/{name}")
        stack.callback(listener.close)
        server = Server(listener, up, Stager(up), flusher, name)
        stack.callback(server.stop, HANG_S)
        return flusher

    def upper(stack: ExitStack) -> Flusher:
        return started(TrackerUplink(running.target, "p", "upper"), stack, "s1")

    def refused() -> None:
        """As a worker that is started again."""
        worker = Handle(f"unix:{tmp_path}/s{levels}", "p", HANG_S)
        with pytest.raises(HandOverError):
            worker.join_front("f", "a")
        worker.close()

    with ExitStack() as stack:
        with ExitStack() as first:
            serving = upper(first)
            if levels == 2:
                address = f"unix:{tmp_path}/s1"
                below = LocalTrackerUplink(address, "p", lambda: "lower", "lower")
                lower = started(below, stack, "s2")
            with running.admin() as admin:
                admin.restart("p", 0)
            refused()
            until(lambda: serving.failure is not None)
        if levels == 2:
            upper(stack)
            refused()
            until(lambda: lower.failure is not None)


class Life:
    """Of a local tracker in this process, which no signal ends."""

    def __init__(self) -> None:
        self.woken = threading.Event()

    def changed(self) -> None:
        self.woken.set()

    def take_signals(self) -> None: ...

    def wait(self, in_use: bool) -> str:
        assert self.woken.wait(HANG_S), "it goes on"
        self.woken.clear()
        return CHANGED


def test_a_local_tracker_of_tasks_does_not_take_a_pipeline_for_another_that_had_its_name(
    tmp_path: Path,
) -> None:
    """Its segments have other numbers; and of the one before nothing is heard any more, ever."""
    options = Options(
        "", "p", "host-1", f"unix:{tmp_path}/s", "transactional", 1, Flush.WHEN_IDLE, "", 0, 0, -1
    )
    with tracker.embedded() as running, ExitStack() as stack:
        options = replace(options, target=running.target)
        running.register(PipelineSpec("p", ("a", "b"), front_count=1))
        life = Life()
        first = Agent(options, life, stack)  # type: ignore[arg-type]
        worker = Handle(f"unix:{tmp_path}/s", "p", HANG_S)
        stack.callback(worker.close)
        number = worker.segment_number("b")
        with running.admin() as admin:
            admin.delete("p", 0, drop_open=True)
        running.register(PipelineSpec("p", ("b", "a"), front_count=1))
        query = running.node("p", "q")
        query.join()
        assert first.wait(life)  # type: ignore[arg-type] # and whoever needs one starts the next
        first.stop()
        first.listener.close()
        stack.callback(Agent(options, Life(), stack).stop)  # type: ignore[arg-type]
        for nth in range(2):
            part = StagedContribution(
                "query", "run", 1, 1, "op", 1, nth, 1, Cells.empty(), one_cell(number, 5, 1)
            )
            with suppress(HandOverError):
                worker.stage("q", [HandedOver(f"n{nth}", part)])
            number = worker.segment_number("b")
        staged = [c.consumed.rows() for c in query.list_contributions("query", 1)]
        assert staged == [[(0, 5, 1, 1)]]


def test_a_flush_of_one_node_is_not_committed_by_another_that_gets_its_spool(
    running: EmbeddedTracker, tmp_path: Path
) -> None:
    """As where a node is named by a pod, and its spool outlives that."""

    def options(node_id: str) -> Options:
        return Options(
            running.target, "p", node_id, f"unix:{tmp_path}/s", "eager", 1, Flush.WHEN_IDLE,
            f"{tmp_path}/spool", 0, 0, -1,
        )  # fmt: skip

    step = Step("w", 1, one_cell(0, 5, 1))
    front = running.node("p", "front")
    front.join()
    front.join_front("f", "a")
    with ExitStack() as stack:
        first = Agent(options("pod-1"), Life(), stack)  # type: ignore[arg-type]
        assert first.flusher is not None
        # It is killed before it has written down that the flush is done.
        first.flusher._spool.done = lambda *_: None  # type: ignore[method-assign]
        first.flusher.submit(step, False, Deadline(HANG_S)).result(HANG_S)
        first.server.stop(HANG_S)
        first.flusher.close(HANG_S)
        first.uplink.close(leave=False)
    with ExitStack() as stack, suppress(HandOverError):
        second = Agent(options("pod-2"), Life(), stack)  # type: ignore[arg-type]
        assert second.flusher is not None
        second.flusher.submit(step, True, Deadline(HANG_S)).result(HANG_S)
        second.stop()
    front.commit(TickContent(heartbeats=(Heartbeat("f", 20),))).result(HANG_S)
    subscriber = running.subscriber("p")
    assert subscriber.wait_until(5, timeout_s=HANG_S)
    assert not subscriber.wait_until(6, timeout_s=0.5)  # expires: nobody has consumed it


def test_min_times_that_a_transactional_one_relays_end_with_the_pipeline_that_they_are_of(
    tmp_path: Path,
) -> None:
    @contextmanager
    def one_above(generation: int, slot: int) -> Iterator[None]:
        fake, listener = FakeUplink(), Listener(f"unix:{tmp_path}/s")
        server = Server(listener, fake, Stager(fake), None, "host")
        heard = server._heard()
        for segment in (0, 1, None):
            heard.put(segment, slot, generation)
        yield
        server.stop(0.1)  # expires: whoever waits for a next version does
        listener.close()

    lower, heard = None, MinTimes(2)
    with one_above(0, FOREVER):
        lower = LocalTrackerUplink(f"unix:{tmp_path}/s", "p", lambda: "sender", "below")
        threading.Thread(target=lower.watch, args=(heard,), daemon=True).start()
        assert heard.get(-1, HANG_S, 0).pipeline == FOREVER
    with one_above(2, 5):
        until(lambda: heard.get(-1, HANG_S, 0).generation == 2)
        assert heard.get(-1, HANG_S, 0).pipeline == 5, "said to be complete, of the one before"
        lower.close(leave=False)


def test_a_local_tracker_that_is_started_anew_is_asked_for_what_it_has(tmp_path: Path) -> None:
    """Its versions begin anew: one above the last of the process before may be long in coming."""
    worker = Handle(f"unix:{tmp_path}/s", "p", HANG_S)
    version, asked = -1, []
    for slot in (5, 6):
        fake, listener = FakeUplink(), Listener(f"unix:{tmp_path}/s")
        server = Server(listener, fake, Stager(fake), None, "host")
        answer = server._requests["min_times"]

        def noted(fields: Any, cells: Any, answer: Any = answer) -> Any:
            asked.append(fields.integer("after"))
            return answer(fields, cells)

        server._requests["min_times"] = noted
        for segment in (0, 1, None):
            server._heard().put(segment, slot, 0)
        version = worker.min_times(version, wait_s=HANG_S).version
        server.stop(0.1)
        listener.close()
    worker.close()
    assert asked == [-1, -1]


def test_a_flush_into_a_later_generation_is_refused_as_a_front_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def restarted(*_: object) -> None:
        raise HandOverError("the pipeline was restarted", Code.HAND_OVER_RESTARTED)

    monkeypatch.setattr(Handle, "step_as", restarted)
    up: Any = LocalTrackerUplink.__new__(LocalTrackerUplink)
    up._flushing, up._own, up._sender = Handle.__new__(Handle), "", str
    with pytest.raises(ClosedError) as raised:
        up.flush(1, TickContent(), b"", again=False, above="")
    assert raised.value.code == Code.HAND_OVER_RESTARTED
