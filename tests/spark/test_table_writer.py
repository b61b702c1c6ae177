"""What our own writer notes of the batches that it appends to tables, and finds again, by logs as Delta and
Iceberg write them. That they write them so, `tests/connectors` tries with the real ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from local_tracker.spark.formats.interface import TableRefused, TableSource
from local_tracker.spark.query.logs import CheckpointLog
from local_tracker.spark.writers.each_batch import Writing
from local_tracker.spark.writers.table_writer import (
    Note,
    QueryInTable,
    TableBatchWriter,
    WrittenTable,
)
from tests.spark.test_delta import ID, OTHER_ID, QUERY, Log, units
from tests.spark.test_iceberg import QUERY as QUERY_OF_ICEBERG
from tests.spark.test_iceberg import Log as IcebergLog
from tests.spark.test_iceberg import units as iceberg_units
from tracker.errors import FilesError, TrackingError
from tracker.files import STORES

NOTE = Note("run 1", "digest")
OTHER_QUERY = "0d3fe9b4-d0cf-434a-8e7e-b57a767bd702"


def batch_in(log: Log, batch: int, note: str = NOTE.to_json(), adds: int = 1) -> None:
    """A commit as the writer makes it."""
    log.commit(adds, batch=batch, more=({"commitInfo": {"userMetadata": note}},))


def delta(log: Log) -> WrittenTable:
    """As a driver that has just come knows it."""
    return WrittenTable(TableSource("delta", str(log.directory)), STORES)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    (tmp_path / "table").mkdir()
    return Log(tmp_path / "table")


@pytest.fixture
def checkpoint(tmp_path: Path) -> CheckpointLog:
    return CheckpointLog(str(tmp_path / "cp"))


def of(log: Log, checkpoint: CheckpointLog) -> QueryInTable:
    found = delta(log).began(QUERY, checkpoint)
    assert found is not None
    return found


def test_a_batch_is_found_with_its_run_by_whoever_comes(
    log: Log, checkpoint: CheckpointLog
) -> None:
    log.commit(1)
    inside = delta(log).begin(QUERY, checkpoint)
    assert (inside.note(0), inside.names(0), inside.run(0)) == (None, (), None)
    batch_in(log, 0)
    for found in (inside, of(log, checkpoint)):
        assert (found.note(0), found.names(0), found.run(0)) == (NOTE, units(1), "run 1")
        assert found.note(1) is None
    inside.forget(0)
    assert inside.note(0) is None and of(log, checkpoint).note(0) == NOTE


def test_a_batch_without_rows_is_there_and_has_created_nothing(
    log: Log, checkpoint: CheckpointLog
) -> None:
    inside = delta(log).begin(QUERY, checkpoint)
    batch_in(log, 0, adds=0)
    assert (inside.note(0), inside.names(0)) == (NOTE, ())


def test_nobody_looks_behind_where_a_query_began(log: Log, checkpoint: CheckpointLog) -> None:
    """There the log may be cleaned up, and is none of the query's."""
    log.commit(1).commit(1).commit(1, table_id=ID)
    log.path(0).unlink()
    written = delta(log)
    inside = written.begin(QUERY, checkpoint)
    assert inside.note(0) is None
    batch_in(log, 0)
    assert of(log, checkpoint).names(0) == units(3)
    again = delta(log)
    assert again.begin(QUERY, checkpoint).names(0) == units(3), "it began at the same version"


def test_a_query_that_has_not_written_to_a_table_has_nothing_there(
    log: Log, checkpoint: CheckpointLog, tmp_path: Path
) -> None:
    other = CheckpointLog(str(tmp_path / "cp-other"))
    written = delta(log)
    written.begin(QUERY, checkpoint)
    assert written.began(OTHER_QUERY, other) is None
    delta(log).begin(OTHER_QUERY, other)  # by another driver
    assert written.began(OTHER_QUERY, other) is None
    written.started(OTHER_QUERY)
    assert written.began(OTHER_QUERY, other) is not None


def test_a_commit_that_is_not_the_writers_is_refused(log: Log, checkpoint: CheckpointLog) -> None:
    inside = delta(log).begin(QUERY, checkpoint)
    for batch, note in enumerate(("", "{", "[]", '{"lowmark": {"run": "x"}}')):
        batch_in(log, batch, note)
        with pytest.raises(TrackingError, match=r"was not written by tracked\.writer"):
            inside.note(batch)


def test_a_damaged_claim_is_refused_by_name(log: Log, checkpoint: CheckpointLog) -> None:
    delta(log).begin(QUERY, checkpoint)
    (path,) = Path(checkpoint.root, "_lowmark/tables").glob("*.json")
    assert json.loads(path.read_text()) == {"table": str(log.directory), "since": 0}
    path.write_text('{"since": null}')
    with pytest.raises(FilesError, match=r"does not say since when a table is written"):
        delta(log).began(QUERY, checkpoint)


def test_a_table_made_anew_under_its_writer_is_refused(log: Log, checkpoint: CheckpointLog) -> None:
    inside = delta(log).begin(QUERY, checkpoint)
    batch_in(log, 0)
    assert inside.names(0) == units(0)
    log.commit(1, table_id=OTHER_ID)
    with pytest.raises(TableRefused, match="made anew in version 1"):
        inside.note(1)


@pytest.mark.parametrize(
    ("fmt", "option"),
    [
        ("delta", "txnAppId"),
        ("delta", "userMetadata"),
        ("delta", "replaceWhere"),
        ("iceberg", "branch"),
        ("iceberg", "snapshot-property.mine"),
    ],
)
def test_options_that_are_the_writers_are_refused(fmt: str, option: str, tmp_path: Path) -> None:
    written = WrittenTable(TableSource(fmt, str(tmp_path)), STORES)
    with pytest.raises(TrackingError, match=f"leave out the option '{option}'"):
        TableBatchWriter(writing({option: "x"}), written)


# --- Iceberg --------------------------------------------------------------------------------------


def iceberg(log: IcebergLog) -> WrittenTable:
    return WrittenTable(TableSource("iceberg", "/data/t", metadata=log.metadata), STORES)


def test_a_batch_is_found_by_its_snapshot(checkpoint: CheckpointLog) -> None:
    log = IcebergLog()
    inside = iceberg(log).begin(QUERY_OF_ICEBERG, checkpoint)
    assert inside.note(0) is None
    for batch, (snapshot, files) in enumerate(((11, 2), (12, 0))):
        stamps = {"lowmark.query": QUERY_OF_ICEBERG, "lowmark.batch": str(batch)}
        log.add(snapshot, files)
        log.snapshots[-1]["summary"] |= {**stamps, "lowmark.note": NOTE.to_json()}
    assert (inside.note(0), inside.names(0)) == (NOTE, iceberg_units(11))
    assert (inside.note(1), inside.names(1)) == (NOTE, ())


def test_a_table_that_merges_manifests_is_refused() -> None:
    log = IcebergLog()
    with pytest.raises(TrackingError, match=r"'commit\.manifest-merge\.enabled' to 'false'"):
        TableBatchWriter(writing({}), iceberg(log))
    log.properties["commit.manifest-merge.enabled"] = "false"
    TableBatchWriter(writing({}), iceberg(log))


def writing(options: dict[str, str]) -> Writing:
    def nobody(asked: str) -> Any:
        raise AssertionError(f"{asked} is asked for")

    session: Any = None
    return Writing(session, STORES, nobody, nobody, {}, "lake.t", "any", None, (), options)
