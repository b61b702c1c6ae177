"""Nodes and fronts over time, crossed with changes, deletions, evictions and shards that join: the one knows of the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.core.driver import Cluster, HandNode, Lossy, refused
from tests.core.test_changing import IN, SPEC, A, B, apply
from tests.core.test_deleting import delete
from tests.core.test_restarting import restart
from tracker.core.log import NodeAlive, RegisterPipeline, Restart, RetireNode, ShardReport
from tracker.core.model import Batch, Cells, Edge, RefusalCode, SilentFront

# --- holds and changes of the graph ---------------------------------------------------------------

FED = replace(SPEC, edges=(Edge("in", "a"), Edge("a", "b")), fronts=("f", "g"))
WITHOUT = replace(FED, edges=(Edge("in", "a"),))


def holding(before: Any) -> tuple[Lossy, HandNode, HandNode, int]:
    """A worker holds slot 150 of `a`; a front that is at home elsewhere feeds `b`."""
    cluster = Lossy(2)
    cluster.register(before)
    home = cluster.routing.registrar("p")
    ids = iter(cluster.ids_at(home))
    front = cluster.front(before, next(ids), promise=100, f=IN)
    front.commit(created=[(IN, 150, 7)], heartbeats={"f": 900})
    other = cluster.front(before, next(cluster.ids_at(1 - home)), promise=150, g=B)
    worker = cluster.node(before, next(ids))
    worker.commit(consumed=[(IN, 150, 7)], holds={"h": (A, 150)})
    return cluster, worker, other, home


@pytest.mark.parametrize("holds", [{}, {"h": (A, 160)}])
def test_by_what_a_node_holds_nothing_is_created_along_an_edge_that_is_gone(holds: Any) -> None:
    cluster, worker, other, home = holding(FED)
    assert apply(cluster, WITHOUT) == WITHOUT
    assert not any(p.graph_change.is_under_way for p in cluster.pipelines())
    cluster.lost = {(1 - home, home, ShardReport)}
    other.commit(heartbeats={"g": 400})
    assert cluster.processes[1 - home].min_times("p")[B] == 400
    assert cluster.pipeline(home).floors()[B] == 150
    refusal = worker.refused(created=[(B, 300, 9)], holds=holds)
    assert refusal.code is RefusalCode.INVALID


@pytest.mark.parametrize("holds", [{}, {"h": (A, 160)}])
def test_by_what_a_node_holds_nothing_is_created_along_an_edge_that_is_not_activated(
    holds: Any,
) -> None:
    cluster, worker, other, home = holding(WITHOUT)
    cluster.lost = {(1 - home, home, ShardReport)}
    other.commit(heartbeats={"g": 400})
    cluster.handle(home, RegisterPipeline("r", FED, True))
    cluster.settle()
    assert cluster.processes[1 - home].min_times("p")[B] == 400
    assert not cluster.pipeline(home).activates
    refusal = worker.refused(created=[(B, 300, 9)], holds=holds)
    assert refusal.code is RefusalCode.NOT_READY
    cluster.lost = set()
    cluster.reconnect()
    assert worker.refused(created=[(B, 300, 9)]).code is RefusalCode.BELOW_MIN_TIME
    worker.commit(created=[(B, 500, 9)], holds={"h": (A, 160)})


def test_a_hold_that_begins_along_an_edge_that_is_not_activated_is_asked_for_again() -> None:
    """A query that starts just then waits for NOT_READY to pass, and fails by BELOW_MIN_TIME."""
    cluster, worker, _, home = holding(WITHOUT)
    cluster.held = {(1 - home, home)}
    cluster.handle(home, RegisterPipeline("r", FED, True))
    cluster.settle()
    assert not cluster.pipeline(home).activates
    step: dict[str, Any] = {"consumed": [(A, 300, 9)], "holds": {"new": (B, 300)}}
    assert worker.refused(**step).code is RefusalCode.NOT_READY
    cluster.reconnect()
    worker.commit(**step)


# --- leaving in a later generation -----------------------------------------------------------------


@pytest.mark.parametrize("restarts", [0, 1])
def test_who_has_left_and_asks_again_hears_that_in_every_generation(restarts: int) -> None:
    """The answer was lost. `NodeClient.leave` takes UNKNOWN_NODE for it, and nothing else."""
    cluster = Cluster(2)
    cluster.register(SPEC)
    for generation in range(restarts):
        restart(cluster, generation)
    worker = cluster.node(SPEC, "worker")
    assert worker.joined.generation == restarts
    assert worker.leave() is None
    for _ in range(2):
        refused(worker.leave(), RefusalCode.UNKNOWN_NODE, "has not joined, or has left")
        refused(worker.attach_refused(), RefusalCode.UNKNOWN_NODE)
        cluster.pass_time(1_000)


# --- newcomers and changes of what is awaited ------------------------------------------------------


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("comes_back", [False, True])
def test_a_newcomer_waits_for_what_all_wait_for_where_two_changes_come_before_what_homes_logged(
    counted: bool, comes_back: bool
) -> None:
    """A front joins at a home, and is all that the pipeline waits for; then that becomes more, and more again. A newcomer hears of
    both changes before it hears of the front; the others count it by then, or not yet."""
    cluster = Cluster(2)
    spec = replace(SPEC, fronts=(), front_count=1)
    cluster.register(spec)
    registrar = cluster.routing.registrar("p")
    home = 1 - registrar
    node = cluster.node(spec, next(cluster.ids_at(home)), "front")
    newcomer = cluster.begin_to_join()
    cluster.settle()
    cluster.held = {(home, newcomer), (newcomer, cluster.sequencer)}
    cluster.bootstrap(newcomer, registrar)
    cluster.settle()
    node.commit(joins={"f": IN})
    assert all(cluster.pipeline(shard).shard.begun for shard in (registrar, home))
    more, most = (replace(spec, front_count=number) for number in (2, 3))
    assert apply(cluster, more) == more
    if counted:
        cluster.held = {(home, newcomer)}
        cluster.settle()
        assert newcomer in cluster.processes[registrar].membership.members
    if comes_back:
        cluster.take_snapshot(registrar)
        cluster.restart(registrar)
        cluster.settle()
    cluster.handle(registrar, RegisterPipeline("early", most, True))  # it may have to wait
    cluster.settle()
    assert not cluster.pipeline(newcomer).shard.fronts
    cluster.held.clear()
    cluster.reconnect()
    assert cluster.processes[newcomer].counts
    assert apply(cluster, most) == most
    assert [p.shard.begun for p in cluster.pipelines()] == [True] * 3
    if comes_back:
        node.attach()
    node.commit(created=[(IN, 150, 7)], heartbeats={"f": 400})
    assert cluster.agreed(spec) == (150, 150, 150)


# --- vacant places at once --------------------------------------------------------------------------

EVICTS = replace(SPEC, silent_front=SilentFront.EVICT, evict_after_ms=1_000)


@pytest.mark.parametrize(("nodes", "fronts"), [(4, 1), (2, 3)])
def test_no_more_places_are_vacant_than_may_be_where_many_fall_silent_at_once(
    monkeypatch: pytest.MonkeyPatch, nodes: int, fronts: int
) -> None:
    monkeypatch.setattr("tracker.core.admission.silence.MAX_VACANCIES", 3)
    cluster = Cluster(1)
    cluster.register(EVICTS)
    for node in map(str, range(nodes)):
        cluster.front(EVICTS, node, promise=100, **{f"f{n or ''}": IN for n in range(fronts)})
    cluster.pass_time(10_000)
    assert len(cluster.pipeline(0).shard.vacancies) == 3


# --- what a front that comes back is asked ----------------------------------------------------------


def test_a_front_that_may_come_back_counts_no_batch_twice_however_many_are_gone_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was evicted, its place is vacant, and others were evicted or retired since. It comes back, is told of no batch, and commits
    what it has published once more: the same item, created twice, is none."""
    monkeypatch.setattr("tracker.core.home.home.KEPT_GONE_NODES", 2)
    spec = replace(EVICTS, fronts=("f", "g"))
    cluster = Cluster(1)
    cluster.register(spec)
    cluster.front(spec, "other", promise=100, g=IN)
    front = cluster.front(spec, "front", promise=100, f=IN)
    step: dict[str, Any] = {"created": [(IN, 500, 7)], "batch": Batch("f", 0, b"x")}
    front.commit(**step)
    other = cluster.node(spec, "other", "front")
    for _ in range(20):
        cluster.handle(0, NodeAlive(other.session))
        cluster.pass_time(100)
    assert ("front", "f") in [
        (p.node_id, p.front) for p in cluster.pipeline(0).shard.vacancies.places
    ]
    for gone in ("one", "two", "three"):
        cluster.node(spec, gone)
        assert cluster.ask_home(gone, RetireNode, Cells.empty(), 1) is None
    front = cluster.node(spec, "front", "front")
    front.join_front("f")
    assert front.joined.last_batches == (Batch("f", 0, b"x"),)
    front.commit(**step)
    front.commit(heartbeats={"f": 900})
    other.commit(heartbeats={"g": 900})
    assert cluster.agreed(spec)[IN] == 500


# --- a name that is used again ------------------------------------------------------------------------


def used_again() -> Cluster:
    """Node "n" has joined a pipeline by a joining named "this"; that was deleted, and another one has its name."""
    cluster = Cluster(2)
    cluster.register(SPEC)
    cluster.join("n", joining="this")
    assert isinstance(delete(cluster), Restart)
    cluster.settle()
    cluster.register(SPEC)
    return cluster


def test_an_attempt_to_join_what_was_deleted_closes_no_key_of_what_has_the_name_now() -> None:
    cluster = used_again()
    node = cluster.node(SPEC, "n", joining="next")
    refused(cluster.join("n", joining="this"), RefusalCode.FENCED, "has taken its place")
    node.commit(consumed=[(IN, 500, 7)])


def test_a_joining_that_began_before_a_deletion_may_end_in_what_has_the_name_now() -> None:
    cluster = used_again()
    node = cluster.node(SPEC, "n", joining="this")
    node.commit(consumed=[(IN, 500, 7)])
