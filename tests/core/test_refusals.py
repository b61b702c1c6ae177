"""What cannot be honoured is refused whole, at once, by name, and changes nothing (promise 5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.core.driver import Cluster, HandNode, content, plain, refused
from tracker.core.home import home
from tracker.core.log import (
    Append,
    AttachSession,
    JoinNode,
    LeaveNode,
    SessionRefused,
    SubmitTick,
    TickRefused,
)
from tracker.core.model import (
    Batch,
    Cells,
    Edge,
    NodeKey,
    PipelineSpec,
    Refusal,
    RefusalCode,
    Refused,
    TickContent,
    Unit,
)
from tracker.core.model.slots import FOREVER
from tracker.core.process import ProcessConfig
from tracker.wire.pipelines import state_to_pb
from tracker.wire.storage import snapshot_to_bytes

SPEC = PipelineSpec(
    "flights",
    ("parse", "enrich"),
    (Edge("parse", "enrich", 3),),
    fronts=("EWR",),
    horizon_slots=1000,
    max_nodes=8,
)


@pytest.fixture
def front() -> HandNode:
    """A front's node in a pipeline of two shards, which has promised slot 100."""
    return begun(SPEC)


def begun(spec: PipelineSpec, config: ProcessConfig | None = None) -> HandNode:
    cluster = Cluster(2, config=config)
    cluster.register(spec)
    node = cluster.front(spec, "newark", promise=100, EWR=0)
    assert cluster.agreed(spec) == (100, 103)
    return node


def cells(**changes: Any) -> Cells:
    return replace(Cells.of([(0, 200, 7, 1), (0, 201, 8, 1)]), **changes)


BAD_TICKS: dict[str, tuple[Callable[[], TickContent], RefusalCode, tuple[str, ...]]] = {
    "an unknown segment": (
        lambda: content(created=[(2, 200, 7)]),
        RefusalCode.UNKNOWN_SEGMENT,
        ("flights", "segment number 2", "2 segments"),
    ),
    "a negative segment": (
        lambda: content(consumed=[(-1, 200, 7)]),
        RefusalCode.UNKNOWN_SEGMENT,
        ("flights", "-1", "2 segments"),
    ),
    "a unit in an unknown segment": (
        lambda: content(units_created=[Unit(9, "file:///x", 200)]),
        RefusalCode.UNKNOWN_SEGMENT,
        ("flights", "file:///x", "9"),
    ),
    "creation below min time": (
        lambda: content(created=[(0, 200, 1), (0, 99, 7)]),
        RefusalCode.BELOW_MIN_TIME,
        ("flights", "'parse'", "slot 99", "min time 100"),
    ),
    "creation below a later segment's min time": (
        lambda: content(created=[(1, 102, 7)]),
        RefusalCode.BELOW_MIN_TIME,
        ("flights", "'enrich'", "slot 102", "min time 103"),
    ),
    "creation beyond the horizon": (
        lambda: content(created=[(0, 1100, 7)]),
        RefusalCode.BEYOND_HORIZON,
        ("flights", "'parse'", "1100", "min time 100", "1000"),
    ),
    "a slot that no min time could pass": (
        lambda: content(consumed=[(0, FOREVER, 7)]),
        RefusalCode.INVALID,
        ("flights", str(FOREVER)),
    ),
    "fewer items than none": (
        lambda: TickContent(consumed=cells(counts=np.array([1, -1], np.int64))),
        RefusalCode.INVALID,
        ("flights", "-1 items", str(home.MAX_ITEMS_PER_CELL)),
    ),
    "more items than can be added up": (
        lambda: TickContent(created=cells(counts=np.array([2**63 - 1, 1], np.int64))),
        RefusalCode.INVALID,
        ("flights", str(2**63 - 1), str(home.MAX_ITEMS_PER_CELL)),
    ),
    "arrays of unequal length": (
        lambda: TickContent(created=cells(checksums=np.array([1], np.uint64))),
        RefusalCode.INVALID,
        ("flights", "unequal lengths", "[1, 2]"),
    ),
    "values without slots": (
        lambda: TickContent(consumed=cells(slots=np.empty(0, np.int64))),
        RefusalCode.INVALID,
        ("flights", "unequal lengths", "[0, 2]"),
    ),
    "an unknown front's promise": (
        lambda: content(heartbeats={"JFK": 200}),
        RefusalCode.UNKNOWN_FRONT,
        ("flights", "'JFK'", "EWR"),
    ),
    "an unknown front's leaving": (
        lambda: content(leaves=["JFK"]),
        RefusalCode.UNKNOWN_FRONT,
        ("flights", "'JFK'"),
    ),
    "a promise that goes back": (
        lambda: content(heartbeats={"EWR": 99}),
        RefusalCode.INVALID,
        ("flights", "'EWR'", "99", "100"),
    ),
    "a promise for ever": (
        lambda: content(heartbeats={"EWR": FOREVER}),
        RefusalCode.INVALID,
        ("flights", "'EWR'", str(FOREVER)),
    ),
    "a front in two segments": (
        lambda: content(joins={"EWR": 1}),
        RefusalCode.CONFLICT,
        ("flights", "'EWR'", "'parse'", "'enrich'"),
    ),
    "a front of an unknown segment": (
        lambda: content(joins={"JFK": 5}),
        RefusalCode.UNKNOWN_SEGMENT,
        ("flights", "'JFK'", "5"),
    ),
    "a front without a name": (
        lambda: content(joins={"": 0}),
        RefusalCode.INVALID,
        ("flights", "0 characters"),
    ),
    "a batch without a scope": (
        lambda: content(batch=Batch("", 1, b"x")),
        RefusalCode.INVALID,
        ("flights", "scope"),
    ),
    "too long a fingerprint": (
        lambda: content(batch=Batch("q", 1, b"x" * 65)),
        RefusalCode.INVALID,
        ("flights", "64", "65"),
    ),
}


