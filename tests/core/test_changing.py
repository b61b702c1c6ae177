"""A pipeline changes while it runs (rule 12): segments and edges come and go, and no promise is broken before,
meanwhile or after, for the old graph nor the new one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.core.driver import MS, Cluster, HandNode, Lossy, refused
from tracker.core.insight.explain import ExplainQuery
from tracker.core.log import (
    DeletePipeline,
    Entries,
    Frame,
    FrameArrived,
    HomeEntry,
    KeyClosed,
    NodeAlive,
    PipelineChanged,
    PipelineCompleted,
    RegisterPipeline,
    ReportWanted,
    RescaleShards,
    RestartPipeline,
    RetireNode,
    ShardReport,
    Wake,
)
from tracker.core.log.steps import ShardLeaving, ShardLeft
from tracker.core.model import HOLD_FRONT, Cells, Edge, PipelineSpec, RefusalCode, SilentFront
from tracker.core.model.routing import RoutingTable
from tracker.core.model.slots import FOREVER, LOWEST_SLOT

IN, A, B, NEW = range(4)
SPEC = PipelineSpec(
    "p", ("in", "a", "b"), (Edge("in", "a"), Edge("in", "b"), Edge("a", "b")), fronts=("f",)
)
GROWN = replace(
    SPEC, segments=(*SPEC.segments, "new"), edges=(*SPEC.edges, Edge("in", "new"), Edge("new", "b"))
)
CUT = replace(SPEC, edges=(Edge("in", "a"), Edge("a", "b", 20)))
WITHOUT_A = replace(SPEC, segments=("in", "b"), edges=(Edge("in", "b"),))


def begun(shards: int, spec: PipelineSpec = SPEC) -> tuple[Cluster, HandNode, HandNode]:
    """A front that has labelled at slots 150 and 160 and promised slot 400, and a reader."""
    cluster = Cluster(shards)
    cluster.register(spec)
    front = cluster.front(spec, "front", promise=100, f=IN)
    front.commit(created=[(IN, 150, 7), (IN, 160, 8)], heartbeats={"f": 400})
    return cluster, front, cluster.node(spec, "reader")


def apart() -> tuple[Lossy, HandNode, int, int, int]:
    """A worker, the registrar, and a third shard with a slot of its own, in which an item is open; a front has promised
    slot 400."""
    cluster = Lossy(3)
    cluster.register(SPEC)
    registrar = cluster.routing.registrar("p")
    home, owner = (shard for shard in range(3) if shard != registrar)
    slot = next(iter(cluster.slots_of(owner, 150)))
    front = cluster.front(SPEC, "front", promise=100, f=IN)
    front.commit(created=[(IN, slot, 7)], heartbeats={"f": 400})
    worker = cluster.node(SPEC, next(cluster.ids_at(home)))
    return cluster, worker, registrar, owner, slot


def apply(cluster: Cluster, spec: PipelineSpec, *, check_only: bool = False) -> Any:
    registrar = cluster.routing.registrar(spec.name)
    return cluster.ask(registrar, RegisterPipeline, spec, True, check_only)


# --- what is added --------------------------------------------------------------------------------


def test_a_segment_that_is_added_holds_what_it_leads_to(shards: int) -> None:
    cluster, _, reader = begun(shards)
    assert apply(cluster, GROWN) == GROWN
    assert cluster.agreed(SPEC) == (150, 150, 150, 150)
    reader.commit(consumed=[(IN, 150, 7)], created=[(NEW, 150, 9)])
    reader.commit(consumed=[(IN, 160, 8)])
    assert cluster.agreed(SPEC) == (400, 400, 150, 150)
    reader.commit(consumed=[(NEW, 150, 9)], created=[(B, 155, 1)])
    assert cluster.agreed(SPEC) == (400, 400, 155, 400)
    reader.commit(consumed=[(B, 155, 1)])
    assert cluster.agreed(SPEC) == (400,) * 4


def test_it_begins_where_the_whole_pipeline_is_which_does_not_go_back(shards: int) -> None:
    cluster, _, reader = begun(shards)
    reader.commit(consumed=[(IN, 150, 7)])
    process = cluster.processes[0]
    before = process.pipeline_min_time("p")
    assert before == 160
    cluster.held.update((s, t) for s in range(shards) for t in range(shards) if s != t)
    registrar = cluster.routing.registrar("p")
    cluster.handle(registrar, RegisterPipeline("r", GROWN, True))
    cluster.commit(registrar)
    assert cluster.processes[registrar].min_times("p")[NEW] == before
    assert cluster.processes[registrar].pipeline_min_time("p") == before


def test_a_new_source_waits_for_its_front(shards: int) -> None:
    cluster, front, reader = begun(shards)
    sourced = replace(SPEC, segments=(*SPEC.segments, "new"), edges=(*SPEC.edges, Edge("new", "b")))
    apply(cluster, sourced)
    reader.commit(consumed=[(IN, 150, 7), (IN, 160, 8)])
    front.commit(leaves=("f",))
    assert cluster.agreed(SPEC)[NEW] < FOREVER
    other = cluster.front(sourced, "other", promise=500, g=NEW)
    assert cluster.agreed(SPEC) == (FOREVER, FOREVER, 500, 500)
    other.commit(leaves=("g",))
    assert cluster.agreed(SPEC) == (FOREVER,) * 4


def test_a_new_source_that_is_fed_by_others_after_all_waits_for_no_front(shards: int) -> None:
    cluster, front, reader = begun(shards)
    sourced = replace(SPEC, segments=(*SPEC.segments, "new"), edges=(*SPEC.edges, Edge("new", "b")))
    apply(cluster, sourced)
    fed = replace(sourced, edges=(*sourced.edges, Edge("a", "new")))
    assert apply(cluster, fed) == fed
    reader.commit(consumed=[(IN, 150, 7), (IN, 160, 8)])
    assert cluster.agreed(SPEC) == (400, 400, 400, 400)
    front.commit(leaves=("f",))
    assert cluster.agreed(SPEC) == (FOREVER,) * 4


@pytest.mark.parametrize(
    ("more", "edges"),
    [
        ((), (Edge("new", "new"),)),
        (("far",), (Edge("new", "far"), Edge("far", "new", 3))),
        (("far",), (Edge("new", "far"), Edge("far", "far"), Edge("far", "new"))),
        (("far", "on"), (Edge("new", "far"), Edge("far", "on"))),
    ],
)
def test_a_new_source_is_not_fed_by_where_it_leads_itself(
    shards: int, more: tuple[str, ...], edges: tuple[Edge, ...]
) -> None:
    """It was complete as soon as what was there before was, and its first front could label nothing."""
    cluster, front, reader = begun(shards)
    sourced = replace(SPEC, segments=(*SPEC.segments, "new"), edges=(*SPEC.edges, Edge("new", "b")))
    apply(cluster, sourced)
    round_it = replace(sourced, segments=(*sourced.segments, *more), edges=(*sourced.edges, *edges))
    apply(cluster, round_it)
    reader.commit(consumed=[(IN, 150, 7), (IN, 160, 8)])
    front.commit(leaves=("f",))
    assert max(cluster.agreed(SPEC)[NEW:]) < FOREVER
    source = cluster.front(round_it, "other", promise=500, g=NEW)
    assert source.grants[-1].slot < FOREVER
    source.commit(leaves=("g",))
    assert {*cluster.agreed(SPEC)} == {FOREVER}, "nobody waits for a second front"


def test_new_segments_that_come_to_feed_each_other_one_after_the_other_wait_for_one_front(
    shards: int,
) -> None:
    """The second was fed by the first alone, and then the first by the second."""
    cluster, front, reader = begun(shards)
    sourced = replace(SPEC, segments=(*SPEC.segments, "new"))
    chained = replace(
        sourced, segments=(*sourced.segments, "far"), edges=(*SPEC.edges, Edge("new", "far"))
    )
    for spec in (sourced, chained, replace(chained, edges=(*chained.edges, Edge("far", "new")))):
        apply(cluster, spec)
    reader.commit(consumed=[(IN, 150, 7), (IN, 160, 8)])
    front.commit(leaves=("f",))
    assert max(cluster.agreed(SPEC)[NEW:]) < FOREVER
    apply(cluster, replace(chained, segments=(*SPEC.segments, "far"), edges=SPEC.edges))
    assert cluster.agreed(SPEC)[NEW + 1] < FOREVER, "it waits for a front of its own"
    apply(cluster, SPEC)
    assert {*cluster.agreed(SPEC)} == {FOREVER}


def test_a_new_source_waits_on_when_another_one_that_waited_too_is_removed(shards: int) -> None:
    """`far` was a source of its own before `new` came to lead there. Neither has had a front when `new` is removed."""
    cluster, front, reader = begun(shards)
    far = replace(SPEC, segments=(*SPEC.segments, "far"))
    both = replace(far, segments=(*far.segments, "new"), edges=(*SPEC.edges, Edge("new", "far")))
    apply(cluster, far)
    apply(cluster, both)
    removed = apply(cluster, far)
    assert removed.removed == ("new",)
    reader.commit(consumed=[(IN, 150, 7), (IN, 160, 8)])
    front.commit(leaves=("f",))
    assert cluster.agreed(SPEC)[NEW] < FOREVER, "no front has come"


def test_a_hold_counts_for_no_front_when_a_pipeline_comes_to_wait_for_a_number(shards: int) -> None:
    """It waits for fronts by name, so the front for a hold is remembered among those that have joined; then for a number of them."""
    cluster = Cluster(shards)
    cluster.register(SPEC)
    holder = cluster.node(SPEC, "holder")
    slot = holder.join_front(f"{HOLD_FRONT}h", IN).slot
    holder.commit(leaves=(f"{HOLD_FRONT}h",), holds={"h": (IN, slot)})
    counted = replace(SPEC, fronts=(), front_count=1)
    assert apply(cluster, counted) == counted
    holder.commit(holds={"h": (IN, FOREVER)})
    assert not cluster.logged(PipelineCompleted), "no front has joined"
    assert max(cluster.agreed(SPEC)) < FOREVER


def test_a_hold_in_a_new_source_is_not_the_front_that_it_waits_for(shards: int) -> None:
    cluster, _, holder = begun(shards)
    sourced = replace(SPEC, segments=(*SPEC.segments, "new"), edges=(*SPEC.edges, Edge("new", "b")))
    apply(cluster, sourced)
    for_hold = f"{HOLD_FRONT}h"
    slot = holder.join_front(for_hold, NEW).slot
    holder.commit(leaves=(for_hold,), holds={"h": (NEW, slot)})
    holder.commit(holds={"h": (NEW, FOREVER)})
    assert cluster.agreed(SPEC)[NEW] < FOREVER
    assert cluster.front(sourced, "other", promise=500, g=NEW).grants[-1].slot < FOREVER


def test_where_a_new_source_leads_its_front_labels_no_lower_than_what_is_announced() -> None:
    cluster, _, reader = begun(2)
    reader.commit(consumed=[(IN, 150, 7), (IN, 160, 8)])
    assert cluster.agreed(SPEC) == (400,) * 3
    sourced = replace(
        SPEC, segments=(*SPEC.segments, "new"), edges=(*SPEC.edges, Edge("new", "b", 9))
    )
    apply(cluster, sourced)
    assert cluster.node(sourced, "other", "front").join_front("g", NEW).slot == 400


def test_nobody_creates_in_a_new_segment_before_every_shard_reckons_with_it() -> None:
    cluster, _, _ = begun(3)
    registrar = cluster.routing.registrar("p")
    home, late = (shard for shard in range(3) if shard != registrar)
    cluster.held.add((registrar, late))
    cluster.handle(registrar, RegisterPipeline("r", GROWN, True))
    cluster.settle()
    worker = cluster.node(SPEC, next(cluster.ids_at(home)))
    slot = next(iter(cluster.slots_of(late, 200)))
    step: dict[str, Any] = {"consumed": [(IN, 150, 7)], "created": [(NEW, slot, 5)]}
    refusal = worker.refused(**step)
    assert (
        refusal.code is RefusalCode.NOT_READY and "segment 'new', which is new" in refusal.message
    )
    assert (
        cluster.node(SPEC, "other", "front").refused(joins={"g": NEW}).code is RefusalCode.NOT_READY
    )
    refusal = worker.refused(holds={"h": (NEW, slot)}, consumed=[(IN, 150, 7)])
    assert refusal.code is RefusalCode.NOT_READY
    assert not cluster.answers("r")
    cluster.reconnect()
    assert cluster.answers("r") == [GROWN]
    worker.commit(**step)
    assert cluster.pipeline(late).shard.cells.value(NEW, slot) == (5, 1)


def test_along_a_shorter_way_nobody_creates_below_what_anyone_has_announced(shards: int) -> None:
    spec = replace(SPEC, edges=(Edge("in", "a"), Edge("a", "b", 50)))
    cluster, _, reader = begun(shards, spec)
    assert cluster.agreed(spec) == (150, 150, 200)
    shorter = replace(spec, edges=(*spec.edges, Edge("in", "b"), Edge("b", "a")))
    early = reader.refused(consumed=[(IN, 150, 7)], created=[(B, 150, 1)])
    assert early.code is RefusalCode.BELOW_MIN_TIME
    assert apply(cluster, shorter) == shorter
    refusal = reader.refused(consumed=[(IN, 150, 7)], created=[(B, 199, 1)])
    assert refusal.code is RefusalCode.BELOW_MIN_TIME and refusal.min_times[B] == 200
    reader.commit(consumed=[(IN, 150, 7)], created=[(B, 200, 1)])
    reader.commit(consumed=[(B, 200, 1)], created=[(A, 201, 2)])
    assert cluster.agreed(spec) == (160, 160, 200)
    reader.commit(consumed=[(A, 201, 2), (IN, 160, 8)])
    assert cluster.agreed(spec) == (400, 400, 400)


def test_nobody_uses_a_new_edge_before_all_have_reported_what_they_announced_without_it() -> None:
    spec = replace(SPEC, edges=(Edge("in", "a"),), fronts=("f", "g"))
    cluster, _, _ = begun(3, spec)
    registrar = cluster.routing.registrar("p")
    home, ahead = (shard for shard in range(3) if shard != registrar)
    cluster.front(spec, next(cluster.ids_at(ahead)), promise=300, g=B)
    assert cluster.agreed(spec) == (150, 150, 300)
    worker = cluster.node(spec, next(cluster.ids_at(home)))
    cluster.held.update({(ahead, home), (ahead, registrar)})
    shorter = replace(spec, edges=(*spec.edges, Edge("in", "b")))
    cluster.handle(registrar, RegisterPipeline("r", shorter, True))
    cluster.settle()
    step: dict[str, Any] = {"consumed": [(IN, 150, 7)], "created": [(B, 350, 1)]}
    refusal = worker.refused(**step)
    assert refusal.code is RefusalCode.NOT_READY and "the edge by which node" in refusal.message
    cluster.reconnect()
    assert cluster.answers("r") == [shorter]
    low = worker.refused(consumed=[(IN, 150, 7)], created=[(B, 299, 1)])
    assert low.code is RefusalCode.BELOW_MIN_TIME
    worker.commit(**step)
    assert cluster.agreed(spec) == (160, 160, 300)


def behind_a_new_edge() -> tuple[Lossy, HandNode]:
    """One of two shards has announced slot 300 of `b`, the other one 150, when an edge leads there from an item at slot 150; a
    worker is at home at the other one. Both have activated the edge."""
    spec = replace(SPEC, edges=(Edge("in", "a"),), fronts=("f", "g"))
    cluster = Lossy(2)
    cluster.register(spec)
    home = cluster.routing.registrar("p")
    ids = iter(cluster.ids_at(home))
    front = cluster.front(spec, next(ids), promise=100, f=IN)
    front.commit(created=[(IN, 150, 7)], heartbeats={"f": 400})
    other = cluster.front(spec, next(cluster.ids_at(1 - home)), promise=150, g=B)
    worker = cluster.node(spec, next(ids))
    cluster.lost = {(1 - home, home, ShardReport)}
    other.commit(heartbeats={"g": 300})
    shorter = replace(spec, edges=(*spec.edges, Edge("in", "b")))
    cluster.handle(home, RegisterPipeline("r", shorter, True))
    cluster.settle()
    cluster.lost = set()
    cluster.reconnect()
    assert cluster.answers("r") == [shorter]
    assert [cluster.processes[shard].min_times("p")[B] for shard in (home, 1 - home)] in (
        [150, 300],
        [300, 300],
    )
    return cluster, worker


@pytest.mark.parametrize("from_snapshot", [False, True])
def test_a_home_that_comes_back_takes_nothing_along_a_new_edge_below_what_was_announced(
    from_snapshot: bool,
) -> None:
    """It had heard that before it activated the edge, and hears nobody now."""
    cluster, worker = behind_a_new_edge()
    home = worker.home
    step: dict[str, Any] = {"consumed": [(IN, 150, 7)], "created": [(B, 200, 1)]}
    assert worker.refused(**step).code is RefusalCode.BELOW_MIN_TIME
    if from_snapshot:
        cluster.take_snapshot(home)
    cluster.held.add((1 - home, home))
    cluster.restart(home)
    cluster.settle()
    worker.attach()
    assert worker.refused(**step).code is RefusalCode.BELOW_MIN_TIME
    cluster.reconnect()
    worker.commit(consumed=[(IN, 150, 7)], created=[(B, 300, 1)])
    assert cluster.agreed(worker.spec) == (400, 400, 300)
    assert not any(pipeline.shard.late for pipeline in cluster.pipelines())


def test_what_was_announced_by_then_is_reported_along_with_a_change() -> None:
    cluster, _, _ = begun(2)
    registrar = cluster.routing.registrar("p")
    cluster.held.add((registrar, 1 - registrar))
    cluster.handle(registrar, RegisterPipeline("r", GROWN, True))
    cluster.pipeline(registrar).announced[B] = 333  # appended, and not reported
    cluster.commit(registrar)
    cluster.reconnect()
    assert cluster.pipeline(1 - registrar).combiner.announced_anywhere[B] == 333


# --- what is taken away ---------------------------------------------------------------------------


def test_an_edge_that_is_gone_holds_nothing_any_more(shards: int) -> None:
    cluster, _, reader = begun(shards)
    reader.commit(consumed=[(IN, 150, 7)], created=[(A, 150, 9)])
    assert cluster.agreed(SPEC) == (160, 150, 150)
    apply(cluster, CUT)
    assert cluster.agreed(SPEC) == (160, 150, 170)
    refusal = reader.refused(consumed=[(IN, 160, 8)], created=[(B, 170, 1)])
    assert refusal.code is RefusalCode.INVALID
    assert "at slot 170, which by the pipeline's edges cannot come of" in refusal.message
    assert "in 'in' at slot 160" in refusal.message
    reader.commit(consumed=[(A, 150, 9)], created=[(B, 170, 1)])
    reader.commit(consumed=[(IN, 160, 8)], created=[(A, 165, 2)])
    assert cluster.agreed(SPEC) == (400, 165, 170)


def test_it_counts_until_every_home_is_known_to_judge_by_the_change() -> None:
    """A home that has not heard of the change lets its nodes create along the edge."""
    cluster, _, _ = begun(2)
    registrar = cluster.routing.registrar("p")
    other = 1 - registrar
    worker = cluster.node(SPEC, next(cluster.ids_at(other)))
    cluster.held.add((registrar, other))
    cluster.handle(registrar, RegisterPipeline("r", replace(SPEC, edges=(Edge("in", "a"),)), True))
    cluster.commit(registrar)
    worker.commit(consumed=[(IN, 150, 7)], created=[(B, 150, 9)])
    cluster.settle()
    assert cluster.pipeline(registrar).graph_change.is_under_way
    assert cluster.processes[registrar].min_times("p")[B] <= 150
    cluster.reconnect()
    assert not any(pipeline.graph_change.is_under_way for pipeline in cluster.pipelines())
    assert cluster.agreed(SPEC) == (160, 160, 150)


def test_one_home_that_judges_by_a_change_does_not_end_it() -> None:
    """Another has not heard a report by then, and lets its nodes go on."""
    cluster, _, _ = begun(3)
    registrar = cluster.routing.registrar("p")
    ahead, late = (shard for shard in range(3) if shard != registrar)
    worker = cluster.node(SPEC, next(cluster.ids_at(late)))
    cluster.held.add((ahead, late))
    cluster.handle(registrar, RegisterPipeline("r", CUT, True))
    cluster.settle()
    changes = [cluster.pipeline(shard) for shard in (registrar, ahead, late)]
    assert [pipeline.activates for pipeline in changes] == [True, True, False]
    assert all(pipeline.graph_change.is_under_way for pipeline in changes)
    worker.commit(consumed=[(IN, 150, 7)], created=[(B, 150, 9)])
    assert not cluster.answers("r")
    cluster.reconnect()
    assert cluster.answers("r") == [CUT]
    assert cluster.agreed(SPEC) == (160, 160, 150)


def test_it_counts_until_the_cut_holds_what_homes_logged_before_they_judged_by_the_change() -> None:
    """Every home judges by it, and a shard has not applied what one had let a node create before that."""
    cluster, worker, registrar, owner, slot = apart()
    home = worker.home
    cluster.held.add((registrar, home))
    without = replace(SPEC, edges=(Edge("in", "a"), Edge("a", "b")))
    cluster.handle(registrar, RegisterPipeline("r", without, True))
    cluster.settle()
    cluster.lost = {(home, owner, Entries)}
    worker.commit(consumed=[(IN, slot, 7)], created=[(B, slot, 9)])
    cluster.held.clear()
    cluster.pass_time(cluster.config.retransmit_ms + 1)
    state = cluster.pipeline(registrar)
    assert state.graph_change.activated == {0, 1, 2} and state.graph_change.is_under_way
    assert cluster.processes[registrar].min_times("p")[B] <= slot
    cluster.lost = set()
    cluster.reconnect()
    assert cluster.agreed(SPEC) == (400, 400, slot)


def test_what_a_change_takes_away_counts_on_where_the_next_one_comes_before_that_is_over() -> None:
    """It is over at the registrar; another process has not heard one shard's reports."""
    cluster, worker, registrar, owner, slot = apart()
    home = worker.home
    worker.commit(consumed=[(IN, slot, 7)], created=[(A, slot, 8)])
    cluster.held.add((home, owner))
    worker.begin(consumed=[(A, slot, 8)], created=[(B, slot, 9)])
    cluster.settle()
    without = replace(SPEC, edges=(Edge("in", "a"), Edge("in", "b")))
    cluster.handle(registrar, RegisterPipeline("first", without, True))
    cluster.settle()
    cluster.lost = {(owner, home, ShardReport)}
    cluster.held.clear()
    cluster.pass_time(3 * cluster.config.retransmit_ms)
    assert not cluster.pipeline(registrar).graph_change.is_under_way
    second = replace(without, edges=(*without.edges, Edge("b", "a", 5)))
    cluster.handle(registrar, RegisterPipeline("second", second, True))
    cluster.pass_time(3 * cluster.config.retransmit_ms)
    assert cluster.pipeline(home).changes == 2
    assert all(said[B] <= slot for said in cluster.min_times(SPEC))
    cluster.restart(home)
    assert cluster.pipeline(home).graph_change.gone == (Edge("a", "b"),)
    cluster.lost = set()
    cluster.reconnect()
    assert [said[B] for said in cluster.min_times(SPEC)] == [slot] * 3
    assert not any(pipeline.graph_change.gone for pipeline in cluster.pipelines())


