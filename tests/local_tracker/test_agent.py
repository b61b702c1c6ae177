"""Local trackers as processes, with a real tracker above and real workers below."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import tracker
from local_tracker import acks
from local_tracker.worker import route, starting
from local_tracker.worker.handle import Handle
from local_tracker.worker.protocol import Deadline, HandedOver, connect, receive_frame
from tests.cluster.children import Running
from tests.local_tracker.fakes import one_cell
from tests.waits import HANG_S, until
from tracker.client import Admin, Subscriber
from tracker.client.embedded import EmbeddedTracker
from tracker.client.ports import free_ports
from tracker.core.model import (
    Cells,
    Edge,
    Heartbeat,
    HoldMove,
    PipelineSpec,
    StagedContribution,
    TickContent,
)
from tracker.core.model.slots import FOREVER
from tracker.errors import HandOverError

END = 1_000
"""The front of these tests has promised up to here: min time gets there when all is consumed."""


@pytest.fixture
def running() -> Iterator[EmbeddedTracker]:
    """A tracker with pipeline `p` (a → b), whose front has created item 1 at slot 5 in `a`."""
    with tracker.embedded() as embedded:
        embedded.register(PipelineSpec("p", ("a", "b"), (Edge("a", "b"),), front_count=1))
        front = embedded.node("p", "front")
        front.join()
        front.join_front("f", "a")
        front.commit(TickContent(created=one_cell(0, 5, 1))).result(HANG_S)
        front.commit(TickContent(heartbeats=(Heartbeat("f", END),))).result(HANG_S)
        yield embedded


@pytest.fixture
def worker(
    running: EmbeddedTracker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """This process is a worker, whose local tracker is started on first use."""
    settings = {
        "TARGET": running.target, "PIPELINE": "p", "NODE_ID": "host-1",
        "DIRECTORY": f"{tmp_path}/lowmark", "DEADLINE_S": str(HANG_S),
    }  # fmt: skip
    for name, value in settings.items():
        monkeypatch.setenv(f"LOWMARK_{name}", value)
    yield
    end_started()


def end_started() -> list[int]:
    """Ends the local trackers that this process has started; their exit codes."""
    for handle in route._handles.by_settings.values():
        handle.close()
    route._handles.by_settings.clear()
    codes = []
    while starting._started:
        process = starting._started.pop()
        process.terminate()
        codes.append(process.wait(HANG_S))
    return codes


def new_agent(logs: Path, target: str, address: str, mode: str = "eager", *more: str) -> Running:
    """A local tracker in a process of its own, not started."""
    node_id = "lt-" + address.rpartition("/")[2].replace(":", "-")
    return Running(
        "local_tracker.agent", "--target", target, "--pipeline", "p", "--node-id", node_id,
        "--socket", address, "--mode", mode, *more, errors=logs / "agent.log",
    )  # fmt: skip


@contextmanager
def agent(target: str, address: str, mode: str = "eager", *more: str) -> Iterator[Running]:
    """One that listens."""
    with TemporaryDirectory() as logs, new_agent(Path(logs), target, address, mode, *more) as made:
        made.until_logs("listens at")
        yield made


def contribution(item: int, operator: str = "op", attempt: int = 0) -> StagedContribution:
    return StagedContribution(
        "q", "r", 3, 0, operator, 1, 0, attempt, one_cell(1, 6, item), one_cell(0, 5, item)
    )


@contextmanager
def subscriber(running: EmbeddedTracker) -> Iterator[Subscriber]:
    with Subscriber(running.target, "p") as subscribed:
        yield subscribed


# --- eager ----------------------------------------------------------------------------------------


def test_a_plain_worker_moves_min_time(running: EmbeddedTracker, worker: None) -> None:
    with subscriber(running) as subscribed:
        with acks.step():
            acks.consume("a", 5, 1)
            acks.create("b", 6, 2)
        assert subscribed.wait_until(END, "a", HANG_S)
        assert subscribed.min_time("b") == 6
        with acks.step():
            acks.consume("b", 6, 2)
        assert subscribed.wait_until(END, timeout_s=HANG_S)
        assert acks.min_time("b") in (0, 6, END)
        until(lambda: acks.min_time() >= END)
    assert end_started() == [0]


LIVES = 3


@pytest.mark.parametrize("family", ["unix", "tcp"])
def test_no_outcome_is_unknown_though_each_that_ends_in_order_takes_its_spool_along(
    running: EmbeddedTracker, tmp_path: Path, family: str
) -> None:
    """As pods with their volumes: what was not taken by the time of the end is handed over to the next."""
    (port,) = free_ports(1)
    address = f"unix:{tmp_path}/lt" if family == "unix" else f"tcp:127.0.0.1:{port}"
    done, ended = threading.Event(), Future[int]()

    def work() -> None:
        handle = Handle(address, "p", HANG_S)
        number = 1
        try:
            while not done.is_set():
                taken = one_cell(0 if number == 1 else 1, 5, number)
                handle.step(one_cell(1, 5, number + 1), taken)
                number += 1
            handle.step(Cells.empty(), one_cell(1, 5, number))
            ended.set_result(number)
        except HandOverError as error:
            ended.set_exception(error)
        finally:
            handle.close()

    worker = threading.Thread(target=work)
    for life in range(LIVES):
        spool = tmp_path / f"spool-{life}"
        with agent(running.target, address, "eager", "--spool", str(spool)) as local:
            if not life:
                worker.start()
            until(lambda spool=spool: spool.stat().st_size > 2_000 or ended.done())  # type: ignore[misc]
            if life == LIVES - 1:
                done.set()
                assert ended.result(HANG_S) > 5
            assert local.stop() == 0
    worker.join()
    with subscriber(running) as subscribed:
        assert subscribed.wait_until(END, timeout_s=HANG_S)


def test_one_that_no_worker_has_started_waits_until_its_pipeline_is_registered(
    tmp_path: Path,
) -> None:
    """A cluster starts it beside what registers the pipeline."""
    address = f"unix:{tmp_path}/lt"
    with tracker.embedded() as embedded:
        local = Running(
            "local_tracker.agent", "--target", embedded.target, "--pipeline", "p",
            "--node-id", "n", "--mode", "eager", "--socket", address, errors=tmp_path / "log",
        )  # fmt: skip
        with local:
            local.until_logs("'p' is not registered")
            embedded.register(PipelineSpec("p", ("a", "b"), (Edge("a", "b"),), open=True))
            handle = Handle(address, "p", HANG_S)
            assert handle.welcome().segments == ("a", "b")
            handle.close()
            assert local.stop() == 0


def test_one_that_waits_for_its_pipeline_ends_by_itself_as_a_containers_first_process_has_to(
    tmp_path: Path,
) -> None:
    with tracker.embedded() as embedded:
        local = Running(
            "local_tracker.agent", "--target", embedded.target, "--pipeline", "p",
            "--node-id", "n", "--socket", f"unix:{tmp_path}/lt", errors=tmp_path / "log",
        )  # fmt: skip
        with local:
            local.until_logs("'p' is not registered")
            assert local.stop() == 128 + signal.SIGTERM


def test_a_refused_step_says_what_the_tracker_says(running: EmbeddedTracker, worker: None) -> None:
    with acks.step():
        acks.consume("a", 5, 1)
    with subscriber(running) as subscribed:
        assert subscribed.wait_until(END, timeout_s=HANG_S)
    with pytest.raises(HandOverError, match="slot 7, but min time 1000") as refused:  # noqa: SIM117
        with acks.step():
            acks.create("a", 7, 3)
    assert refused.value.code == "refused.below_min_time"


def test_steps_count_once_though_the_local_tracker_is_killed_again_and_again(
    running: EmbeddedTracker, worker: None
) -> None:
    """A chain of items: one that was lost, or counted twice, would hold min time for ever."""
    begun = threading.Event()
    done = threading.Event()

    def kill_now_and_then() -> None:
        for _ in range(4):
            begun.wait(HANG_S)
            begun.clear()
            if done.is_set():
                return
            starting._started[-1].kill()

    killer = threading.Thread(target=kill_now_and_then)
    killer.start()
    for number in range(1, 121):
        if number % 25 == 0:
            begun.set()
        with acks.step():
            acks.consume("a" if number == 1 else "b", 5, number)
            acks.create("b", 5, number + 1)
    with acks.step():
        acks.consume("b", 5, 121)
    done.set()
    begun.set()
    killer.join()
    assert len(starting._started) > 1, "no local tracker was replaced"
    with subscriber(running) as subscribed:
        assert subscribed.wait_until(END, timeout_s=HANG_S)


def test_workers_that_start_together_share_one_local_tracker(
    running: EmbeddedTracker, worker: None, tmp_path: Path
) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=one_step, args=(1 << n,)) for n in range(1, 4)]
    for each in workers:
        each.start()
    for each in workers:
        each.join(HANG_S)
    assert [each.exitcode for each in workers] == [0, 0, 0]
    (log,) = (tmp_path / "lowmark").glob("*.log")
    assert log.read_text().count("listens at") == 1
    # This process's handle finds it too, and ends it.
    assert acks.min_time("b") >= 0
    assert starting._started == []
    (path,) = (tmp_path / "lowmark").glob("*.sock")
    end_by_socket(str(path))


def end_by_socket(path: str) -> None:
    """Ends whoever listens at a Unix socket, and waits until it has."""
    connection = connect(f"unix:{path}", Deadline(HANG_S))
    # Three ints: pid, uid, gid.
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid = int.from_bytes(credentials[:4], sys.byteorder)
    os.kill(pid, signal.SIGTERM)
    connection.settimeout(HANG_S)
    assert receive_frame(connection) is None
    connection.close()


def one_step(item: int) -> None:
    with acks.step():
        acks.create("b", END + 1, item)


def test_a_forked_worker_has_a_connection_of_its_own(
    running: EmbeddedTracker, tmp_path: Path
) -> None:
    with agent(running.target, f"unix:{tmp_path}/s"):
        handle = Handle(f"unix:{tmp_path}/s", "p", HANG_S)
        handle.step(one_cell(1, END - 1, 1), Cells.empty())
        # In a process without threads, as Spark's workers are: gRPC's would not survive a fork.
        code = f"""