@pytest.mark.parametrize("case", BAD_TICKS)
def test_a_bad_tick_is_refused_by_name_and_changes_nothing(front: HandNode, case: str) -> None:
    make, code, named = BAD_TICKS[case]
    cluster = front.cluster
    before = [plain(p.snapshot()) for p in cluster.processes.values()]
    bad = make()
    if len(bad.created.slots) == len(bad.created.checksums):  # with it comes something good
        good = Cells.of([(0, 300, 0xFEED, 1)])
        bad.created = Cells.concatenate([bad.created, good])
    effects = front.send(front.last + 1, bad)
    (said,) = [e for e in effects if isinstance(e, TickRefused)]
    refused(said.refusal, code, *named)
    assert not [e for e in effects if isinstance(e, Append)], "nothing may become durable"
    cluster.settle()
    assert [plain(p.snapshot()) for p in cluster.processes.values()] == before
    front.commit(created=[(0, 300, 0xFEED)])  # its number is free for a corrected tick
    front.commit(heartbeats={"EWR": 400})
    assert cluster.agreed(SPEC) == (300, 303)


def test_an_oversized_tick_is_refused(front: HandNode) -> None:
    number = home.MAX_CELLS_PER_TICK + 1
    many = Cells(
        np.zeros(number, np.int32),
        np.full(number, 200, np.int64),
        np.ones(number, np.uint64),
        np.ones(number, np.int64),
    )
    (too_large,) = front.send(front.last + 1, TickContent(created=many))
    assert isinstance(too_large, TickRefused)
    limit = str(home.MAX_CELLS_PER_TICK)
    refused(too_large.refusal, RefusalCode.INVALID, str(number), limit)


def test_numbers_of_items_stop_at_what_can_be_written_down(front: HandNode) -> None:
    """They are shown to people: whatever is told of them, it is told, and kept."""
    cluster = front.cluster
    count = home.MAX_ITEMS_PER_CELL
    cells_of_a_tick = 40_000
    segments = np.zeros(cells_of_a_tick, np.int32)
    counts = np.full(cells_of_a_tick, count, np.int64)
    for slot, is_created in ((50, False), (150, True)):
        for _ in range(2):
            values = np.arange(1, cells_of_a_tick + 1, dtype=np.uint64)
            many = Cells(segments, np.full(cells_of_a_tick, slot, np.int64), values, counts)
            front.last += 1
            tick = TickContent(created=many) if is_created else TickContent(consumed=many)
            assert not front.send(front.last, tick)[1:], "it was refused"
            cluster.settle()
    for process in cluster.processes.values():
        described = process.describe("flights", 0)
        assert described.late_items == 2**63 - 1
        snapshot_to_bytes(process.snapshot())
        state_to_pb(described)
    assert cluster.agreed(SPEC) == (100, 103)


