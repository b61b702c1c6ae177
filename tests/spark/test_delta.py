"""What a batch read from a Delta table and wrote to one, by logs as Delta writes them. That Delta writes
them so, and reads what is said here, `tests/connectors` tries with the real one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from local_tracker.spark.formats import delta
from local_tracker.spark.formats.delta import DeltaReader, DeltaTable, DeltaWriter
from local_tracker.spark.formats.interface import TableRefused, Taken
from tracker.errors import FilesError
from tracker.files import LocalFiles

ID, OTHER_ID = "e77a820b-d0cf-434a-8e7e-b57a767bd702", "11111111-d0cf-434a-8e7e-b57a767bd702"
QUERY = "1866a3fd-0d6a-4444-b874-88552ba4e458"


class Log:
    """A table's log, written version by version."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.table = DeltaTable(str(directory), LocalFiles())
        (directory / "_delta_log").mkdir()
        self.version = -1

    def commit(
        self, adds: int = 0, removes: int = 0, *, batch: int | None = None, table_id: str | None = None,
        operation: str = "WRITE", data_change: bool = True, more: tuple[dict[str, Any], ...] = (),
    ) -> Log:  # fmt: skip
        self.version += 1
        actions: list[dict[str, Any]] = [{"commitInfo": {"operation": operation}}]
        if table_id is not None or self.version == 0:
            actions.append({"metaData": {"id": table_id or ID, "partitionColumns": []}})
        if batch is not None:
            actions.append({"txn": {"appId": QUERY, "version": batch, "lastUpdated": 1}})
        paths = [f"part-{self.version}-{place}.parquet" for place in range(max(adds, removes))]
        actions += [{"add": {"path": p, "dataChange": data_change}} for p in paths[:adds]]
        actions += [{"remove": {"path": p, "dataChange": data_change}} for p in paths[:removes]]
        text = "".join(json.dumps(action) + "\n" for action in [*actions, *more])
        self.path(self.version).write_text(text)
        return self

    def path(self, version: int) -> Path:
        return self.directory / "_delta_log" / f"{version:020d}.json"

    def reader(self, **options: Any) -> DeltaReader:
        return DeltaReader(self.table, {}, **options)

    def writer(self) -> DeltaWriter:
        return DeltaWriter(self.table, QUERY)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def offset(version: int, place: int = -1, *, snapshot: bool = False, table_id: str = ID) -> str:
    return json.dumps(
        {
            "sourceVersion": 1, "reservoirId": table_id, "reservoirVersion": version, "index": place,
            "isStartingVersion": snapshot,
        }
    )  # fmt: skip


def units(*versions: int, table_id: str = ID) -> tuple[str, ...]:
    return tuple(f"delta:{table_id}/{version}" for version in versions)


# --- sources --------------------------------------------------------------------------------------


def test_a_version_is_consumed_by_the_batch_that_reads_its_last_file(log: Log) -> None:
    log.commit(2).commit(3)
    reader = log.reader()
    assert reader.taken(offset(0), offset(0, 0)) == Taken((), units(0))
    assert reader.taken(offset(0, 0), offset(1, 0)) == Taken(units(0), units(1))
    assert reader.taken(offset(1, 0), offset(1, 1)) == Taken((), units(1))
    assert reader.taken(offset(1, 1), offset(2)) == Taken(units(1))


def test_the_end_of_a_version_is_its_last_file_or_the_beginning_of_the_next(log: Log) -> None:
    log.commit(2).commit(1)
    assert log.reader().taken(offset(0), offset(0, 1)) == Taken(units(0))
    assert log.reader().taken(offset(0, 1), offset(1)) == Taken()
    assert log.reader().taken(offset(0, 1), offset(2)) == Taken(units(1))


def test_what_only_rearranges_or_only_takes_away_is_no_unit(log: Log) -> None:
    log.commit(2).commit(1, 2, data_change=False, operation="OPTIMIZE").commit(0, 1).commit(1)
    assert log.reader().taken(offset(0), offset(4)) == Taken(units(0, 3))


def test_a_query_begins_with_all_that_was_added_up_to_the_snapshot(log: Log) -> None:
    """In whatever order it reads the snapshot, whose files may be merged ones."""
    log.commit(2).commit(1).commit(1, 3, data_change=False, operation="OPTIMIZE").commit(2)
    reader = log.reader()
    assert reader.taken(None, offset(3, 0, snapshot=True)) == Taken((), units(0, 1, 3))
    held = reader.taken(offset(3, 0, snapshot=True), offset(3, 1, snapshot=True))
    assert held == Taken((), units(0, 1, 3))
    assert reader.taken(offset(3, 1, snapshot=True), offset(4)) == Taken(units(0, 1, 3))


def test_a_first_batch_that_ends_behind_the_snapshot_has_read_all_before(log: Log) -> None:
    log.commit(2).commit(1).commit(3)
    assert log.reader().taken(None, offset(3)) == Taken(units(0, 1, 2))
    assert log.reader().taken(None, offset(2, 1)) == Taken(units(0, 1), units(2))
    assert log.reader().taken(None, offset(0, 1)) == Taken(units(0))


