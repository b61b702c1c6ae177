"""Whole trackers of one, two and three processes on loopback, with their real clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import tracker
from tracker import EmbeddedTracker
from tracker.client import Subscriber
from tracker.core.model import (
    Cells,
    Edge,
    Heartbeat,
    PipelineSpec,
    TickContent,
)
from tracker.core.model.slots import FOREVER

PIPELINE = PipelineSpec(
    "p", ("in", "out"), (Edge("in", "out"),), fronts=("F",), horizon_slots=1_000
)
WAIT_S = 20.0


@pytest.fixture(params=[1, 2, 3], ids=lambda n: f"{n}-shards")
def any_tracker(request: pytest.FixtureRequest) -> Iterator[EmbeddedTracker]:
    with tracker.embedded(request.param, block_slots=2) as running:
        running.register(PIPELINE)
        yield running


@pytest.fixture
def one() -> Iterator[EmbeddedTracker]:
    with tracker.embedded() as running:
        running.register(PIPELINE)
        yield running


def created(slot: int, value: int, segment: int = 0) -> TickContent:
    return TickContent(created=Cells.of([(segment, slot, value, 1)]))


def moved(slot: int, value: int) -> TickContent:
    """From `in` to `out`."""
    return TickContent(
        consumed=Cells.of([(0, slot, value, 1)]), created=Cells.of([(1, slot, value + 1, 1)])
    )


def finished(slot: int, value: int) -> TickContent:
    return TickContent(consumed=Cells.of([(1, slot, value + 1, 1)]))


def test_min_time_follows_the_items_from_segment_to_segment(any_tracker: EmbeddedTracker) -> None:
    front = any_tracker.node("p", "f", "front")
    front.join()
    front.join_front("F", "in")
    worker = any_tracker.node("p", "w")
    worker.join()
    hears = any_tracker.subscriber("p")
    for slot in range(10):
        front.commit(created(slot, 1000 + slot))
    front.commit(TickContent(heartbeats=(Heartbeat("F", 10),))).result(WAIT_S)
    for slot in (1, 2, 3):
        worker.commit(moved(slot, 1000 + slot)).result(WAIT_S)
    assert hears.min_time("in") == 0  # slot 0 is still there
    worker.commit(moved(0, 1000)).result(WAIT_S)
    assert hears.wait_until(4, "in", WAIT_S)
    assert hears.min_time("in") == 4
    assert hears.min_time("out") == 0
    for slot in range(4):
        worker.commit(finished(slot, 1000 + slot))
    assert hears.wait_until(4, "out", WAIT_S)
    for slot in range(4, 10):
        worker.commit(moved(slot, 1000 + slot))
        worker.commit(finished(slot, 1000 + slot))
    assert hears.wait_until(10, timeout_s=WAIT_S)
    front.leave_front("F").result(WAIT_S)
    assert hears.wait_until(FOREVER, timeout_s=WAIT_S)
    state = any_tracker.admin().pipeline("p").state
    assert [segment.open_slots for segment in state.segments] == [0, 0]


def test_a_shard_that_is_killed_recovers_everything(tmp_path: Path) -> None:
    with tracker.embedded(3, store=f"sqlite:{tmp_path}", block_slots=2) as running:
        running.register(PIPELINE)
        front = running.node("p", "f", "front")
        front.join()
        front.join_front("F", "in")
        worker = running.node("p", "w")
        worker.join()
        ticks = []
        for slot in range(60):
            ticks.append(front.commit(created(slot, 1000 + slot)))
            ticks.append(worker.commit(moved(slot, 1000 + slot)))
            if slot % 20 == 10:
                running.kill_shard(slot // 20)
                running.start_shard(slot // 20)
        for slot in range(60):
            ticks.append(worker.commit(finished(slot, 1000 + slot)))
        ticks.append(front.commit(TickContent(heartbeats=(Heartbeat("F", 60),))))
        for tick in ticks:
            tick.result(WAIT_S)
        for address in running.addresses:
            with Subscriber(address, "p") as hears:
                assert hears.wait_until(60, timeout_s=WAIT_S)
                assert hears.min_time() == 60


def test_health_says_serving(one: EmbeddedTracker) -> None:
    with grpc.insecure_channel(one.target) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=WAIT_S)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_every_process_tells_of_the_others(any_tracker: EmbeddedTracker) -> None:
    shards = any_tracker.admin().shards()
    assert [shard.address for shard in shards] == list(any_tracker.addresses)