@pytest.mark.parametrize("registered", [True, False])
def test_an_edge_that_comes_back_is_used_when_every_shard_reckons_with_it(registered: bool) -> None:
    """Also where the pipeline becomes just what was registered. Since it has changed, what comes of nothing is judged, too."""
    cluster = Cluster(3)
    cluster.register(SPEC)
    registrar = cluster.routing.registrar("p")
    home, late = (shard for shard in range(3) if shard != registrar)
    front = cluster.front(SPEC, next(cluster.ids_at(registrar)), promise=100, f=IN)
    worker = cluster.node(SPEC, next(cluster.ids_at(home)))
    front.commit(created=[(IN, 150, 7)], heartbeats={"f": 400})
    worker.commit(consumed=[(IN, 150, 7)], created=[(A, 150, 8)])
    apply(cluster, replace(SPEC, edges=(Edge("in", "a"), Edge("in", "b"))))
    back = SPEC if registered else replace(SPEC, edges=(*SPEC.edges, Edge("b", "a", 9)))
    cluster.held.add((registrar, late))
    cluster.handle(registrar, RegisterPipeline("r", back, True))
    cluster.settle()
    step: dict[str, Any] = {"consumed": [(A, 150, 8)], "created": [(B, 600, 9)]}
    assert worker.refused(**step).code is RefusalCode.NOT_READY
    cluster.reconnect()
    assert worker.refused(created=[(B, 600, 9)]).code is RefusalCode.INVALID
    worker.commit(**step)


