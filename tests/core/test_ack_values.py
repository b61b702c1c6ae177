"""Ack values are keyed hashes: the same for the same origin, apart for any other, never zero."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.core.model import ack_values

words = st.integers(min_value=0, max_value=2**64 - 1)
ordinals = st.integers(min_value=-(2**63), max_value=2**63 - 1)
LOWEST, HIGHEST = -(2**63), 2**63 - 1


@given(st.lists(st.tuples(words, ordinals), min_size=1, max_size=20), st.text(max_size=8))
def test_arrays_give_what_single_values_give(rows: list[tuple[int, int]], operator: str) -> None:
    parents, places = zip(*rows, strict=True)
    array = ack_values.child_values(np.array(parents, np.uint64), operator, np.array(places))
    assert array.dtype == np.uint64
    assert array.tolist() == [ack_values.child_value(p, operator, o) for p, o in rows]


@given(st.lists(ordinals, max_size=20), st.integers(min_value=0, max_value=2**40))
def test_a_front_labels_arrays_as_it_labels_items(places: list[int], batch: int) -> None:
    array = ack_values.root_values("front", batch, np.array(places, np.int64))
    assert array.tolist() == [ack_values.root_value("front", batch, o) for o in places]


@pytest.mark.parametrize("ordinal", [LOWEST, -1, 0, 1, HIGHEST])
def test_ordinals_may_be_negative_and_near_the_limits(ordinal: int) -> None:
    single = ack_values.child_value(7, "parse", ordinal)
    assert 0 < single < 2**64
    assert ack_values.child_values([7], "parse", [ordinal]).tolist() == [single]


def test_values_of_other_origins_differ() -> None:
    values = {
        ack_values.child_value(parent, operator, ordinal)
        for parent in range(1, 21)
        for operator in ("parse", "enrich")
        for ordinal in range(-10, 10)
    }
    values |= {ack_values.root_value(f, b, o) for f in "ab" for b in range(10) for o in range(10)}
    values |= {ack_values.unit_value(f"file:///data/{n}") for n in range(100)}
    values |= {ack_values.offset_value(p, o) for p in ("t-0", "t-1") for o in range(100)}
    assert len(values) == 800 + 200 + 100 + 200
    assert 0 not in values


def test_the_bits_of_neighbours_differ_by_about_half() -> None:
    children = ack_values.child_values(np.full(4000, 5, np.uint64), "op", np.arange(4000))
    flipped = np.bitwise_xor(children[1:], children[:-1])
    bits = np.unpackbits(flipped.view(np.uint8).reshape(-1, 8), axis=1).sum(axis=1)
    assert 31 < bits.mean() < 33


@given(st.lists(st.integers(min_value=0, max_value=10**9), min_size=2, max_size=8, unique=True))
def test_ranges_of_offsets_telescope(cuts: list[int]) -> None:
    """However readers cut the same offsets, their ranges cancel against the producer's."""
    cuts.sort()
    whole = ack_values.range_value("t-0", cuts[0], cuts[-1])
    for begin, end in itertools.pairwise(cuts):
        whole ^= ack_values.range_value("t-0", begin, end)
    assert whole == 0


def test_an_empty_range_leaves_no_trace_and_a_filled_one_does() -> None:
    assert ack_values.range_value("t-0", 5, 5) == 0
    assert ack_values.range_value("t-0", 5, 6) != 0
    assert ack_values.range_value("t-0", 5, 6) != ack_values.range_value("t-1", 5, 6)


def test_another_process_computes_the_same_values() -> None:
    """A retried task runs elsewhere, under another seed of Python's own string hashes."""
    code = (
        "from tracker.core.model import ack_values as a;"
        "print(a.root_value('EWR', 3, 14), a.child_value(9, 'parse', 2), a.unit_value('file:///x'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={"PYTHONHASHSEED": "17"},
    )  # fmt: skip
    here = (
        ack_values.root_value("EWR", 3, 14),
        ack_values.child_value(9, "parse", 2),
        ack_values.unit_value("file:///x"),
    )
    assert tuple(map(int, done.stdout.split())) == here
