"""The reorder buffer: any order in, the order of slots out, the same again after a crash."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracker.client import LowmarkError
from tracker.consumers import reorder
from tracker.consumers.reorder import Released, ReorderBuffer
from tracker.core.model.slots import FOREVER
from tracker.errors import LateError, StateError, UnavailableError


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
        with pytest.raises(LateError, match="everything below 6 has been released"):
            buffer.add(items(7, 4))
    with ReorderBuffer(tmp_path / "b.db") as buffer:
        assert buffer.release(6, given_out.append) == 3
        assert buffer.release(5, given_out.append) == 0 and len(buffer) == 1
    assert [[each.position for each in some] for some in given_out] == [[0, 1], [2, 3], [2, 3], [4]]
    assert given_out[1] == given_out[2], "the same items, in the same places"


def test_items_of_one_slot_and_key_are_told_apart_by_what_they_come_from(tmp_path: Path) -> None:
    out: list[Released] = []
    with ReorderBuffer(tmp_path / "b.db") as buffer:
        for again in range(2):  # whoever is killed behind the first says it again
            buffer.add([(5, "k", b"2,0"), (5, "k", b"2,1")], origin=2)
            buffer.add([(5, "k", b"1,7"), (4, "z", b"1,8")], origin=1, first=7)
            assert len(buffer) == 4 and buffer.held_bytes == 4 * 4, again
        buffer.release(6, out.extend)
        assert len(buffer) == buffer.held_bytes == 0
    assert [each.payload for each in out] == [b"1,8", b"1,7", b"2,0", b"2,1"]


def test_what_a_sink_has_already_is_let_go_of_and_what_it_cannot_have_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reorder, "RELEASE_ITEMS", 2)
    has: list[Released] = []

    def written_and_dies(released: Sequence[Released]) -> None:
        has.extend(released)
        raise OSError("killed")

    with ReorderBuffer(tmp_path / "b.db") as buffer:
        identity = buffer.id
        buffer.add(items(1, 2, 3, 4, 9))
        with pytest.raises(OSError, match="killed"):
            buffer.release(5, written_and_dies)
        with pytest.raises(StateError, match="has not given those out"):
            buffer.written(2, 7, "k7")
        with pytest.raises(StateError, match="has not given those out"):
            buffer.written(5, 9, "k9")  # min time has not passed it
    with ReorderBuffer(tmp_path / "b.db") as buffer:
        assert buffer.id == identity
        for count in (2, 0):
            assert buffer.written(2, 2, "k2") == count
        with pytest.raises(StateError, match="the sink was set back"):
            buffer.written(1, 1, "k1")
        buffer.release(5, has.extend)
        assert len(buffer) == 1
    assert [(each.position, each.slot) for each in has] == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_a_piece_has_no_more_bytes_than_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reorder, "RELEASE_BYTES", 10)
    pieces: list[int] = []
    with ReorderBuffer(tmp_path / "b.db") as buffer:
        buffer.add([(slot, "", b"x" * size) for slot, size in enumerate((4, 4, 4, 30, 10))])
        buffer.release(FOREVER, lambda released: pieces.append(len(released)))
    assert pieces == [2, 1, 1, 1], "one that is larger than that goes alone"


def test_it_is_bounded_and_belongs_to_one_process(tmp_path: Path) -> None:
    path = tmp_path / "b.db"
    with ReorderBuffer(path, max_items=2) as buffer:
        buffer.add(items(1, 2))
        with pytest.raises(UnavailableError, match="max_items is 2"):
            buffer.add(items(3))
        assert len(buffer) == 2, "nothing of it is in the buffer"
        with pytest.raises(StateError, match="another process"):
            ReorderBuffer(path).__enter__()
        with pytest.raises(ValueError, match="the largest is"):
            buffer.add(items(FOREVER))
    with pytest.raises(LowmarkError, match="not open"):
        len(buffer)