def test_a_segment_that_is_removed_is_drained(shards: int) -> None:
    cluster, _, reader = begun(shards)
    reader.commit(consumed=[(IN, 150, 7)], created=[(A, 150, 9)])
    answer = apply(cluster, WITHOUT_A)
    assert (answer.segments, answer.removed) == (SPEC.segments, ("a",))
    assert cluster.agreed(SPEC) == (160, 150, 150)
    refusal = reader.refused(consumed=[(IN, 160, 8)], created=[(A, 160, 1)])
    assert "a segment that was removed and is drained" in refusal.message
    front = cluster.node(SPEC, "late", "front").refused(joins={"g": A})
    assert front.code is RefusalCode.UNKNOWN_SEGMENT
    reader.commit(consumed=[(A, 150, 9)], created=[(B, 155, 1)])
    assert cluster.agreed(SPEC) == (160, FOREVER, 155)
    assert apply(cluster, WITHOUT_A) == apply(cluster, answer) == answer, "again changes nothing"


@pytest.mark.parametrize("edges", [(), (Edge("in", "a"),), (Edge("a", "in"),)])
def test_a_segment_that_is_removed_holds_no_pipeline_that_is_open(
    shards: int, edges: tuple[Edge, ...], snapshot: bool
) -> None:
    """What waits there for the next front would wait for ever, and the whole pipeline with it."""
    spec = PipelineSpec("p", ("in", "a"), edges, fronts=("f",), open=True)
    cluster = Cluster(shards)
    cluster.register(spec)
    front = cluster.front(spec, "front", promise=50, f=0)
    front.commit(created=[(1, 60, 7)])
    apply(cluster, replace(spec, segments=("in",), edges=()))
    front.commit(heartbeats={"f": 100})
    assert min(cluster.agreed(spec)) <= 60, "what is open there is waited for"
    cluster.node(spec, "reader").commit(consumed=[(1, 60, 7)])
    assert cluster.agreed(spec) == (100, FOREVER)
    cluster.restart_all(from_snapshots=snapshot)
    front.attach()
    front.commit(leaves=["f"])
    assert cluster.agreed(spec) == (100, FOREVER), "it waits for the next front"
    assert {process.pipeline_min_time("p") for process in cluster.processes.values()} == {100}
    apply(cluster, replace(spec, segments=("in", "b"), edges=(Edge("in", "b"),)))
    assert cluster.agreed(spec) == (100, FOREVER, 100)
    assert cluster.node(spec, "next", "front").join_front("g").slot == 100


