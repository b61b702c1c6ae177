"""A pipeline begins anew from its min time: what was open is dropped and listed, older ticks are nothing,
fronts are told from where to go on, and no announcement goes back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.driver import Cluster, HandNode, refused
from tracker.core.log import (
    Announced,
    Joined,
    JoinNode,
    Restart,
    RestartPipeline,
)
from tracker.core.model import (
    Batch,
    DroppedCells,
    Edge,
    PipelineSpec,
    RefusalCode,
    Unit,
)
from tracker.core.model.slots import FOREVER
from tracker.core.pipeline.pipeline import MAX_LISTED_RESTARTS

SPEC = PipelineSpec("p", ("work", "next"), (Edge("work", "next"),), fronts=("a",))
AT_MS = 1_700_000_000_000


def running(shards: int) -> tuple[Cluster, HandNode, HandNode]:
    """An item at 23 in the first segment and one at 25 in the second, of a front that is at 40."""
    cluster = Cluster(shards)
    cluster.register(SPEC)
    front, worker = cluster.front(SPEC, "front"), cluster.node(SPEC, "worker")
    front.commit(created=[(0, 23, 1), (0, 25, 2)], units_created=[Unit(0, "file:///x", 23)])
    front.commit(heartbeats={"a": 40})
    worker.commit(consumed=[(0, 25, 2)], created=[(1, 25, 3)], batch=Batch("q", 0, b"f"))
    assert cluster.agreed(SPEC) == (23, 23)
    return cluster, front, worker


def restart(cluster: Cluster, generation: int = 0, from_slot: int | None = None) -> object:
    shard = cluster.routing.registrar("p")
    return cluster.ask(shard, RestartPipeline, "p", generation, from_slot, AT_MS)


def test_it_begins_at_its_min_time_and_fronts_are_told(shards: int) -> None:
    cluster, front, worker = running(shards)
    assert restart(cluster) == Restart(1, 23, AT_MS)
    for node in (front, worker):
        refused(node.ended, RefusalCode.FENCED, "generation 1 begins at slot 23")
        commit_anew = "commit anew what was published or read from that slot on"
        refused(node.attach_refused(), RefusalCode.FENCED, commit_anew)
    assert cluster.agreed(SPEC) == (23, 23)

    front = cluster.node(SPEC, "front")
    assert (front.joined.generation, front.joined.replay_from) == (1, 23)
    assert front.joined.last_batches == () and front.joined.fronts == ()
    assert front.join_front("a").slot == 23
    front.commit(created=[(0, 23, 1), (0, 25, 2)])
    front.commit(heartbeats={"a": 40})
    assert cluster.agreed(SPEC) == (23, 23)
    worker = cluster.node(SPEC, "worker")
    worker.commit(consumed=[(0, 23, 1)], batch=Batch("q", 0, b"g"))
    assert cluster.agreed(SPEC) == (25, 25), "the batch counts, though its number did before"
    worker.commit(consumed=[(0, 25, 2)])
    assert cluster.agreed(SPEC) == (40, 40)


def test_what_a_segment_had_come_to_before_says_nothing_of_the_pipeline_now(shards: int) -> None:
    """What the whole pipeline is said to be never mixes two generations."""
    spec = PipelineSpec("p", ("one", "other"), front_count=1)
    cluster = Cluster(shards)
    cluster.register(spec)
    front = cluster.node(spec, "front")
    front.join_front("a", 0)
    assert cluster.agreed(spec) == (0, FOREVER), "nothing feeds the other"
    assert restart(cluster) == Restart(1, 0, AT_MS)
    front = cluster.node(spec, "front")
    front.join_front("a", 1)
    assert cluster.agreed(spec) == (FOREVER, FOREVER), "each was, in some generation"
    assert {p.pipeline_min_time("p") for p in cluster.processes.values()} == {0}
    cluster.effects.clear()
    front.commit(created=[(1, 7, 1)])
    front.commit(heartbeats={"a": 9})
    cluster.settle()
    assert {p.pipeline_min_time("p") for p in cluster.processes.values()} == {7}
    told = [e.pipeline_min_time for e in cluster.effects if isinstance(e, Announced)]
    assert told == [7] * shards, "it is told, though no segment has anything new to say"


def test_the_slot_from_which_it_begins_is_announced_as_soon_as_fronts_hold_no_less(
    shards: int,
) -> None:
    cluster, *_ = running(shards)
    assert restart(cluster, from_slot=30) == Restart(1, 30, AT_MS)
    assert cluster.agreed(SPEC) == (23, 23), "its front may not be heard of yet"
    cluster.node(SPEC, "front").join_front("a")
    assert cluster.agreed(SPEC) == (30, 30)


def test_what_was_open_is_dropped_and_listed(shards: int) -> None:
    cluster, *_ = running(shards)
    restart(cluster)
    dropped = [dropped for pipeline in cluster.pipelines() for dropped in pipeline.restarts]
    listed = [cells for each in dropped for cells in each.cells]
    assert sorted(listed, key=lambda cells: cells.segment) == [
        DroppedCells(0, 1, 1, 23, 23),
        DroppedCells(1, 1, 1, 25, 25),
    ]
    for process in cluster.processes.values():
        state = process.describe("p", cluster.now_ns)
        assert [segment.open_slots for segment in state.segments] == [0, 0]
        assert (state.nodes, state.fronts, state.generation) == ((), (), 1)
    keeper = cluster.processes[cluster.routing.names_keeper("p", 0)]
    assert keeper.resolve_units("p", 0, ["file:///x"]) == [None]


def test_the_pipeline_waits_for_its_declared_fronts_again(shards: int) -> None:
    cluster, *_ = running(shards)
    restart(cluster)
    other = cluster.node(SPEC, "other")
    other.join_front("b")
    other.commit(heartbeats={"b": 90})
    assert cluster.agreed(SPEC) == (23, 23)


def test_a_segment_that_was_further_says_nothing_new_until_it_is_there_again(shards: int) -> None:
    cluster, front, worker = running(shards)
    worker.commit(consumed=[(0, 23, 1)], created=[(1, 23, 4)])
    assert cluster.agreed(SPEC) == (40, 23)
    restart(cluster)
    assert cluster.agreed(SPEC) == (40, 23)
    front = cluster.node(SPEC, "front")
    assert front.join_front("a").slot == 23, "what is to be done again lies below 40"
    front.commit(created=[(0, 30, 5)])
    front.commit(heartbeats={"a": 60})
    assert cluster.agreed(SPEC) == (40, 30)
    cluster.node(SPEC, "worker").commit(consumed=[(0, 30, 5)])
    assert cluster.agreed(SPEC) == (60, 60)


def test_it_may_begin_later_and_what_lies_before_is_given_up(shards: int) -> None:
    cluster, *_ = running(shards)
    assert restart(cluster, from_slot=30) == Restart(1, 30, AT_MS)
    front = cluster.node(SPEC, "front")
    assert front.join_front("a").slot == 30
    assert front.refused(created=[(0, 29, 9)]).code is RefusalCode.BELOW_MIN_TIME
    front.commit(heartbeats={"a": 35})
    assert cluster.agreed(SPEC) == (35, 35)


@pytest.mark.parametrize("durable", [False, True])
def test_an_operator_who_asks_twice_restarts_once(shards: int, durable: bool) -> None:
    cluster, *_ = running(shards)
    registrar = cluster.routing.registrar("p")
    cluster.handle(registrar, RestartPipeline("lost", "p", 0, None, AT_MS))
    if durable:
        cluster.store(registrar)
    cluster.restart(registrar)
    first = restart(cluster)
    assert first == Restart(1, 23, AT_MS) == restart(cluster)
    refused(restart(cluster, from_slot=30), RefusalCode.CONFLICT)
    assert restart(cluster, generation=1) == Restart(2, 23, AT_MS)
    refused(restart(cluster), RefusalCode.CONFLICT)


def test_two_requests_at_once_restart_once() -> None:
    cluster, *_ = running(1)
    for request in ("one", "two"):
        cluster.handle(0, RestartPipeline(request, "p", 0, None, AT_MS))
    cluster.settle()
    assert cluster.answers("one") == cluster.answers("two") == [Restart(1, 23, AT_MS)]


def test_what_cannot_be_is_refused() -> None:
    cluster, front, worker = running(2)
    refused(restart(cluster, from_slot=22), RefusalCode.BELOW_MIN_TIME)
    refused(restart(cluster, from_slot=23 + SPEC.horizon_slots), RefusalCode.BEYOND_HORIZON)
    registrar = cluster.routing.registrar("p")
    answer = cluster.ask(1 - registrar, RestartPipeline, "p", 0, None, AT_MS)
    assert refused(answer, RefusalCode.NOT_HOME).home == registrar
    worker.commit(consumed=[(0, 23, 1), (1, 25, 3)])
    front.commit(leaves=["a"])
    assert cluster.agreed(SPEC) == (FOREVER, FOREVER)
    refused(restart(cluster), RefusalCode.COMPLETE)


def test_a_node_that_joins_while_it_restarts_is_told_to_join_again() -> None:
    cluster, *_ = running(1)
    cluster.handle(0, RestartPipeline("r", "p", 0, None, AT_MS))
    cluster.handle(0, JoinNode("early", "p", "n", "other"))
    cluster.settle()
    (answer,) = cluster.answers("early")
    refused(answer, RefusalCode.NOT_READY)
    joined = cluster.ask(0, JoinNode, "p", "n", "other")
    assert isinstance(joined, Joined) and joined.generation == 1


def test_the_list_of_restarts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracker.core.pipeline.pipeline.MAX_LISTED_RESTARTS", 2)
    assert MAX_LISTED_RESTARTS > 2
    cluster, *_ = running(1)
    for generation in range(4):
        restart(cluster, generation)
    restarts = cluster.pipeline(0).restarts
    assert [dropped.restart.generation for dropped in restarts] == [3, 4]


def test_an_open_pipeline_without_fronts_stays_open() -> None:
    spec = replace(SPEC, fronts=(), open=True)
    cluster = Cluster(2)
    cluster.register(spec)
    cluster.settle()
    restart(cluster)
    assert cluster.agreed(spec) == (0, 0)


def test_what_was_dropped_is_listed_once_when_a_shard_joins(shards: int) -> None:
    cluster, *_ = running(shards)
    restart(cluster)

    def listed() -> list[DroppedCells]:
        return [cells for p in cluster.pipelines() for each in p.restarts for cells in each.cells]

    before = listed()
    assert sum(cells.cells for cells in before) == 2
    for peer in range(shards):
        cluster.join_shard(peer)
    assert listed() == before
