"""Why min time is where it is: each thing that can hold it is named (rules 6, 7 and 8)."""

from __future__ import annotations

from dataclasses import replace

from tests.core.driver import MS, Cluster, HandNode
from tracker.core.insight.explain import ExplainQuery, Hold, HoldKind, OpenCell, PipelineExplanation
from tracker.core.log import RetireNode
from tracker.core.model import Cells, Edge, PipelineSpec, Unit

SPEC = PipelineSpec("p", ("work", "next"), (Edge("work", "next", 4),), fronts=("a", "b"))


def explained(cluster: Cluster, shard: int = 0, **asked: int) -> PipelineExplanation:
    return cluster.processes[shard].explain("p", ExplainQuery(**asked), cluster.now_ns)


def holds(cluster: Cluster, segment: int = 0, shard: int = 0) -> tuple[Hold, ...]:
    return explained(cluster, shard).segments[segment].holds


def begun(shards: int) -> tuple[Cluster, HandNode, HandNode]:
    """Two fronts of two nodes: one promises 50, the other 60."""
    cluster = Cluster(shards)
    cluster.register(SPEC)
    first = cluster.front(SPEC, "first", promise=50, a=0)
    second = cluster.front(SPEC, "second", promise=60, b=0)
    assert cluster.agreed(SPEC) == (50, 54)
    return cluster, first, second


def test_declared_fronts_that_are_missing_are_named(shards: int) -> None:
    cluster = Cluster(shards)
    cluster.register(SPEC)
    cluster.settle()
    assert holds(cluster) == (
        Hold(HoldKind.NOT_BEGUN, front="a"),
        Hold(HoldKind.NOT_BEGUN, front="b"),
    )
    cluster.front(SPEC, "n", b=0)
    assert holds(cluster) == (Hold(HoldKind.NOT_BEGUN, front="a"),)


def test_the_front_that_promises_least_is_named(shards: int) -> None:
    cluster, first, _ = begun(shards)
    least = Hold(HoldKind.PROMISE, 0, 50, node_id="first", front="a")
    for shard in range(shards):
        assert holds(cluster, 0, shard) == (least,)
        assert holds(cluster, 1, shard) == (least,), "by way of the edge"
    first.commit(heartbeats={"a": 90})
    assert holds(cluster) == (Hold(HoldKind.PROMISE, 0, 60, node_id="second", front="b"),)


def test_the_lowest_open_slot_is_named_with_its_shard(shards: int) -> None:
    cluster, first, _ = begun(shards)
    first.commit(created=[(0, 51, 7), (0, 53, 8), (0, 53, 9)])
    first.commit(heartbeats={"a": 90})
    owner = cluster.routing.owner(51)
    for shard in range(shards):
        assert holds(cluster, 0, shard) == (Hold(HoldKind.OPEN, 0, 51, shard=owner),)
    cells = [cell for s in range(shards) for cell in explained(cluster, s).cells]
    assert sorted((c.slot, c.items) for c in cells) == [(51, 1), (53, 2)]
    assert {c.checksum for c in cells} == {7, 8 ^ 9}


def test_cells_are_asked_for_by_segment_slots_and_number() -> None:
    cluster, first, _ = begun(1)
    first.commit(created=[(0, slot, slot) for slot in range(51, 60)] + [(1, 55, 3)])
    assert explained(cluster).open_cells == 10
    part = explained(cluster, segment=0, from_slot=53, to_slot=57, max_cells=2)
    assert ([c.slot for c in part.cells], part.open_cells) == ([53, 54], 4)
    assert [s.segment for s in part.segments] == ["work"]


def test_a_shard_that_was_never_heard_is_named() -> None:
    cluster, *_ = begun(2)
    cluster.crash(1)
    cluster.restart(0)
    cluster.settle()
    assert holds(cluster, 1, 0) == (Hold(HoldKind.UNHEARD, shard=1),)


def test_an_open_pipeline_waits_and_a_complete_one_does_not() -> None:
    for is_open in (True, False):
        spec = replace(SPEC, fronts=("a",), open=is_open)
        cluster = Cluster(1)
        cluster.register(spec)
        cluster.front(spec, "n").commit(leaves=["a"])
        cluster.settle()
        assert holds(cluster) == ((Hold(HoldKind.KEPT_OPEN),) if is_open else ())


