"""Whole trackers of one process and of three on loopback, with their real clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import tracker
from tests.client.support import SECOND, TWO_SEGMENTS, consume, create, done, joined_front, promise
from tests.waits import HANG_S
from tracker import EmbeddedTracker
from tracker.core.model import TickContent
from tracker.core.model.slots import FOREVER


@pytest.fixture(params=[1, 3], ids=lambda n: f"{n}-shards")
def any_tracker(request: pytest.FixtureRequest) -> Iterator[EmbeddedTracker]:
    with tracker.embedded(request.param, block_slots=2) as running:
        running.register(TWO_SEGMENTS)
        yield running


def moved(slot: int, value: int) -> TickContent:
    """From the first segment to the second."""
    created = create(slot, value + 1, SECOND).created
    return TickContent(consumed=consume(slot, value).consumed, created=created)


def finished(slot: int, value: int) -> TickContent:
    return consume(slot, value + 1, SECOND)


def test_min_time_follows_the_items_from_segment_to_segment(any_tracker: EmbeddedTracker) -> None:
    front = joined_front(any_tracker.node("two", "f", "front"))
    worker = any_tracker.node("two", "w")
    worker.join()
    hears = any_tracker.subscriber("two")
    for slot in range(10):
        front.commit(create(slot, 1000 + slot))
    done(front.commit(promise(10)))
    for slot in (1, 2, 3):
        done(worker.commit(moved(slot, 1000 + slot)))
    assert hears.min_time("first") == 0  # slot 0 is still there
    done(worker.commit(moved(0, 1000)))
    assert hears.wait_until(4, "first", HANG_S)
    assert hears.min_time("first") == 4
    assert hears.min_time("second") == 0
    for slot in range(4):
        worker.commit(finished(slot, 1000 + slot))
    assert hears.wait_until(4, "second", HANG_S)
    for slot in range(4, 10):
        worker.commit(moved(slot, 1000 + slot))
        worker.commit(finished(slot, 1000 + slot))
    assert hears.wait_until(10, timeout_s=HANG_S)
    done(front.leave_front("front"))
    assert hears.wait_until(FOREVER, timeout_s=HANG_S)
    state = any_tracker.admin().pipeline("two").state
    assert [segment.open_slots for segment in state.segments] == [0, 0]


def test_health_says_serving() -> None:
    with tracker.embedded() as one, grpc.insecure_channel(one.target) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=HANG_S)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_every_process_tells_of_the_others(any_tracker: EmbeddedTracker) -> None:
    shards = any_tracker.admin().shards()
    assert [shard.address for shard in shards] == list(any_tracker.addresses)
