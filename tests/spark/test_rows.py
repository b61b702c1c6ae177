"""Rows read back from what was committed, and ranges of offsets."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from local_tracker.spark.formats.ranges import OffsetRanges, Range, RangesError, range_cells, ranges
from local_tracker.spark.query import rows
from local_tracker.spark.query.logs import CheckpointLog
from local_tracker.spark.query.rows import RowsError, row_cells
from tracker.core.model.ack_values import range_value
from tracker.core.model.units import unit_name


def parquet(path: Path, **columns: Sequence[int | None]) -> str:
    pq.write_table(pa.table({k: pa.array(v, pa.int64()) for k, v in columns.items()}), path)
    return unit_name(str(path))


def test_each_row_is_an_item_of_its_own(tmp_path: Path) -> None:
    name = parquet(tmp_path / "a.parquet", at=[5, 6, 5, 5], row=[1, 1, 1, 1])
    cells = row_cells(2, [name], "at").rows()
    assert sorted((segment, slot, count) for segment, slot, _, count in cells) == [
        (2, 5, 3),
        (2, 6, 1),
    ]
    assert all(checksum for _, _, checksum, _ in cells), "equal rows do not cancel each other"


def test_a_file_read_in_parts_gives_the_same_items(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = parquet(tmp_path / "a.parquet", at=list(range(10)) * 3)
    whole = row_cells(0, [name], "at").rows()
    monkeypatch.setattr(rows, "BATCH_ROWS", 4)
    assert row_cells(0, [name], "at").rows() == whole


class Counting(io.FileIO):
    """A file that counts what is read of it."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.read_bytes = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(-1 if size is None else size) or b""
        self.read_bytes += len(data)
        return data


def in_groups(path: Path, group: int, **columns: Sequence[int | None]) -> str:
    table = pa.table({k: pa.array(v, pa.int64()) for k, v in columns.items()})
    pq.write_table(table, path, row_group_size=group, use_dictionary=False, compression="none")
    return unit_name(str(path))


