"""Fronts come late, leave, and come again; pins keep what was announced true (rule 8)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.driver import MS, Cluster, HandNode, content, refused
from tracker.core.log import AttachSession, Entries, SessionRefused, TickRefused, Wake
from tracker.core.model import Edge, FrontPolicy, PipelineSpec, RefusalCode, SilentFront
from tracker.core.model.slots import FOREVER

SPEC = PipelineSpec("p", ("work", "next"), (Edge("work", "next", 4),), fronts=("a",))


def begun(shards: int, spec: PipelineSpec = SPEC, heartbeat: int = 50) -> tuple[Cluster, HandNode]:
    """A pipeline with one front, which has promised `heartbeat`."""
    cluster = Cluster(shards)
    cluster.register(spec)
    return cluster, cluster.front(spec, "first", promise=heartbeat)


def test_a_front_that_labels_below_its_promise_is_refused_though_another_holds(shards: int) -> None:
    cluster, first = begun(shards)
    late = cluster.node(SPEC, "late")
    assert late.join_front("b").slot == 50
    first.commit(heartbeats={"a": 90})
    assert cluster.agreed(SPEC) == (50, 54)
    refusal = first.refused(created=[(0, 60, 7)])
    assert refusal.code is RefusalCode.BELOW_MIN_TIME
    assert "'a'" in refusal.message and "slot 60" in refusal.message and "90" in refusal.message
    late.commit(created=[(0, 60, 7)])
    first.commit(created=[(0, 61, 9)], consumed=[(0, 60, 7)])  # a child may follow its item
    first.commit(created=[(0, 90, 8), (1, 60, 8)])  # and it promised for its segment alone


def test_while_one_that_is_declared_does_not_come_no_more_than_so_many_others_join(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each is remembered until the pipeline has begun, also when it has left."""
    monkeypatch.setattr("tracker.core.admission.ticks.MAX_JOINED", 2)
    spec = replace(SPEC, fronts=("a", "b"))
    cluster = Cluster(1)
    cluster.register(spec)
    node = cluster.node(spec, "other")
    node.commit(joins={"x": 0, "y": 0})
    node.commit(leaves=["x", "y"])
    full = node.refused(joins={"a": 0, "z": 0})
    assert full.code is RefusalCode.FULL and "front 'z' of node other#1 cannot join" in full.message
    assert "waits for ['a', 'b']" in full.message
    node.commit(joins={"a": 0, "y": 0})
    assert "waits for ['b']" in cluster.node(spec, "more").refused(joins={"a": 0}).message
    node.commit(joins={"b": 0})
    node.commit(joins={"z": 0})


def test_items_before_the_grant_are_refused() -> None:
    cluster, _ = begun(2)
    late = cluster.node(SPEC, "late")
    cluster.held = {(late.home, 1 - late.home)}
    late.begin(joins={"b": 0})
    cluster.settle()
    refusal = late.refused(created=[(0, 60, 1)])
    assert refusal.code is RefusalCode.NOT_READY
    assert "'b'" in refusal.message
    assert "grant" in refusal.message


def test_an_open_segment_without_fronts_waits_where_the_next_one_will_be_pinned(
    shards: int,
) -> None:
    """Else what an evicted front has left would be consumed at slots that nobody waits for any more, and
    hold min time for good."""
    spec = replace(SPEC, open=True)
    cluster, first = begun(shards, spec)
    second = cluster.front(spec, "second", promise=100, b=1)
    assert cluster.agreed(spec) == (50, 54)
    first.commit(leaves=["a"])
    assert cluster.agreed(spec) == (96, 100)
    worker = cluster.node(spec, "worker")
    worker.commit(consumed=[(0, 60, 1)])
    assert worker.refused(created=[(0, 95, 1)]).code is RefusalCode.BELOW_MIN_TIME
    second.commit(heartbeats={"b": 110})
    assert cluster.agreed(spec) == (106, 110)
    assert {p.describe("p", 0).late_items for p in cluster.processes.values()} == {1}
    assert first.join_front("a").slot == 106


@pytest.mark.parametrize("reader", ["is done before", "is done behind", "is done behind one tick"])
def test_an_open_pipeline_waits_where_its_last_front_had_promised(reader: str, shards: int) -> None:
    """Who is done first, the front or who reads what it has labelled, changes nothing: a front may come once a day."""
    spec = replace(SPEC, open=True)
    cluster, first = begun(shards, spec)
    worker = cluster.node(spec, "worker")
    first.commit(created=[(0, 60, 7)])
    last = {"heartbeats": {"a": 90}}
    if reader != "is done behind one tick":
        first.commit(**last)
        last = {}
    if reader == "is done before":
        worker.commit(consumed=[(0, 60, 7)])
    first.commit(leaves=["a"], **last)
    if reader != "is done before":
        worker.commit(consumed=[(0, 60, 7)])
    assert cluster.agreed(spec) == (90, 94)
    assert cluster.front(spec, "next", a=0).grants[-1].slot == 90


