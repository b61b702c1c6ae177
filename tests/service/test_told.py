"""A tick is written down in the words in which it came: the same record that the library would write."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker.v1 import peer_service_pb2 as peer_pb
from acker.v1 import storage_pb2 as storage_pb
from acker.v1 import types_pb2 as pb
from tests.service.test_wire import contents, same, text
from tracker.core import log as m
from tracker.core.model import Cells, FrontJoin, NodeKey, Tick, TickContent
from tracker.wire.entries import entry_to_pb, told_entry, write_entry
from tracker.wire.framing import number_bytes
from tracker.wire.storage import record_from_bytes, record_to_bytes
from tracker.wire.ticks import content_from_pb, content_to_pb

numbers = st.integers(1, 2**62)
ONE_CELL = TickContent(created=Cells.of([(0, 5, 7, 1)]))
UNKNOWN = b"\xf8\x07\x01"
"""Field 127, a number."""


def told(content: TickContent) -> TickContent:
    """As it is when it has come from elsewhere."""
    return content_from_pb(content_to_pb(content))


def record(content: TickContent, number: int = 1, late: Cells | None = None) -> m.HomeEntry:
    tick = Tick("pipeline", NodeKey("node", 3), number, content)
    return m.HomeEntry(number, m.KeyTick(tick, late or Cells.empty()))


@given(contents, numbers, numbers, numbers, text, text)
def test_its_record_is_the_one_of_a_tick_that_was_made_here(
    content: TickContent, place: int, incarnation: int, number: int, pipeline: str, node: str
) -> None:
    def of(content: TickContent) -> m.HomeEntry:
        tick = Tick(pipeline, NodeKey(node, incarnation), number, content)
        return m.HomeEntry(place, m.KeyTick(tick, Cells.empty()))

    came = told(content)
    assert told_entry(of(came).entry) is not None
    stored = record_to_bytes(of(came))
    assert stored == record_to_bytes(of(content))
    read = record_from_bytes(stored)
    assert isinstance(read, m.HomeEntry) and isinstance(read.entry, m.KeyTick)
    assert (read.number, read.entry.tick.number) == (place, number)
    assert (read.entry.tick.pipeline, read.entry.tick.key) == (pipeline, NodeKey(node, incarnation))
    assert same(read.entry.tick.content, content)
    assert record_to_bytes(read) == stored


@given(contents)
def test_to_another_shard_it_goes_as_one_that_was_made_here(content: TickContent) -> None:
    written = peer_pb.Entry()
    write_entry(record(told(content)).entry, written)
    assert written == entry_to_pb(record(content).entry)


def test_what_a_newer_version_adds_is_not_written_down() -> None:
    """It was not judged here, and this process may be a newer one when it reads its log."""
    plain = content_to_pb(ONE_CELL).SerializeToString()
    content = content_from_pb(pb.TickContent.FromString(plain + UNKNOWN))
    assert content.told == plain
    assert record_to_bytes(record(content)) == record_to_bytes(record(ONE_CELL))


@pytest.mark.parametrize(
    "changed",
    [
        replace(told(ONE_CELL), joins=(FrontJoin("front", 0),)),
        replace(told(ONE_CELL), created=Cells.of([(0, 6, 7, 1)])),
    ],
)
def test_one_that_was_changed_here_is_written_as_it_is_now(changed: TickContent) -> None:
    stored = record_from_bytes(record_to_bytes(record(changed)))
    assert isinstance(stored, m.HomeEntry) and isinstance(stored.entry, m.KeyTick)
    assert same(stored.entry.tick.content, changed)


def test_one_with_late_consumption_is_written_with_it() -> None:
    late = Cells.of([(0, 1, 2, 3)])
    stored = record_from_bytes(record_to_bytes(record(told(ONE_CELL), late=late)))
    assert isinstance(stored, m.HomeEntry) and isinstance(stored.entry, m.KeyTick)
    assert stored.entry.late.rows() == late.rows()


@given(st.integers(0, 2**63 - 1))
def test_a_number_is_written_as_the_library_writes_it(number: int) -> None:
    written = storage_pb.HomeRecord(number=number).SerializeToString()
    assert written[1:] == (number_bytes(number) if number else b"")
