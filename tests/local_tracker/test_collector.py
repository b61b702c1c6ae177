"""What ack calls take, and how they refuse what they don't."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from local_tracker.worker import collector as collector_module
from local_tracker.worker.collector import Collector
from local_tracker.worker.protocol import MAX_CELLS
from tracker.core.model.slots import HIGHEST_SLOT, LOWEST_SLOT
from tracker.errors import Code, HandOverError, InvalidError


def number(segment: str) -> int:
    if segment not in ("a", "b"):
        raise HandOverError(f"no segment {segment!r}", Code.REFUSED_UNKNOWN_SEGMENT)
    return "ab".index(segment)


@pytest.fixture
def acks() -> Collector:
    return Collector("op", number)


def test_single_acks_and_arrays_add_up(acks: Collector) -> None:
    acks.consume("b", 5, 3)
    acks.consume("b", np.array([5, 6]), np.array([4, 8], np.uint64))
    acks.create("a", 7, [1, 2])
    created, consumed = acks.take()
    assert consumed.rows() == [(1, 6, 8, 1), (1, 5, 7, 2)]
    assert created.rows() == [(0, 7, 3, 2)]


def test_taking_starts_anew(acks: Collector) -> None:
    acks.create("a", 1, 1)
    acks.take()
    assert [len(cells) for cells in acks.take()] == [0, 0]


def test_signed_values_keep_their_bits(acks: Collector) -> None:
    acks.create("a", 1, np.array([-1], np.int64))
    acks.create("a", 2, -(2**63))
    acks.create("a", 3, [2**63, -1])
    created, _ = acks.take()
    assert [row[2] for row in created.rows()] == [2**63 ^ (2**64 - 1), 2**63, 2**64 - 1]


def test_the_ends_of_time_are_slots(acks: Collector) -> None:
    acks.create("a", np.array([LOWEST_SLOT, HIGHEST_SLOT]), np.array([1, 2]))
    acks.create("a", LOWEST_SLOT, 4)
    created, _ = acks.take()
    assert created.rows() == [(0, HIGHEST_SLOT, 2, 1), (0, LOWEST_SLOT, 5, 2)]


def test_no_acks_are_no_acks(acks: Collector) -> None:
    acks.create("a", [], [])
    acks.create("a", 5, np.empty(0, np.uint64))
    assert [len(cells) for cells in acks.take()] == [0, 0]


def test_whoever_calls_may_use_its_arrays_again(acks: Collector) -> None:
    slots, values = np.array([1, 2]), np.array([3, 4], np.uint64)
    acks.create("a", slots, values)
    slots[:], values[:] = 9, 9
    assert acks.take()[0].rows() == [(0, 2, 4, 1), (0, 1, 3, 1)]


@pytest.mark.parametrize(
    ("slots", "values", "message"),
    [
        ([1, 2], [1, 2, 3], "2 slots do not go with 3 ack values"),
        ([1, 2], 3, "one ack value does not go with 2 slots"),
        (1, 0, "ack value is 0"),
        (1, [1, 0], "ack value is 0"),
        (1, 2**64, "does not fit 64 bits"),
        (1, [2**64], "not all integers of 64 bits"),
        (1, [1.5], "not all integers"),
        (1, [True], "not all integers"),
        (1, np.array([1.0]), "float64 are not integers"),
        (np.array([1.0, np.nan]), [1, 2], "leave such rows out"),
        (True, 1, "slots of type bool"),
        ("5", 1, "not integers"),
        (None, 1, "not all integers"),
        (HIGHEST_SLOT + 1, 1, "is not within"),
        ([HIGHEST_SLOT + 1], [1], "is not within"),
        (np.array([2**63], np.uint64), [1], "above"),
        (LOWEST_SLOT - 1, 1, "is not within"),
        (np.array([[1]]), np.array([[1]]), "2 dimensions"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(
    acks: Collector, slots: Any, values: Any, message: str
) -> None:
    with pytest.raises(InvalidError, match=message) as refused:
        acks.create("a", slots, values)
    assert "'op'" in str(refused.value)
    assert [len(cells) for cells in acks.take()] == [0, 0]


def test_an_unknown_segment_is_refused_at_once(acks: Collector) -> None:
    with pytest.raises(HandOverError, match="no segment 'c'"):
        acks.create("c", 1, 1)


def test_too_many_cells_are_refused_by_name_and_limit(acks: Collector) -> None:
    acks.create("a", np.arange(MAX_CELLS + 1), np.arange(1, MAX_CELLS + 2))
    with pytest.raises(
        HandOverError, match=f"'op' created .* {MAX_CELLS + 1} .*limit is {MAX_CELLS}"
    ):
        acks.take()


def test_many_acks_are_merged_as_they_come(
    acks: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector_module, "_MERGE_AT_ACKS", 10)
    for value in range(1, 38):
        acks.create("a", value % 3, value)
    expected = [0, 0, 0]
    for value in range(1, 38):
        expected[value % 3] ^= value
    rows = acks.take()[0].rows()
    assert [(slot, checksum) for _, slot, checksum, _ in rows] == [
        (2, expected[2]), (1, expected[1]), (0, expected[0]),
    ]  # fmt: skip
    assert sum(count for _, _, _, count in rows) == 37
