"""Silence counts only over time in which a process could hear, being alive is said apart, and eviction is
not leaving (rule 8)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.core.driver import MS, Cluster, HandNode
from tracker.core.insight.explain import ExplainQuery, Hold, HoldKind
from tracker.core.log import (
    Append,
    AttachSession,
    DetachSession,
    JoinNode,
    KeyClosed,
    NodeAlive,
    PeerDisconnected,
    RegisterPipeline,
    RestartPipeline,
    RetireNode,
    Wake,
)
from tracker.core.model import Cells, Edge, PipelineSpec, RefusalCode, SilentFront
from tracker.core.model.slots import FOREVER
from tracker.core.process import ProcessConfig

SPEC = PipelineSpec(
    "p", ("work", "next"), (Edge("work", "next", 4),), fronts=("a",),
    silent_front=SilentFront.EVICT, evict_after_ms=1_000,
)  # fmt: skip


def begun(
    shards: int, config: ProcessConfig | None = None, spec: PipelineSpec = SPEC
) -> tuple[Cluster, HandNode]:
    """A front that has promised 50, in a pipeline that evicts it after a second."""
    cluster = Cluster(shards, config=config)
    cluster.register(spec)
    return cluster, cluster.front(spec, "first", promise=50)


def evictions(cluster: Cluster) -> int:
    """How many keys were closed after a silence."""
    return sum(entry.evicted for entry in cluster.logged(KeyClosed))


def is_evicted_after(cluster: Cluster, silent_ms: float) -> None:
    """Nobody a little before, and then one more."""
    before = evictions(cluster)
    cluster.pass_time(silent_ms - 100)
    assert evictions(cluster) == before
    cluster.pass_time(700)
    assert evictions(cluster) == before + 1


def retire(cluster: Cluster) -> Any:
    return cluster.ask_home("first", RetireNode, Cells.empty(), 1)


def test_a_front_that_is_silent_while_it_can_be_heard_is_evicted(shards: int) -> None:
    cluster, _ = begun(shards)
    is_evicted_after(cluster, 1_000)


def test_nobody_is_evicted_behind_a_change_that_is_not_durable_yet() -> None:
    """The operator who lets silent fronts hold is answered before."""
    cluster, _ = begun(1)
    cluster.pass_time(700)
    cluster.handle(0, RegisterPipeline("hold", replace(SPEC, silent_front=SilentFront.HOLD), True))
    for _ in range(4):
        cluster.now_ns += cluster.config.evict_check_ms * MS
        cluster.handle(0, Wake())
    assert not evictions(cluster)
    cluster.pass_time(2_000)
    assert not evictions(cluster)


def test_a_pause_that_is_shorter_than_can_be_seen_evicts_nobody_either() -> None:
    """A front that may be silent for less than a check takes: it is suspected first, and heard then."""
    cluster, front = begun(1, spec=replace(SPEC, evict_after_ms=100))
    for slot in range(50, 60):
        front.commit(heartbeats={"a": slot + 1})
        cluster.pause(cluster.config.evict_check_ms)
    assert not evictions(cluster)
    cluster.pass_time(3 * cluster.config.evict_check_ms)
    assert evictions(cluster) == 1


def test_a_front_that_was_heard_before_a_pause_ended_is_silent_from_then_on() -> None:
    """A pause lets nobody off: whoever does not go on behind it is evicted."""
    cluster, _ = begun(1)
    cluster.pause(60_000)
    is_evicted_after(cluster, 1_000)


def test_a_silence_that_is_longer_than_stalls_are_apart_ends_in_an_eviction() -> None:
    """A stall is no silence, and takes nothing from the silence before it: a front that may be silent for
    minutes is not let off by a process that stands still for a moment, now and then."""
    cluster, _ = begun(1, spec=replace(SPEC, evict_after_ms=60_000))
    for _ in range(3):
        cluster.pass_time(18_000)
        cluster.pause(1_000)
    is_evicted_after(cluster, 6_000)  # a minute, pauses left out


def test_after_a_pause_a_process_listens_before_it_judges_a_long_silence() -> None:
    cluster, front = begun(1, spec=replace(SPEC, evict_after_ms=60_000))
    cluster.pass_time(59_900)
    cluster.pause(600_000)
    cluster.pass_time(cluster.config.reconnect_ms)
    assert not evictions(cluster)
    front.commit(heartbeats={"a": 60})
    is_evicted_after(cluster, 60_000)


def test_while_the_store_is_behind_nobody_is_silent() -> None:
    """Nobody can join, and no tick is read once too much waits to be durable."""
    cluster, front = begun(1)
    front.begin()
    for _ in range(30):
        cluster.now_ns += cluster.config.evict_check_ms * MS
        cluster.handle(0, Wake())
    assert not evictions(cluster)
    cluster.settle()
    cluster.pass_time(900)
    assert not evictions(cluster)


def test_a_front_that_waits_for_its_grant_is_not_silent() -> None:
    """A shard is away, for longer than the front may be silent: it can do nothing but wait."""
    cluster = Cluster(2)
    spec = replace(SPEC, fronts=(), front_count=1)
    cluster.register(spec)
    front = cluster.node(spec, "first")
    home, other = front.home, 1 - front.home
    cluster.part(home, other)
    cluster.handle(home, PeerDisconnected(other))
    front.begin(joins={"a": 0})
    cluster.pass_time(10_000)
    assert not evictions(cluster)
    cluster.held.clear()
    cluster.restart(other)
    cluster.settle()
    cluster.pass_time(900)
    assert not evictions(cluster), "its silence begins with its grant"


def test_a_node_that_lost_its_stream_may_find_the_process_again() -> None:
    """A process that was paused has been given up by its nodes, which try to reach it again."""
    cluster, front = begun(1)
    cluster.pause(12_000)
    cluster.handle(0, DetachSession(front.session))
    cluster.pass_time(cluster.config.reconnect_ms)
    assert not evictions(cluster)
    front.attach()
    cluster.pass_time(900)
    assert not evictions(cluster)
    cluster.handle(0, DetachSession(front.session))
    cluster.pass_time(1_600)
    assert evictions(cluster) == 1, "it is silent, and was not kept from being heard"


def test_being_alive_is_heard_of_the_stream_that_there_is_alone() -> None:
    """Twice, from the past, of nobody: it changes nothing that anyone could see."""
    cluster, front = begun(1)
    older = front.session
    front.attach()
    before = len(cluster.effects)
    for session in (front.session, front.session, older, "nobody"):
        cluster.handle(0, NodeAlive(session))
    assert not [e for e in cluster.effects[before:] if isinstance(e, Append)]
    for _ in range(4):
        cluster.pass_time(500)
        cluster.handle(0, NodeAlive(older))
    assert evictions(cluster) == 1, "an older stream keeps nobody alive"
    cluster.handle(0, NodeAlive(front.session))
    assert cluster.ask(0, JoinNode, "p", "first", "front").fronts == ()


def test_attaching_is_a_sign_of_life() -> None:
    cluster, front = begun(1)
    for number in range(4):
        cluster.pass_time(800)
        cluster.handle(0, AttachSession(f"again-{number}", "p", front.key))
    assert not evictions(cluster)


# --- eviction is not leaving ----------------------------------------------------------------------


def evicted(shards: int, config: ProcessConfig | None = None) -> Cluster:
    """The last front of a pipeline that is not open was evicted; it had promised 50."""
    cluster, _ = begun(shards, config)
    cluster.pass_time(1_600)
    assert evictions(cluster) == 1
    return cluster


def places(cluster: Cluster) -> set[tuple[str, str]]:
    """The vacant places that all processes know."""
    known = {
        frozenset((place.node_id, place.front) for place in pipeline.shard.vacancies.places)
        for pipeline in cluster.pipelines()
    }
    assert len(known) == 1, f"the processes differ: {known}"
    return {*known.pop()}


def test_evicting_the_last_front_completes_nothing_and_is_said(shards: int) -> None:
    cluster = evicted(shards)
    cluster.pass_time(5_000)
    assert cluster.agreed(SPEC) == (50, 54)
    for process in cluster.processes.values():
        explained = process.explain("p", ExplainQuery(), cluster.now_ns)
        for segment in explained.segments:
            assert segment.holds == (Hold(HoldKind.VACANT, 0, 50, node_id="first", front="a"),), (
                segment
            )


def test_it_stands_where_those_that_left_in_order_had_promised(shards: int) -> None:
    """The one that was evicted is not waited for, and those that are done are."""
    cluster, _ = begun(shards)
    other = cluster.front(SPEC, "second", promise=80, b=0)
    other.commit(leaves=["b"])
    assert cluster.agreed(SPEC) == (50, 54)
    cluster.pass_time(1_600)
    assert evictions(cluster) == 1
    assert cluster.agreed(SPEC) == (80, 84)


def test_no_place_is_vacant_where_a_shard_had_called_the_segment_complete() -> None:
    """A front joins a segment that one shard has called complete before it hears of it: there it is pinned at
    the end of time, and can label nothing. Evicting it holds nothing, at the shard that knew of it either."""
    spec = replace(SPEC, segments=("work", "aside"), edges=())
    cluster = Cluster(2)
    cluster.register(spec)
    first, late = (cluster.node(spec, next(cluster.ids_at(home))) for home in (0, 1))
    cluster.held = {(0, 1)}
    first.begin(joins={"a": 0})
    cluster.settle()
    late.begin(joins={"b": 1})
    cluster.settle()
    assert cluster.min_times(spec) == [(0, FOREVER), (0, 0)]
    cluster.reconnect()
    assert late.grants[-1].slot == FOREVER
    cluster.pass_time(1_600)
    assert evictions(cluster) == 2
    assert places(cluster) == {(first.key.node_id, "a"), (late.key.node_id, "b")}
    assert cluster.agreed(spec) == (0, FOREVER)
    again = cluster.node(spec, late.key.node_id)
    assert again.refused(joins={"b": 1}).code is RefusalCode.COMPLETE


def test_it_goes_on_when_the_front_comes_back_and_is_complete_when_that_leaves(shards: int) -> None:
    cluster = evicted(shards)
    again = cluster.node(SPEC, "first")
    assert again.join_front("a").slot == 50
    assert not places(cluster)
    again.commit(created=[(0, 51, 5)])
    again.commit(heartbeats={"a": 60})
    assert cluster.agreed(SPEC) == (51, 55)
    again.commit(consumed=[(0, 51, 5)])
    again.commit(leaves=["a"])
    assert cluster.agreed(SPEC) == (FOREVER, FOREVER)


def test_it_is_complete_when_an_operator_retires_the_node(shards: int) -> None:
    """By the operator's word its fronts have left; saying it again changes nothing."""
    cluster = evicted(shards)
    assert retire(cluster) is None
    assert not places(cluster)
    assert cluster.agreed(SPEC) == (FOREVER, FOREVER)
    assert retire(cluster) is None
    home = cluster.pipeline(cluster.routing.home("p", "first")).home
    assert home.nodes["first"].retired


