"""Nothing is lost on the way through the contract, and malformed input is refused before the core."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker.v1 import peer_service_pb2 as peer_pb
from acker.v1 import types_pb2 as pb
from tests.core.driver import plain
from tracker.core import log as m
from tracker.core.model import (
    Batch,
    Cells,
    FrontJoin,
    Heartbeat,
    NodeKey,
    Refusal,
    RefusalCode,
    Refused,
    Tick,
    TickContent,
    Unit,
)
from tracker.wire.codec import derived
from tracker.wire.entries import ENTRY, TOLD
from tracker.wire.frames import frame_from_pb, frame_to_pb, write_frame
from tracker.wire.refusals import refusal_from_pb, refusal_to_pb
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
    entries = m.Entries(7, (m.KeyDropped("p", NodeKey("n", 3)), m.PipelineCompleted("p", 1, 9)))
    received = m.EntriesReceived(4, True), m.EntriesReceived(4, level=1, speaks=2)
    for body in (entries, report, *received, m.ReportWanted()):
        message = frame_to_pb(m.Frame(1, 2, body)).SerializeToString()
        for carrier in (peer_pb.ExchangeRequest, peer_pb.Frame):
            assert frame_from_pb(carrier.FromString(message)) == m.Frame(1, 2, body)
        following = peer_pb.Frame()
        write_frame(m.Frame(1, 2, body), following)
        assert following.SerializeToString() == message


def test_runs_survive_the_wire() -> None:
    content = TickContent(
        created=Cells.of([(0, 5, 6, 7)]), units_consumed=(Unit(1, "file:///a", 3),)
    )
    part = m.KeyTick(Tick("p", NodeKey("n", 3), 8, content), Cells.of([(0, 1, 2, 3)]))
    keys = (
        m.KeyProgress("p", NodeKey("n", 3), 9, (Heartbeat("F", -4), Heartbeat("G", 7))),
        m.KeyProgress("q", NodeKey("m", 1), 1),
    )
    columns = m.TickColumns(
        "p", (0, 3), (0, 0), (7, 9),
        Cells.of([(0, 5, 6, 7), (1, 6, 7, 8), (0, 9, 1, 1)]), (2, 3), Cells.empty(), (0, 0),
    )  # fmt: skip
    run = m.TickRun(5, keys, (columns,), ((2, part),))
    body = m.Entries(7, (run, m.KeyDropped("p", NodeKey("n", 3))))
    message = frame_to_pb(m.Frame(1, 2, body)).SerializeToString()
    back = frame_from_pb(peer_pb.ExchangeRequest.FromString(message))
    assert plain(back) == plain(m.Frame(1, 2, body))
    assert back.body.last == 12  # type: ignore[union-attr]


def test_a_run_is_no_entry_of_an_own_log() -> None:
    message = peer_pb.Entry(run=peer_pb.TickRun(count=1))
    TOLD.from_pb(message)
    with pytest.raises(Refused, match="says nothing"):
        ENTRY.from_pb(message)


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
