"""What a batch read from an Iceberg table and wrote to one, by metadata as Iceberg writes them. That Iceberg
writes them so, and reads what is said here, `tests/connectors` tries with the real one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from local_tracker.spark.formats import iceberg
from local_tracker.spark.formats.iceberg import (
    IcebergFormat,
    IcebergReader,
    IcebergTable,
    IcebergWriter,
    hadoop_metadata,
)
from local_tracker.spark.formats.interface import TableRefused, Taken
from tracker.errors import FilesError
from tracker.files import LocalFiles

UUID = "e6fc181d-bb98-4006-8a18-b24d55c17f8c"
QUERY = "55489dc8-4bd8-409a-bb76-d8749159efbc"
START = json.dumps({"version": 1, "snapshot_id": -1, "position": -1, "scan_all_files": False})


class Log:
    """A table's snapshots, one after the other."""

    def __init__(self) -> None:
        self.snapshots: list[dict[str, Any]] = []
        self.current: int | None = None
        self.uuid = UUID
        self.properties: dict[str, str] = {}
        self.asked = 0
        self.table = IcebergTable("/data/t", self.metadata)

    def metadata(self) -> str:
        self.asked += 1
        return json.dumps(
            {
                "format-version": 2, "table-uuid": self.uuid, "snapshots": self.snapshots,
                "current-snapshot-id": -1 if self.current is None else self.current,
                "properties": self.properties,
            }
        )  # fmt: skip

    def add(
        self, snapshot: int, files: int = 0, *, batch: int | None = None, operation: str = "append",
        parent: int | None = None, is_current: bool = True,
    ) -> Log:  # fmt: skip
        """batch: of the streaming sink that wrote it. parent: another one than the current snapshot."""
        summary: dict[str, str] = {"operation": operation}
        if files:
            summary["added-data-files"] = str(files)
        if batch is not None:
            summary |= {
                "spark.sql.streaming.queryId": QUERY,
                "spark.sql.streaming.epochId": str(batch),
            }
        entry: dict[str, Any] = {"snapshot-id": snapshot, "timestamp-ms": 1, "summary": summary}
        if (before := self.current if parent is None else parent) is not None:
            entry["parent-snapshot-id"] = before
        self.snapshots.append(entry)
        if is_current:
            self.current = snapshot
        return self

    def reader(self, *untracked: range) -> IcebergReader:
        return IcebergReader(self.table, untracked)

    def writer(self) -> IcebergWriter:
        return IcebergWriter(self.table, QUERY)


@pytest.fixture
def log() -> Log:
    return Log()


def offset(snapshot: int, place: int = 0) -> str:
    return json.dumps(
        {"version": 1, "snapshot_id": snapshot, "position": place, "scan_all_files": False}
    )


def units(*snapshots: int) -> tuple[str, ...]:
    return tuple(f"iceberg:{UUID}/{snapshot}" for snapshot in snapshots)


# --- sources --------------------------------------------------------------------------------------


def test_a_snapshot_is_consumed_by_the_batch_that_reads_its_last_file(log: Log) -> None:
    log.add(11, 2, batch=0).add(12, 3, batch=1)
    reader = log.reader()
    assert reader.taken(offset(11), offset(11, 1)) == Taken((), units(11))
    assert reader.taken(offset(11, 1), offset(12, 1)) == Taken(units(11), units(12))
    assert reader.taken(offset(12, 1), offset(12, 3)) == Taken(units(12))


def test_the_end_of_a_snapshot_is_its_last_file_or_the_beginning_of_the_next(log: Log) -> None:
    log.add(11, 2, batch=0).add(12, 1, batch=1)
    reader = log.reader()
    assert reader.taken(offset(11), offset(11, 2)) == Taken(units(11))
    assert reader.taken(offset(11, 2), offset(12)) == Taken()
    assert reader.taken(offset(11), offset(12)) == Taken(units(11))
    assert reader.taken(offset(12), offset(12, 1)) == Taken(units(12))


def test_a_query_that_began_with_an_empty_table_has_read_all(log: Log) -> None:
    log.add(11, 1, batch=0).add(12, 1, batch=1)
    assert log.reader().taken(START, offset(12, 1)) == Taken(units(11, 12))
    assert log.reader().taken(None, offset(12, 1)) == Taken(units(11, 12))
    assert log.reader().taken(START, START) == Taken()
    assert log.reader().taken(None, START) == Taken()