def test_a_node_that_its_home_has_forgotten_can_be_retired_as_long_as_a_place_is_vacant() -> None:
    cluster = evicted(2)
    home = cluster.pipeline(cluster.routing.home("p", "first")).home
    del home.nodes["first"]  # more nodes were evicted than are remembered
    assert retire(cluster) is None
    assert cluster.agreed(SPEC) == (FOREVER, FOREVER)


def test_a_retired_node_has_left_whatever_became_of_its_fronts_before(shards: int) -> None:
    """Its front was evicted, it came back without it, and then it was retired."""
    cluster = evicted(shards)
    cluster.node(SPEC, "first")
    assert places(cluster) == {("first", "a")}
    assert cluster.agreed(SPEC) == (50, 54), "the node is back, the front is not"
    assert retire(cluster) is None
    assert cluster.agreed(SPEC) == (FOREVER, FOREVER)


def test_a_newcomer_knows_of_vacant_places() -> None:
    cluster = evicted(2)
    cluster.join_shard()
    cluster.rescale(3)
    assert places(cluster) == {("first", "a")}
    assert cluster.agreed(SPEC) == (50, 54)


def test_a_generation_begins_without_vacant_places(shards: int) -> None:
    cluster = evicted(shards)
    registrar = cluster.routing.registrar("p")
    cluster.ask(registrar, RestartPipeline, "p", 0, None, 1)
    cluster.node(SPEC, "first")
    assert not places(cluster)


