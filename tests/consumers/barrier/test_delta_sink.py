"""The sink in a Delta table."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.consumers.barrier.conformance import (
    BARRIER,
    BUFFER,
    ROWS_A_BATCH,
    OrderedSinkSuite,
    Place,
    batch,
    kill_writers,
    rows_up_to,
    sink_at,
)
from tests.consumers.barrier.killed import STEPS
from tests.consumers.barrier.shown import KEYS, program, run_shown
from tests.consumers.tables import synced_files
from tests.files.s3 import s3_bucket
from tracker.consumers.barrier.delta import DeltaSink
from tracker.consumers.barrier.releasing import Releaser
from tracker.consumers.barrier.sink import Position
from tracker.consumers.reorder import Released, ReorderBuffer
from tracker.errors import FencedError, StateError


class DeltaPlace:
    """A table, which is not there at first."""

    kind = "delta"
    KILLS = 2

    def __init__(self, location: str) -> None:
        self.where: Mapping[str, str] = {"table": location}

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.where["table"])

    def rows(self, barrier: str = BARRIER) -> list[Released]:
        found = [
            row for row in self.table.to_pyarrow_table().to_pylist() if row["barrier"] == barrier
        ]
        return sorted(
            (Released(row["position"], row["slot"], row["key"], row["payload"]) for row in found),
            key=lambda row: row.position,
        )


@pytest.fixture
def place(tmp_path: Path) -> DeltaPlace:
    return DeltaPlace(str(tmp_path / "ordered"))


class TestDeltaSink(OrderedSinkSuite):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        return DeltaPlace(str(tmp_path / "ordered"))

    def test_writers_that_die_behind_any_step_leave_each_row_once(self, place: Place) -> None:
        kill_writers(place, "steps", len(STEPS["delta"].ends))


def written(place: DeltaPlace, batches: int = 2) -> tuple[DeltaSink, Position]:
    """A sink that is open, and where it is."""
    sink = DeltaSink(place.where["table"])
    sink.open(BARRIER, BUFFER)
    for number in range(batches):
        rows, position = batch(number * ROWS_A_BATCH)
        sink.write(rows, position)
    return sink, position


def test_others_may_write_and_compact_the_table_meanwhile(place: DeltaPlace) -> None:
    sink, position = written(place)
    place.table.optimize.compact()
    sink.write(*batch(position.next))
    other = sink_at(place)
    other.open("refunds", BUFFER)
    for number in range(3):
        sink.write(*batch(position.next + (1 + number) * ROWS_A_BATCH))
        other.write(*batch(number * ROWS_A_BATCH))
    assert place.rows() == rows_up_to(6 * ROWS_A_BATCH)
    assert place.rows("refunds") == rows_up_to(3 * ROWS_A_BATCH)


def test_a_commit_that_was_told_to_have_failed_is_not_made_again(
    place: DeltaPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that had answered, and whose answer was lost: the client asks again, and finds its version taken."""
    import deltalake
    from deltalake.exceptions import CommitFailedError

    sink, position = written(place, 1)

    def answer_lost(*args: object, **options: object) -> None:
        monkeypatch.undo()
        write_deltalake(*args, **options)
        raise CommitFailedError("the version is taken")

    monkeypatch.setattr(deltalake, "write_deltalake", answer_lost)
    sink.write(*batch(position.next))
    sink.write(*batch(position.next + ROWS_A_BATCH))
    assert place.rows() == rows_up_to(3 * ROWS_A_BATCH)


