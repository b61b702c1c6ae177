"""What is refused at a limit, by name and with advice; and that others go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import grpc
import pytest

from acker.v1 import progress_service_pb2 as progress_pb
from acker.v1 import progress_service_pb2_grpc as progress_grpc
from tests.client.support import TWO_SEGMENTS, create, done, joined_front
from tests.waits import HANG_S
from tracker.client import Admin, NodeClient, RefusedError, Subscriber
from tracker.client.embedded import EmbeddedTracker, embedded
from tracker.client.refusals import refusal_of
from tracker.core.model import RefusalCode
from tracker.service.config import ServerConfig
from tracker.service.rpc.limits import Bucket, Limits, Quotas


@contextmanager
def limited(given: Limits, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedTracker]:
    """An embedded tracker whose processes have these limits."""
    monkeypatch.setattr("tracker.client.embedded.ServerConfig", partial(ServerConfig, limits=given))
    with embedded() as running:
        running.register(TWO_SEGMENTS)
        yield running


def refused_by(call: Callable[[], object], limit: str) -> None:
    with pytest.raises(RefusedError, match=limit) as refused:
        call()
    assert refused.value.refusal.code is RefusalCode.FULL


@pytest.mark.parametrize("name", ["max_streams_per_client", "max_subscribers"])
def test_streams_of_a_client_and_subscribers_of_a_pipeline_are_limited(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        limited(Limits(**{name: 1}), monkeypatch) as running,
        Subscriber(running.target, "two") as first,
    ):
        updates = first.updates()
        next(updates)
        refused_by(lambda: one_stream(running.target), f"{name} is 1")
        first.close()
        until_let_in(running.target)


def one_stream(target: str) -> None:
    """Opens a stream of subscriptions, without trying again."""
    request = progress_pb.SubscribeRequest(subscribe=progress_pb.Subscription(pipeline="two"))
    with grpc.insecure_channel(target) as channel:
        call = progress_grpc.ProgressServiceStub(channel).Subscribe(iter([request]), timeout=HANG_S)
        try:
            next(call)
        except grpc.RpcError as error:
            refused = refusal_of(error)
            assert refused is not None, error
            raise refused from None
        call.cancel()


def until_let_in(target: str) -> None:
    """A stream is counted until its process has seen that it is over."""
    with Subscriber(target, "two") as again:
        next(again.updates())  # it tries until it is let in


def test_calls_of_one_client_are_limited_by_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tracker.service.rpc.limits.monotonic", lambda: 1_000.0
    )  # nothing comes back
    with (
        limited(Limits(max_calls_per_s=3), monkeypatch) as running,
        Admin(running.target, HANG_S) as admin,
    ):
        for _ in range(2):  # the first was registering the pipeline
            admin.pipeline("two")
        refused_by(lambda: admin.pipeline("two"), "max_calls_per_s is 3; wait")


def test_ticks_beyond_the_rate_wait_and_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        limited(Limits(max_ticks_per_s=50), monkeypatch) as running,
        NodeClient(running.target, "two", "F") as node,
    ):
        joined_front(node)
        committed = [node.commit(create(slot, slot)) for slot in range(100)]
        assert [done(future) for future in committed] == list(range(2, 102))


def test_a_rate_gives_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("tracker.service.rpc.limits.monotonic", lambda: now[0])
    bucket = Bucket(10)
    assert [bucket.take() for _ in range(10)] == [0.0] * 10
    assert bucket.take() == pytest.approx(0.1)
    assert bucket.take() == pytest.approx(0.2)
    now[0] = 1.0
    assert [bucket.take() for _ in range(8)] == [0.0] * 8, "two were owed"
    assert bucket.take() > 0


def test_the_rate_of_a_pipeline_that_was_deleted_is_not_kept() -> None:
    quotas = Quotas(Limits(max_ticks_per_s=1))
    rate = quotas.ticks_of("p")
    assert quotas.ticks_of("p") is rate
    quotas.forget("p")
    assert quotas.ticks_of("p") is not rate


def test_limits_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Limits(max_subscribers=0)
    with pytest.raises(ValueError, match="at least 0"):
        Limits(max_calls_per_s=-1)