@pytest.mark.parametrize("evicts", [False, True])
def test_a_front_that_joins_a_segment_just_as_it_is_removed_holds_nothing(evicts: bool) -> None:
    """Its home has not heard of the removal, and the registrar not of the front. Nor does its place, once it is evicted."""
    silent = SilentFront.EVICT if evicts else SilentFront.HOLD
    spec, cluster = replace(SPEC, silent_front=silent, evict_after_ms=500 * evicts), Cluster(3)
    cluster.register(spec)
    registrar = cluster.routing.registrar("p")
    home, owner = (shard for shard in range(3) if shard != registrar)
    front = cluster.front(spec, next(cluster.ids_at(owner)), promise=100, f=IN)
    front.commit(created=[(A, 500, 7)], heartbeats={"f": 400})
    late = cluster.node(spec, next(cluster.ids_at(home)), "front")
    cluster.held.add((registrar, home))
    removal = replace(spec, segments=WITHOUT_A.segments, edges=WITHOUT_A.edges)
    cluster.handle(registrar, RegisterPipeline("r", removal, True))
    cluster.commit(registrar)
    late.begin(joins={"g": A})
    cluster.settle()
    front.commit(heartbeats={"f": 600})
    assert {said[B] for said in cluster.min_times(spec)} == {400}, "its home may let it label"
    cluster.held.clear()
    cluster.settle()
    assert cluster.answers("r")[0].removed == ("a",)
    assert cluster.agreed(spec) == (600, 500, 500)
    told = cluster.processes[home].explain("p", ExplainQuery(at=900), cluster.now_ns)
    assert {hold.front for hold in told.segments[B].holds} == {"f", ""}
    refusal = late.refused(created=[(A, 500, 1)])
    assert refusal.code is RefusalCode.UNKNOWN_SEGMENT and "'a' was removed" in refusal.message
    assert late.refused(holds={"h": (B, 500)}).code is RefusalCode.BELOW_MIN_TIME
    for _ in range(20 * evicts):
        cluster.handle(front.home, NodeAlive(front.session))
        cluster.pass_time(100)
    assert [entry.key for entry in cluster.logged(KeyClosed)] == [late.key] * evicts
    cluster.node(spec, "reader").commit(consumed=[(A, 500, 7)])
    assert cluster.agreed(spec) == (600, FOREVER, 600)
    if not evicts:
        late.commit(leaves=("g",))
    front.commit(heartbeats={"f": 700})
    assert cluster.agreed(spec) == (700, FOREVER, 700)