import os
from local_tracker.worker.handle import Handle
from tests.cluster.children import Running
from tests.local_tracker.fakes import one_cell
from tracker.core.model import Cells
handle = Handle("unix:{tmp_path}/s", "p", {HANG_S})
handle.step(one_cell(1, {END - 1}, 2), Cells.empty())
child = os.fork()
handle.step(one_cell(1, {END - 1}, 4 if child else 8), Cells.empty())
if child:
    assert os.waitpid(child, 0)[1] == 0
    handle.step(one_cell(1, {END - 1}, 16), Cells.empty())
"""
        subprocess.run([sys.executable, "-c", code], check=True, timeout=HANG_S)
        handle.step(Cells.empty(), one_cell(1, END - 1, 31))
        handle.step(Cells.empty(), one_cell(0, 5, 1))
        handle.close()
    with subscriber(running) as subscribed:
        assert subscribed.wait_until(END, timeout_s=HANG_S)


def test_fronts_of_workers_hold_and_move_min_time(running: EmbeddedTracker, worker: None) -> None:
    with acks.step():
        acks.consume("a", 5, 1)
    grant = acks.join_front("own", "b")
    acks.heartbeat("own", END + 50)
    with subscriber(running) as subscribed:
        assert subscribed.wait_until(END, "b", HANG_S)
        assert subscribed.min_time("b") == END, "the other front still holds it"
        assert grant.slot <= END
        acks.leave_front("own")


# --- transactional --------------------------------------------------------------------------------


def staged(running: EmbeddedTracker, batch: int = 3) -> list[tuple[str, int]]:
    query = running.node("p", "q-node")
    return sorted((c.operator, c.attempt) for c in query.list_contributions("q", batch))


@pytest.fixture
def query(running: EmbeddedTracker) -> None:
    running.node("p", "q-node", "query").join()


def test_contributions_are_durable_at_the_querys_home_when_the_task_is_answered(
    running: EmbeddedTracker, query: None, tmp_path: Path
) -> None:
    address = f"unix:{tmp_path}/s"
    with agent(running.target, address, "transactional") as first:
        handle = Handle(address, "p", HANG_S)
        handle.stage("q-node", [HandedOver("1", contribution(1))])
        first.kill()
        assert staged(running) == [("op", 0)]
        with agent(running.target, address, "transactional"):
            # It knows nothing of the first hand-over, whose task may be handing over again.
            handle.stage("q-node", [HandedOver("1", contribution(1))])
            handle.stage("q-node", [HandedOver("2", contribution(1, attempt=4))])
            assert staged(running) == [("op", 0), ("op", 4)]
            with pytest.raises(HandOverError, match="'op' handed over twice") as refused:
                handle.stage("q-node", [HandedOver("3", contribution(7, attempt=4))])
            assert refused.value.code == "refused.conflict"
            with pytest.raises(HandOverError, match="takes acks of micro-batches only"):
                handle.step(one_cell(1, END, 1), Cells.empty())
            handle.close()
    with subscriber(running) as subscribed:
        assert subscribed.min_time() == 5, "nothing that is staged has moved anything"


def test_other_contents_are_refused_also_by_a_local_tracker_that_was_restarted(
    running: EmbeddedTracker, query: None, tmp_path: Path
) -> None:
    address = f"unix:{tmp_path}/s"
    for nonce, item in (("1", 1), ("2", 7)):
        with agent(running.target, address, "transactional"):
            handle = Handle(address, "p", HANG_S)
            if item == 1:
                handle.stage("q-node", [HandedOver(nonce, contribution(item))])
            else:
                with pytest.raises(HandOverError, match="'op' handed over twice, with other"):
                    handle.stage("q-node", [HandedOver(nonce, contribution(item))])
            handle.close()


def test_a_host_without_a_route_gives_a_clear_error_in_time(
    running: EmbeddedTracker, query: None, tmp_path: Path
) -> None:
    with agent(running.target, f"unix:{tmp_path}/s", "transactional"):
        handle = Handle(f"unix:{tmp_path}/s", "p", 2.0)
        handle.welcome()
        running.kill_shard(0)
        with pytest.raises(HandOverError, match=r"tracker at 127\.0\.0\.1:\d+: ") as failed:
            handle.stage("q-node", [HandedOver("1", contribution(1))])
        assert failed.value.code == "hand_over.unreachable"
        handle.close()
        running.start_shard(0)


def test_a_local_tracker_that_hangs_is_given_up_in_time(
    running: EmbeddedTracker, tmp_path: Path
) -> None:
    with agent(running.target, f"unix:{tmp_path}/s") as hanging:
        handle = Handle(f"unix:{tmp_path}/s", "p", 0.5)
        handle.welcome()
        hanging.pause()
        with pytest.raises(HandOverError, match=r"'mine': not durable within 0\.5 s") as failed:
            handle.step(one_cell(1, END, 1), Cells.empty(), what="the acks of operator 'mine'")
        assert failed.value.code == "hand_over.deadline"
        handle.close()


# --- restarted pipelines --------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [1, 2])
def test_a_step_of_an_older_generation_counts_for_nothing(
    running: EmbeddedTracker, tmp_path: Path, levels: int
) -> None:
    """Whoever begins in the new generation reads its input again, and would make the same children: two of
    each are as good as none."""
    addresses = [f"unix:{tmp_path}/s{level}" for level in range(levels)]
    targets = [running.target, *addresses]

    def started(stack: ExitStack) -> list[Running]:
        return [
            stack.enter_context(agent(*place))
            for place in zip(targets[:-1], addresses, strict=True)
        ]

    before = Handle(addresses[-1], "p", HANG_S)
    with ExitStack() as stack:
        agents = started(stack)
        before.step(one_cell(1, 8, 2), one_cell(0, 5, 1))
        with running.admin() as admin:
            assert admin.restart("p", 0) == (1, 8)
        worker = stack.enter_context(ThreadPoolExecutor(1))
        step = worker.submit(before.step, one_cell(1, 9, 3), one_cell(1, 8, 2))
        assert agents[0].end() == 3
        if levels > 1:
            # The lower one's flush may be in the record above: it waits for the next one with that.
            stack.enter_context(agent(running.target, addresses[0]))
        with pytest.raises(HandOverError, match="was restarted"):
            step.result(HANG_S)
    with ExitStack() as stack:
        started(stack)
        with pytest.raises(HandOverError, match="start it again, over input from the slot") as old:
            before.step(one_cell(1, 9, 3), one_cell(1, 8, 2))
        assert old.value.code == "hand_over.restarted"
        now = Handle(addresses[-1], "p", HANG_S)
        now.step(one_cell(1, 9, 3), Cells.empty())
        with running.admin() as admin:
            segments = admin.pipeline("p").state.segments
        assert [(s.low, s.open_slots) for s in segments if s.open_slots] == [(9, 1)]
        before.close()
        now.close()


# --- trees ----------------------------------------------------------------------------------------


def test_local_trackers_flush_into_one_another(
    running: EmbeddedTracker, query: None, tmp_path: Path
) -> None:
    upper = f"unix:{tmp_path}/upper"
    lower = [f"unix:{tmp_path}/lower{n}" for n in range(2)]
    with (
        agent(running.target, upper),
        agent(upper, lower[0]) as first,
        agent(upper, lower[1]),
        subscriber(running) as subscribed,
    ):
        handles = [Handle(address, "p", HANG_S) for address in lower]
        handles[0].step(one_cell(1, 8, 4), one_cell(0, 5, 1))
        assert subscribed.wait_until(8, timeout_s=HANG_S)
        first.kill()
        with agent(upper, lower[0]):
            handles[0].step(one_cell(1, 9, 5), Cells.empty())
            handles[1].step(Cells.empty(), one_cell(1, 8, 4))
            assert subscribed.wait_until(9, timeout_s=HANG_S)
            heard = handles[1].min_times()
            while heard.segments[1] < 9:
                heard = handles[1].min_times(heard.version, HANG_S)
            handles[1].stage("q-node", [HandedOver("1", contribution(1))])
            assert staged(running) == [("op", 0)]
            with pytest.raises(HandOverError, match="but min time"):
                handles[1].step(one_cell(1, 2, 3), Cells.empty())
            handles[1].step(Cells.empty(), one_cell(1, 9, 5))
            assert subscribed.wait_until(END, timeout_s=HANG_S)
            for handle in handles:
                handle.close()


def test_what_tasks_of_two_hosts_hold_under_one_name_is_held_apart(
    running: EmbeddedTracker, tmp_path: Path
) -> None:
    """A name is a host's own, also where both hosts flush into one local tracker."""
    upper = f"unix:{tmp_path}/upper"
    lower = [f"unix:{tmp_path}/lower{n}" for n in range(2)]
    with (
        agent(running.target, upper),
        agent(upper, lower[0]),
        agent(upper, lower[1]),
        subscriber(running) as subscribed,
    ):
        one, other = (Handle(address, "p", HANG_S) for address in lower)

        def hold(handle: Handle, slot: int, consumed: Cells) -> None:
            handle.step(Cells.empty(), consumed, holds=(HoldMove("job 7", 0, slot),))

        hold(one, 5, one_cell(0, 5, 1))
        hold(other, 7, Cells.empty())
        assert [[each.slot for each in handle.holds()] for handle in (one, other)] == [[5], [7]]
        hold(other, FOREVER, Cells.empty())
        until(lambda: not other.holds())
        assert [(each.name, each.slot) for each in one.holds()] == [("job 7", 5)]
        assert subscribed.wait_until(5, timeout_s=HANG_S)
        assert subscribed.min_time() == 5
        hold(one, FOREVER, Cells.empty())
        assert subscribed.wait_until(END, timeout_s=HANG_S)
        for handle in (one, other):
            handle.close()


