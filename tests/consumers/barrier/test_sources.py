"""Where a barrier's units come from, and what of their files become rows."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from local_tracker.spark.formats.committed import SINK, CommittedFiles
from local_tracker.spark.formats.published import PublishedBatches
from tracker.consumers.barrier import rows as barrier_rows
from tracker.consumers.barrier.rows import RowReader, chunks, payload_of, skipped
from tracker.consumers.barrier.sources import FilesIn, Found
from tracker.core.model.units import unit_name
from tracker.errors import InvalidError
from tracker.files import FilesError


def log_entry(directory: Path, name: str, files: list[str]) -> None:
    log = directory / "_spark_metadata"
    log.mkdir(exist_ok=True)
    lines = [json.dumps({"path": f"file://{directory}/{file}", "action": "add"}) for file in files]
    (log / name).write_text("\n".join(["v1", *lines]))


def test_committed_files_are_those_of_the_sinks_log_behind_what_is_known(tmp_path: Path) -> None:
    source = CommittedFiles(str(tmp_path))
    (tmp_path / "orphan.parquet").touch()
    assert list(source.after({})) == []
    log_entry(tmp_path, "0", ["a"])
    log_entry(tmp_path, "1", [])
    log_entry(tmp_path, "2", ["b", "c"])
    names = {name: f"file://{tmp_path}/{name}" for name in "abcd"}
    zero, one = Found(SINK, 0, (names["a"],)), Found(SINK, 1, ())
    two = Found(SINK, 2, (names["b"], names["c"]))
    assert list(source.after({})) == [zero, one, two]
    assert list(source.after({SINK: 1})) == [two]
    assert list(source.after({SINK: 2})) == []


def test_who_was_away_while_the_log_was_purged_is_told_all_that_was_committed(
    tmp_path: Path,
) -> None:
    """Batches 0 to 8 are in the compaction alone, and so is whatever was taken of them."""
    log_entry(tmp_path, "9.compact", ["a", "b", "c"])
    log_entry(tmp_path, "10", ["d"])
    found = list(CommittedFiles(str(tmp_path)).after({SINK: 3}))
    names = [name.rpartition("/")[2] for each in found for name in each.names]
    assert set(names) == {"a", "b", "c", "d"}
    assert [each.number for each in found] == [9, 10]


def test_published_batches_are_told_by_query(tmp_path: Path) -> None:
    batches = PublishedBatches(str(tmp_path))

    def write(folder: str) -> None:
        Path(folder).mkdir(parents=True)
        (Path(folder) / "part.json").write_text("{}")

    for scope, batch in (("q1", 0), ("q1", 1), ("q2", 0)):
        batches.publish(scope, batch, "o", "r", write, lambda name, _, s=scope, b=batch: f"{s}-{b}.json")  # type: ignore[misc]  # fmt: skip
    found = list(CommittedFiles(str(tmp_path)).after({"q1": 0}))
    assert found == [
        Found("q1", 1, (unit_name(str(tmp_path / "q1-1.json")),)),
        Found("q2", 0, (unit_name(str(tmp_path / "q2-0.json")),)),
    ]


def test_who_was_away_while_manifests_were_forgotten_is_told_all_files_that_are_there(
    tmp_path: Path,
) -> None:
    """A query keeps the manifests of its last batches, whoever reads them; the files of the others are still to be
    consumed."""
    batches = PublishedBatches(str(tmp_path))

    def write(folder: str) -> None:
        Path(folder).mkdir(parents=True)
        (Path(folder) / "part.json").write_text("{}")

    for batch in range(4):
        batches.publish("q", batch, "o", "r", write, lambda name, _, b=batch: f"{b}.json")  # type: ignore[misc]
    for batch in range(3):
        batches.forget("q", batch)
    found = list(CommittedFiles(str(tmp_path)).after({"q": 0}))
    assert [each.number for each in found] == [2, 3]
    names = {name.rpartition("/")[2] for each in found for name in each.names}
    assert names >= {"1.json", "2.json", "3.json"}
    known = {each.scope: each.number for each in found}
    assert list(CommittedFiles(str(tmp_path)).after(known)) == []


def test_files_in_a_directory_are_told_once_but_for_hidden_ones(tmp_path: Path) -> None:
    source = FilesIn(str(tmp_path))
    for name in ("b", "a", ".hidden", "_log"):
        (tmp_path / name).touch()
    (found,) = source.after({})
    assert found.names == tuple(unit_name(str(tmp_path / name)) for name in "ab")
    known = {found.scope: found.number}
    assert list(source.after(known)) == []
    (tmp_path / "c").touch()
    (found,) = source.after(known)
    assert found.names == (unit_name(str(tmp_path / "c")),)
    (found,) = source.after({})  # whoever knows nothing is told all
    assert len(found.names) == 3


def test_rows_of_parquet_and_json_files_come_in_the_files_order(tmp_path: Path) -> None:
    table = pa.table(
        {
            "k": ["a", "b"], "t": [7, None], "d": [Decimal("1.50"), None], "raw": [b"\x00\xff", b""],
            "at": [datetime(2026, 3, 1, 10, tzinfo=UTC)] * 2, "x": [float("nan"), 0.1],
        }
    )  # fmt: skip
    folder = tmp_path / "land=__HIVE_DEFAULT_PARTITION__" / "day=1 2"
    folder.mkdir(parents=True)
    path = folder / "f.parquet"
    pyarrow.parquet.write_table(table, path)
    rows = list(RowReader("k", slot="t").items(unit_name(str(path)), 5))
    assert [(slot, key) for slot, key, _ in rows] == [(7, "a"), (5, "b")]
    assert json.loads(rows[0][2]) == {
        "land": None, "day": "1 2", "k": "a", "t": 7, "d": "1.50", "raw": "\\x00ff", "at": "2026-03-01T10:00:00+00:00",
        "x": "NaN",
    }  # fmt: skip
    text = '{"k": 1, "v": [1.5, null]}\n\n{"k": "ключ", "v": 2}\n'
    (tmp_path / "f.json").write_text(text)
    (tmp_path / "f.json.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("f.json", "f.json.gz"):
        reader = RowReader("k", columns=["v"])
        found = list(reader.items(unit_name(str(tmp_path / name)), 5))
        assert found == [(5, "1", b'{"v": [1.5, null]}'), (5, "ключ", b'{"v": 2}')], name


@pytest.mark.parametrize(
    ("line", "reader", "why"),
    [
        ('{"a": 1}', RowReader("k"), "row 1: it has no column 'k'"),
        ('{"k": null}', RowReader("k"), "row 1: the key, column 'k', is null"),
        ('{"k": 1, "t": 1.5}', RowReader("k", slot="t"), "the slot, column 't', is 1.5, not a whole"),
        ('{"k": 1}', RowReader("k", columns=["k", "v"]), "it has no column 'v'"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_taken_is_named(
    tmp_path: Path, line: str, reader: RowReader, why: str
) -> None:
    path = tmp_path / "f.json"
    path.write_text(f'{{"k": "fine", "t": 1, "v": 1}}\n{line}\n')
    with pytest.raises(InvalidError, match=why):
        list(reader.items(unit_name(str(path)), 5))


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("f.json", b'{"k": 1, "t": ', "row 1: Expecting value"),
        ("f.json", b'{"k": "\xff"}', "row 1: 'utf-8' codec"),
        ("f.json", b'{"k": 1, "v": ' + b"[" * 200_000, "row 1: maximum recursion depth"),
        ("f.json", b'{"k": "' + b"x" * 2_000_000 + b'"}', "row 1: its line has more than 2000000"),
        ("f.json", b'{"k": 1, "t": 9223372036854775808}', "row 1: the slot, column 't', is 92233720"),
        ("f.json.gz", None, "row 2: Compressed file ended"),
        ("f.parquet", b"PAR1", "row 0: Parquet"),
    ],
    ids=["cut off", "no text", "too deep", "too long", "a slot beyond all", "cut gzip", "no Parquet"],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_named_with_its_row(
    tmp_path: Path, name: str, data: bytes | None, why: str
) -> None:
    fine = b'{"k": "fine", "t": 1}\n'
    if data is None:
        data = gzip.compress(fine + b'{"k": 1}\n')[:-9]
    elif name == "f.json":
        data = fine + data
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InvalidError, match=why):
        list(RowReader("k", slot="t").items(unit_name(str(tmp_path / name)), 5))


def test_other_files_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "f.csv").touch()
    with pytest.raises(FilesError, match=r"f\.csv: files are read that end in \.parquet"):
        list(RowReader("k").items(unit_name(str(tmp_path / "f.csv")), 5))


def test_what_is_in_memory_at_once_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(barrier_rows, "CHUNK_ROWS", 3)
    monkeypatch.setattr(barrier_rows, "CHUNK_BYTES", 100)
    items = [(1, "k", b"x" * size) for size in (1, 1, 1, 1, 120, 1)]
    assert [len(chunk) for chunk in chunks(items, "u")] == [3, 2, 1]
    assert [len(chunk) for chunk in chunks(skipped(items, 4), "u")] == [1, 1]
    monkeypatch.setattr(barrier_rows, "MAX_ROW_BYTES", 120)
    with pytest.raises(InvalidError, match="u: the row of key 'k' has 121 bytes, the limit is 120"):
        list(chunks(items, "u"))
    assert payload_of({"a": float("inf"), "b": [float("-inf")]}) == b'{"a": "Infinity", "b": ["-Infinity"]}'  # fmt: skip
