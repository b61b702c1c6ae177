"""Packed arrays: four of one length, as they were packed, or refused; never a part of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

from acker.v1 import types_pb2 as pb
from local_tracker.worker.protocol import MAX_CELLS, CellReader, pack_cells
from tests.core.driver import plain
from tests.fuzz.examples import fuzz
from tests.fuzz.mangling import int64s, sent, uint64s
from tracker.core.home.home import MAX_ITEMS_PER_CELL
from tracker.core.model import Cells, RefusalCode, Refused
from tracker.core.shard.cells import CellTable
from tracker.errors import HandOverError
from tracker.wire.cells import cells_from_pb, cells_to_pb

int32s = st.integers(-(2**31), 2**31 - 1)
rows = st.lists(st.tuples(int32s, int64s, uint64s, int64s), max_size=6)
VALID = cells_to_pb(Cells.of([(0, 5, 1, 1), (1, -(2**63), 2**64 - 1, 2**63 - 1)]))
WIDTHS = {"segments": 4, "slots": 8, "checksums": 8, "counts": 8}


@fuzz(
    sent(VALID) | st.builds(pb.Cells, **{name: st.binary(max_size=33) for name in WIDTHS}), share=5
)
def test_packed_cells_are_read_whole_or_refused(packed: pb.Cells) -> None:
    counts = {len(getattr(packed, name)) / width for name, width in WIDTHS.items()}
    if len(counts) > 1 or not counts.pop().is_integer():
        with pytest.raises(Refused, match="are not four arrays of one length") as refused:
            cells_from_pb(packed)
        assert refused.value.refusal.code is RefusalCode.INVALID
        return
    assert cells_to_pb(cells_from_pb(packed)) == packed


@fuzz(rows, share=3)
def test_cells_survive_being_packed(table: list[tuple[int, int, int, int]]) -> None:
    cells = Cells.of(table)
    assert plain(cells_from_pb(cells_to_pb(cells))) == plain(cells)
    reader = CellReader(pack_cells((cells, Cells.empty(), cells)))
    assert [plain(reader.read(n)) for n in (len(table), 0, len(table))] == [
        plain(cells), plain(Cells.empty()), plain(cells)
    ]  # fmt: skip
    reader.end()


@fuzz(
    st.binary(max_size=120), st.lists(int64s | st.sampled_from([1, 2, 1.5, "1", True]), max_size=4),
    share=3,
)  # fmt: skip
def test_a_body_is_read_as_far_as_it_goes_or_refused(body: bytes, counts: list[object]) -> None:
    reader = CellReader(body)
    read = 0
    for count in counts:
        try:
            cells = reader.read(count)
        except HandOverError as error:
            assert error.code == "hand_over.protocol"
            return
        assert isinstance(count, int) and 0 <= count <= MAX_CELLS
        read += len(cells) * 28
    try:
        reader.end()
    except HandOverError as error:
        assert error.code == "hand_over.protocol"
        assert read < len(body)
    else:
        assert read == len(body)


@fuzz(
    st.lists(
        st.tuples(
            st.integers(0, 1), int64s, uint64s, st.integers(0, 3) | st.just(MAX_ITEMS_PER_CELL)
        ),
        max_size=20,
    ),
    st.lists(st.integers(1, 9), max_size=6),
    share=3,
)
def test_a_table_is_the_xor_of_all_that_was_read_however_it_was_cut(
    table: list[tuple[int, int, int, int]], cuts: list[int]
) -> None:
    cells = CellTable(2)
    rest = table
    for cut in [*cuts, len(table)]:
        part, rest = rest[:cut], rest[cut:]
        cells.apply(cells_from_pb(cells_to_pb(Cells.of(part))), 1)
        cells.validate()
    expected: dict[tuple[int, int], int] = {}
    for segment, slot, checksum, _ in table:
        expected[segment, slot] = expected.get((segment, slot), 0) ^ checksum
    found = {(row[0], row[1]): row[2] for row in cells.open_cells().rows()}
    assert found == {place: checksum for place, checksum in expected.items() if checksum}
    assert all(np.iinfo(np.int64).min <= n for n in cells.open_items)