GROUPS = {
    "one slot": [7] * 40,
    "one slot a row group": [n // 10 for n in range(40)],
    "one slot in some row groups": [n // 10 if n < 20 else n for n in range(40)],
    "below zero": [-3] * 40,
}


@pytest.mark.parametrize("name", ["part-0.parquet", "s7-shop-00000000.parquet"])
@pytest.mark.parametrize("slots", GROUPS.values(), ids=[*GROUPS])
def test_row_groups_of_one_slot_give_what_reading_them_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slots: list[int], name: str
) -> None:
    values = [(n * 0x9E3779B97F4A7C15 + 1) % 2**63 for n in range(40)]
    unit = in_groups(tmp_path / name, 10, text=[1] * 40, at=slots, ack_value=values)
    by_statistics = row_cells(0, [unit], "at").rows()
    monkeypatch.setattr(rows, "BATCH_ROWS", 4)
    assert row_cells(0, [unit], "at").rows() == by_statistics
    monkeypatch.setattr(rows, "_only_slot", lambda *_: None)
    assert row_cells(0, [unit], "at").rows() == by_statistics


def test_the_pages_of_a_row_group_of_one_slot_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow reads the last 64 KB for the footer; the columns lie before them."""
    many = 200_000
    same = in_groups(tmp_path / "part-0.parquet", many, at=[7] * many, text=range(many))
    other = in_groups(tmp_path / "part-1.parquet", many, at=range(many), text=range(many))
    opened: list[Counting] = []

    def open_counting(_: object, name: str) -> Counting:
        opened.append(Counting(name.removeprefix("file://")))
        return opened[-1]

    monkeypatch.setattr(rows, "_opened", open_counting)
    for unit in (same, other):
        assert sum(count for *_, count in row_cells(0, [unit], "at").rows()) == many
    assert opened[0].read_bytes < 2**16 + 1024
    assert 8 * many < opened[1].read_bytes < 8 * many + 2**17, "the one column, and not the other"


@pytest.mark.parametrize(
    "written",
    [
        pa.table({"at": pa.array([7, 7, None], pa.int64())}),
        pa.table({"at": pa.array([7.0, 7.0])}),
        pa.table({"at": pa.array([True, True])}),
        pa.table({"at": pa.array([7, 7], pa.timestamp("us"))}),
        pa.table({"at": pa.array(["7", "7"])}),
    ],
    ids=["a null", "fractions", "truths", "moments", "texts"],
)
def test_statistics_excuse_no_column_that_could_not_be_read(
    tmp_path: Path, written: pa.Table
) -> None:
    pq.write_table(written, tmp_path / "part-0.parquet")
    with pytest.raises(RowsError, match="'at'"):
        row_cells(0, [unit_name(str(tmp_path / "part-0.parquet"))], "at")


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.uint16(), pa.uint64()])
def test_whole_numbers_of_any_width_are_slots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: pa.DataType
) -> None:
    pq.write_table(pa.table({"at": pa.array([7] * 5, kind)}), tmp_path / "part-0.parquet")
    unit = unit_name(str(tmp_path / "part-0.parquet"))
    by_statistics = row_cells(0, [unit], "at").rows()
    monkeypatch.setattr(rows, "_only_slot", lambda *_: None)
    assert row_cells(0, [unit], "at").rows() == by_statistics


def test_rows_of_different_files_are_different_items(tmp_path: Path) -> None:
    one, other = (parquet(tmp_path / f"{n}.parquet", at=[5]) for n in "ab")
    assert row_cells(0, [one], "at").rows() != row_cells(0, [other], "at").rows()


def test_json_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("".join(json.dumps({"at": slot, "text": "x"}) + "\n" for slot in (5, 6, 6)))
    (tmp_path / "empty.json").touch()
    names = [unit_name(str(path)), unit_name(str(tmp_path / "empty.json"))]
    assert sorted((s, n) for _, s, _, n in row_cells(0, names, "at").rows()) == [(5, 1), (6, 2)]


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        (['{"text": 5}'], "no column 'at'"),
        (['{"at": 5}', '{"text": "x"}'], "1 rows have no value in column 'at'"),
        (['{"at": 5}', '{"at": "six"}'], "cannot be read back, with its slots in column 'at'"),
        (['{"at": 5'], "cannot be read back"),
    ],
)
def test_lines_without_a_slot_are_refused(tmp_path: Path, lines: list[str], named: str) -> None:
    path = tmp_path / "a.json"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(RowsError, match=named):
        row_cells(0, [unit_name(str(path))], "at")


def test_what_else_is_in_a_line_may_be_anything(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"at": 5, "what": 1}\n{"what": {"is": "it"}, "at": 5}\n')
    assert [(s, n) for _, s, _, n in row_cells(0, [unit_name(str(path))], "at").rows()] == [(5, 2)]


def test_a_fronts_own_ack_values_count_in_json_too(tmp_path: Path) -> None:
    labelled = tmp_path / "s5-shop-00000000.json"
    labelled.write_text('{"at": 5, "ack_value": 3}\n{"at": 5, "ack_value": -1}\n')
    plain = tmp_path / "s5-shop-00000001.json"
    plain.write_text('{"at": 6}\n')
    names = [unit_name(str(path)) for path in (labelled, plain)]
    first, second = sorted(row_cells(0, names, "at").rows(), key=lambda cell: cell[1])
    assert first == (0, 5, 3 ^ (2**64 - 1), 2)
    assert (second[1], second[3]) == (6, 1)


def test_a_fronts_own_ack_values_count(tmp_path: Path) -> None:
    name = parquet(tmp_path / "s5-shop-00000000.parquet", at=[5, 5], ack_value=[3, -1])
    assert row_cells(0, [name], "at").rows() == [(0, 5, 3 ^ (2**64 - 1), 2)]


def test_an_ack_value_that_a_query_passed_on_does_not(tmp_path: Path) -> None:
    """Two rows from one would cancel each other."""
    name = parquet(tmp_path / "part-0.parquet", at=[5, 5], ack_value=[3, 3])
    ((_, _, checksum, count),) = row_cells(0, [name], "at").rows()
    assert checksum != 0 and count == 2


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"row": [1]}, "no column 'at'"),
        ({"at": [1, None]}, "1 rows have no value in column 'at'"),
    ],
)
def test_rows_without_a_slot_are_refused(
    tmp_path: Path, columns: dict[str, Sequence[int | None]], named: str
) -> None:
    with pytest.raises(RowsError, match=named):
        row_cells(0, [parquet(tmp_path / "a.parquet", **columns)], "at")


def test_other_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RowsError, match="Parquet and JSON files alone"):
        row_cells(0, [unit_name(f"{tmp_path}/a.csv")], "at")
    with pytest.raises(RowsError, match="cannot be read back"):
        row_cells(0, [unit_name(f"{tmp_path}/gone.parquet")], "at")


# --- ranges ---------------------------------------------------------------------------------------


def one_slot(partition: str, begin: int, end: int) -> list[tuple[int, int, int]]:
    return [(begin, end, 7)]


SOURCE = OffsetRanges("parse", one_slot, first={"late": 100})


def test_ranges_are_what_lies_between_two_offsets() -> None:
    after = json.dumps({"topic": {"0": 9, "1": 4}, "late": 105, "same": 3})
    before = json.dumps({"topic": {"0": 5}, "same": 3})
    assert ranges(2, SOURCE, before, after, "batch 1") == (
        Range(2, "late", 100, 105), Range(2, "topic/0", 5, 9), Range(2, "topic/1", 0, 4),
    )  # fmt: skip
    assert ranges(2, SOURCE, None, "12", "batch 1") == (Range(2, "", 0, 12),)
    assert ranges(2, SOURCE, after, None, "batch 1") == ()


def test_any_cutting_of_the_same_offsets_cancels() -> None:
    whole = range_value("p", 0, 9)
    parts = range_value("p", 0, 2) ^ range_value("p", 2, 7) ^ range_value("p", 7, 9)
    assert whole == parts != 0


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ('{"p": 5}', '{"p": 4}', "went back from 5 to 4"),
        (None, '{"p": "five"}', "'five' at p is no whole number"),
        (None, "{", "is not JSON"),
    ],
)
def test_offsets_that_are_no_ranges_are_refused(before: str | None, after: str, named: str) -> None:
    with pytest.raises(RangesError, match=named):
        ranges(0, SOURCE, before, after, "batch 1")


@pytest.mark.parametrize("pieces", [[], [(0, 5, 7)], [(0, 2, 7), (3, 9, 7)], [(0, 12, 7)]])
def test_slots_must_cover_a_range(pieces: list[tuple[int, int, int]]) -> None:
    with pytest.raises(RangesError, match="the batch consumed 0 to 9"):
        range_cells(OffsetRanges("parse", lambda *_: pieces), [Range(0, "p", 0, 9)])


def test_a_range_of_several_slots_is_told_in_pieces() -> None:
    source = OffsetRanges("parse", lambda *_: [(0, 4, 6), (4, 9, 8)])
    assert range_cells(source, [Range(1, "p", 0, 9)]).rows() == [
        (1, 6, range_value("p", 0, 4), 4), (1, 8, range_value("p", 4, 9), 5),
    ]  # fmt: skip


# In the formats of Kafka's source: its own log, and the lines of the offset log.
KAFKA_BEGIN = '\0v1\n{"flights":{"0":40,"1":7}}'
KAFKA_OFFSETS = (
    'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{}}\n{"flights":{"0":45,"1":7}}',
    'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1700000000900,"conf":{}}\n{"flights":{"0":45,"1":9}}',
)


def test_kafkas_log_formats(tmp_path: Path) -> None:
    for folder in ("offsets", "commits", "sources/0"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "sources/0/0").write_text(KAFKA_BEGIN)
    for batch, text in enumerate(KAFKA_OFFSETS):
        (tmp_path / "offsets" / str(batch)).write_text(text)
        (tmp_path / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    log = CheckpointLog(str(tmp_path))
    source = OffsetRanges("parse", one_slot)
    found = [ranges(0, source, *log.offset_pair(batch, "0"), "batch") for batch in log.committed()]
    assert found == [(Range(0, "flights/0", 40, 45),), (Range(0, "flights/1", 7, 9),)]
    assert log.consumed(0) == {}
