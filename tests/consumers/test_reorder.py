"""The reorder buffer: any order in, the order of slots out, the same again after a crash."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracker.client import LowmarkError
from tracker.consumers import reorder
from tracker.consumers.durable import StateError
from tracker.consumers.reorder import BufferFullError, LateItemError, Released, ReorderBuffer
from tracker.core.model.slots import FOREVER


def items(*slots: int) -> list[tuple[int, str, bytes]]:
    return [(slot, f"k{slot}", b"x") for slot in slots]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3)), unique=True, max_size=30),
    st.lists(st.integers(0, 22), max_size=6),
)
def test_what_comes_out_is_ordered_and_whole(
    tmp_path_factory: pytest.TempPathFactory, arriving: list[tuple[int, int]], stops: list[int]
) -> None:
    """Items arrive in any order that min time allows: none below what was said."""
    path = tmp_path_factory.mktemp("buffer") / "b.db"
    out: list[Released] = []
    left = list(arriving)
    for min_time in [*sorted(stops), FOREVER]:
        with ReorderBuffer(path) as buffer:
            now = [item for item in left if item[0] < min_time]
            buffer.add([(slot, f"{key}", b"%d" % key) for slot, key in reversed(now)])
            buffer.add([(slot, f"{key}", b"%d" % key) for slot, key in now])
            left = [item for item in left if item not in now]
            buffer.release(min_time, out.extend)
            assert len(buffer) == 0 and buffer.released_below == min_time
    assert [(each.slot, int(each.key)) for each in out] == sorted(arriving)
    assert [each.position for each in out] == list(range(len(arriving)))


def test_a_sink_that_dies_gets_the_same_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reorder, "RELEASE_ITEMS", 2)
    given_out: list[Sequence[Released]] = []

    def dies(released: Sequence[Released]) -> None:
        given_out.append(released)
        if len(given_out) == 2:
            raise OSError("killed")

    with ReorderBuffer(tmp_path / "b.db") as buffer:
        buffer.add(items(3, 1, 2, 5, 4, 9))
        with pytest.raises(OSError, match="killed"):
            buffer.release(6, dies)
        with pytest.raises(LateItemError, match="everything below 6 has been released"):
            buffer.add(items(7, 4))
    with ReorderBuffer(tmp_path / "b.db") as buffer:
        assert buffer.release(6, given_out.append) == 3
        assert buffer.release(5, given_out.append) == 0 and len(buffer) == 1
    assert [[each.position for each in some] for some in given_out] == [[0, 1], [2, 3], [2, 3], [4]]
    assert given_out[1] == given_out[2], "the same items, in the same places"


def test_it_is_bounded_and_belongs_to_one_process(tmp_path: Path) -> None:
    path = tmp_path / "b.db"
    with ReorderBuffer(path, max_items=2) as buffer:
        buffer.add(items(1, 2))
        with pytest.raises(BufferFullError, match="max_items is 2"):
            buffer.add(items(3))
        assert len(buffer) == 2, "nothing of it is in the buffer"
        with pytest.raises(StateError, match="another process"):
            ReorderBuffer(path).__enter__()
        with pytest.raises(ValueError, match="the largest is"):
            buffer.add(items(FOREVER))
    with pytest.raises(LowmarkError, match="not open"):
        len(buffer)
