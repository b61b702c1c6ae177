"""A pipeline is deleted, and another one has its name: what was heard of the one before counts for nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest

import tracker
from acker.v1 import progress_service_pb2 as progress_pb
from acker.v1 import progress_service_pb2_grpc as progress_grpc
from tests.client.support import delete, done, joined_front, promise, use_again
from tests.waits import HANG_S
from tracker import EmbeddedTracker
from tracker.client import NodeClient, RefusedError, Subscriber
from tracker.client.refusals import refusal_of
from tracker.client.updates import subscribe_request
from tracker.core.model import RefusalCode

HEARD = 100


@pytest.fixture
def front(running: EmbeddedTracker) -> NodeClient:
    return joined_front(running.node("two", "f", "front"))


@pytest.fixture
def subscriber(running: EmbeddedTracker, front: NodeClient) -> Subscriber:
    """One that has heard something, and hears nothing now."""
    done(front.commit(promise(HEARD)))
    subscriber = running.subscriber("two")
    assert subscriber.wait_until(HEARD, timeout_s=HANG_S)
    assert subscriber.min_time() == HEARD
    return subscriber


@pytest.mark.parametrize(
    "ask",
    [
        lambda subscriber: subscriber.min_time(),
        lambda subscriber: subscriber.wait_until(HEARD - 1, timeout_s=HANG_S),
        lambda subscriber: subscriber.wait_until(HEARD + 1, "second", HANG_S),
        lambda subscriber: next(subscriber.updates()),
    ],
    ids=["min_time", "what_was_reached", "what_was_not", "updates"],
)
def test_who_has_heard_of_the_one_before_is_refused(
    running: EmbeddedTracker, subscriber: Subscriber, ask: Callable[[Subscriber], object]
) -> None:
    use_again(running)
    with pytest.raises(RefusedError, match="was deleted, and another one has its name") as refused:
        ask(subscriber)
    assert refused.value.refusal.code is RefusalCode.UNKNOWN_PIPELINE
    assert running.subscriber("two").min_time() == 0


@pytest.mark.parametrize(
    "ask",
    [
        lambda subscriber: subscriber.min_time(),
        lambda subscriber: subscriber.wait_until(HEARD - 1, timeout_s=HANG_S),
    ],
    ids=["min_time", "what_was_reached"],
)
def test_who_has_only_waited_for_the_one_before_is_refused(
    running: EmbeddedTracker, front: NodeClient, ask: Callable[[Subscriber], object]
) -> None:
    done(front.commit(promise(HEARD)))
    subscriber = running.subscriber("two")
    assert subscriber.wait_until(HEARD, timeout_s=HANG_S)
    use_again(running)
    with pytest.raises(RefusedError, match="was deleted, and another one has its name"):
        ask(subscriber)


def test_who_comes_back_to_the_same_after_restarts_goes_on(
    running: EmbeddedTracker, subscriber: Subscriber
) -> None:
    admin = running.admin()
    for generation in range(3):
        admin.restart("two", generation)
    assert subscriber.min_time() == HEARD
    assert subscriber.wait_until(HEARD, timeout_s=HANG_S)
    assert {update.min_time for update in _first(subscriber, 3)} == {HEARD}


def _first(subscriber: Subscriber, count: int) -> list[tracker.client.Update]:
    updates = subscriber.updates()
    return [next(updates) for _ in range(count)]


def test_each_restart_and_each_use_of_the_name_is_told_apart(running: EmbeddedTracker) -> None:
    heard = []
    for _ in range(3):
        heard.append(running.admin().pipeline("two").state.generation)
        use_again(running)
    now = running.admin().pipeline("two").state.generation
    running.admin().restart("two", now)
    assert _told(running, now) == _told(running, now + 1) == now + 1
    assert [_told(running, generation) for generation in heard] == [None] * 3


def test_a_process_that_has_not_heard_of_the_next_one_tells_nothing_of_the_one_before(
    running: EmbeddedTracker, front: NodeClient
) -> None:
    """It was replaced, and does not know it yet; who asks has heard of the next one from the one that took its place."""
    done(front.commit(promise(HEARD)))
    now = running.admin().pipeline("two").state.generation
    assert _told(running, now + 2, RefusalCode.NOT_READY) is None


def _told(
    running: EmbeddedTracker, generation: int, refused: RefusalCode = RefusalCode.UNKNOWN_PIPELINE
) -> int | None:
    """The generation that a stream hears of that has heard of another one; None where it is refused."""
    with grpc.insecure_channel(running.target.split(",")[0]) as channel:
        stub: Any = progress_grpc.ProgressServiceStub(channel)
        call = stub.Subscribe(iter([subscribe_request("two", (), {}, generation)]), timeout=HANG_S)
        try:
            found: int = next(call).generation
        except grpc.RpcError as error:
            refusal = refusal_of(error)
            assert refusal is not None
            assert refusal.refusal.code is refused
            return None
        return found


def test_one_that_is_gone_is_unknown_as_before(
    running: EmbeddedTracker, subscriber: Subscriber
) -> None:
    delete(running)
    with pytest.raises(RefusedError) as refused:
        subscriber.min_time()
    assert refused.value.refusal.code is RefusalCode.UNKNOWN_PIPELINE


def test_who_cannot_say_of_which_it_has_heard_is_answered(running: EmbeddedTracker) -> None:
    """So does a client of the release before."""
    use_again(running)
    with grpc.insecure_channel(running.target.split(",")[0]) as channel:
        stub = progress_grpc.ProgressServiceStub(channel)
        answer = stub.GetMinTime(progress_pb.GetMinTimeRequest(pipeline="two"), timeout=HANG_S)
    assert answer.min_time == 0