def test_shards_of_an_open_pipeline_wait_at_one_slot_also_where_one_hears_all_at_once() -> None:
    """Shard 1 has the entries by which shard 0 announces 100, and no report of it before all fronts have left."""
    spec = replace(SPEC, open=True)
    cluster = Cluster(2)
    cluster.register(spec)
    ids = cluster.ids_at(0)
    first = cluster.front(spec, next(ids), promise=50, a=0)
    second = cluster.front(spec, next(ids), promise=100, b=1)
    cluster.held = {(0, 1)}
    first.begin(leaves=["a"])
    while cluster.min_times(spec)[0] != (96, 100):
        cluster.move_once()
        if (link := cluster.links[0, 1]) and isinstance(link[0].body, Entries):
            cluster.deliver(0, 1, 1)
        cluster.now_ns += 2 * MS
        for shard in (0, 1):
            cluster.handle(shard, Wake())
        assert cluster.now_ns < 10_000 * MS
    second.begin(leaves=["b"])
    cluster.commit(0)
    cluster.held = set()
    cluster.restart(1)
    cluster.pass_time(5_000)
    assert cluster.min_times(spec) == [(96, 100)] * 2


def test_a_new_incarnation_keeps_the_fronts_of_its_id(shards: int) -> None:
    cluster, first = begun(shards)
    again = cluster.node(SPEC, "first")
    assert again.key.incarnation > first.key.incarnation
    (grant,) = again.joined.fronts
    assert (grant.front, grant.granted, grant.heartbeat) == ("a", True, 50)
    again.commit(joins={"a": 0})  # joining it again changes nothing
    again.commit(heartbeats={"a": 60})
    assert cluster.agreed(SPEC) == (60, 64)


def test_a_complete_pipeline_takes_no_front(shards: int) -> None:
    cluster, first = begun(shards)
    first.commit(leaves=["a"])
    assert cluster.agreed(SPEC) == (FOREVER, FOREVER)
    refusal = cluster.node(SPEC, "late").refused(joins={"b": 0})
    assert refusal.code is RefusalCode.COMPLETE
    assert "'work'" in refusal.message


def test_a_silent_front_holds_unless_the_pipeline_evicts(shards: int) -> None:
    cluster, _ = begun(shards)
    cluster.pass_time(60_000)
    assert cluster.agreed(SPEC) == (50, 54)
    (front,) = cluster.processes[0].describe("p", cluster.now_ns).fronts
    assert front.silent_ms >= 60_000, "and it is shown to be silent"


def test_an_evicted_front_is_fenced_from_the_moment_that_it_is_evicted() -> None:
    """Also before its eviction is durable: its ticks are refused from then on, and it is to know why."""
    spec = replace(SPEC, silent_front=SilentFront.EVICT, evict_after_ms=1_000)
    cluster, first = begun(1, spec)
    older = first.key
    first = cluster.node(spec, "first")
    while not any("KeyClosed" in repr(record) for _, record in cluster.pending[0]):
        assert cluster.now_ns < 10_000 * MS
        cluster.now_ns += 50 * MS
        cluster.handle(0, Wake())
    (tick,) = first.send(first.last + 1, content(heartbeats={"a": 99}))
    assert isinstance(tick, TickRefused)
    refused(tick.refusal, RefusalCode.FENCED, "was evicted after a silence")
    for key, why in ((first.key, "was evicted after a silence"), (older, "has taken its place")):
        (over,) = cluster.handle(0, AttachSession(f"again {why}", "p", key))
        assert isinstance(over, SessionRefused)
        refused(over.refusal, RefusalCode.FENCED, why)


def test_each_front_may_have_a_rule_of_its_own(shards: int) -> None:
    spec = replace(SPEC, front_policies=(FrontPolicy("a", SilentFront.EVICT, 1_000),))
    cluster, first = begun(shards, spec)
    cluster.front(spec, "second", promise=80, b=0)
    cluster.pass_time(2_000)
    assert cluster.agreed(spec) == (80, 84), "a is evicted; b holds, as the pipeline says"
    effects = first.send(first.last + 1, content(heartbeats={"a": 99}))
    assert effects[0].refusal.code is RefusalCode.FENCED  # type: ignore[union-attr]
    cluster.pass_time(60_000)
    assert cluster.agreed(spec) == (80, 84)


def test_a_node_is_as_patient_as_its_most_patient_front(shards: int) -> None:
    evict, hold = SilentFront.EVICT, SilentFront.HOLD
    for rule, goes in ((FrontPolicy("b", hold), False), (FrontPolicy("b", evict, 3_000), True)):
        policies = (FrontPolicy("a", evict, 1_000), rule)
        spec = replace(SPEC, front_policies=policies, fronts=("a", "b"))
        cluster = Cluster(shards)
        cluster.register(spec)
        both = cluster.front(spec, "both", promise=50, a=0, b=0)
        cluster.pass_time(2_000)
        known = cluster.pipeline(both.home).home.nodes["both"]
        assert not known.evicted, "b may be silent for longer, and a goes with it"
        cluster.pass_time(2_000)
        assert known.evicted == goes
        assert cluster.agreed(spec)[0] == 50, "eviction is not leaving"


def test_waking_without_anything_due_changes_nothing() -> None:
    cluster, _ = begun(2)
    cluster.settle()
    said = len(cluster.said)
    cluster.now_ns += 10 * MS
    cluster.handle(0, Wake())
    cluster.settle()
    assert len(cluster.said) == said