def test_what_is_open_in_a_removed_segment_may_be_given_up(shards: int) -> None:
    cluster, _, reader = begun(shards)
    reader.commit(consumed=[(IN, 150, 7)], created=[(A, 150, 9)])
    lost, other = Cells.of([(A, 150, 9, 1)]), Cells.of([(IN, 160, 8, 1)])
    gives_up = partial(cluster.ask_home, "", RetireNode)
    refused(gives_up(lost, 1), RefusalCode.INVALID, "segments that were removed")
    apply(cluster, replace(WITHOUT_A, segments=(*WITHOUT_A.segments, "new")))
    refused(gives_up(other, 1), RefusalCode.INVALID, "segment number 0")
    nowhere = Cells.of([(-1, 150, 9, 1)])
    refused(gives_up(nowhere, 1), RefusalCode.UNKNOWN_SEGMENT, "segment number -1")
    assert cluster.agreed(SPEC)[:3] == (160, 150, 150)
    assert gives_up(lost, 1) is None is gives_up(lost, 2)
    assert cluster.agreed(SPEC)[:3] == (160, FOREVER, 160)
    assert cluster.agreed(SPEC)[3] < FOREVER, (
        "a source that is new waits for its front all the same"
    )
    reader.commit(consumed=[(A, 150, 9)], created=[(B, 170, 1)])
    assert cluster.agreed(SPEC)[B] == 160, "what was given up is late"


def test_what_was_late_rules_nothing_out_that_a_reader_makes_of_it() -> None:
    cluster, _, reader = begun(1)
    reader.commit(consumed=[(IN, 150, 7)])
    apply(cluster, CUT)
    reader.commit(consumed=[(IN, 90, 77)], created=[(A, 300, 5)])
    assert cluster.agreed(SPEC) == (160, 160, 180)


# --- what else changes ----------------------------------------------------------------------------


def test_a_pipeline_that_becomes_open_waits_for_more_fronts(shards: int) -> None:
    cluster, front, reader = begun(shards)
    opened = replace(SPEC, open=True)
    assert apply(cluster, opened) == opened
    reader.commit(consumed=[(IN, 150, 7), (IN, 160, 8)])
    front.commit(leaves=("f",))
    assert cluster.agreed(SPEC) == (400, 400, 400)
    assert cluster.front(opened, "other", g=IN).grants[-1].slot == 400


def test_a_segment_that_would_be_complete_is_not_behind_a_change_that_is_not_durable_yet() -> None:
    """What is announced then becomes durable when the pipeline is open, and an operator knows that."""
    cluster, front, reader = begun(1)
    front.commit(leaves=("f",))
    reader.begin(consumed=[(IN, 150, 7), (IN, 160, 8)], created=[(A, 150, 9)])
    cluster.handle(0, RegisterPipeline("open", replace(SPEC, open=True), True))
    cluster.commit(0, 1)
    cluster.pass_time_without_commits()
    cluster.settle()
    assert cluster.answers("open") == [replace(SPEC, open=True)]
    assert cluster.agreed(SPEC) == (400, 150, 150)
    assert cluster.front(SPEC, "other", g=IN).grants[-1].slot == 400


def test_one_that_is_open_no_more_is_complete_when_its_fronts_have_left_or_were_evicted(
    shards: int,
) -> None:
    """It is the operator's word that no other front comes, nor one that was evicted while it was open."""
    spec = replace(SPEC, open=True, silent_front=SilentFront.EVICT, evict_after_ms=500)
    cluster, _, reader = begun(shards, spec)
    reader.commit(consumed=[(IN, 150, 7), (IN, 160, 8)])
    cluster.pass_time(1_500)
    assert any(entry.evicted for entry in cluster.logged(KeyClosed))
    assert cluster.agreed(spec) == (400, 400, 400)
    apply(cluster, replace(spec, open=False))
    assert cluster.agreed(spec) == (FOREVER,) * 3


@pytest.mark.parametrize("late", [False, True])
def test_a_front_that_is_evicted_when_its_home_knows_it_open_no_more_may_come_back(
    late: bool,
) -> None:
    """Also where a shard hears of the eviction before it hears of the change."""
    closed = PipelineSpec(
        "p", ("x", "y"), (), fronts=("f", "g"), silent_front=SilentFront.EVICT, evict_after_ms=500
    )
    opened, cluster = replace(closed, open=True), Cluster(3)
    cluster.register(opened)
    registrar = cluster.routing.registrar("p")
    home, other = (shard for shard in range(3) if shard != registrar)
    ids = iter(cluster.ids_at(home))
    silent = cluster.front(opened, next(ids), promise=100, f=0)
    lives = cluster.front(opened, next(ids), promise=100, g=1)
    silent.commit(heartbeats={"f": 400})
    if late:
        cluster.held.add((registrar, other))
    cluster.handle(registrar, RegisterPipeline("r", closed, True))
    cluster.move_at_once()
    for _ in range(24):
        cluster.handle(lives.home, NodeAlive(lives.session))
        cluster.pass_time(100)
    assert any(entry.evicted for entry in cluster.logged(KeyClosed))
    cluster.held.clear()
    cluster.settle()
    again = cluster.node(closed, silent.key.node_id, "front")
    assert again.join_front("f", 0).slot < FOREVER


def test_completion_behind_the_change_that_allows_it_is_taken_in_one_frame() -> None:
    cluster, front, reader = begun(2, replace(SPEC, open=True))
    reader.commit(consumed=[(IN, 150, 7), (IN, 160, 8)])
    front.commit(leaves=("f",))
    registrar = cluster.routing.registrar("p")
    cluster.held.add((registrar, 1 - registrar))
    cluster.handle(registrar, RegisterPipeline("r", SPEC, True))
    cluster.pass_time(1)
    assert cluster.logged(PipelineCompleted)
    cluster.reconnect()
    assert cluster.agreed(SPEC) == (FOREVER,) * 3


def test_none_becomes_open_of_which_a_segment_is_complete() -> None:
    cluster, front, reader = begun(2)
    reader.commit(consumed=[(IN, 150, 7)], created=[(A, 150, 9)])
    reader.commit(consumed=[(IN, 160, 8)])
    front.commit(leaves=("f",))
    assert cluster.agreed(SPEC)[IN] == FOREVER
    refusal = apply(cluster, replace(SPEC, open=True))
    assert refusal.code is RefusalCode.COMPLETE and "segment 'in' is complete" in refusal.message


