"""A node holds time without an item in flight, by an item of its own (rule 11)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.core.driver import MS, Cluster, HandNode, refused
from tracker.core.admission.holds import MAX_HOLD_NAME_CHARACTERS, MAX_HOLDS
from tracker.core.home import home
from tracker.core.insight.diagnosis import CauseKind, diagnose
from tracker.core.insight.explain import MAX_EXPLAINED_HOLDS, ExplainQuery
from tracker.core.log import RestartPipeline, RetireNode, TickRefused
from tracker.core.model import (
    HOLD_FRONT,
    Cells,
    Edge,
    HoldMove,
    PipelineSpec,
    RefusalCode,
    SilentFront,
    TickContent,
)
from tracker.core.model.slots import FOREVER, HIGHEST_SLOT

SPEC = PipelineSpec("p", ("read", "wrote"), (Edge("read", "wrote", 2),), fronts=("a",))
READ, WROTE = 0, 1
ITEM = (READ, 3, 33)
LET_GO = FOREVER


def started(shards: int) -> tuple[Cluster, HandNode, HandNode]:
    """An item at slot 3, that a worker is to take; everything else is beyond slot 50."""
    cluster = Cluster(shards)
    cluster.register(SPEC)
    front = cluster.front(SPEC, "front")
    front.commit(created=[ITEM])
    front.commit(heartbeats={"a": 50})
    return cluster, front, cluster.node(SPEC, "worker")


def holding(shards: int, slot: int = 5) -> tuple[Cluster, HandNode, HandNode]:
    """The worker has taken the item, and holds what it may come to in the segment behind."""
    cluster, front, worker = started(shards)
    worker.commit(consumed=[ITEM], holds={"state": (WROTE, slot)})
    return cluster, front, worker


def held(cluster: Cluster, node_id: str = "worker") -> dict[str, tuple[int, int]]:
    """(segment, slot) by name, as a joining would be told."""
    answer = cluster.join(node_id, check_only=True)
    return {each.name: (each.segment, each.slot) for each in answer.holds}


def test_it_is_an_item_like_any_other(shards: int) -> None:
    cluster, _, _ = holding(shards)
    open_cells = [p.shard.cells.open_cells().rows() for p in cluster.pipelines()]
    assert [(s, t, n) for rows in open_cells for s, t, _, n in rows] == [(WROTE, 5, 1)]


def test_a_tick_that_is_refused_moves_no_hold(shards: int) -> None:
    cluster, _, worker = holding(shards)
    worker.refused(created=[(7, 9, 99)], holds={"state": (WROTE, 30)})
    assert cluster.agreed(SPEC) == (50, 5) and held(cluster) == {"state": (WROTE, 5)}
    worker.commit(holds={"state": (WROTE, 30)})
    assert cluster.agreed(SPEC) == (50, 30)


def test_the_same_again_changes_nothing(shards: int) -> None:
    cluster, _, worker = holding(shards)
    for _ in range(2):
        worker.commit(holds={"state": (WROTE, 20)})
    assert cluster.agreed(SPEC) == (50, 20)
    for _ in range(2):
        worker.commit(holds={"state": (WROTE, LET_GO)})
    assert cluster.agreed(SPEC) == (50, 52)


def test_it_only_moves_up() -> None:
    _, _, worker = holding(1, slot=9)
    refused(
        worker.refused(holds={"state": (WROTE, 8)}), RefusalCode.INVALID,
        "hold 'state' of node worker#", "stands at slot 9 of segment 'wrote'", "cannot move back to 8",
    )  # fmt: skip


def test_it_stays_in_its_segment() -> None:
    _, _, worker = holding(1)
    refused(
        worker.refused(holds={"state": (READ, 60)}), RefusalCode.INVALID,
        "stands in segment 'wrote', and cannot go to 'read'",
    )  # fmt: skip


# --- where one may begin --------------------------------------------------------------------------


def test_it_begins_where_the_same_tick_consumes(shards: int) -> None:
    """From slot 3 on in the same segment, and from 5 on behind the edge of 2."""
    _, _, worker = started(shards)
    for at in ((READ, 2), (WROTE, 4)):
        refused(
            worker.refused(consumed=[ITEM], holds={"state": at}), RefusalCode.BELOW_MIN_TIME,
            f"slot {at[1]}", "nothing below slot",
        )  # fmt: skip
    worker.commit(consumed=[ITEM], holds={"input": (READ, 3), "output": (WROTE, 5)})


def test_it_does_not_begin_by_what_comes_too_late(shards: int) -> None:
    cluster, _, worker = started(shards)
    worker.commit(consumed=[ITEM])
    assert cluster.agreed(SPEC) == (50, 52)
    refused(
        worker.refused(consumed=[(READ, 30, 1)], holds={"state": (WROTE, 60)}),
        RefusalCode.BELOW_MIN_TIME, "min time 52 is announced", "nothing keeps min time",
    )  # fmt: skip


def test_it_does_not_begin_out_of_nothing(shards: int) -> None:
    """Another process may have announced more than the home knows."""
    _, _, worker = started(shards)
    refused(
        worker.refused(holds={"state": (WROTE, 60)}), RefusalCode.BELOW_MIN_TIME,
        "begin it in the tick that consumes what it stands for",
    )  # fmt: skip


def test_it_begins_beside_another_one(shards: int) -> None:
    cluster, _, worker = holding(shards)
    refused(worker.refused(holds={"second": (WROTE, 4)}), RefusalCode.BELOW_MIN_TIME)
    worker.commit(holds={"state": (WROTE, LET_GO), "second": (WROTE, 5)})
    assert cluster.agreed(SPEC) == (50, 5) and held(cluster) == {"second": (WROTE, 5)}


def test_it_begins_beside_a_front_of_the_node(shards: int) -> None:
    cluster, front, worker = started(shards)
    worker.commit(consumed=[ITEM])
    refused(front.refused(holds={"own": (READ, 49)}), RefusalCode.BELOW_MIN_TIME)
    front.commit(holds={"own": (READ, 50)}, heartbeats={"a": 90})
    assert cluster.agreed(SPEC) == (50, 52)
    front.commit(created=[(WROTE, 52, 5)])
    front.commit(created=[(READ, 60, 6)])
    front.commit(holds={"own": (READ, LET_GO)})
    assert cluster.agreed(SPEC) == (60, 52)


def test_a_front_may_emit_where_its_node_holds_below_its_promise(shards: int) -> None:
    cluster, front, worker = started(shards)
    worker.commit(consumed=[ITEM])
    front.commit(created=[(READ, 50, 7)], holds={"own": (READ, 55)})
    front.commit(heartbeats={"a": 90})
    refused(front.refused(created=[(READ, 54, 1)]), RefusalCode.BELOW_MIN_TIME, "from slot 90 on")
    front.commit(created=[(READ, 55, 1)], holds={"own": (READ, LET_GO)})
    worker.commit(consumed=[(READ, 50, 7)])
    assert cluster.agreed(SPEC) == (55, 57)


def test_it_begins_where_a_front_was_granted_that_leaves_for_it(shards: int) -> None:
    cluster, _, worker = started(shards)
    worker.commit(consumed=[ITEM])
    name = f"{HOLD_FRONT}timer"
    other = cluster.node(SPEC, "timers")
    grant = other.join_front(name, WROTE)
    assert grant.slot == 52
    other.commit(holds={"timer": (WROTE, 70)}, leaves=[name])
    assert cluster.agreed(SPEC) == (50, 52)
    cluster.front(SPEC, "front", promise=200)
    assert cluster.agreed(SPEC) == (200, 70)


def test_such_a_front_is_none_of_a_number_that_is_declared(shards: int) -> None:
    cluster = Cluster(shards)
    spec = PipelineSpec("p", ("read",), front_count=1)
    cluster.register(spec)
    timers = cluster.node(spec, "timers")
    timers.join_front(f"{HOLD_FRONT}timer", 0)
    timers.commit(holds={"timer": (0, 5)}, leaves=[f"{HOLD_FRONT}timer"])
    assert cluster.agreed(spec) == (0,), "the pipeline has not begun"
    cluster.front(spec, "front", promise=9)
    assert cluster.agreed(spec) == (5,)


@pytest.mark.parametrize(
    ("holds", "code", "words"),
    [
        ({"": (WROTE, 5)}, RefusalCode.INVALID, "has 0 characters"),
        ({"x" * (MAX_HOLD_NAME_CHARACTERS + 1): (WROTE, 5)}, RefusalCode.INVALID, "must have 1 to 256"),
        ({"state": (2, 5)}, RefusalCode.UNKNOWN_SEGMENT, "names segment number 2"),
        ({"state": (-1, LET_GO)}, RefusalCode.UNKNOWN_SEGMENT, "names segment number -1"),
        ({"state": (WROTE, HIGHEST_SLOT)}, RefusalCode.BEYOND_HORIZON, "horizon_slots"),
    ],
)  # fmt: skip
def test_what_a_hold_cannot_be(holds: Any, code: RefusalCode, words: str) -> None:
    _, _, worker = started(1)
    refused(worker.refused(consumed=[ITEM], holds=holds), code, words)


@pytest.mark.parametrize("segment", [2, -1])
def test_one_for_what_is_consumed_where_no_segment_is_cannot_begin(segment: int) -> None:
    _, _, worker = started(1)
    refused(
        worker.refused(consumed=[(segment, 5, 1)], holds={"state": (WROTE, 5)}),
        RefusalCode.UNKNOWN_SEGMENT,
        f"segment number {segment}",
    )


def test_one_for_cells_of_unequal_lengths_cannot_begin() -> None:
    cluster, _, worker = started(1)
    one = Cells.of([(READ, 5, 1, 1)])
    consumed = Cells(one.segments, one.slots[:0], one.checksums, one.counts)
    tick = TickContent(consumed=consumed, holds=(HoldMove("state", WROTE, 5),))
    (effect,) = worker.send(worker.last + 1, tick)
    assert isinstance(effect, TickRefused) and effect.refusal.code is RefusalCode.INVALID
    assert not held(cluster)


def test_a_tick_names_each_hold_once() -> None:
    _, _, worker = holding(1)
    twice = TickContent(holds=(HoldMove("state", WROTE, 6), HoldMove("state", WROTE, 7)))
    (effect,) = worker.send(worker.last + 1, twice)
    assert isinstance(effect, TickRefused) and "names a hold twice" in effect.refusal.message


def test_a_node_has_so_many_at_most() -> None:
    cluster, _, worker = started(1)
    worker.commit(consumed=[ITEM], holds={str(n): (WROTE, 5) for n in range(MAX_HOLDS)})
    refused(
        worker.refused(holds={"more": (WROTE, 5)}), RefusalCode.INVALID,
        f"{MAX_HOLDS} holds are those of node worker#", f"the limit of {MAX_HOLDS}",
    )  # fmt: skip
    worker.commit(holds={"0": (WROTE, LET_GO)})
    worker.commit(holds={"more": (WROTE, 5)})
    worker.commit(holds={str(n): (WROTE, 40) for n in range(1, MAX_HOLDS)})
    assert cluster.agreed(SPEC) == (50, 5)


# --- crashes, and who goes on ---------------------------------------------------------------------


def test_a_node_that_holds_cannot_leave(shards: int) -> None:
    _, _, worker = holding(shards)
    refused(worker.leave(), RefusalCode.CONFLICT, "it has 1 holds", "'state'")
    worker.commit(holds={"state": (WROTE, LET_GO)})
    assert worker.leave() is None


def test_a_retired_node_holds_on_until_its_id_comes_back(shards: int, snapshot: bool) -> None:
    cluster, _, _ = holding(shards)
    cluster.ask_home("worker", RetireNode, Cells.empty(), 0)
    cluster.restart_all(from_snapshots=snapshot)
    assert cluster.agreed(SPEC) == (50, 5)
    again = cluster.node(SPEC, "worker")
    again.commit(holds={held.name: (held.segment, LET_GO) for held in again.joined.holds})
    assert cluster.agreed(SPEC) == (50, 52)


def test_what_a_node_that_is_gone_holds_is_never_forgotten(monkeypatch: Any) -> None:
    monkeypatch.setattr(home, "KEPT_GONE_NODES", 3)
    cluster, _, _ = holding(1)
    cluster.ask_home("worker", RetireNode, Cells.empty(), 0)
    for n in range(8):
        cluster.node(SPEC, str(n))
        cluster.ask_home(str(n), RetireNode, Cells.empty(), 0)
    assert held(cluster) == {"state": (WROTE, 5)}
    assert len(cluster.pipeline(0).home.nodes) == 3 + 2, "and the front"


def test_an_evicted_node_finds_its_holds_again(shards: int) -> None:
    spec = PipelineSpec(
        "p", SPEC.segments, SPEC.edges, silent_front=SilentFront.EVICT, evict_after_ms=100,
        fronts=("a",), open=True,
    )  # fmt: skip
    cluster = Cluster(shards)
    cluster.register(spec)
    front = cluster.front(spec, "front", promise=5)
    front.commit(holds={"own": (READ, 6)})
    cluster.pass_time(2_000)
    assert cluster.pipeline(front.home).home.nodes["front"].evicted
    assert cluster.agreed(spec)[READ] == 6
    again = cluster.node(spec, "front", "front")
    again.commit(holds={"own": (READ, LET_GO)})
    assert all(not len(p.shard.cells.open_cells()) for p in cluster.pipelines())


def test_nobody_waits_for_a_front_by_which_a_hold_was_to_begin_and_that_was_evicted(
    shards: int, snapshot: bool
) -> None:
    """Its node was killed in between, and comes back without it: it has nothing to hold any more."""
    spec = PipelineSpec(
        "p", SPEC.segments, SPEC.edges, silent_front=SilentFront.EVICT, evict_after_ms=1_000,
        fronts=("a",),
    )  # fmt: skip
    cluster = Cluster(shards)
    cluster.register(spec)
    front = cluster.front(spec, "front", promise=50)
    cluster.node(spec, "timers").join_front(f"{HOLD_FRONT}timer", WROTE)
    for slot in (60, 70, 80):
        cluster.pass_time(700)
        front.commit(heartbeats={"a": slot})
    assert cluster.pipeline(cluster.routing.home("p", "timers")).home.nodes["timers"].evicted
    cluster.node(spec, "timers")
    cluster.restart_all(from_snapshots=snapshot)
    front.attach()
    front.commit(heartbeats={"a": 90})
    assert cluster.agreed(spec) == (90, 92)


def test_what_was_written_off_is_no_hold_any_more(shards: int) -> None:
    """Moved up, it begins anew; let go of, it is counted as late."""
    cluster, _, worker = holding(shards)
    owner = cluster.pipeline(cluster.routing.owner(5))
    checksum, items = owner.shard.cells.value(WROTE, 5)
    cluster.node(SPEC, "other")
    cells = Cells.of([(WROTE, 5, checksum, items)])
    cluster.ask_home("other", RetireNode, cells, 0)
    assert cluster.agreed(SPEC) == (50, 52)
    refused(worker.refused(holds={"state": (WROTE, 60)}), RefusalCode.BELOW_MIN_TIME)
    worker.commit(holds={"state": (WROTE, LET_GO)})
    cluster.settle()
    assert cluster.processes[0].describe("p", cluster.now_ns).late_items == 1
    assert cluster.agreed(SPEC) == (50, 52)


def test_a_node_that_is_gone_is_forgotten_with_its_holds_when_they_were_written_off_for_it(
    monkeypatch: Any, shards: int, snapshot: bool
) -> None:
    """Until then one that comes back is told of them: they have become late."""
    monkeypatch.setattr(home, "KEPT_GONE_NODES", 2)
    cluster, _, _ = holding(shards)
    checksum, items = cluster.pipeline(cluster.routing.owner(5)).shard.cells.value(WROTE, 5)
    cluster.ask_home("worker", RetireNode, Cells.of([(WROTE, 5, checksum, items)]), 0)
    cluster.restart_all(from_snapshots=snapshot)
    assert cluster.agreed(SPEC) == (50, 52)
    assert [each.name for each in cluster.join("worker", check_only=True).holds] == ["state"]
    at_home = cluster.routing.home("p", "worker")
    for name in itertools.islice(cluster.ids_at(at_home), 2):
        cluster.node(SPEC, name)
        cluster.ask_home(name, RetireNode, Cells.empty(), 0)
    assert "worker" not in cluster.pipeline(at_home).home.nodes
    assert cluster.node(SPEC, "worker").joined.holds == ()


def test_a_restart_of_the_pipeline_drops_holds(shards: int) -> None:
    cluster, _, worker = holding(shards)
    registrar = cluster.routing.registrar("p")
    cluster.ask(registrar, RestartPipeline, "p", 0, 40, 0)
    refused(worker.attach_refused(), RefusalCode.FENCED, "was restarted")
    again = cluster.node(SPEC, "worker")
    assert again.joined.holds == ()
    cluster.front(SPEC, "front", promise=90)
    assert cluster.agreed(SPEC) == (90, 92)


def test_a_pipeline_is_not_complete_while_anyone_holds(shards: int) -> None:
    cluster, front, worker = holding(shards)
    front.commit(leaves=["a"])
    assert cluster.agreed(SPEC) == (FOREVER, 5)
    worker.commit(holds={"state": (WROTE, LET_GO)})
    assert cluster.agreed(SPEC) == (FOREVER, FOREVER)


def test_no_two_holds_have_the_same_value(shards: int) -> None:
    """Of one name, node and place, neither after a restart."""
    cluster, _, worker = started(shards)
    seen = set()
    for n in range(3):
        worker = cluster.node(SPEC, "worker")
        item = (READ, 50 + n, n + 1)
        cluster.node(SPEC, "front", "front").commit(created=[item])
        for name in ("one", "two"):
            worker.commit(consumed=[item] if name == "one" else [], holds={name: (WROTE, 60)})
            owner = cluster.pipeline(cluster.routing.owner(60))
            seen.add(owner.shard.cells.value(WROTE, 60)[0])
        worker.commit(holds={"one": (WROTE, LET_GO), "two": (WROTE, LET_GO)})
        assert owner.shard.cells.value(WROTE, 60)[0] == 0
    assert len(seen) == 6


# --- what people are told -------------------------------------------------------------------------


def causes(cluster: Cluster) -> list[Any]:
    parts = [
        p.explain("p", ExplainQuery(), cluster.now_ns) for _, p in sorted(cluster.processes.items())
    ]
    return [*diagnose(SPEC, parts, ())[WROTE].causes]


def test_an_explanation_names_it_and_whose_it_is(shards: int) -> None:
    cluster, _, _ = holding(shards)
    (cause,) = causes(cluster)
    assert (cause.kind, cause.node_id, cause.detail) == (CauseKind.NODE_HOLDS, "worker", "state")
    assert (cause.segment, cause.slot) == (WROTE, 5)
    cluster.ask_home("worker", RetireNode, Cells.empty(), 0)
    (cause,) = causes(cluster)
    assert (cause.kind, cause.node_id) == (CauseKind.HOLDER_GONE, "worker")


def test_who_reads_from_there_is_named_where_items_are_there_too(shards: int) -> None:
    cluster, _, worker = holding(shards)
    worker.commit(created=[(WROTE, 5, 9)])
    assert [cause.kind for cause in causes(cluster)] == [CauseKind.NODE_HOLDS, CauseKind.NO_READER]


def test_a_node_is_explained_with_its_lowest_holds() -> None:
    cluster, _, worker = started(1)
    worker.commit(consumed=[ITEM], holds={str(n): (WROTE, 90 - n) for n in range(30)})
    (node,) = [
        node
        for node in cluster.processes[0].explain("p", ExplainQuery(), 1 * MS).nodes
        if node.key.node_id == "worker"
    ]
    assert node.hold_count == 30 and len(node.holds) == MAX_EXPLAINED_HOLDS
    assert node.holds[0] == HoldMove("29", WROTE, 61)
    assert node.creates == () and node.consumes == (READ,), (
        "what it holds, it neither makes nor reads"
    )
