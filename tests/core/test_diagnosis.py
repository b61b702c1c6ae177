"""From what processes say to who is to blame, where it takes hand-made delays to plant it; what is asked
of a moment; what is open over time. `tests/explain` plants what a running tracker can be made to show."""

from __future__ import annotations

from dataclasses import replace

from tests.core.driver import Cluster, HandNode
from tests.core.test_explain import SPEC, begun, explained, holds
from tracker.core.insight.diagnosis import Cause, CauseKind, diagnose
from tracker.core.insight.explain import ExplainQuery, Hold, HoldKind, SegmentStrip
from tracker.core.log import RegisterPipeline, ReportWaits, StageContributions
from tracker.core.model import Batch, Cells, RefusalCode, StagedContribution
from tracker.core.model.waits import WaitCause, WaitKind

NEVER_MS = 10**9


def causes(cluster: Cluster, segment: int = 0) -> tuple[Cause, ...]:
    parts = [explained(cluster, shard) for shard in cluster.processes]
    return diagnose(SPEC, parts, (), NEVER_MS)[segment].causes


def behind_the_worker() -> tuple[Cluster, HandNode, int]:
    """A worker that has consumed all there is, of which one shard hears nothing."""
    cluster, first, second = begun(2)
    worker = cluster.node(SPEC, "worker")
    away = 1 - worker.home
    first.commit(created=[(0, 55, 7)], heartbeats={"a": 90})
    second.commit(heartbeats={"b": 90})
    cluster.held = {(worker.home, away)}
    worker.begin(consumed=[(0, 55, 7)], created=[])
    cluster.settle()
    return cluster, worker, away


def test_a_shard_that_lags_is_named_with_the_ticks_that_it_lacks() -> None:
    cluster, worker, away = behind_the_worker()
    told = [m for cause in causes(cluster) for m in cause.missing]
    parts = [explained(cluster, shard) for shard in cluster.processes]
    (missing,) = parts[worker.home].missing
    assert (missing.shard, missing.key.node_id, missing.ticks) == (away, "worker", 1)
    assert missing.first == missing.last == 1
    (hold,) = holds(cluster, 0, worker.home)
    if cluster.routing.owner(55) == worker.home:
        assert hold == Hold(HoldKind.BEHIND, 0, 55, shard=away, home=worker.home, entries=1)
        assert causes(cluster)[0].kind is CauseKind.SHARD_LAGS and told == [missing]
    else:
        assert hold == Hold(HoldKind.OPEN, 0, 55, shard=away)
    cluster.held = set()
    cluster.settle()
    assert not explained(cluster, worker.home).missing


def test_a_shard_that_has_not_heard_of_a_promise_is_named_and_not_the_front() -> None:
    cluster, first, second = begun(2)
    second.commit(heartbeats={"b": 90})
    away = 1 - first.home
    cluster.held = {(first.home, away)}
    first.begin(heartbeats={"a": 80})
    cluster.settle()
    held = Hold(HoldKind.PROMISE, 0, 50, away, node_id="first", front="a")
    assert holds(cluster, 0, first.home) == (held,)
    (cause,) = causes(cluster)
    assert (cause.kind, cause.shards, cause.front) == (CauseKind.SHARD_LAGS, (away,), "a")
    assert [missing.key.node_id for missing in cause.missing] == ["first"]


def test_a_front_that_a_shard_has_not_heard_of_is_named() -> None:
    cluster, *_ = begun(2)
    late = cluster.node(SPEC, "late")
    away = 1 - late.home
    cluster.held = {(late.home, away)}
    late.begin(joins={"c": 0})
    cluster.settle()
    held = Hold(HoldKind.JOINING, 0, shard=away, node_id="late", front="c")
    assert held in holds(cluster, 0, late.home)
    joining = [cause for cause in causes(cluster) if cause.kind is CauseKind.FRONT_JOINING]
    assert [(cause.front, cause.shards) for cause in joining] == [("c", (away,))]


def test_asked_of_a_moment_all_that_keeps_from_it_is_named(shards: int) -> None:
    cluster, first, _ = begun(shards)
    first.commit(created=[(0, 55, 7)], heartbeats={"a": 58})
    least = Hold(HoldKind.OPEN, 0, 55, shard=cluster.routing.owner(55))
    a = Hold(HoldKind.PROMISE, 0, 58, node_id="first", front="a")
    b = Hold(HoldKind.PROMISE, 0, 60, node_id="second", front="b")
    process = cluster.processes[0]

    def asked(at: int, segment: int = 0) -> tuple[Hold, ...]:
        told = process.explain("p", ExplainQuery(at=at), cluster.now_ns)
        return told.segments[segment].holds

    assert asked(55) == (), "that is complete"
    assert asked(56) == (least,)
    assert asked(59) == (least, a)
    assert asked(61) == (least, a, b)
    assert asked(60, segment=1) == (least,), "four slots later by the edge"
    assert asked(65, segment=1) == (least, a, b)