def test_nodes_that_are_to_say_more_often_that_they_live_attach_again_and_have_the_time_for_it(
    shards: int,
) -> None:
    cluster, front, _ = begun(shards)
    cluster.pass_time(5_000)
    apply(cluster, replace(SPEC, silent_front=SilentFront.EVICT, evict_after_ms=400))
    assert front.ended.code is RefusalCode.NOT_READY and "attach again" in front.ended.message
    cluster.pass_time(cluster.config.reconnect_ms)
    assert not any(entry.evicted for entry in cluster.logged(KeyClosed))
    front.attach()
    cluster.pass_time(300)
    front.commit(heartbeats={"f": 500})
    cluster.pass_time(2_000)
    assert any(entry.evicted for entry in cluster.logged(KeyClosed))


# --- what is decided ------------------------------------------------------------------------------


def test_what_cannot_change_while_it_runs_is_refused_with_what_to_do() -> None:
    cluster, _, _ = begun(2)
    wrong = {
        "slack_ns is for good": replace(SPEC, slack_ns=20),
        "rounds is for good": replace(SPEC, rounds=2, slack_ns=SPEC.slack_ns),
        "time is for good": replace(SPEC, time=type(SPEC.time)("number")),
        "`start: slot:0`": replace(SPEC, start_slot=8),
        "feeds it": replace(SPEC, segments=("a", "b"), edges=(Edge("a", "b"),)),
    }
    for message, spec in wrong.items():
        refusal = apply(cluster, spec)
        assert refusal.code is RefusalCode.CONFLICT and message in refusal.message, refusal
    assert {process.spec("p") for process in cluster.processes.values()} == {SPEC}


def test_a_removed_name_is_not_given_twice() -> None:
    cluster, _, _ = begun(1)
    apply(cluster, WITHOUT_A)
    assert "a name is not given twice" in apply(cluster, SPEC).message


def test_nothing_leads_to_a_segment_that_is_complete() -> None:
    spec = replace(SPEC, fronts=("f", "g"), edges=(Edge("a", "b"),))
    cluster = Cluster(1)
    cluster.register(spec)
    cluster.front(spec, "front", promise=100, f=IN)
    cluster.front(spec, "other", promise=100, g=A).commit(leaves=("g",))
    grown = replace(spec, segments=(*spec.segments, "new"), edges=(*spec.edges, Edge("new", "b")))
    assert apply(cluster, grown).code is RefusalCode.COMPLETE


def step(cluster: Cluster, first: int, second: int) -> None:
    """The next thing that either of two shards can do, the first one before the second."""
    for here, there in ((first, second), (second, first)):
        if cluster.pending[here]:
            return cluster.commit(here)
        if cluster.links[there, here]:
            return cluster.deliver(there, here, 1)
    return cluster.pass_time_without_commits()


@pytest.mark.parametrize("evicted", [False, True])
def test_an_edge_into_what_only_others_know_to_be_complete_completes_nothing(evicted: bool) -> None:
    """The registrar has not heard that b is complete, and takes the edge. Nothing comes along it; what it leads from is waited
    for as ever."""
    spec = replace(
        SPEC, fronts=("f", "g"), edges=(Edge("in", "a"),), silent_front=SilentFront.EVICT, evict_after_ms=500
    )  # fmt: skip
    cluster = Cluster(2)
    cluster.register(spec)
    registrar = cluster.routing.registrar("p")
    at_home, elsewhere = cluster.ids_at(registrar), cluster.ids_at(1 - registrar)
    front = cluster.front(spec, next(at_home), promise=50, f=IN)
    other = cluster.front(spec, next(elsewhere), promise=50, g=B)
    if evicted:
        for _ in range(20):
            cluster.handle(other.home, NodeAlive(other.session))
            cluster.pass_time(100)
        assert any(entry.evicted for entry in cluster.logged(KeyClosed))
    other.begin(leaves=("g",))
    while cluster.processes[other.home].min_times("p")[B] != FOREVER:
        step(cluster, other.home, registrar)
    assert cluster.processes[registrar].min_times("p")[B] == 50
    led = replace(spec, edges=(*spec.edges, Edge("in", "b")))
    cluster.handle(registrar, RegisterPipeline("r", led, True))
    cluster.settle()
    assert cluster.answers("r") == [led]
    assert cluster.agreed(led) == (50, 50, FOREVER)
    assert not cluster.logged(PipelineCompleted)
    again = cluster.node(led, front.key.node_id) if evicted else front
    if evicted:
        assert again.join_front("f", IN).slot == 50
    assert cluster.front(led, "next", promise=60, n=IN).grants[-1].slot == 50
    again.commit(created=[(IN, 70, 7)])
    refused(again.refused(created=[(B, 70, 8)]), RefusalCode.BELOW_MIN_TIME)


def test_a_new_segment_may_be_named_as_fronts_of_holds_are(shards: int) -> None:
    cluster, _, _ = begun(shards)
    sourced = replace(SPEC, segments=(*SPEC.segments, HOLD_FRONT + "new"))
    apply(cluster, sourced)
    assert cluster.agreed(sourced)[NEW] < FOREVER
    assert cluster.front(sourced, "other", promise=500, g=NEW).grants[-1].slot < FOREVER


def test_one_change_of_the_graph_at_a_time_and_limits_at_any() -> None:
    cluster, _, _ = begun(2)
    registrar = cluster.routing.registrar("p")
    cluster.held.add((registrar, 1 - registrar))
    cluster.handle(registrar, RegisterPipeline("first", GROWN, True))
    for waits in ("it is not known everywhere", "have not adopted it"):
        cluster.handle(registrar, RegisterPipeline("next", CUT, True))
        refusal = cluster.answers("next")[-1]
        assert refusal.code is RefusalCode.NOT_READY and "is under way" in refusal.message
        assert waits in refusal.message
        cluster.commit(registrar)
    roomy = replace(GROWN, max_nodes=50)
    cluster.handle(registrar, RegisterPipeline("limits", roomy, True))
    cluster.reconnect()
    assert cluster.answers("limits") == [roomy]
    assert {process.spec("p") for process in cluster.processes.values()} == {roomy}
    cut = replace(roomy, edges=CUT.edges)
    assert apply(cluster, cut) == cut


def test_a_change_that_comes_late_undoes_nothing_that_has_come_since(shards: int) -> None:
    """An operator raises a limit, and another one adds a segment. Then the first change comes once more: it does not name that segment."""
    cluster, _, _ = begun(shards)
    raised = replace(SPEC, max_nodes=SPEC.max_nodes + 1)
    grown = replace(GROWN, max_nodes=raised.max_nodes)

    def apply(spec: PipelineSpec, decided_on: int) -> Any:
        event = partial(RegisterPipeline, change=True, decided_on=decided_on)
        return cluster.ask(cluster.routing.registrar("p"), event, spec)

    assert apply(raised, 0) == raised
    assert apply(raised, 0) == raised, "it is so: repeated, it is answered"
    cluster.handle(
        cluster.routing.registrar("p"),
        RegisterPipeline("grown", grown, change=True, decided_on=1),
    )
    words = "has changed since this was decided on", "removed: "
    refused(apply(raised, 0), RefusalCode.CONFLICT, *words)
    cluster.settle()
    refused(apply(raised, 0), RefusalCode.CONFLICT, *words)
    refused(apply(SPEC, -1), RefusalCode.CONFLICT, *words)
    assert {process.spec("p").segments for process in cluster.processes.values()} == {
        grown.segments
    }
    assert {process.changes("p") for process in cluster.processes.values()} == {2}