def test_local_trackers_that_run_hear_of_segments_that_come_and_go(
    running: EmbeddedTracker, tmp_path: Path
) -> None:
    upper, lower = f"unix:{tmp_path}/upper", f"unix:{tmp_path}/lower"
    spec = PipelineSpec("p", ("a", "b"), (Edge("a", "b"),), front_count=1)
    grown = replace(spec, segments=("a", "b", "c"), edges=(Edge("a", "b"), Edge("a", "c")))
    with agent(running.target, upper), agent(upper, lower), Admin(running.target) as admin:
        handle = Handle(lower, "p", HANG_S)
        with pytest.raises(HandOverError, match="has no segment 'c'; its segments are: a, b"):
            handle.min_time("c")
        assert len(handle.min_times().segments) == 2
        admin.apply(grown)
        new = handle.segment_number("c")
        until(lambda: len(handle.min_times().segments) == 3)
        handle.step(one_cell(new, 9, 4), one_cell(0, 5, 1))
        until(lambda: handle.min_time("a") == END)
        assert handle.min_time("c") == 9
        admin.apply(replace(spec, segments=("a", "c"), edges=(Edge("a", "c"),)))
        with pytest.raises(HandOverError, match=r"segment 'b': .* removed"):
            handle.step(one_cell(1, 9, 8), one_cell(new, 9, 4))
        handle.step(Cells.empty(), one_cell(new, 9, 4))
        until(lambda: handle.min_time() == END)
        handle.close()


