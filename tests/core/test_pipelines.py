"""A pipeline waits for its fronts, follows its items, and completes or stays open (rules 7 and 8)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.driver import Cluster
from tracker.core.model import Edge, PipelineSpec
from tracker.core.model.slots import FOREVER, HIGHEST_SLOT, LOWEST_SLOT

ONE = PipelineSpec("p", ("work",), fronts=("a",))
CHAIN = PipelineSpec("p", ("parse", "enrich"), (Edge("parse", "enrich", 3),), fronts=("a",))


def started(shards: int, spec: PipelineSpec) -> Cluster:
    cluster = Cluster(shards)
    assert cluster.register(spec) == spec
    return cluster


def test_an_item_holds_min_time_until_it_is_consumed(shards: int) -> None:
    cluster = started(shards, ONE)
    front, worker = cluster.node(ONE, "front"), cluster.node(ONE, "worker")
    front.join_front("a")
    front.commit(created=[(0, 5, 0xABC)])
    assert cluster.agreed(ONE) == (0,)
    front.commit(heartbeats={"a": 20})
    assert cluster.agreed(ONE) == (5,), "exclusive: everything below 5 is done"
    worker.commit(consumed=[(0, 5, 0xABC)])
    assert cluster.agreed(ONE) == (20,)


def test_children_hold_what_their_parents_held(shards: int) -> None:
    cluster = started(shards, CHAIN)
    front, worker = cluster.node(CHAIN, "front"), cluster.node(CHAIN, "worker")
    front.join_front("a")
    front.commit(created=[(0, 5, 1), (0, 6, 2)])
    front.commit(heartbeats={"a": 100})
    assert cluster.agreed(CHAIN) == (5, 8), "what enters the second segment is 3 slots later"
    worker.commit(consumed=[(0, 5, 1)], created=[(1, 8, 3)])
    assert cluster.agreed(CHAIN) == (6, 8)
    worker.commit(consumed=[(0, 6, 2)], created=[(1, 30, 4)])
    assert cluster.agreed(CHAIN) == (100, 8)
    worker.commit(consumed=[(1, 8, 3)])
    assert cluster.agreed(CHAIN) == (100, 30)
    worker.commit(consumed=[(1, 30, 4)])
    assert cluster.agreed(CHAIN) == (100, 103)


def test_a_consumption_may_come_before_its_creation(shards: int) -> None:
    """A reader may be quicker than the writer's tick; the writer's input holds in between."""
    cluster = started(shards, CHAIN)
    front, writer, reader = (cluster.node(CHAIN, name) for name in ("front", "writer", "reader"))
    front.join_front("a")
    front.commit(created=[(0, 5, 1)])
    front.commit(heartbeats={"a": 100})
    reader.commit(consumed=[(1, 8, 3)])
    assert cluster.agreed(CHAIN) == (5, 8)
    writer.commit(consumed=[(0, 5, 1)], created=[(1, 8, 3)])
    assert cluster.agreed(CHAIN) == (100, 103)


@pytest.mark.parametrize(
    "spec", [replace(ONE, fronts=("a", "b")), replace(ONE, fronts=(), front_count=2)]
)
def test_a_pipeline_holds_where_it_begins_until_all_its_fronts_have_joined(
    shards: int, spec: PipelineSpec
) -> None:
    spec = replace(spec, start_slot=-7)
    cluster = started(shards, spec)
    first, second = cluster.node(spec, "first"), cluster.node(spec, "second")
    first.join_front("a")
    first.commit(heartbeats={"a": 50})
    assert cluster.agreed(spec) == (-7,)
    assert not cluster.processes[0].describe("p", 0).begun
    second.join_front("b")
    assert cluster.agreed(spec) == (-7,), "the second may label from there on"
    second.commit(heartbeats={"b": 40})
    assert cluster.agreed(spec) == (40,)
    assert cluster.processes[0].describe("p", 0).begun


def test_a_front_that_leaves_before_the_others_join_has_joined(shards: int) -> None:
    spec = replace(ONE, fronts=("a", "b"))
    cluster = started(shards, spec)
    first, second = cluster.node(spec, "first"), cluster.node(spec, "second")
    first.join_front("a")
    first.commit(leaves=["a"])
    assert cluster.agreed(spec) == (0,)
    second.join_front("b")
    second.commit(heartbeats={"b": 40})
    assert cluster.agreed(spec) == (40,)


def test_a_pipeline_is_complete_when_the_last_front_has_left_and_all_is_consumed(
    shards: int,
) -> None:
    cluster = started(shards, CHAIN)
    front, worker = cluster.node(CHAIN, "front"), cluster.node(CHAIN, "worker")
    front.join_front("a")
    front.commit(created=[(0, 5, 1)])
    front.commit(leaves=["a"])
    assert cluster.agreed(CHAIN) == (5, 8), "an item is still open"
    worker.commit(consumed=[(0, 5, 1)], created=[(1, 9, 2)])
    assert cluster.agreed(CHAIN) == (FOREVER, 9), "the first segment is complete by itself"
    worker.commit(consumed=[(1, 9, 2)])
    assert cluster.agreed(CHAIN) == (FOREVER, FOREVER)
    assert all(p.describe("p", 0).complete for p in cluster.processes.values())


def test_an_open_pipeline_holds_instead(shards: int) -> None:
    spec = replace(ONE, open=True)
    cluster = started(shards, spec)
    front = cluster.node(spec, "front")
    front.join_front("a")
    front.commit(heartbeats={"a": 30})
    front.commit(leaves=["a"])
    assert cluster.agreed(spec) == (30,)
    assert not cluster.processes[0].describe("p", 0).complete
    grant = cluster.node(spec, "another").join_front("b")
    assert grant.slot == 30, "a front that comes later begins where it holds"


def test_an_open_pipeline_without_declared_fronts_begins_at_once() -> None:
    spec = PipelineSpec("p", ("work",), open=True, start_slot=12)
    cluster = started(2, spec)
    assert cluster.agreed(spec) == (12,)
    front = cluster.node(spec, "front")
    assert front.join_front("x").slot == 12
    front.commit(heartbeats={"x": 15})
    assert cluster.agreed(spec) == (15,)


@pytest.mark.parametrize("start", [LOWEST_SLOT, -1_000_000, HIGHEST_SLOT - 50])
def test_slots_may_be_negative_and_near_the_limits(shards: int, start: int) -> None:
    spec = replace(CHAIN, start_slot=start)
    cluster = started(shards, spec)
    front, worker = cluster.node(spec, "front"), cluster.node(spec, "worker")
    front.join_front("a")
    front.commit(created=[(0, start, 1), (0, start + 40, 2)])
    front.commit(heartbeats={"a": start + 50})
    assert cluster.agreed(spec) == (start, start + 3)
    worker.commit(consumed=[(0, start, 1)])
    assert cluster.agreed(spec) == (start + 40, start + 43)
    worker.commit(consumed=[(0, start + 40, 2)])
    assert cluster.agreed(spec) == (start + 50, min(FOREVER, start + 53))


def test_pipelines_do_not_touch_each_other(shards: int) -> None:
    p, q = replace(ONE, name="p"), replace(ONE, name="q")
    cluster = started(shards, p)
    cluster.register(q)
    fronts = {spec.name: cluster.node(spec, "front") for spec in (p, q)}
    for front in fronts.values():
        front.join_front("a")
    fronts["p"].commit(created=[(0, 5, 1)])
    fronts["q"].commit(heartbeats={"a": 30})
    fronts["p"].commit(heartbeats={"a": 40})
    assert cluster.agreed(p) == (5,)
    assert cluster.agreed(q) == (30,)