def test_what_is_open_is_counted_over_time() -> None:
    cluster, first, _ = begun(1)
    slots = [51, 52, 52, 60, 75, 99]
    first.commit(created=[(0, slot, 100 + n) for n, slot in enumerate(slots)])
    query = ExplainQuery(from_slot=50, to_slot=90, strip_bins=4, max_cells=0)
    strip = cluster.processes[0].explain("p", query, cluster.now_ns).strip
    assert strip is not None and (strip.from_slot, strip.width) == (50, 10)
    assert strip.segments == (SegmentStrip(0, (2, 1, 1, 0), (3, 1, 1, 0)),), "99 is beyond it"


def test_a_shard_that_does_not_answer_comes_before_what_it_may_hide() -> None:
    cluster, first, second = begun(2)
    first.commit(created=[(0, 55, 7)], heartbeats={"a": 90})
    second.commit(heartbeats={"b": 90})
    owner = cluster.routing.owner(55)
    part = explained(cluster, owner)
    kinds = [cause.kind for cause in diagnose(SPEC, [part], [1 - owner], NEVER_MS)[0].causes]
    assert kinds[0] is CauseKind.SHARD_DOWN and CauseKind.NO_READER not in kinds


def a_wait(segment: int = 0, kind: WaitKind = WaitKind.UNKNOWN_ITEMS) -> WaitCause:
    return WaitCause(kind, "1 file that no tick has created: stray.csv", segment, batch=7)


def held_by_an_item() -> tuple[Cluster, HandNode]:
    """An item is open, and node etl has joined and committed nothing."""
    cluster, first, second = begun(1)
    etl = cluster.node(SPEC, "etl", kind="query")
    first.commit(created=[(0, 55, 7)], heartbeats={"a": 90})
    second.commit(heartbeats={"b": 90})
    return cluster, etl


def test_what_a_node_says_that_it_waits_for_is_named_before_that_nobody_reads() -> None:
    cluster, etl = held_by_an_item()
    assert causes(cluster)[0].kind is CauseKind.NO_READER
    cluster.handle(etl.home, ReportWaits(etl.session, (a_wait(),)))
    (cause,) = causes(cluster)
    assert (cause.kind, cause.node_id, cause.batch) == (CauseKind.NODE_WAITS, "etl", 7)
    assert cause.wait is WaitKind.UNKNOWN_ITEMS and "stray.csv" in cause.detail
    cluster.handle(etl.home, ReportWaits(etl.session, ()))
    assert causes(cluster)[0].kind is CauseKind.NO_READER


def test_a_wait_in_another_segment_is_no_cause() -> None:
    cluster, etl = held_by_an_item()
    cluster.handle(etl.home, ReportWaits(etl.session, (a_wait(segment=1),)))
    assert causes(cluster)[0].kind is CauseKind.NO_READER


def test_a_node_that_says_that_it_is_refused_is_named_as_refused() -> None:
    cluster, etl = held_by_an_item()
    cluster.handle(etl.home, ReportWaits(etl.session, (a_wait(kind=WaitKind.REFUSED),)))
    assert causes(cluster)[0].kind is CauseKind.NODE_REFUSED


def test_a_query_whose_contributions_found_no_room_is_named_until_it_commits() -> None:
    cluster, etl = held_by_an_item()
    cells = Cells.of([(0, 55, 7, 1)])
    two = tuple(
        StagedContribution("q", "r", 1, 0, "map", 0, task, 0, Cells.empty(), cells)
        for task in range(2)
    )
    limits = replace(SPEC, max_staged=1)
    cluster.ask(cluster.routing.registrar("p"), RegisterPipeline, limits, True)
    refusal = cluster.ask(etl.home, StageContributions, "p", "etl", two)
    assert refusal.code is RefusalCode.FULL and "lowmark pipelines apply" in refusal.message
    assert (causes(cluster)[0].kind, causes(cluster)[0].detail) == (
        CauseKind.NODE_REFUSED,
        refusal.message,
    )
    cluster.ask(cluster.routing.registrar("p"), RegisterPipeline, SPEC, True)
    assert cluster.ask(etl.home, StageContributions, "p", "etl", two) is None
    etl.commit(consumed=[(0, 55, 7)], batch=Batch("q", 1, b""))
    assert not explained(cluster, etl.home).nodes[-1].refused


def test_a_full_table_is_named_by_who_is_refused_before_that_nobody_reads() -> None:
    cluster, first, second = begun(1)
    cluster.ask(0, RegisterPipeline, replace(SPEC, max_open_cells=1), True)
    first.commit(created=[(0, 65, 7)], heartbeats={"a": 70})
    second.commit(heartbeats={"b": 70})
    first.refused(created=[(0, 75, 8)])
    said = causes(cluster)
    assert [cause.kind for cause in said] == [CauseKind.NODE_REFUSED, CauseKind.NO_READER]
    assert said[0].node_id == "first" and "max_open_cells of 1" in said[0].detail


def test_a_node_whose_first_tick_is_refused_is_named_and_not_that_nobody_reads() -> None:
    cluster, etl = held_by_an_item()
    etl.refused(consumed=[(0, 55, 7)], created=[(1, 10, 9)])  # below what is announced
    assert [(c.kind, c.node_id) for c in causes(cluster)] == [(CauseKind.NODE_REFUSED, "etl")]