def test_a_query_may_begin_with_a_version(log: Log) -> None:
    log.commit(1).commit(1).commit(1)
    given = DeltaReader(log.table, {"startingVersion": "1"})
    assert given.taken(None, offset(3)) == Taken(units(1, 2))
    assert log.reader(first=2).taken(None, offset(3)) == Taken(units(2))


def test_a_batch_that_has_moved_nothing_takes_nothing(log: Log) -> None:
    log.commit(1).commit(1)
    at = offset(1, 0, snapshot=True)
    assert log.reader().taken(at, at) == Taken()


def test_a_barrier_of_the_schema_is_let_through(log: Log) -> None:
    log.commit(1).commit(1, table_id=ID).commit(1)
    barrier = json.loads(offset(1, -20)) | {"sourceVersion": 3}
    behind = barrier | {"index": -19}
    reader = log.reader()
    assert reader.taken(offset(0), json.dumps(barrier)) == Taken(units(0))
    assert reader.taken(json.dumps(barrier), json.dumps(behind)) == Taken()
    assert reader.taken(json.dumps(behind), offset(2)) == Taken(units(1))


def test_versions_that_are_not_tracked_are_left_out(log: Log) -> None:
    log.commit(1).commit(1).commit(1).commit(1)
    log.path(0).unlink()  # nor read
    reader = log.reader(untracked=[range(2), range(3, 4)])
    assert reader.taken(None, offset(4)) == Taken(units(2))
    assert reader.taken(offset(3), offset(4)) == Taken()


def test_versions_before_a_replacement_belong_to_the_table_as_it_was(log: Log) -> None:
    log.commit(1, table_id=OTHER_ID).commit(1, 1, table_id=ID)
    expected = (*units(0, table_id=OTHER_ID), *units(1))
    assert log.reader().taken(None, offset(2)) == Taken(expected)


# --- what is refused ------------------------------------------------------------------------------


def test_commits_that_are_cleaned_up_are_named(log: Log) -> None:
    log.commit(1).commit(1).commit(1)
    log.path(1).unlink()
    for begun in (None, offset(1)):
        with pytest.raises(FilesError, match=r"0001.json does not exist: .*logRetentionDuration"):
            log.reader().taken(begun, offset(3))


def test_a_table_that_was_made_anew_is_refused(log: Log) -> None:
    log.commit(1).commit(1, table_id=OTHER_ID).commit(1)
    reader = log.reader()
    for begun, ended in (
        (offset(0), offset(2)),
        (offset(1), offset(2, table_id=OTHER_ID)),
        (None, offset(2)),
    ):
        with pytest.raises(TableRefused, match=f"was made anew: its id was {ID} and is {OTHER_ID}"):
            reader.taken(begun, ended)


def test_a_reader_that_leaves_out_changes_is_refused_where_they_add_rows(log: Log) -> None:
    log.commit(1).commit(0, 1, operation="DELETE").commit(2, 1, operation="MERGE")
    reader = DeltaReader(log.table, {"skipChangeCommits": "TRUE"})
    assert reader.taken(offset(0), offset(2)) == Taken(units(0))
    with pytest.raises(TableRefused, match=r"version 2 \(MERGE\) takes rows away .* skipChange"):
        reader.taken(offset(2), offset(3))


def test_changed_rows_are_read_again_by_who_asks_for_them(log: Log) -> None:
    log.commit(1).commit(2, 1, operation="MERGE")
    reader = DeltaReader(log.table, {"ignoreChanges": "true"})
    assert reader.taken(offset(1), offset(1, 0)) == Taken((), units(1))
    assert reader.taken(offset(1, 0), offset(2)) == Taken(units(1))


def test_of_a_checkpoint_alone_it_is_not_known_what_becomes_of_changes(log: Log) -> None:
    log.commit(1).commit(2, 1, operation="MERGE")
    reader = DeltaReader(log.table, None)
    assert reader.taken(None, offset(2)) == Taken(units(0, 1))  # of the snapshot it is
    with pytest.raises(TableRefused, match=r"version 1 \(MERGE\) .* start the query by Tracked"):
        reader.taken(offset(1), offset(2))


def test_a_restored_version_is_refused(log: Log) -> None:
    log.commit(1).commit(0, 1).commit(1, operation="RESTORE")
    with pytest.raises(TableRefused, match=r"version 2 \(RESTORE\) brings rows back"):
        DeltaReader(log.table, {"ignoreChanges": "true"}).taken(offset(1), offset(3))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"readChangeFeed": "true"}, r"change data feed \(readChangeFeed\)"),
        ({"readchangedata": "TRUE"}, r"change data feed \(readChangeData\)"),
        ({"startingVersion": "latest"}, "which no log records"),
        ({"startingTimestamp": "2026-01-01"}, "which no log records"),
    ],
)
def test_readers_of_which_no_log_tells_are_refused(
    log: Log, options: dict[str, str], said: str
) -> None:
    with pytest.raises(TableRefused, match=said):
        DeltaReader(log.table, options)