def test_nodes_are_told_by_their_silence_and_by_where_they_have_worked() -> None:
    cluster, first, _ = begun(1)
    worker = cluster.node(SPEC, "worker", "local-tracker")
    first.commit(created=[(0, 55, 7), (0, 56, 8)])
    worker.commit(consumed=[(0, 55, 7)], created=[(1, 59, 5)])
    cluster.now_ns += 9_000 * MS
    first.commit(heartbeats={"a": 55})
    nodes = {node.key.node_id: node for node in explained(cluster).nodes}
    assert list(nodes) == ["second", "worker", "first"], "the longest silent first"
    assert nodes["worker"].kind == "local-tracker" and nodes["worker"].connected
    assert (nodes["worker"].consumes, nodes["worker"].creates) == ((0,), (1,))
    assert 9_000 <= nodes["worker"].silent_ms < 10_000
    assert nodes["first"].fronts == ("a",) and nodes["first"].silent_ms < 1_000
    cluster.ask(0, RetireNode, "p", "worker", Cells.of([(1, 59, 5, 1)]), 123)
    cluster.restart(0)
    part = explained(cluster)
    nodes = {node.key.node_id: node for node in part.nodes}
    assert (nodes["worker"].gone, nodes["worker"].consumes) == ("retired", (0,))
    assert not nodes["second"].connected
    assert [(c.slot, c.node_id, c.at_ms) for c in part.written_off] == [(59, "worker", 123)]


def test_how_long_min_time_stands_is_told() -> None:
    cluster, first, _ = begun(1)
    before = explained(cluster).segments[0].standing_ms
    cluster.now_ns += 3_000 * MS
    assert explained(cluster).segments[0].standing_ms == before + 3_000
    first.commit(heartbeats={"a": 55})
    assert explained(cluster).segments[0].standing_ms < 1_000


def test_open_units_are_named_where_their_names_are_kept() -> None:
    cluster, first, _ = begun(3)
    units = [Unit(0, f"file:///{slot}", slot) for slot in (57, 51)]
    first.commit(created=[(0, unit.slot, unit.slot) for unit in units], units_created=units)
    known = {shard: explained(cluster, shard).segments[0].units for shard in range(3)}
    keeper = cluster.routing.names_keeper("p", 0)
    assert [unit.slot for unit in known.pop(keeper)] == [51, 57]
    assert set(known.values()) == {()}


def test_no_number_of_items_that_people_are_shown_is_negative(shards: int) -> None:
    """A reader may be quicker than the tick of the writer, by thousands of items; shards report how much
    they lack, so that what is shown adds up once the rest comes."""
    cluster, first, _ = begun(shards)
    reader = cluster.node(SPEC, "reader")
    slots = range(70, 76)
    reader.begin(consumed=[(s, slot, 900 + slot) for s in (0, 1) for slot in slots])
    first.commit(created=[(0, 90, 5)], heartbeats={"a": 95})
    query = {"from_slot": 60, "to_slot": 100, "strip_bins": 4}
    open_cells: list[OpenCell] = []
    for shard, process in cluster.processes.items():
        described = process.describe("p", cluster.now_ns)
        assert [s.open_slots for s in described.segments] == [7, 6]
        assert [s.open_items for s in described.segments] == [0, 0]
        measured = process.measure("p", cluster.now_ns)
        assert min(s.open_items for s in measured.segments) >= 0
        part = explained(cluster, shard, **query)
        assert all(cell.items >= 0 for cell in part.cells)
        strips = part.strip.segments if part.strip else ()
        assert all(items >= 0 for strip in strips for items in strip.items)
        open_cells += part.cells
    lost = Cells.of((c.segment, c.slot, c.checksum, c.items) for c in open_cells)
    cluster.ask(first.home, RetireNode, "p", "first", lost, 0)
    for shard in [*cluster.processes]:
        cluster.restart(shard)
        cluster.settle()
        listed = explained(cluster, shard).written_off
        assert listed and all(cell.items >= 0 for cell in listed)
    described = cluster.processes[0].describe("p", cluster.now_ns)
    assert described.written_off_items == 0, "more was consumed there than created"