def test_what_rearranges_or_takes_away_or_adds_nothing_is_no_unit(log: Log) -> None:
    log.add(11, 1, batch=0).add(12, 3, operation="replace").add(13, operation="delete")
    log.add(14, 0, batch=1).add(15, 1, batch=2)
    assert log.reader().taken(offset(11), offset(15, 1)) == Taken(units(11, 15))


def test_of_a_snapshot_of_anyone_else_places_do_not_tell_that_it_is_read(log: Log) -> None:
    """Its manifests may hold files of others too, which count."""
    log.add(11, 2).add(12, 1, batch=0)
    reader = log.reader()
    assert reader.taken(offset(11), offset(11, 7)) == Taken((), units(11))
    assert reader.taken(offset(11, 7), offset(12)) == Taken(units(11))


def test_snapshots_that_are_not_tracked_are_left_out(log: Log) -> None:
    log.add(11, 1, batch=0).add(12, 1, batch=1).add(13, 1, batch=2).add(14, 1, batch=3)
    taken = log.reader(range(12 + 1)).taken(START, offset(14, 1))
    assert taken == Taken(units(13, 14))
    taken = log.reader(range(12, 13)).taken(START, offset(14, 1))
    assert taken == Taken(units(11, 13, 14))


def test_metadata_are_asked_for_when_there_is_something_new(log: Log) -> None:
    log.add(11, 2, batch=0)
    reader = log.reader()
    reader.taken(START, offset(11, 1))
    reader.taken(offset(11, 1), offset(11, 2))
    assert log.asked == 1
    log.add(12, 1, batch=1)
    assert reader.taken(offset(11, 2), offset(12, 1)) == Taken(units(12))
    assert log.asked == 2


def test_a_unit_is_shown_by_its_table(log: Log) -> None:
    log.add(11, 1, batch=0)
    reader = log.reader()
    reader.taken(START, offset(11, 1))
    assert reader.shown(units(11)[0]) == "snapshot 11 (append) of table /data/t"
    assert reader.shown("iceberg:other/11") is None
    assert reader.shown(f"delta:{UUID}/11") is None


# --- what is refused ------------------------------------------------------------------------------


def test_an_expired_snapshot_is_named(log: Log) -> None:
    log.add(11, 1, batch=0).add(12, 1, batch=1)
    with pytest.raises(FilesError, match="/data/t has no snapshot 10: it has been expired"):
        log.reader().taken(START, offset(10, 1))
    del log.snapshots[0]
    log.table.refresh()
    with pytest.raises(
        FilesError, match=r"snapshot 11, up to which .* snapshots have been expired"
    ):
        log.reader().taken(offset(11), offset(12, 1))


def test_of_a_table_that_was_empty_it_is_not_passed_over_what_is_expired(log: Log) -> None:
    """What the query's first batch read of it would never be consumed, and nobody would say so."""
    log.add(11, 1, batch=0).add(12, 1, batch=1).add(13, 1, batch=2)
    del log.snapshots[0]
    with pytest.raises(FilesError, match=r"was empty when .* snapshots have been expired"):
        log.reader().taken(START, offset(13, 1))
    # One that began with the oldest that there was has read no more.
    assert log.reader().taken(None, offset(13, 1)) == Taken(units(12, 13))
    assert log.reader(range(12 + 1)).taken(START, offset(13, 1)) == Taken(units(13))


def test_a_table_that_was_rolled_back_is_refused(log: Log) -> None:
    log.add(11, 1, batch=0).add(12, 1, batch=1).add(13, 1, batch=2, parent=11)
    with pytest.raises(TableRefused, match=r"snapshot 12, .* the table was rolled back"):
        log.reader().taken(offset(12, 1), offset(13, 1))


def test_rows_that_a_reader_leaves_out_are_refused(log: Log) -> None:
    log.add(11, 1, batch=0).add(12, 1, operation="overwrite").add(13, 1, batch=1)
    with pytest.raises(TableRefused, match=r"snapshot 12 \(overwrite\) adds rows, .* left out"):
        log.reader().taken(offset(11, 1), offset(13, 1))
    allowed = log.reader(range(12, 13))
    assert allowed.taken(offset(11, 1), offset(13, 1)) == Taken(units(13))


def test_a_table_that_was_made_anew_is_refused(log: Log) -> None:
    log.add(11, 1, batch=0)
    reader = log.reader()
    reader.taken(START, offset(11, 1))
    log.uuid = "another"
    with pytest.raises(TableRefused, match=f"made anew: its id was {UUID} and is another"):
        reader.taken(offset(11, 1), offset(12, 1))