def test_a_change_that_comes_late_brings_no_pipeline_back_that_is_deleted(shards: int) -> None:
    cluster, _, _ = begun(shards)
    registrar = cluster.routing.registrar("p")
    cluster.ask(registrar, partial(DeletePipeline, drop_open=True, at_ms=0), "p", 0)
    for _ in range(2):
        cluster.settle()
        change = partial(RegisterPipeline, change=True, decided_on=0)
        refused(cluster.ask(registrar, change, SPEC), RefusalCode.CONFLICT, "there is none by now")
    new = partial(RegisterPipeline, change=True, decided_on=-1)
    assert cluster.ask(registrar, new, SPEC) == SPEC


def test_asking_what_would_be_changes_nothing() -> None:
    cluster, _, _ = begun(2)
    assert apply(cluster, GROWN, check_only=True) == GROWN
    assert apply(cluster, replace(SPEC, slack_ns=3), check_only=True).code is RefusalCode.CONFLICT
    assert {process.spec("p") for process in cluster.processes.values()} == {SPEC}
    new = replace(SPEC, name="other")
    assert apply(cluster, new, check_only=True) == new
    assert "other" not in {spec.name for spec in cluster.processes[0].pipelines()}


def test_a_pipeline_is_not_declared_complete_behind_a_change_that_is_not_durable() -> None:
    cluster, front, reader = begun(1)
    reader.commit(consumed=[(IN, 150, 7), (IN, 160, 8)])
    front.begin(leaves=("f",))
    sourced = replace(SPEC, segments=(*SPEC.segments, "new"))
    cluster.handle(0, RegisterPipeline("r", sourced, True))
    cluster.commit(0, 1)  # the front has left, and the change is on its way to the store
    cluster.settle()
    assert cluster.answers("r") == [sourced]
    assert not cluster.logged(PipelineCompleted)
    assert cluster.agreed(SPEC)[NEW] < FOREVER


def test_a_change_outlives_restarts_and_newcomers_activate_it(snapshot: bool) -> None:
    cluster, _, reader = begun(2)
    apply(cluster, GROWN)
    cluster.restart_all(from_snapshots=snapshot)
    newcomer = cluster.join_shard()
    assert cluster.pipeline(newcomer).spec == GROWN
    said = {entry.number for entry in cluster.logged(PipelineChanged) if entry.activated}
    assert said == {1}
    cluster.rescale(3)
    cluster.settle()
    cut = replace(GROWN, edges=(*CUT.edges, Edge("in", "new")))
    assert apply(cluster, cut) == cut
    cluster.settle()
    assert not any(pipeline.graph_change.is_under_way for pipeline in cluster.pipelines())
    assert reader.joined.spec == SPEC


def test_a_newcomer_that_logs_an_older_change_does_not_judge_by_a_newer_one() -> None:
    """What it logs is that it judges by the change that was there before it came; the next one is on its way to its store
    then, of which it has not heard what others had announced."""
    cluster = Lossy(2)
    cluster.register(SPEC)
    apply(cluster, GROWN)
    registrar = cluster.routing.registrar("p")
    other = 1 - registrar
    newcomer = cluster.begin_to_join()
    cluster.settle()
    cluster.lost = {(other, newcomer, ShardReport)}
    cluster.bootstrap(newcomer, registrar)
    cluster.settle()
    assert cluster.pipeline(newcomer).graph_change.activated == {0, 1}
    cluster.lost = set()
    cluster.held.update({(registrar, newcomer), (other, newcomer)})
    cluster.handle(other, FrameArrived(Frame(newcomer, 1, ReportWanted())))
    said_before = cluster.links.pop((other, newcomer))
    newer = replace(GROWN, edges=(*GROWN.edges, Edge("a", "new")))
    cluster.handle(registrar, RegisterPipeline("r", newer, True))
    cluster.settle()
    for frame in (*cluster.links.pop((registrar, newcomer)), *said_before):
        cluster.handle(newcomer, FrameArrived(frame))
    logged = [record for _, record in cluster.pending[newcomer]]
    assert logged[-1] == HomeEntry(1, PipelineChanged(1, GROWN, activated=True))
    cluster.commit(newcomer)
    assert cluster.pipeline(newcomer).changes == 2 and not cluster.pipeline(newcomer).activates
    cluster.reconnect()
    assert cluster.answers("r") == [newer]
    assert not any(pipeline.graph_change.is_under_way for pipeline in cluster.pipelines())


def test_a_newcomer_takes_what_names_a_new_segment_before_the_change_is_durable_there() -> None:
    """Nobody waits for it: the homes may judge by the change, and log what is new, before it has heard of it."""
    cluster, _, _ = begun(1)
    number = cluster.begin_to_join()
    cluster.settle()
    newcomer = cluster.bootstrap(number, 0)
    cluster.held.update({(0, number), (number, 0)})
    apply(cluster, GROWN)
    cluster.node(GROWN, "other", "front").commit(joins={"g": NEW})
    for frame in cluster.links.pop((0, number)):
        newcomer.check_frame(frame)
        cluster.handle(number, FrameArrived(frame))
    cluster.reconnect()
    cluster.settle()
    assert cluster.pipeline(number).shard.fronts["other", "g"].segment == NEW


def test_a_home_that_comes_back_logs_that_it_judges_by_a_change_before_it_does() -> None:
    cluster, _, _ = begun(1)
    cluster.handle(0, RegisterPipeline("r", GROWN, True))
    cluster.store(0, 1)
    cluster.restart(0)
    cluster.settle()
    assert [entry.activated for entry in cluster.logged(PipelineChanged)] == [False, True]


def test_a_new_generation_is_of_the_changed_pipeline() -> None:
    cluster, _, _ = begun(2)
    apply(cluster, WITHOUT_A)
    cluster.ask(cluster.routing.registrar("p"), RestartPipeline, "p", 0, 200, 0)
    front = cluster.node(SPEC, "front", "front")
    front.join_front("f")
    assert front.refused(created=[(A, 300, 1)]).code is RefusalCode.UNKNOWN_SEGMENT


def test_a_shard_that_leaves_may_have_heard_of_a_segment_before_another_one() -> None:
    """What it has announced there is taken when the change has come, and nobody is cut off until then."""
    name = next(n for n in map(str, range(99)) if RoutingTable.uniform(3).registrar(n) == 1)
    cluster, grown = Cluster(3), replace(GROWN, name=name)
    cluster.register(replace(SPEC, name=name))
    cluster.handle(0, RescaleShards("r", 2, True))
    cluster.settle(lambda: bool(cluster.logged(ShardLeaving)))
    cluster.held.add((1, 0))
    cluster.handle(1, RegisterPipeline("change", grown, True))
    cluster.settle(lambda: bool(cluster.logged(ShardLeft)))
    (left,) = cluster.logged(ShardLeft)
    assert len(left.pipelines[0].announced) == len(grown.segments)
    cluster.pass_time(1)
    assert cluster.pipeline(0, name).spec.segments == SPEC.segments and 2 not in cluster.gone
    cluster.reconnect()
    cluster.settle()
    assert cluster.answers("change") == [grown] and cluster.gone == {2}


