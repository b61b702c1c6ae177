"""Nothing is lost on the way through the contract, and malformed input is refused before the core."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker.v1 import peer_service_pb2 as peer_pb
from acker.v1 import types_pb2 as pb
from tracker.core import log as m
from tracker.core.insight.explain import ExplainQuery
from tracker.core.model import (
    Batch,
    Cells,
    Edge,
    FrontJoin,
    FrontPin,
    FrontPolicy,
    Heartbeat,
    Limits,
    NodeKey,
    PipelineSpec,
    Refusal,
    RefusalCode,
    Refused,
    SilentFront,
    StagedContribution,
    Tick,
    TickContent,
    TimeKind,
    Unit,
)
from tracker.core.model.routing import RoutingTable
from tracker.core.process import Process
from tracker.wire.cells import cells_from_pb
from tracker.wire.codec import derived
from tracker.wire.frames import frame_from_pb, frame_to_pb
from tracker.wire.refusals import refusal_from_pb, refusal_to_pb
from tracker.wire.storage import (
    record_from_bytes,
    record_to_bytes,
    snapshot_from_bytes,
    snapshot_to_bytes,
)
from tracker.wire.ticks import content_from_pb, content_to_pb

int64 = st.integers(-(2**63), 2**63 - 1)
rows = st.lists(st.tuples(st.integers(0, 99), int64, st.integers(0, 2**64 - 1), int64), max_size=20)
text = st.text(min_size=1, max_size=20)
units = st.builds(Unit, st.integers(0, 99), text, int64)
contents = st.builds(
    TickContent,
    created=rows.map(Cells.of),
    consumed=rows.map(Cells.of),
    heartbeats=st.lists(st.builds(Heartbeat, text, int64), max_size=3).map(tuple),
    joins=st.lists(st.builds(FrontJoin, text, st.integers(0, 99)), max_size=3).map(tuple),
    leaves=st.lists(text, max_size=3).map(tuple),
    batch=st.none() | st.builds(Batch, text, int64, st.binary(max_size=32)),
    units_created=st.lists(units, max_size=3).map(tuple),
    units_consumed=st.lists(units, max_size=3).map(tuple),
)


def same(one: TickContent, other: TickContent) -> bool:
    return (
        one.created.rows() == other.created.rows()
        and one.consumed.rows() == other.consumed.rows()
        and one.heartbeats == other.heartbeats
        and one.joins == other.joins
        and one.leaves == other.leaves
        and one.batch == other.batch
        and one.units_created == other.units_created
        and one.units_consumed == other.units_consumed
    )


@given(contents)
def test_a_tick_survives_the_wire(content: TickContent) -> None:
    message = pb.TickContent.FromString(content_to_pb(content).SerializeToString())
    assert same(content_from_pb(message), content)


@given(st.lists(contents, max_size=4), rows)
def test_records_survive_the_store(
    ticks: list[TickContent], late: list[tuple[int, int, int, int]]
) -> None:
    key = NodeKey("n", 7)
    entries = tuple(
        m.KeyTick(Tick("p", key, number, content), Cells.of(late))
        for number, content in enumerate(ticks, 1)
    )
    record = m.ReceivedEntries(2, 5, entries)
    again = record_from_bytes(record_to_bytes(record))
    assert isinstance(again, m.ReceivedEntries)
    assert (again.shard, again.first, len(again.entries)) == (2, 5, len(entries))
    for kept, entry in zip(again.entries, entries, strict=True):
        assert isinstance(kept, m.KeyTick)
        assert (kept.tick.key, kept.tick.number) == (entry.tick.key, entry.tick.number)
        assert same(kept.tick.content, entry.tick.content)
        assert kept.late.rows() == entry.late.rows()


SPEC = PipelineSpec(
    "p",
    ("a", "b"),
    (Edge("a", "b", 3),),
    fronts=("F",),
    open=True,
    start_slot=-5,
    silent_front=SilentFront.EVICT,
    evict_after_ms=9,
    front_policies=(FrontPolicy("F", SilentFront.EVICT, 7),),
    time=TimeKind.EVENT,
    lateness_slots=12,
)


@pytest.mark.parametrize(
    "record",
    [
        m.HomeEntry(4, m.PipelineRegistered(SPEC)),
        m.HomeEntry(5, m.KeyOpened("p", NodeKey("n", 1), "front")),
        m.HomeEntry(6, m.KeyClosed("p", NodeKey("n", 1), 9, True)),
        m.HomeEntry(6, m.KeyClosed("p", NodeKey("n", 1), 9, True, True)),
        m.HomeEntry(7, m.KeyDropped("p", NodeKey("n", 1))),
        m.HomeEntry(8, m.KeyOpened("p", NodeKey("n", 2), "front", m.Restart(3, -7, 9))),
        m.HomeEntry(8, m.KeyOpened("p", NodeKey("n", 3), "query", None, "q-1")),
        m.HomeEntry(9, m.PipelineRestarted("p", m.Restart(2, 5, 1_700_000_000_000))),
        m.HomeEntry(10, m.LimitsChanged("p", 3, Limits(1, 2, 3, 4, 5))),
        m.Pinned("p", (FrontPin("n", "F", -3),)),
        m.Pinned("p", (FrontPin("n", "F", -3, 7, 9),), 4),
        m.FrontsGranted("p", (FrontPin("n", "F", -3, 7, 9),), 4),
        m.Announcement("p", ((0, 7), (1, 2**63 - 1))),
        m.Announcement("p", ((0, 7),), 4),
        m.Announcement("p", ((0, 7),), 4, 1_700_000_000_000),
        m.Staged("p", "n", (), 4),
        m.Swept("p", 1, 12),
        m.Swept("p", 1, 12, 4),
    ],
    ids=lambda record: type(getattr(record, "entry", record)).__name__,
)
def test_each_kind_of_record_survives_the_store(record: m.Record) -> None:
    assert record_from_bytes(record_to_bytes(record)) == record


def test_a_write_off_survives_the_store() -> None:
    cells = Cells.of([(0, -3, 2**64 - 1, 5), (1, 4, 7, 0)])
    record = m.HomeEntry(8, m.WrittenOff("p", "n", cells, 1_700_000_000_000, 6))
    again = record_from_bytes(record_to_bytes(record))
    assert isinstance(again, m.HomeEntry) and isinstance(again.entry, m.WrittenOff)
    assert (again.entry.node_id, again.entry.at_ms) == ("n", 1_700_000_000_000)
    assert again.entry.generation == 6
    assert again.entry.cells.rows() == cells.rows()


def test_every_frame_survives_the_wire() -> None:
    report = m.ShardReport(
        3,
        True,
        ((0, 5), (1, 6)),
        (
            m.PipelineReport(
                "p",
                (m.SegmentLow(1, 5, 2, 3, 4, 6),),
                (m.FrontReport("n", "F", 1, 2, 3, 4, 5),),
                (("n", "G", 6, 7),),
                (m.TouchedRun(1, 6, ((0, -4),)),),
                ((0, 9),),
                generation=3,
            ),
        ),
        ((0, 5), (1, 4)),
    )
    for body in (report, m.EntriesReceived(4, True), m.ReportWanted()):
        message = frame_to_pb(m.Frame(1, 2, body)).SerializeToString()
        frame = frame_from_pb(peer_pb.ExchangeRequest.FromString(message))
        assert frame == m.Frame(1, 2, body)


def test_a_snapshot_survives_the_store() -> None:
    process = Process(0, RoutingTable.uniform(1), 1)

    now_ns = 0

    def run(event: m.Event) -> list[m.Effect]:
        nonlocal now_ns
        effects: list[m.Effect] = []
        for each in (event, m.Wake()):
            now_ns += 10_000_000
            effects += process.handle(each, now_ns, 1_700_000_000_000 + now_ns // 10**6)
            while process.position > process.committed:
                effects += process.handle(m.Committed(process.position), now_ns)
        return effects

    run(m.RegisterPipeline("r", SPEC))
    joined = next(e for e in run(m.JoinNode("j", "p", "n", "front")) if isinstance(e, m.Answer))
    assert isinstance(joined.result, m.Joined)
    run(m.AttachSession("s", "p", joined.result.key))
    run(m.SubmitTick("s", 1, TickContent(joins=(FrontJoin("F", 0),))))
    run(
        m.SubmitTick(
            "s",
            2,
            TickContent(
                created=Cells.of([(0, 3, 77, 1), (1, 900, 5, 2)]),
                batch=Batch("q", 4, b"f"),
                units_created=(Unit(0, "file:///x", 3),),
            ),
        )
    )
    cells = Cells.of([(0, 3, 1, 1)])
    contribution = StagedContribution("q", "r", 9, 1, "op", 2, 3, 4, cells, Cells.empty())
    run(m.StageContributions("c", "p", "n", (contribution,)))
    run(m.JoinNode("k", "p", "gone", "local-tracker"))
    run(m.RetireNode("w", "p", "gone", Cells.of([(1, 900, 5, 2)]), 1_700_000_000_000))
    data = snapshot_to_bytes(process.snapshot())
    snapshot = snapshot_from_bytes(data)
    assert snapshot_to_bytes(snapshot) == data
    again = Process(0, RoutingTable.uniform(1), 2)
    again.recover(snapshot, [], now_ns)
    again.validate()
    assert again.min_times("p") == process.min_times("p")
    assert again.resolve_units("p", 0, ["file:///x"]) == [3]
    assert [c.key for c in again.staged("p", "n", "q", 9)] == [contribution.key]
    explained, before = (each.explain("p", ExplainQuery(), now_ns) for each in (again, process))
    assert (explained.cells, explained.written_off) == (before.cells, before.written_off)
    (lost,) = explained.written_off
    assert (lost.segment, lost.slot, lost.checksum, lost.items) == (1, 900, 5, 2)
    known = {node.key.node_id: (node.gone, node.creates) for node in explained.nodes}
    assert known == {"n": ("", (0, 1)), "gone": ("retired", ())}


def test_changed_limits_survive_the_store_and_what_was_registered_too() -> None:
    process, spec = Process(0, RoutingTable.uniform(1), 1), replace(SPEC, fronts=(), open=True)
    raised = replace(spec, horizon_slots=9, max_open_cells=2, max_open_units=3, max_nodes=4)
    for event in (m.RegisterPipeline("r", spec), m.RegisterPipeline("c", raised, True)):
        process.handle(event, 0)
        process.handle(m.Committed(process.position), 0)
    again = Process(0, RoutingTable.uniform(1), 2)
    again.recover(snapshot_from_bytes(snapshot_to_bytes(process.snapshot())), [], 0)
    assert again.spec("p") == raised
    (answer,) = [
        e for e in again.handle(m.RegisterPipeline("r", spec), 0) if isinstance(e, m.Answer)
    ]
    assert answer.result == raised


def test_a_restarted_pipeline_survives_the_store() -> None:
    process = Process(0, RoutingTable.uniform(1), 1)
    for event in (
        m.RegisterPipeline("r", replace(SPEC, fronts=(), open=True)),
        m.RestartPipeline("a", "p", 0, -2, 77),
        m.JoinNode("j", "p", "n", "front"),
    ):
        process.handle(event, 0)
        process.handle(m.Committed(process.position), 0)
    snapshot = snapshot_from_bytes(snapshot_to_bytes(process.snapshot()))
    again = Process(0, RoutingTable.uniform(1), 2)
    again.recover(snapshot, [], 0)
    (before,), (after,) = process.snapshot().pipelines, again.snapshot().pipelines
    assert (after.restarts, after.reached) == (before.restarts, (-2, -2))
    assert after.said == before.said == (-5, -5), "nothing was said of what was left out"
    (begun,) = again.explain("p", ExplainQuery(), 0).restarts
    assert (begun.restart, begun.floor) == (m.Restart(1, -2, 77), -2)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
def test_packed_cells_of_unequal_lengths_are_refused(a: int, b: int, c: int, d: int) -> None:
    packed = pb.Cells(segments=bytes(a), slots=bytes(b), checksums=bytes(c), counts=bytes(d))
    if a % 4 == 0 and b == c == d == 2 * a:
        assert len(cells_from_pb(packed)) == a // 4
        return
    with pytest.raises(Refused, match="are not four arrays of one length") as refused:
        cells_from_pb(packed)
    assert refused.value.refusal.code is RefusalCode.INVALID


@given(st.binary(max_size=200))
def test_stored_bytes_that_are_no_record_are_refused_not_believed(data: bytes) -> None:
    for decode in (record_from_bytes, snapshot_from_bytes):
        try:
            decode(data)
        except Refused as refused:
            assert refused.refusal.code is RefusalCode.INVALID


@pytest.mark.parametrize("code", RefusalCode)
def test_every_refusal_survives_the_wire(code: RefusalCode) -> None:
    refusal = Refusal(code, "why", home=2, expected=5)
    assert refusal_from_pb(refusal_to_pb(refusal)) == refusal


@dataclass(frozen=True, slots=True)
class LessThanAnEdge:
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class MoreThanAnEdge:
    source: str
    target: str
    delay: int
    until: int


@dataclass(frozen=True, slots=True)
class OtherThanAnEdge:
    source: str
    target: int
    delay: int


@pytest.mark.parametrize(
    ("declared", "missing"),
    [
        (LessThanAnEdge, "LessThanAnEdge has no field for Edge.*delay"),
        (MoreThanAnEdge, "Edge has no field for MoreThanAnEdge.until"),
        (OtherThanAnEdge, "nothing is known between <class 'int'> and <class 'str'>"),
    ],
)
def test_what_is_declared_in_one_place_alone_has_no_codec(declared: type, missing: str) -> None:
    with pytest.raises(TypeError, match=missing):
        derived(declared, pb.Edge)