@pytest.mark.parametrize("shards", [2, 3])
def test_a_vacant_place_is_where_a_generation_begins_at_the_shard_that_had_said_most(
    shards: int,
) -> None:
    """A front that comes back is granted no less than that: there is nothing to wait for below."""
    spec = replace(SPEC, edges=(Edge("work", "next"),))
    cluster, front = begun(shards, spec=spec)
    registrar = cluster.routing.registrar("p")
    others = {*range(shards)} - {registrar}
    assert front.home == registrar
    cluster.held = {(other, registrar) for other in others}
    front.begin(heartbeats={"a": 60})
    cluster.settle()
    cluster.handle(registrar, RestartPipeline("restart", "p", 0, None, 1))
    cluster.settle()
    cluster.held = set()
    cluster.settle()
    floors = {shard: cluster.pipeline(shard).floor for shard in range(shards)}
    assert floors == {registrar: 50} | dict.fromkeys(others, 60)

    cluster.front(spec, "first")
    cluster.pass_time(1_600)
    assert evictions(cluster) == 1
    assert cluster.agreed(spec) == (60, 60)
    assert cluster.node(spec, "first").join_front("a").slot == 60


def test_one_that_is_open_keeps_no_places() -> None:
    """It is never complete as it is, and whoever is evicted there needs nobody's word."""
    spec = replace(SPEC, open=True)
    cluster, _ = begun(1, spec=spec)
    cluster.pass_time(1_600)
    assert evictions(cluster) == 1
    assert not places(cluster)
    assert cluster.agreed(spec) == (50, 54)


def test_nobody_is_evicted_beyond_the_places_that_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tracker.core.admission.silence.MAX_VACANCIES", 1)
    cluster = evicted(1)
    cluster.front(SPEC, "second", b=0)
    cluster.pass_time(10_000)
    assert evictions(cluster) == 1
    assert retire(cluster) is None
    cluster.pass_time(1_600)
    assert evictions(cluster) == 2