def test_what_comes_of_something_goes_along_edges_that_are_declared_from_the_beginning(
    shards: int,
) -> None:
    """No change has been: whoever creates along an edge that the pipeline does not name would have min time pass it."""
    spec = replace(SPEC, edges=(Edge("in", "a"), Edge("in", "b", 2)))
    cluster = Cluster(shards)
    cluster.register(spec)
    cluster.front(spec, "front", promise=100, f=IN).commit(created=[(IN, 105, 6), (A, 105, 7)])
    worker = cluster.node(spec, "worker")
    for consumed, created in (
        ([(A, 105, 7)], [(B, 105, 9)]),  # along no edge
        ([(IN, 105, 6)], [(A, 105, 8), (B, 106, 9)]),  # ahead of the edge's delay
        ([(IN, 105, 6)], [(A, 104, 8)]),  # before what it comes of
        ([(A, LOWEST_SLOT, 6)], [(B, 105, 9)]),  # along no edge, late
    ):
        refusal = worker.refused(consumed=consumed, created=created)
        assert refusal.code is RefusalCode.INVALID, created
        assert "declare the edge before it is used" in refusal.message
    worker.commit(consumed=[(IN, 105, 6), (A, 105, 7)], created=[(A, 105, 8), (B, 107, 9)])
    assert cluster.agreed(spec) == (100, 100, 102)


def test_what_is_held_goes_along_edges_that_are_declared_from_the_beginning(shards: int) -> None:
    spec = replace(SPEC, edges=(Edge("in", "a"), Edge("in", "b", 20)))
    cluster = Cluster(shards)
    cluster.register(spec)
    cluster.front(spec, "front", promise=100, f=IN).commit(created=[(IN, 105, 6)])
    worker = cluster.node(spec, "worker")
    worker.commit(consumed=[(IN, 105, 6)], holds={"state": (IN, 105)})
    assert worker.refused(created=[(B, 124, 9)]).code is RefusalCode.INVALID
    worker.commit(created=[(A, 105, 9), (B, 125, 9)])


def test_a_home_that_has_not_heard_of_its_first_change_takes_nothing_along_what_that_adds() -> None:
    """Another shard, which has not heard either, has announced what the new edge would lead to."""
    spec = replace(SPEC, edges=(Edge("in", "a", 1), Edge("a", "b")))
    cluster = Cluster(2)
    cluster.register(spec)
    registrar = cluster.routing.registrar("p")
    home = 1 - registrar
    ids = cluster.ids_at(home)
    front = cluster.front(spec, next(ids), promise=100, f=IN)
    worker = cluster.node(spec, next(ids))
    cluster.held.add((registrar, home))
    front.commit(created=[(IN, 150, 7)], heartbeats={"f": 400})
    said = [cluster.processes[shard].min_times("p")[B] for shard in (registrar, home)]
    assert said == [151, 101]
    grown = replace(spec, edges=(*spec.edges, Edge("in", "b")))
    cluster.handle(registrar, RegisterPipeline("r", grown, True))
    cluster.commit(registrar)
    early = {"consumed": [(IN, 150, 7)], "created": [(B, 150, 9)]}
    assert worker.refused(**early).code is RefusalCode.INVALID
    cluster.reconnect()
    assert cluster.answers("r") == [grown]
    assert worker.refused(**early).code is RefusalCode.BELOW_MIN_TIME
    worker.commit(consumed=[(IN, 150, 7)], created=[(B, 152, 9)])
    assert cluster.agreed(spec) == (400, 401, 152)


def test_a_change_of_what_is_awaited_alone_judges_no_label_by_edges(shards: int) -> None:
    """Segments and edges have never changed: nobody's program is older than they are."""
    spec = replace(SPEC, edges=(Edge("in", "a"), Edge("in", "b")))
    cluster = Cluster(shards)
    cluster.register(spec)
    cluster.front(spec, "front", promise=100, f=IN)
    worker = cluster.node(spec, "worker")
    worker.commit(created=[(B, 105, 7)])
    more = replace(spec, fronts=("f", "h"))
    assert apply(cluster, more) == more
    worker.commit(created=[(B, 106, 8)])


def ahead_of_a_change() -> tuple[Lossy, HandNode, int, int]:
    """A shard has appended a change that adds an edge, and behind it four announcements of where that leads, 200 to 300. Also a
    worker, its home, which has the change and waits for that shard, and the shard."""
    spec = replace(SPEC, edges=(Edge("in", "a"),), fronts=("f", "g"))
    cluster = Lossy(3)
    cluster.register(spec)
    front = cluster.front(spec, "front", promise=100, f=IN)
    front.commit(created=[(IN, 150, 7)], heartbeats={"f": 400})
    registrar = cluster.routing.registrar("p")
    home, ahead = (shard for shard in range(3) if shard != registrar)
    other = cluster.front(spec, next(cluster.ids_at(ahead)), promise=160, g=B)
    worker = cluster.node(spec, next(cluster.ids_at(home)))
    cluster.pass_time(1_000)
    assert cluster.agreed(spec) == (150, 150, 160)
    # The one that is ahead alone hears what the front promises everywhere.
    links = ((registrar, home), (ahead, home), (home, registrar))
    cluster.lost = {(*link, ShardReport) for link in links}
    cluster.held = {(home, ahead)}
    for slot in (200, 240, 270, 300):
        other.commit(heartbeats={"g": slot})
    cluster.settle()
    cluster.held |= {(registrar, ahead), (ahead, registrar), (ahead, home)}
    shorter = replace(spec, edges=(*spec.edges, Edge("in", "b")))
    cluster.handle(registrar, RegisterPipeline("r", shorter, True))
    cluster.settle()
    assert cluster.pipeline(home).changes == 1 and not cluster.pipeline(home).activates
    cluster.deliver(registrar, ahead)
    while cluster.links[home, ahead]:
        cluster.deliver(home, ahead, 1)
    assert cluster.pipeline(ahead).announced[B] == 300 and len(cluster.pending[ahead]) == 5
    return cluster, worker, home, ahead


def refuses_below_what_was_announced(
    cluster: Lossy, worker: HandNode, home: int, ahead: int
) -> None:
    cluster.lost, cluster.held = set(), set()
    cluster.settle(lambda: cluster.pipeline(home).activates)
    assert cluster.processes[ahead].min_times("p")[B] == 300
    refusal = worker.refused(consumed=[(IN, 150, 7)], created=[(B, 250, 1)])
    assert refusal.code is RefusalCode.BELOW_MIN_TIME


def test_what_was_announced_by_a_change_is_reported_with_it_though_less_is_durable_meanwhile() -> (
    None
):
    """The change takes effect, and the first of these is durable, before the shard reports that it reckons with the edge."""
    cluster, worker, home, ahead = ahead_of_a_change()
    cluster.commit(ahead, records=1)
    cluster.commit(ahead, records=1)
    cluster.pass_time_without_commits()
    refuses_below_what_was_announced(cluster, worker, home, ahead)


def test_nor_is_it_taken_back_in_a_whole_report_by_what_is_durable_later() -> None:
    """It has reported along with the change what it had announced. Then less of that is durable, and reported; the home has
    missed all that, and asks for a whole report."""
    cluster, worker, home, ahead = ahead_of_a_change()
    cluster.commit(ahead, records=1)
    cluster.pass_time_without_commits()
    assert not cluster.pipeline(ahead).change_unreported
    cluster.commit(ahead, records=1)
    cluster.now_ns += (cluster.config.announced_report_ms + 1) * MS
    cluster.handle(ahead, Wake())
    refuses_below_what_was_announced(cluster, worker, home, ahead)