def test_a_flush_goes_into_the_same_record_again_after_the_local_tracker_above_was_fenced(
    running: EmbeddedTracker, tmp_path: Path
) -> None:
    """It stands in that one's spool, and is committed by the next with it: under another number it would count
    twice."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    upper, lower = f"unix:{tmp_path}/one/s", f"unix:{tmp_path}/lower"
    with (
        agent(running.target, upper) as first,
        ThreadPoolExecutor(1) as worker,
        agent(running.target, f"unix:{tmp_path}/two/s"),
        agent(upper, lower),
    ):
        handle = Handle(lower, "p", HANG_S)
        step = worker.submit(handle.step, one_cell(1, 8, 4), one_cell(0, 5, 1))
        assert first.end() == 3, "the other one has its node"
        with agent(running.target, upper), subscriber(running) as subscribed:
            step.result(HANG_S)
            handle.step(Cells.empty(), one_cell(1, 8, 4))
            assert subscribed.wait_until(END, timeout_s=HANG_S)
        handle.close()


def test_after_a_restart_workers_hear_the_whole_pipelines_own_min_time(
    running: EmbeddedTracker, tmp_path: Path
) -> None:
    """A segment that had come further stands where it was, and the other may be beyond the pipeline."""
    running.register(PipelineSpec("apart", ("x", "y"), front_count=2))
    upper, lower = f"unix:{tmp_path}/upper", f"unix:{tmp_path}/lower"
    pipeline = ("--pipeline", "apart")
    with (
        running.subscriber("apart") as subscribed,
        agent(running.target, upper, "eager", *pipeline),
        agent(upper, lower, "eager", *pipeline),
    ):

        def generation(x: int, y: int) -> None:
            """Two fronts, each of a segment of its own, promise."""
            fronts = {segment: running.node("apart", segment) for segment in ("x", "y")}
            for segment, front in fronts.items():
                front.join(HANG_S)
                front.join_front("f", segment, HANG_S)
            for segment, slot in (("x", x), ("y", y)):
                promise = TickContent(heartbeats=(Heartbeat("f", slot),))
                fronts[segment].commit(promise).result(HANG_S)
                assert subscribed.wait_until(slot, segment, HANG_S)

        generation(30, 5)
        assert subscribed.wait_until(5, timeout_s=HANG_S)
        running.admin().restart("apart", 0)
        generation(10, 40)
        assert subscribed.wait_until(10, timeout_s=HANG_S)
        for address in (upper, lower):
            handle = Handle(address, "apart", HANG_S)
            heard = handle.min_times()
            while heard.segments != (30, 40) or heard.pipeline < 10:
                heard = handle.min_times(heard.version, HANG_S)
            assert (handle.min_time(), handle.min_time("x")) == (10, 30)
            handle.close()


def test_a_local_tracker_can_listen_on_a_port(running: EmbeddedTracker, tmp_path: Path) -> None:
    with agent(running.target, "tcp:127.0.0.1:0", "eager", "--spool", f"{tmp_path}/s") as upper:
        address = upper.errors().split("listens at ")[1].split()[0]
        handle = Handle(address, "p", HANG_S)
        handle.step(Cells.empty(), one_cell(0, 5, 1))
        handle.close()
    with subscriber(running) as subscribed:
        assert subscribed.wait_until(END, timeout_s=HANG_S)


# --- beginning and ending -------------------------------------------------------------------------


def test_it_ends_in_order_when_it_is_told_to(running: EmbeddedTracker, tmp_path: Path) -> None:
    path = tmp_path / "s"
    with agent(running.target, f"unix:{path}") as ending:
        handle = Handle(f"unix:{path}", "p", HANG_S)
        handle.step(one_cell(1, END, 1), Cells.empty())
        assert ending.stop() == 0
        assert not path.exists()
        handle.close()
    state = running.admin().pipeline("p").state
    assert "lt-s" not in {node.key.node_id for node in state.nodes}, "it has left"


def test_it_ends_with_the_process_that_it_follows(running: EmbeddedTracker, tmp_path: Path) -> None:
    followed = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    arguments = ("--follow-pid", str(followed.pid))
    with agent(running.target, f"unix:{tmp_path}/s", "eager", *arguments) as following:
        followed.communicate()
        assert following.end() == 0
        assert "the end of the JVM" in following.errors()


def test_it_ends_when_it_is_not_used(running: EmbeddedTracker, tmp_path: Path) -> None:
    with agent(running.target, f"unix:{tmp_path}/s", "eager", "--idle-exit-s", "0.2") as unused:
        assert unused.end() == 0
        assert "disuse" in unused.errors()


def test_one_whose_socket_was_removed_makes_room_for_another(
    running: EmbeddedTracker, tmp_path: Path
) -> None:
    path = tmp_path / "s"
    with agent(running.target, f"unix:{path}") as first:
        path.unlink()
        with agent(running.target, f"unix:{path}"):
            assert first.end() == 0
            assert "the removal of its socket" in first.errors()
            handle = Handle(f"unix:{path}", "p", HANG_S)
            handle.step(Cells.empty(), one_cell(0, 5, 1))
            handle.close()


def test_one_socket_has_one_local_tracker(running: EmbeddedTracker, tmp_path: Path) -> None:
    with agent(running.target, f"unix:{tmp_path}/s") as first:
        with new_agent(tmp_path, running.target, f"unix:{tmp_path}/s") as second:
            assert second.end() == 1
            assert "another local tracker listens" in second.errors()
        assert first.stop() == 0


def test_a_second_one_of_the_same_node_ends_the_first(
    running: EmbeddedTracker, tmp_path: Path
) -> None:
    """Each host needs an id of its own: the one that came first says so and ends."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with (
        agent(running.target, f"unix:{tmp_path}/one/s") as first,
        agent(running.target, f"unix:{tmp_path}/two/s"),
    ):
        handle = Handle(f"unix:{tmp_path}/one/s", "p", HANG_S)
        with pytest.raises(HandOverError, match="only one process may run under a node id") as told:
            handle.step(one_cell(1, END, 1), Cells.empty())
        assert told.value.code == "hand_over.unreachable", "it stands in the first one's spool"
        assert first.end() == 3
        handle.close()


