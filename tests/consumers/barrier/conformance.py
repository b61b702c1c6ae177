"""What every sink of a barrier promises: a suite that the tests of each sink inherit.

class TestMySink(OrderedSinkSuite):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place: ...
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Protocol

import pytest

from scripts.summary import ROOT
from tests.consumers.barrier.places import SINKS
from tests.waits import PROGRAM_S
from tracker.consumers.barrier.sink import OrderedSink, Position
from tracker.consumers.reorder import Released
from tracker.errors import FencedError, StateError

BARRIER, BUFFER = "orders", "b" * 32
ROWS_A_BATCH = 7


class Place(Protocol):
    """Where sinks of one kind write, empty at first."""

    kind: str
    """In `places.SINKS`."""
    where: Mapping[str, str]
    """What a sink there is made of."""
    KILLS: int
    """How often a writer is killed: fewer for a sink that is slow to open."""

    def rows(self, barrier: str = BARRIER) -> list[Released]:
        """What a reader sees who sees no more than what is committed, in the sink's own order."""


def sink_at(place: Place) -> OrderedSink:
    return SINKS[place.kind](place.where)


def batch(begin: int, count: int = ROWS_A_BATCH) -> tuple[list[Released], Position]:
    """Rows that go on at a position, and the position behind them: several of a slot, some of a key."""
    rows = [
        Released(at, at // 3, f"k{at // 2:04d}", json.dumps({"at": at, "text": f"row {at}"}).encode())
        for at in range(begin, begin + count)
    ]  # fmt: skip
    return rows, Position(BUFFER, begin + count, rows[-1].slot, rows[-1].key)


def rows_up_to(end: int) -> list[Released]:
    return batch(0, end)[0] if end else []


class OrderedSinkSuite:
    """Inherited by the tests of a sink, which say where it is by the fixture `place`."""

    @pytest.fixture
    def place(self) -> Place:
        raise NotImplementedError("which place?")

    def test_rows_come_with_their_position_and_the_sink_knows_it_again(self, place: Place) -> None:
        sink = sink_at(place)
        assert sink.open(BARRIER, BUFFER) is None
        for begin in (0, ROWS_A_BATCH):
            rows, position = batch(begin)
            sink.write(rows, position)
            assert place.rows() == rows_up_to(position.next), "durable on return"
        assert sink.open(BARRIER, BUFFER) == position, "opened again by the same"
        sink.close()
        sink.close()
        again = sink_at(place)
        assert again.open(BARRIER, BUFFER) == position
        rows, position = batch(position.next, 1)
        again.write(rows, position)
        again.close()
        assert place.rows() == rows_up_to(2 * ROWS_A_BATCH + 1)

    def test_many_rows_at_once(self, place: Place) -> None:
        sink = sink_at(place)
        sink.open(BARRIER, BUFFER)
        rows, position = batch(0, 3_000)
        sink.write(rows, position)
        sink.close()
        assert place.rows() == rows

    def test_slots_and_keys_of_any_kind_come_back(self, place: Place) -> None:
        sink = sink_at(place)
        sink.open(BARRIER, BUFFER)
        found = [(-(2**62), "", "{}"), (0, "\\N\t\n'\"", '{"at": 1, "text": "\\\\N\\t\\n"}'),
                 (2**62, "ключ–鍵", '{"at": null, "text": "\\u0301 %s"}')]  # fmt: skip
        rows = [
            Released(at, slot, key, payload.encode())
            for at, (slot, key, payload) in enumerate(found)
        ]
        position = Position(BUFFER, len(rows), rows[-1].slot, rows[-1].key)
        sink.write(rows, position)
        seen = place.rows()
        assert [(row.position, row.slot, row.key) for row in seen] == [
            (row.position, row.slot, row.key) for row in rows
        ]
        assert sink.open(BARRIER, BUFFER) == position
        sink.close()

    def test_whoever_opens_later_keeps_the_earlier_one_out(self, place: Place) -> None:
        first, second = sink_at(place), sink_at(place)
        first.open(BARRIER, BUFFER)
        first.write(*batch(0))
        assert second.open(BARRIER, BUFFER) == batch(0)[1]
        with pytest.raises(FencedError, match=BARRIER):
            first.write(*batch(ROWS_A_BATCH))
        assert place.rows() == rows_up_to(ROWS_A_BATCH), "nothing of it is in the sink"
        second.write(*batch(ROWS_A_BATCH))
        with pytest.raises(FencedError, match=BARRIER):
            first.open(BARRIER, BUFFER)
        second.write(*batch(2 * ROWS_A_BATCH))
        first.close()
        second.close()
        assert place.rows() == rows_up_to(3 * ROWS_A_BATCH)

    def test_a_writer_that_has_written_nothing_yet_is_kept_out_too(self, place: Place) -> None:
        first, second = sink_at(place), sink_at(place)
        assert first.open(BARRIER, BUFFER) is None
        assert second.open(BARRIER, BUFFER) is None
        with pytest.raises(FencedError, match=BARRIER):
            first.write(*batch(0))
        second.write(*batch(0))
        first.close()
        second.close()
        assert place.rows() == rows_up_to(ROWS_A_BATCH)

    def test_a_position_of_another_buffer_is_refused_and_keeps_nobody_out(
        self, place: Place
    ) -> None:
        first, other = sink_at(place), sink_at(place)
        first.open(BARRIER, BUFFER)
        first.write(*batch(0))
        with pytest.raises(StateError, match=f"7 rows of barrier 'orders' by the buffer {BUFFER}"):
            other.open(BARRIER, "c" * 32)  # fmt: skip
        first.write(*batch(ROWS_A_BATCH))
        first.close()
        other.close()
        assert place.rows() == rows_up_to(2 * ROWS_A_BATCH)

    def test_barriers_of_other_names_have_nothing_in_common(self, place: Place) -> None:
        one, two = sink_at(place), sink_at(place)
        assert one.open(BARRIER, BUFFER) is None
        one.write(*batch(0))
        assert two.open("refunds", "d" * 32) is None
        rows, position = batch(0, 2)
        two.write(rows, Position("d" * 32, position.next, position.slot, position.key))
        one.write(*batch(ROWS_A_BATCH))
        one.close()
        two.close()
        assert place.rows() == rows_up_to(2 * ROWS_A_BATCH)
        assert place.rows("refunds") == rows

    def test_rows_that_do_not_go_on_where_the_sink_is_are_a_mistake(self, place: Place) -> None:
        sink = sink_at(place)
        sink.open(BARRIER, BUFFER)
        sink.write(*batch(0))
        for wrong in (0, ROWS_A_BATCH - 1, ROWS_A_BATCH + 1):
            with pytest.raises(ValueError, match="do not go on"):
                sink.write(*batch(wrong))
        with pytest.raises(ValueError, match="do not go on"):
            sink.write([], batch(ROWS_A_BATCH)[1])
        with pytest.raises(ValueError, match="a name has"):
            sink.open("a name with spaces", BUFFER)
        sink.close()
        assert place.rows() == rows_up_to(ROWS_A_BATCH)

    def test_a_writer_killed_at_any_moment_has_written_what_its_position_says(
        self, place: Place
    ) -> None:
        kill_writers(place, "any", place.KILLS)


def kill_writers(place: Place, moment: str, kills: int) -> None:
    """Kills writers, as `killed` says; the rows of all of them are there once and in order, and no less than what each
    was told."""
    command = [sys.executable, "-m", "tests.consumers.barrier.killed", place.kind]
    ran = subprocess.run(
        [*command, json.dumps(dict(place.where)), moment, str(kills)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=PROGRAM_S,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = [int(line) for line in ran.stdout.splitlines()]
    assert len(told) == kills
    assert told == sorted(told), "each found what the one before was told"
    sink = sink_at(place)
    held = sink.open(BARRIER, BUFFER)
    assert held is not None and held.next >= told[-1] > 0
    assert place.rows() == rows_up_to(held.next)
    sink.write(*batch(held.next))
    sink.close()
    assert place.rows() == rows_up_to(held.next + ROWS_A_BATCH)