def test_consumption_below_min_time_goes_to_the_late_ledger(front: HandNode) -> None:
    """It cannot hold what is announced, and it must not block its node."""
    cluster = front.cluster
    late = cluster.node(SPEC, "late")
    late.commit(consumed=[(0, 50, 1), (0, 60, 2), (1, 500, 3)])
    cluster.settle()
    for process in cluster.processes.values():
        pipeline = process.describe("flights", 0)
        assert pipeline.late_items == 2
        assert [s.open_slots for s in pipeline.segments] == [0, 1], "slot 500 is not late"
    late.commit(created=[(1, 500, 3)])
    assert cluster.agreed(SPEC) == (100, 103)


@pytest.mark.parametrize("reached", [-7, 0, 7])
def test_what_is_late_for_another_shard_does_not_hold_min_time(reached: int) -> None:
    """Whatever slot the other one has announced: 0 is one like any other."""
    spec = replace(SPEC, fronts=("EWR",), start_slot=-50)
    cluster = Cluster(2)
    cluster.register(spec)
    front = cluster.front(spec, "newark", promise=-20, EWR=0)
    worker = cluster.node(spec, next(cluster.ids_at(front.home, "flights")))
    cluster.held = {(1 - front.home, front.home)}
    front.begin(heartbeats={"EWR": reached})
    cluster.settle()
    worker.begin(consumed=[(0, reached - 2, 1), (0, reached - 1, 2)])
    cluster.settle()
    cluster.reconnect()
    assert cluster.agreed(spec) == (reached, reached + 3)
    assert {p.describe("flights", 0).late_items for p in cluster.processes.values()} == {2}


def test_what_comes_late_again_does_not_hold_min_time() -> None:
    """A shard that has swept its cells does so again when more comes late under the same min time, and
    counts each item once, also where more comes into a cell that was swept before."""
    spec = replace(SPEC, fronts=("EWR",))
    front = begun(spec)
    cluster = front.cluster
    worker = cluster.node(spec, next(cluster.ids_at(front.home, "flights")))
    cluster.held = {(1 - front.home, front.home)}
    front.begin(heartbeats={"EWR": 200})
    cluster.settle()
    front.begin(created=[(0, slot, 9) for slot in range(200, 208)])
    for value in (1, 2):
        worker.begin(consumed=[(0, slot, value) for slot in range(196, 200)])
        cluster.settle()
    cluster.reconnect()
    assert cluster.agreed(spec) == (200, 203)
    assert {p.describe("flights", 0).late_items for p in cluster.processes.values()} == {8}


def test_a_full_table_of_nodes_refuses_and_names_the_limit() -> None:
    spec = replace(SPEC, max_nodes=1)
    front = begun(spec)
    another = next(front.cluster.ids_at(front.home, "flights"))
    full = front.cluster.ask(front.home, JoinNode, "flights", another, "other")
    refused(full, RefusalCode.FULL, "max_nodes is 1")
    assert isinstance(front.cluster.node(spec, "newark"), HandNode), "who is there may join again"


def test_an_unknown_pipeline_is_refused(front: HandNode) -> None:
    cluster = front.cluster
    for refusal in (
        cluster.ask(front.home, JoinNode, "trains", "newark", "other"),
        cluster.ask(front.home, LeaveNode, "trains", front.key),
        attach_refused(front, front.home, "trains"),
    ):
        refused(refusal, RefusalCode.UNKNOWN_PIPELINE, "'trains'")


