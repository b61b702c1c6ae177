"""Noted ranges of offsets: a line says what was noted, and nothing else is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.core.model.ranges import HIGHEST_OFFSET, NotedRanges, note, parse_note
from tracker.core.model.slots import HIGHEST_SLOT, LOWEST_SLOT

numbers = st.integers(min_value=0, max_value=2**40)
slots = st.integers(min_value=LOWEST_SLOT, max_value=HIGHEST_SLOT)
offsets = st.integers(min_value=-5, max_value=HIGHEST_OFFSET)
ranges = st.lists(
    st.tuples(st.text(max_size=8), offsets, offsets).filter(lambda r: r[1] < r[2]),
    min_size=1, max_size=4, unique_by=lambda r: r[0],
)  # fmt: skip


@given(numbers, slots, ranges)
def test_a_line_says_what_was_noted(
    number: int, slot: int, of_batch: list[tuple[str, int, int]]
) -> None:
    batch = NotedRanges(number, slot, tuple(of_batch))
    line = note(batch)
    assert "\n" not in line and line.isascii()
    assert parse_note(line) == batch


@pytest.mark.parametrize(
    "line",
    ["", "7", "7 5", "7 5 ", "x 5 p:0:1", "7 5 p:0", "7 5 p:1:1", "7 5 p:2:1", "-1 5 p:0:1",
     "7 5 p:0:1 ", "7  5 p:0:1", "07 5 p:0:1", f"7 {2**63} p:0:1", f"7 5 p:0:{2**63}",
     "7 5 a b:0:1", "7 5 p:0:1\r"],
)  # fmt: skip
def test_other_lines_are_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"notes no ranges|out of range|without offsets"):
        parse_note(line)