@pytest.mark.parametrize(
    "text",
    ["[]", "{", '{"snapshot_id": 1, "position": 1}', offset(1).replace("false", "true")],
)  # fmt: skip
def test_what_is_no_offset_is_refused(log: Log, text: str) -> None:
    with pytest.raises(FilesError, match="is no offset of an Iceberg source"):
        log.reader().taken(None, text)


@pytest.mark.parametrize("text", ["[]", "{}", "half a doc", '{"table-uuid": 1, "snapshots": [1]}'])
def test_what_are_no_metadata_is_refused(text: str) -> None:
    with pytest.raises(FilesError, match="/data/t has no metadata of Iceberg's"):
        IcebergTable("/data/t", lambda: text).refresh()


def test_limits_are_named(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.add(11, 1, batch=0).add(12, 1, batch=1)
    monkeypatch.setattr(iceberg, "MAX_BATCH_UNITS", 1)
    with pytest.raises(TableRefused, match="one batch has read 2 snapshots, the limit is 1"):
        log.reader().taken(START, offset(12, 1))
    monkeypatch.setattr(iceberg, "MAX_METADATA_BYTES", 10)
    with pytest.raises(FilesError, match="of at most 10 they are read"):
        log.table.refresh()


# --- sinks ----------------------------------------------------------------------------------------


def test_a_batch_has_created_the_snapshot_that_names_it(log: Log) -> None:
    log.add(11, 1).add(12, 2, batch=0).add(13, 0, batch=1).add(14, 1, operation="replace")
    writer = log.writer()
    assert (writer.has(0), writer.names(0)) == (True, units(12))
    assert (writer.has(1), writer.names(1)) == (True, ())
    assert (writer.has(2), writer.names(2)) == (False, ())
    log.add(15, 1, batch=2)
    assert (writer.has(2), writer.names(2)) == (True, units(15))


def test_of_a_batch_that_a_second_driver_wrote_too_both_are_created(log: Log) -> None:
    log.add(11, 1, batch=0).add(12, 1, batch=0).add(13, 1, batch=1)
    assert log.writer().names(0) == units(12, 11)


def test_what_a_batch_has_created_is_not_taken_for_nothing_when_its_snapshot_is_expired(
    log: Log,
) -> None:
    """The driver was away for longer than snapshots are kept; what emits from state had no input that is missed."""
    log.add(10, 1, batch=3).add(11, 1, batch=4).add(12, 1).add(13, 1)
    assert log.writer().names(4) == units(11)
    del log.snapshots[:2]
    with pytest.raises(FilesError, match=r"what batch 4 wrote .* expired"):
        log.writer().names(4)
    log.add(14, 1, batch=5)
    assert log.writer().names(6) == ()


def test_a_snapshot_that_replaces_the_table_is_refused_since_no_source_reads_it(log: Log) -> None:
    log.add(11, 0, batch=0, operation="overwrite").add(12, 1, batch=1, operation="overwrite")
    assert log.writer().names(0) == ()
    with pytest.raises(
        TableRefused, match=r"snapshot 12 \(overwrite\) of batch 1 replaces the table"
    ):
        log.writer().names(1)


def test_what_is_on_another_branch_or_staged_is_refused(log: Log) -> None:
    log.add(11, 1, batch=0).add(12, 1, batch=1, is_current=False)
    with pytest.raises(TableRefused, match="snapshot 12 of batch 1 is not among those of the main"):
        log.writer().names(1)


# --- tables in a file system ------------------------------------------------------------------------


def test_the_newest_version_of_a_table_in_a_file_system_is_found(tmp_path: Path) -> None:
    (tmp_path / "metadata").mkdir()
    for version in (1, 2, 3):
        (tmp_path / f"metadata/v{version}.metadata.json").write_text(f'{{"v": {version}}}')
    (tmp_path / "metadata/version-hint.text").write_text("2")
    assert hadoop_metadata(str(tmp_path), LocalFiles()) == '{"v": 3}'


def test_of_a_table_in_a_catalog_only_that_knows_the_metadata(tmp_path: Path) -> None:
    files = LocalFiles()
    assert not IcebergFormat().is_table(str(tmp_path), files)
    with pytest.raises(FilesError, match="holds no metadata of an Iceberg table"):
        hadoop_metadata(str(tmp_path), files)
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata/00001-aabb.metadata.json").write_text("{}")
    assert IcebergFormat().is_table(str(tmp_path), files)
    with pytest.raises(TableRefused, match="is kept in a catalog, which alone knows"):
        hadoop_metadata(str(tmp_path), files)