def attach_refused(
    node: HandNode, shard: int, pipeline: str = "flights", key: NodeKey | None = None
) -> Refusal:
    """What a shard says to the node, which wants a stream there."""
    attach = AttachSession("s", pipeline, key or node.key)
    (ended,) = node.cluster.handle(shard, attach)
    assert isinstance(ended, SessionRefused)
    return ended.refusal


def test_a_node_is_sent_to_its_home(front: HandNode) -> None:
    elsewhere = 1 - front.home
    for refusal in (
        front.cluster.ask(elsewhere, JoinNode, "flights", "newark", "front"),
        front.cluster.ask(elsewhere, LeaveNode, "flights", front.key),
        attach_refused(front, elsewhere),
    ):
        assert refused(refusal, RefusalCode.NOT_HOME, "'newark'").home == front.home


def test_a_closed_incarnation_is_fenced(front: HandNode) -> None:
    cluster = front.cluster
    newer = cluster.node(SPEC, "newark")
    effects = front.send(front.last + 1, content(created=[(0, 300, 1)]))
    (ended,) = [e for e in effects if isinstance(e, SessionRefused)]
    refused(ended.refusal, RefusalCode.FENCED)
    refused(front.attach_refused(), RefusalCode.FENCED, str(newer.key))
    newer.commit(heartbeats={"EWR": 300})
    assert cluster.agreed(SPEC) == (300, 303)


def test_a_key_that_never_was_or_has_left_is_refused(front: HandNode) -> None:
    cluster = front.cluster
    assert front.leave().code is RefusalCode.CONFLICT, "its front has not left"
    front.commit(leaves=["EWR"])
    assert front.leave() is None
    cluster.settle()
    codes = {front.key: RefusalCode.UNKNOWN_NODE, NodeKey("newark", 77): RefusalCode.LOST}
    for key, code in codes.items():
        refused(attach_refused(front, front.home, key=key), code, str(key))


def test_a_tick_without_a_stream_is_refused(front: HandNode) -> None:
    tick = SubmitTick("never attached", 1, content(created=[(0, 300, 1)]))
    (ended,) = front.cluster.handle(front.home, tick)
    assert isinstance(ended, SessionRefused)
    refused(ended.refusal, RefusalCode.FENCED)


def test_unknown_segments_and_other_keepers_are_named_when_units_are_asked_for(
    front: HandNode,
) -> None:
    cluster = front.cluster
    keeper = cluster.routing.names_keeper("flights", 0)
    with pytest.raises(Refused) as caught:
        cluster.processes[keeper].resolve_units("flights", 7, ["file:///x"])
    refused(caught.value.refusal, RefusalCode.UNKNOWN_SEGMENT, "7")
    with pytest.raises(Refused) as caught:
        cluster.processes[1 - keeper].resolve_units("flights", 0, ["file:///x"])
    assert refused(caught.value.refusal, RefusalCode.NOT_HOME).home == keeper


def test_a_process_with_much_unconfirmed_says_that_it_is_congested() -> None:
    front = begun(SPEC, ProcessConfig(max_unconfirmed_entries=5))
    cluster = front.cluster
    process = cluster.processes[front.home]
    assert not process.congested
    cluster.held = {(front.home, 1 - front.home)}
    for slot in range(101, 108):
        front.begin(heartbeats={"EWR": slot})
    cluster.settle()
    assert process.congested
    assert front.durable == front.last, "what was accepted is acknowledged all the same"
    cluster.reconnect()
    assert not process.congested


def test_a_process_with_few_large_ticks_unconfirmed_says_that_it_is_congested() -> None:
    """Else a shard that is away for an hour fills the memory of all others."""
    front = begun(SPEC, ProcessConfig(max_unconfirmed_bytes=50_000))
    cluster = front.cluster
    process = cluster.processes[front.home]
    cluster.held = {(front.home, 1 - front.home)}
    for number in range(5):
        front.commit(units_created=[Unit(0, f"{number}" * 1_000 + f"{n}", 200) for n in range(10)])
        assert process.congested == (number >= 4)
    cluster.restart(front.home)
    assert cluster.processes[front.home].congested, "what it has recovered counts"
    cluster.reconnect()
    assert not cluster.processes[front.home].congested