def test_an_opening_that_was_told_to_have_failed_is_no_other_writer(
    place: DeltaPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one that was opened before, too."""
    from deltalake.exceptions import CommitFailedError

    sink, position = written(place, 1)
    commit = DeltaTable.create_write_transaction

    def answer_lost(*args: Any, **options: Any) -> None:
        monkeypatch.undo()
        commit(*args, **options)
        raise CommitFailedError("the version is taken")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", answer_lost)
    assert sink.open(BARRIER, BUFFER) == position
    sink.write(*batch(position.next))
    assert place.rows() == rows_up_to(2 * ROWS_A_BATCH)


def test_a_writer_that_is_between_look_and_commit_is_kept_out(
    place: DeltaPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    import deltalake

    first, position = written(place, 1)
    second = sink_at(place)

    def opened_between(*args: object, **options: object) -> None:
        monkeypatch.undo()
        assert second.open(BARRIER, BUFFER) == position
        write_deltalake(*args, **options)

    monkeypatch.setattr(deltalake, "write_deltalake", opened_between)
    with pytest.raises(FencedError, match="was opened by another writer"):
        first.write(*batch(position.next))
    second.write(*batch(position.next))
    assert place.rows() == rows_up_to(2 * ROWS_A_BATCH)


def test_the_position_outlives_its_commits_and_old_rows(place: DeltaPlace) -> None:
    _, position = written(place)
    table = place.table
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 days"})
    table.create_checkpoint()
    table.cleanup_metadata()
    logs = Path(place.where["table"], "_delta_log")
    assert not (logs / f"{0:020d}.json").exists(), "the first commits are gone"
    table.delete(f"position < {position.next - 1}")
    sink = sink_at(place)
    assert sink.open(BARRIER, BUFFER) == position
    sink.write(*batch(position.next))
    assert len(place.rows()) == ROWS_A_BATCH + 1


def test_what_was_written_to_a_local_disk_is_synced_before_it_is_said(
    place: DeltaPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file that the newest version needs, those of an earlier process too."""
    written(place)[0].close()
    place.table.alter.set_table_properties({"delta.checkpointInterval": "3"})
    synced = synced_files(monkeypatch)
    sink = sink_at(place)
    sink.open(BARRIER, BUFFER)
    for number in range(2, 6):
        sink.write(*batch(number * ROWS_A_BATCH))
    table = Path(place.where["table"])
    logged = {str(path) for path in (table / "_delta_log").iterdir()}
    assert any(path.endswith(".checkpoint.parquet") for path in logged)
    rows = {str(path) for path in table.glob("*.parquet")}
    assert len(rows) == 6 and synced >= logged | rows | {str(table), str(table / "_delta_log")}


def test_a_table_that_was_restored_is_refused(place: DeltaPlace) -> None:
    written(place)
    place.table.restore(2)
    assert place.rows() == rows_up_to(ROWS_A_BATCH), "the first batch"
    with pytest.raises(StateError, match="14 rows of barrier 'orders', and 0 rows are the last"):
        sink_at(place).open(BARRIER, BUFFER)


def test_a_table_of_other_columns_is_refused(place: DeltaPlace) -> None:
    write_deltalake(place.where["table"], pa.table({"position": [1], "order": ["a"]}))
    with pytest.raises(StateError, match="columns position long, order string"):
        sink_at(place).open(BARRIER, BUFFER)


def test_a_table_in_a_store_has_one_writer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """By conditional puts of the store."""
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    with s3_bucket() as bucket:
        place = DeltaPlace(f"{bucket}/ordered")
        first, position = written(place, 1)
        second = sink_at(place)
        assert second.open(BARRIER, BUFFER) == position
        with pytest.raises(FencedError):
            first.write(*batch(position.next))
        second.write(*batch(position.next))
        assert place.rows() == rows_up_to(2 * ROWS_A_BATCH)


def test_the_programs_of_the_page_run(tmp_path: Path) -> None:
    names = run_shown(
        "delta.md", "python barrier in delta", tmp_path, table=str(tmp_path / "table")
    )
    exec(compile(program("delta.md", "python read in order"), "delta.md", "exec"), names)
    assert [row["key"] for row in names["rows"].to_pylist()] == KEYS


def test_what_is_complete_goes_into_one_commit_of_an_interval(
    place: DeltaPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    with ReorderBuffer(tmp_path / "buffer.db") as buffer:
        releaser = Releaser(BARRIER, buffer, DeltaSink(place.where["table"], interval_ms=1_000))
        releaser.begin()
        opened = place.table.version()
        buffer.add([(slot, "k", b"") for slot in range(10)])
        assert releaser.step(3) and not releaser.step(3), (
            "at once, since nothing was written before"
        )
        assert not releaser.step(5) and not releaser.step(7), "within the interval"
        now_s[0] += 1.0
        assert releaser.step(7) and not releaser.step(7)
        assert [row.slot for row in place.rows()] == list(range(7))
        assert place.table.version() == opened + 2
