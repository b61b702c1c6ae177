"""Checksums tell an open slot from a finished one: the cell table against an oracle that counts."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracker.core.model import Cells
from tracker.core.model.ack_values import root_value
from tracker.core.model.slots import FOREVER, HIGHEST_SLOT, LOWEST_SLOT
from tracker.core.shard.cells import CellTable

SEGMENTS = 3
Item = tuple[int, int, int]  # segment, slot, ordinal: the ordinal tells items of one cell apart

near_limits = st.sampled_from([LOWEST_SLOT, LOWEST_SLOT + 1, -1, 0, HIGHEST_SLOT - 1, HIGHEST_SLOT])
slots = st.integers(min_value=-70, max_value=70) | near_limits
items = st.tuples(st.integers(0, SEGMENTS - 1), slots, st.integers(0, 3))
# A tick is a list of items, each of which is created if it is not in flight and else consumed.
# Long ones go through the array path of the table, short ones through the plain one.
ticks = st.lists(st.lists(items, max_size=20, unique=True), max_size=20)


def cell(item: Item) -> tuple[int, int, int, int]:
    segment, slot, ordinal = item
    return segment, slot, root_value(f"front-{segment}-{slot}", 0, ordinal), 1


class CountingOracle:
    """Keeps every item in flight."""

    def __init__(self) -> None:
        self.in_flight: set[Item] = set()

    def toggle(self, chosen: list[Item]) -> tuple[Cells, Cells]:
        """The created and the consumed cells of one tick that toggles the items in order."""
        created: list[tuple[int, int, int, int]] = []
        consumed: list[tuple[int, int, int, int]] = []
        for item in chosen:
            (consumed if item in self.in_flight else created).append(cell(item))
            self.in_flight ^= {item}
        return Cells.of(created), Cells.of(consumed)

    def lowest(self, segment: int) -> int:
        return min((slot for s, slot, _ in self.in_flight if s == segment), default=FOREVER)

    def open_slots(self, segment: int) -> int:
        return len({slot for s, slot, _ in self.in_flight if s == segment})

    def open_items(self, segment: int) -> int:
        return sum(s == segment for s, _, _ in self.in_flight)

    def checksums(self) -> dict[tuple[int, int], int]:
        sums: Counter[tuple[int, int]] = Counter()
        for item in self.in_flight:
            segment, slot, checksum, _ = cell(item)
            sums[segment, slot] ^= checksum
        return dict(sums)


@settings(max_examples=300, deadline=None)
@given(ticks)
def test_the_table_knows_what_the_oracle_counts(schedule: list[list[Item]]) -> None:
    table, oracle = CellTable(SEGMENTS), CountingOracle()
    for chosen in schedule:
        created, consumed = oracle.toggle(chosen)
        table.apply(created, 1)
        table.apply(consumed, -1)
        table.validate()
        for segment in range(SEGMENTS):
            assert table.lowest(segment) == oracle.lowest(segment)
            assert table.open_slots[segment] == oracle.open_slots(segment)
            assert table.open_items[segment] == oracle.open_items(segment)
    rows = table.open_cells().rows()
    assert {(segment, slot): checksum for segment, slot, checksum, _ in rows} == oracle.checksums()


@settings(max_examples=100, deadline=None)
@given(st.lists(items, max_size=40), st.randoms(use_true_random=False))
def test_the_order_of_creation_and_consumption_does_not_matter(
    chosen: list[Item], rng: random.Random
) -> None:
    """A consumption may arrive before its creation: after both, nothing is left."""
    halves = [(cell(item), sign) for item in set(chosen) for sign in (1, -1)]
    rng.shuffle(halves)
    table = CellTable(SEGMENTS)
    for row, sign in halves:
        table.apply(Cells.of([row]), sign)
    table.validate()
    assert len(table.open_cells()) == 0
    assert table.open_items == [0] * SEGMENTS


def test_a_pair_may_occur_repeatedly_in_one_tick() -> None:
    for repeats in (2, 5, 9):
        table = CellTable(1)
        rows = [(0, 7, 1 << n, 1) for n in range(repeats)]
        table.apply(Cells.of(rows), 1)
        assert table.open_cells().rows() == [(0, 7, 2**repeats - 1, repeats)]
        table.apply(Cells.of(rows), -1)
        assert len(table.open_cells()) == 0
        table.validate()


def test_the_cells_of_a_segment_below_a_slot() -> None:
    table = CellTable(2)
    table.apply(Cells.of([(0, slot, 5, 1) for slot in (-200, -1, 0, 63, 64, 200)]), 1)
    table.apply(Cells.of([(1, 3, 5, 1)]), 1)
    assert table.segment_cells(0, 64).slots.tolist() == [-200, -1, 0, 63]
    assert table.segment_cells(0).slots.tolist() == [-200, -1, 0, 63, 64, 200]
    assert table.segment_cells(0, -200).slots.tolist() == []


def test_the_table_gives_room_back() -> None:
    """A front that runs on for ever needs no more room than what is open at once."""
    table = CellTable(1)
    for slot in range(0, 200_000, 50):
        table.apply(Cells.of([(0, slot, 9, 1)]), 1)
        if slot >= 500:
            table.apply(Cells.of([(0, slot - 500, 9, 1)]), -1)
    table.validate()
    assert table.open_slots == [10]
    assert table._checksums.nbytes + table._counts.nbytes < 64 * 1024


@pytest.mark.parametrize("count", [1_000, 100_000])
def test_a_million_open_cells_would_fit_in_64_mb(count: int) -> None:
    table = CellTable(1)
    slots = np.arange(count, dtype=np.int64)
    ones = np.ones(count, np.int64)
    table.apply(Cells(np.zeros(count, np.int32), slots, slots.astype(np.uint64) + 1, ones), 1)
    assert table.open_slots == [count]
    room = table._checksums.nbytes + table._counts.nbytes
    assert room <= 64 * count + 64 * 1024


@given(st.lists(items, min_size=1, max_size=20))
def test_cells_know_how_far_they_reach(chosen: list[Item]) -> None:
    cells = Cells.of(cell(item) for item in chosen)
    slots_of: dict[int, list[int]] = {}
    for segment, slot, _ in chosen:
        slots_of.setdefault(segment, []).append(slot)

    assert cells.segment_span() == (min(slots_of), max(slots_of))
    assert cells.lowest_slots() == {segment: min(slots) for segment, slots in slots_of.items()}
    assert cells.highest_slot() == max(slot for _, slot, _ in chosen)


@given(
    st.lists(items, min_size=1, max_size=20),
    st.lists(slots, min_size=SEGMENTS, max_size=SEGMENTS),
)
def test_cells_below_the_bound_of_their_segment(chosen: list[Item], bounds: list[int]) -> None:
    below = Cells.of(cell(item) for item in chosen).below(bounds)

    expected = [slot < bounds[segment] for segment, slot, _ in chosen]
    assert (below is not None) == any(expected)
    assert below is None or below.tolist() == expected


@given(
    st.lists(
        st.tuples(st.integers(0, 9), slots, st.integers(0, 2**64 - 1), st.integers(-5, 5)),
        min_size=1,
        max_size=20,
    )
)
def test_cells_that_came_packed_are_those_that_were_made_of_arrays(
    rows: list[tuple[int, int, int, int]],
) -> None:
    made = Cells.of(rows)
    packed = Cells.unpacked(
        *(column.tobytes() for column in (made.segments, made.slots, made.checksums, made.counts))
    )
    assert len(packed) == len(made) == len(rows)
    assert packed.rows() == made.rows() == rows
    segments = [row[0] for row in rows]
    assert packed.segment_span() == made.segment_span() == (min(segments), max(segments))
    assert packed.highest_slot() == made.highest_slot() == max(row[1] for row in rows)
    counts = [row[3] for row in rows]
    assert packed.count_span() == made.count_span() == (min(counts), max(counts))
    assert packed.items() == made.items() == sum(counts)
    lowest = {s: min(row[1] for row in rows if row[0] == s) for s in segments}
    assert packed.lowest_slots() == made.lowest_slots() == lowest
    bounds = [0] * 10
    below = [row[1] < 0 for row in rows]
    found = packed.below(bounds)
    assert (found.tolist() if found is not None else [False] * len(rows)) == below
    mask = np.array(below)
    assert packed.select(mask).rows() == [
        row for row, is_below in zip(rows, below, strict=True) if is_below
    ]


@given(st.lists(st.tuples(slots, st.integers(1, 200), st.integers(0, 3)), min_size=1, max_size=12))
def test_runs_of_neighbouring_slots_come_to_the_same_as_their_cells_mixed(
    runs: list[tuple[int, int, int]],
) -> None:
    """A run is applied by slices of pages, and anything else slot by slot."""
    at_once, mixed = CellTable(1), CellTable(1)
    for sign in (1, -1):
        for first, count, seed in runs:
            count = min(count, HIGHEST_SLOT - first + 1)
            rows = [(0, first + n, root_value(f"{seed}", 0, n), n % 3) for n in range(count)]
            assert Cells.of(rows).run() == (first if abs(first) < 2**62 else None)
            at_once.apply(Cells.of(rows), sign)
            shuffled = [*reversed(rows)]
            assert count == 1 or Cells.of(shuffled).run() is None
            mixed.apply(Cells.of(shuffled), sign)
            for table in (at_once, mixed):
                table.validate()
            assert at_once.open_cells().rows() == mixed.open_cells().rows()
            assert (at_once.open_slots, at_once.open_items) == (mixed.open_slots, mixed.open_items)
    assert at_once.open_slots == [0]