Break = Callable[[pytest.MonkeyPatch, Path], None]


def no_tracker(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setenv("LOWMARK_TARGET", "127.0.0.1:1")
    monkeypatch.setenv("LOWMARK_DEADLINE_S", "3")


def unknown_pipeline(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setenv("LOWMARK_PIPELINE", "nope")


def no_interpreter(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setenv("LOWMARK_PYTHON", "/bin/false")


def public_directory(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    (path / "lowmark").mkdir()
    (path / "lowmark").chmod(0o777)


@pytest.mark.parametrize(
    ("breaks", "message"),
    [
        (
            no_tracker,
            "did not start within 3 s: has this host a route to the tracker at 127.0.0.1:1",
        ),
        (unknown_pipeline, "'nope'"),
        (no_interpreter, "did not start"),
        (public_directory, "only this user can write to"),
    ],
)
def test_a_local_tracker_that_cannot_start_fails_the_worker_with_the_reason(
    running: EmbeddedTracker,
    worker: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    breaks: Break,
    message: str,
) -> None:
    breaks(monkeypatch, tmp_path)
    with pytest.raises(HandOverError, match=message), acks.step():
        acks.create("a", END, 3)


def test_a_long_task_holds_its_input_until_it_is_done(
    running: EmbeddedTracker, worker: None
) -> None:
    """It consumes at once, and min time waits for what it holds, without a word on what else is open."""
    subscriber = running.subscriber("p")
    with acks.step():
        acks.consume("a", 5, 1)
        task = acks.hold("a", 5, "job 7")
    assert subscriber.wait_until(5, timeout_s=HANG_S)
    assert subscriber.min_time() == 5
    with task:
        with acks.step():
            acks.create("b", 5, 9)
        task.move_to(700)
        with acks.step():
            acks.consume("b", 5, 9)
        assert subscriber.wait_until(700, timeout_s=HANG_S)
        assert subscriber.min_time() == 700
        assert acks.holds()["job 7"].slot == 700
    assert subscriber.wait_until(END, timeout_s=HANG_S)
