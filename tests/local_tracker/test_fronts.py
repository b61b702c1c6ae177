"""Fronts of workers: what comes late, or twice, of one that has left is nothing to the next one of its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import tracker
from local_tracker.agent.flushing import Flusher
from local_tracker.agent.server import Listener, Server
from local_tracker.agent.spool import Spool
from local_tracker.agent.staging import Stager
from local_tracker.agent.uplink import LocalTrackerUplink, TrackerUplink, Uplink
from local_tracker.core.window import Step
from local_tracker.worker.handle import Handle
from local_tracker.worker.protocol import Deadline, Promise
from tests.local_tracker.fakes import one_cell
from tests.waits import HANG_S
from tracker.client import NodeClient, Subscriber
from tracker.client.embedded import EmbeddedTracker
from tracker.core.model import Cells, Heartbeat, PipelineSpec, TickContent
from tracker.core.model.slots import FOREVER
from tracker.errors import Code, HandOverError

NEVER_S = 1.0
"""So long a test looks whether comes what must not."""


@pytest.fixture
def running() -> Iterator[EmbeddedTracker]:
    """A tracker with a pipeline of two fronts, `f` and `other`."""
    with tracker.embedded() as embedded:
        embedded.register(PipelineSpec("p", ("a",), fronts=("f", "other")))
        yield embedded


@pytest.fixture
def other(running: EmbeddedTracker) -> NodeClient:
    """The node of `other`, which has joined."""
    node = running.node("p", "other")
    node.join()
    node.join_front("other", "a")
    return node


def started(stack: ExitStack, uplink: Uplink, directory: Path) -> str:
    """The address of a local tracker in this process."""
    directory.mkdir()
    stack.callback(uplink.close, False)
    flusher = Flusher(uplink, Spool(f"{directory}/spool"), 5)
    stack.callback(flusher.close, HANG_S)
    listener = Listener(f"unix:{directory}/s")
    server = Server(listener, uplink, Stager(uplink), flusher, "host")
    stack.callback(server.stop, HANG_S)
    return listener.address


@pytest.fixture(params=["at the tracker", "below another one"])
def workers(
    request: pytest.FixtureRequest, running: EmbeddedTracker, tmp_path: Path
) -> Iterator[list[Handle]]:
    """Two workers of one local tracker."""
    with ExitStack() as stack:
        address = started(stack, TrackerUplink(running.target, "p", "host"), tmp_path / "upper")
        if request.param != "at the tracker":
            lower = LocalTrackerUplink(address, "p", lambda: "sender", "below")
            address = started(stack, lower, tmp_path / "lower")
        handles = [Handle(address, "p", HANG_S) for _ in range(2)]
        for each in handles:
            stack.callback(each.close)
        yield handles


def loses_the_first_answer(handle: Handle, request: str, meanwhile: Callable[[], object]) -> None:
    """The connection breaks when a request was answered, and the worker is stopped for a moment."""
    exchange, lost = handle._exchange, list[Any]()

    def losing(connection: Any, header: Any, body: bytes, deadline: Deadline) -> Any:
        answer = exchange(connection, header, body, deadline)
        if header["type"] == request and not lost:
            lost.append(answer)
            meanwhile()
            raise ConnectionError("the connection broke before the answer came")
        return answer

    handle._exchange = losing  # type: ignore[method-assign]


def promised(other: NodeClient, slot: int) -> None:
    other.commit(TickContent(heartbeats=(Heartbeat("other", slot),))).result(HANG_S)


def comes_to(running: EmbeddedTracker, slot: int) -> bool:
    """Whether min time of the pipeline comes to a slot soon."""
    with Subscriber(running.target, "p") as subscriber:
        return subscriber.wait_until(
            slot, timeout_s=NEVER_S
        )  # expires: nothing says that it does not come


def test_a_leaving_that_is_repeated_ends_no_front_that_another_has_joined_since(
    running: EmbeddedTracker, other: NodeClient, workers: list[Handle]
) -> None:
    first, second = workers
    first.join_front("f", "a")
    loses_the_first_answer(first, "leave_front", lambda: second.join_front("f", "a"))
    first.leave_front("f")
    other.leave_front("other").result(HANG_S)
    assert not comes_to(running, FOREVER), "complete, while the front of the second worker runs"
    second.step(one_cell(0, 5, 1), Cells.empty(), (Heartbeat("f", 6),))
    second.step(Cells.empty(), one_cell(0, 5, 1))
    second.leave_front("f")
    with Subscriber(running.target, "p") as subscriber:
        assert subscriber.wait_until(FOREVER, timeout_s=HANG_S)


def test_a_leaving_that_names_no_joining_is_not_repeated(
    running: EmbeddedTracker, other: NodeClient, workers: list[Handle]
) -> None:
    """As by a process that was started anew: it may end whichever front has the name, once."""
    first, second = workers
    first.join_front("f", "a")
    first._joinings.clear()
    loses_the_first_answer(first, "leave_front", lambda: second.join_front("f", "a"))
    with pytest.raises(HandOverError, match="which joining") as refused:
        first.leave_front("f")
    assert refused.value.code == Code.HAND_OVER_UNKNOWN
    other.leave_front("other").result(HANG_S)
    assert not comes_to(running, FOREVER), "complete, while the front of the second worker runs"
    first.leave_front("f")
    with Subscriber(running.target, "p") as subscriber:
        assert subscriber.wait_until(FOREVER, timeout_s=HANG_S)


def test_a_promise_that_comes_late_is_none_of_a_front_that_another_has_joined_since(
    running: EmbeddedTracker, other: NodeClient, workers: list[Handle]
) -> None:
    """A worker has given up waiting for its answer, and has let the front leave. Then what it sent comes."""
    first, second = workers
    first.join_front("f", "a")
    exchange, sent = first._exchange, list[Any]()

    def stands(connection: Any, header: Any, body: bytes, deadline: Deadline) -> Any:
        if header["type"] != "step" or sent:
            return exchange(connection, header, body, deadline)
        sent.append((dict(header), body))
        raise TimeoutError("it does not answer")

    first._exchange = stands  # type: ignore[method-assign]
    with pytest.raises(HandOverError, match="not durable within"):
        first.step(Cells.empty(), Cells.empty(), (Heartbeat("f", 100),))
    first.leave_front("f")
    second.join_front("f", "a")
    ((header, body),) = sent
    exchange(first._connected(Deadline(HANG_S)), header, body, Deadline(HANG_S))
    promised(other, 100)
    assert not comes_to(running, 100), "what the second worker labels below is late"
    second.step(one_cell(0, 50, 1), Cells.empty(), (Heartbeat("f", 100),))


def test_a_local_tracker_that_is_started_anew_knows_which_joining_a_front_is_of(
    running: EmbeddedTracker, other: NodeClient, tmp_path: Path
) -> None:
    """A promise of the first joining stands in its spool, and its leaving is repeated."""
    deadline = Deadline(HANG_S)
    uplink = TrackerUplink(running.target, "p", "host")
    uplink.open()
    first = uplink.join_front("f", "a", deadline)
    uplink.leave_front("f", (first.incarnation, first.number), deadline)
    second = uplink.join_front("f", "a", deadline)
    uplink.close(leave=False)
    spool = Spool(f"{tmp_path}/spool")
    spool.begin_generation(0)
    promise = Promise("f", 100, first.incarnation, first.number)
    spool.flush(1, (Step("worker", 1, heartbeats=(promise,)),))
    spool.close()
    uplink = TrackerUplink(running.target, "p", "host")
    flusher = Flusher(uplink, Spool(f"{tmp_path}/spool"), 5)
    step = Step("worker", 1, heartbeats=(promise,))
    flusher.submit(step, True, deadline).result(HANG_S)
    uplink.leave_front("f", (first.incarnation, first.number), deadline)
    promised(other, 100)
    assert not comes_to(running, 100)
    flusher.submit(
        Step("worker", 2, heartbeats=(Promise("f", 100, second.incarnation, second.number),)),
        False,
        deadline,
    ).result(HANG_S)
    assert comes_to(running, 100)
    uplink.leave_front("f", (second.incarnation, second.number), deadline)
    other.leave_front("other").result(HANG_S)
    assert comes_to(running, FOREVER)
    flusher.close(HANG_S)
    uplink.close(leave=False)
