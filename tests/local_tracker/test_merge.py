"""Merging against a plain dictionary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_tracker.core.merge import merge_acks, merge_cells
from tracker.core.model import Cells
from tracker.core.model.slots import HIGHEST_SLOT, LOWEST_SLOT

SLOTS = st.one_of(
    st.integers(-3, 3),
    st.integers(-1000, 1000),
    st.sampled_from([LOWEST_SLOT, LOWEST_SLOT + 1, -1, 0, HIGHEST_SLOT - 1, HIGHEST_SLOT]),
)
VALUES = st.integers(0, 2**64 - 1)
ACKS = st.lists(st.tuples(SLOTS, VALUES), max_size=60)


def summed(rows: list[tuple[int, int, int, int]]) -> dict[tuple[int, int], tuple[int, int]]:
    sums: dict[tuple[int, int], tuple[int, int]] = {}
    for segment, slot, checksum, count in rows:
        x, n = sums.get((segment, slot), (0, 0))
        sums[segment, slot] = (x ^ checksum, n + count)
    return sums


@given(ACKS, st.booleans())
def test_acks_are_xored_and_counted_by_slot(acks: list[tuple[int, int]], ordered: bool) -> None:
    if ordered:
        acks.sort()
    slots = np.array([slot for slot, _ in acks], np.int64)
    values = np.array([value for _, value in acks], np.uint64)
    merged = merge_acks(2, slots, values)
    assert summed(merged.rows()) == summed([(2, slot, value, 1) for slot, value in acks])
    assert merged.slots.tolist() == sorted({slot for slot, _ in acks}, reverse=True)


@given(st.lists(st.tuples(st.integers(0, 3), SLOTS, VALUES, st.integers(-5, 5)), max_size=60))
def test_cells_are_merged_by_decreasing_slot_and_segment(
    rows: list[tuple[int, int, int, int]],
) -> None:
    merged = merge_cells(Cells.of(rows))
    expected = {cell: sums for cell, sums in summed(rows).items() if sums != (0, 0)}
    assert summed(merged.rows()) == expected
    order = [(-slot, segment) for segment, slot, _, _ in merged.rows()]
    assert order == sorted(set(order))


@pytest.mark.parametrize("spread", [1, 50, 10**15])
def test_large_arrays_in_any_order_merge_as_sorted_ones_do(spread: int) -> None:
    generator = np.random.default_rng(7)
    slots = generator.integers(0, 1000, 100_000) * spread - 17
    values = generator.integers(1, 2**63, 100_000).astype(np.uint64)
    order = np.argsort(slots, kind="stable")
    assert merge_acks(0, slots, values).rows() == merge_acks(0, slots[order], values[order]).rows()


def test_items_that_cancel_are_still_counted() -> None:
    merged = merge_acks(0, np.array([5, 5], np.int64), np.array([9, 9], np.uint64))
    assert merged.rows() == [(0, 5, 0, 2)]


def test_nothing_merges_to_nothing() -> None:
    assert len(merge_acks(0, np.empty(0, np.int64), np.empty(0, np.uint64))) == 0
    assert len(merge_cells(Cells.empty())) == 0