def test_commits_that_a_catalog_keeps_are_refused(log: Log) -> None:
    log.commit(1, more=({"protocol": {"writerFeatures": ["catalogManaged"]}},))
    with pytest.raises(TableRefused, match="in a catalog"):
        log.reader().taken(None, offset(1))


def test_an_offset_that_goes_back_or_beyond_is_refused(log: Log) -> None:
    log.commit(1).commit(1)
    with pytest.raises(FilesError, match="went back"):
        log.reader().taken(offset(1), offset(0))
    with pytest.raises(
        FilesError, match=r"adds 1 files, .* at place 4: the log has been rewritten"
    ):
        log.reader().taken(offset(1), offset(1, 4))


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"reservoirId": "x"}', offset(1).replace(": 1", ": 2", 1), offset(-1)]
)
def test_what_is_no_offset_is_refused(log: Log, text: str) -> None:
    with pytest.raises(FilesError, match="is no offset of a Delta source"):
        log.reader().taken(None, text)


@pytest.mark.parametrize("line", ["[1]", '{"add": 1}', '{"txn": {}}', "half a li"])
def test_what_is_no_commit_is_refused(log: Log, line: str) -> None:
    log.commit(1)
    log.path(0).write_text(line + "\n")
    with pytest.raises(FilesError, match="is no action of Delta's"):
        log.reader().taken(None, offset(1))


def test_limits_are_named(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.commit(1).commit(1).commit(1)
    monkeypatch.setattr(delta, "MAX_SNAPSHOT_UNITS", 2)
    with pytest.raises(TableRefused, match="more than 2 of the versions 0 to 2 add rows"):
        log.reader().taken(None, offset(3))
    monkeypatch.setattr(delta, "MAX_COMMIT_BYTES", 10)
    with pytest.raises(FilesError, match="commits of 10 at most"):
        log.reader().taken(offset(0), offset(1))


def test_a_commit_larger_than_what_is_read_at_once(log: Log) -> None:
    added = {"add": {"path": "x" * 1000, "dataChange": True}}
    log.commit(1, more=(added,) * 3000)
    assert log.reader().taken(offset(0), offset(0, 2999)) == Taken((), units(0))
    assert log.reader().taken(offset(0), offset(0, 3000)) == Taken(units(0))


# --- sinks ----------------------------------------------------------------------------------------


def test_a_batch_has_created_the_version_that_names_it(log: Log) -> None:
    log.commit(0).commit(2, batch=0).commit(1).commit(0, batch=1)
    writer = log.writer()
    assert (writer.has(0), writer.names(0)) == (True, units(1))
    assert (writer.has(1), writer.names(1)) == (True, ())
    assert (writer.has(2), writer.names(2)) == (False, ())
    log.commit(1, batch=2)
    assert (writer.has(2), writer.names(2)) == (True, units(4))


def test_who_comes_back_finds_batches_from_before(log: Log) -> None:
    for batch in range(5):
        log.commit(1, batch=batch).commit(1)
    writer = log.writer()
    assert [writer.names(batch) for batch in (3, 1, 4)] == [units(6), units(2), units(8)]


def test_of_a_batch_that_replaces_the_table_the_version_is_created(log: Log) -> None:
    log.commit(1, batch=0).commit(1, 1, batch=1)
    assert log.writer().names(1) == units(1)


def test_what_is_not_asked_for_any_more_is_forgotten(log: Log) -> None:
    for batch in range(4):
        log.commit(1, batch=batch)
    writer = log.writer()
    assert writer.has(0)
    writer.forget(2)
    log.commit(1, batch=4)
    assert (writer.has(3), writer.has(4)) == (True, True)


def test_the_table_may_not_be_there_yet(log: Log) -> None:
    writer = log.writer()
    assert not writer.has(0)
    log.commit(1, batch=0)
    assert writer.names(0) == units(0)


def test_the_id_of_a_table_may_be_told_by_a_checksum_alone(log: Log) -> None:
    log.commit(1).commit(1, batch=0)
    log.path(0).unlink()
    log.path(1).with_suffix(".crc").write_text(json.dumps({"metadata": {"id": ID}}))
    assert log.writer().names(0) == units(1)


def test_a_table_made_anew_under_its_writer_is_refused(log: Log) -> None:
    log.commit(1, batch=0)
    writer = log.writer()
    assert writer.names(0) == units(0)
    log.commit(1, batch=1, table_id=OTHER_ID)
    with pytest.raises(TableRefused, match="made anew in version 1"):
        writer.has(1)


def test_a_log_that_has_become_shorter_is_refused(log: Log) -> None:
    log.commit(1, batch=0).commit(1, batch=1)
    writer = log.writer()
    assert writer.has(1)
    log.path(1).unlink()
    with pytest.raises(FilesError, match="version 1 was there and is gone"):
        writer.has(2)
