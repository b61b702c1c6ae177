"""Queries that write tables from within `foreachBatch`, and jobs that read what is complete of a table as of
one version, by the real connectors."""

from __future__ import annotations

import json
import signal
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from examples.database import write_database
from examples.tables import report_completed, write_batches
from local_tracker.spark.formats.as_of import TableAsOf
from local_tracker.spark.session.completed import CompletedReader
from local_tracker.spark.session.tracked import Tracked, TrackedQuery
from local_tracker.worker.noted import note_commit
from tests.connectors.lake import driver
from tests.connectors.lake.lakes import COLUMNS, SLOTS, DeltaLake, IcebergLake, Lake
from tests.spark.conftest import Pipelines
from tests.spark.support import SCHEMA
from tests.waits import HANG_S
from tracker.client import NodeClient, Subscriber
from tracker.core.model import Cells, Edge, TickContent
from tracker.core.model.ack_values import unit_value
from tracker.errors import TrackingError

UNMERGED = "('commit.manifest-merge.enabled' = 'false')"


@pytest.fixture(params=["delta", "iceberg"])
def lake(
    request: pytest.FixtureRequest, spark: SparkSession, pipelines: Pipelines, tmp_path: Path
) -> Iterator[Lake]:
    """An empty table: of Delta's a place, of Iceberg's a name."""
    pipeline = pipelines("write", "read", "after", edges=(Edge("write", "after"),))
    made: Lake
    if request.param == "delta":
        made = DeltaLake(spark, pipeline, tmp_path)
    else:
        made = IcebergLake(spark, pipeline, tmp_path)
        made.sql(f"ALTER TABLE {{}} SET TBLPROPERTIES {UNMERGED}")
    yield made
    made.tracked.stop()


def out(lake: Lake) -> str:
    """What the writer is told."""
    return lake.table if isinstance(lake, DeltaLake) else lake.name


def input_rows(lake: Lake) -> DataFrame:
    frame = lake.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return frame.parquet(lake.pipeline.input)


def write(lake: Lake) -> TrackedQuery:
    table, checkpoint = out(lake), str(lake.directory / "cp")
    return write_batches(lake.tracked, input_rows(lake), table, lake.format, checkpoint)


def table_rows(lake: Lake) -> list[tuple[int, int]]:
    rows = TableAsOf(lake.spark, out(lake), lake.format).load(None).collect()
    return sorted((row["slot"], row["row"]) for row in rows)


def witnessed(lake: Lake) -> tuple[str, ...]:
    """Of an Iceberg table, whose files don't name the batch, the reader's files tell."""
    return ("write", "read") if isinstance(lake, DeltaLake) else ("read",)


def test_each_batch_is_appended_and_read(lake: Lake) -> None:
    """An empty one, too."""
    for slot in SLOTS[:3]:
        lake.pipeline.publish(slot, rows=0 if slot == SLOTS[1] else 3)
    with lake.witness(*witnessed(lake)):
        query = write(lake)
        query.processAllAvailable()
        read = lake.read()
        for slot in SLOTS[3:]:
            lake.pipeline.publish(slot)
            query.processAllAvailable()
            read.processAllAvailable()
        query.stop()
        lake.pipeline.publish(60)
        query = write(lake)  # finds what it has written
        query.processAllAvailable()
        read.processAllAvailable()
        lake.finish()
    assert lake.rows_read() == lake.rows_published() == table_rows(lake)


def test_a_batch_that_was_killed_behind_its_commit_is_not_appended_again(lake: Lake) -> None:
    """Whatever its function makes of it then; and it is not taken for another batch of the same number."""
    for slot in SLOTS[:4]:
        lake.pipeline.publish(slot)
    status = driver.run_driver(
        lake.spark, lake.tracked, lake.directory, lake.format, out(lake), batch=2
    )
    assert status == -signal.SIGKILL
    checkpoint = lake.directory / "cp"
    assert not (checkpoint / "commits/2").exists()
    assert len(table_rows(lake)) == 9
    assert lake.pipeline.describe().segments[0].min_time <= SLOTS[2]

    planned = checkpoint / "offsets/2"
    kept = planned.read_bytes()
    planned.unlink()
    planned.with_name(".2.crc").unlink()
    query = driver.start(lake.spark, lake.tracked, lake.directory, lake.format, out(lake))
    with pytest.raises(Exception, match="for other offsets than those of the checkpoint"):
        query.processAllAvailable()
    query.stop()
    planned.with_name(".2.crc").unlink()
    planned.write_bytes(kept)

    with lake.witness("read"):
        read = lake.read()
        query = driver.start(
            lake.spark, lake.tracked, lake.directory, lake.format, out(lake), more=1000
        )
        query.processAllAvailable()
        read.processAllAvailable()
        lake.finish()
    expected = [
        (slot, row if slot < SLOTS[3] else row + 1000) for slot, row in lake.rows_published()
    ]
    assert lake.rows_read() == table_rows(lake) == expected


def test_a_batch_may_write_several_tables(lake: Lake, tmp_path: Path) -> None:
    other = f"{tmp_path}/other"
    first = lake.tracked.writer(out(lake), lake.format, creates=["read"])
    second = lake.tracked.writer(other, "delta", creates=["after"], partition_by=["slot"])

    def each_batch(rows: DataFrame, batch: int) -> None:
        first(rows, batch)
        second(rows, batch)

    writer = input_rows(lake).writeStream.foreachBatch(each_batch)
    writer = writer.option("checkpointLocation", str(tmp_path / "cp"))
    query = lake.tracked.start(writer, node_id="write", reads="write", creates=["read", "after"])
    for slot in SLOTS[:3]:
        lake.pipeline.publish(slot)
    query.processAllAvailable()
    after = lake.spark.readStream.format("delta").load(other).writeStream.format("parquet")
    after = after.option("checkpointLocation", str(tmp_path / "cp-after"))
    reads = [
        lake.read(),
        lake.tracked.start(
            after.option("path", str(tmp_path / "after")), node_id="after", reads={other: "after"}
        ),
    ]
    for read in reads:
        read.processAllAvailable()
    lake.finish()
    assert lake.rows_read() == lake.rows_published()


def test_a_batch_writes_a_table_once(lake: Lake) -> None:
    """By whatever name."""
    writers: list[Callable[[DataFrame, int], None]] = [lake.tracked.writer(out(lake), lake.format)]
    if isinstance(lake, DeltaLake):
        lake.spark.sql(f"CREATE TABLE twice ({COLUMNS}) USING delta LOCATION '{lake.table}'")
        writers.append(lake.tracked.writer("twice", "delta"))
    lake.pipeline.publish(SLOTS[0])

    def each_batch(rows: DataFrame, batch: int) -> None:
        for publish in (*writers, writers[0]):
            publish(rows, batch)

    writer = input_rows(lake).writeStream.foreachBatch(each_batch)
    writer = writer.option("checkpointLocation", str(lake.directory / "cp"))
    query = lake.tracked.start(writer, node_id="write", reads="write", creates=["read"])
    with pytest.raises(Exception, match="was called twice in batch 0"):
        query.processAllAvailable()
    lake.spark.sql("DROP TABLE IF EXISTS twice")
    assert lake.pipeline.describe().segments[0].min_time <= SLOTS[0]


def test_what_cannot_be_written_is_refused_at_once(lake: Lake) -> None:
    with pytest.raises(TrackingError, match=f"there is no {lake.format} table .*CREATE TABLE"):
        lake.tracked.writer("nowhere.at_all", lake.format)
    with pytest.raises(TrackingError, match=r"trigger\(availableNow=True\)"):
        lake.tracked.job(
            lake.spark.range(1).write.format(lake.format), out(lake), node_id="job", reads="write"
        )
    if isinstance(lake, IcebergLake):
        lake.sql("ALTER TABLE {} UNSET TBLPROPERTIES ('commit.manifest-merge.enabled')")
        with pytest.raises(TrackingError, match="Iceberg's own reader may skip files"):
            lake.tracked.writer(out(lake), lake.format)


def test_a_table_goes_by_its_name(lake: Lake) -> None:
    name = lake.name
    if isinstance(lake, DeltaLake):
        name = f"named_{lake.directory.name.replace('-', '_')}"
        lake.spark.sql(f"CREATE TABLE {name} ({COLUMNS}) USING delta LOCATION '{lake.table}'")
    lake.spark.sql(f"INSERT INTO {name} VALUES (1, -1)")  # nobody's
    version = TableAsOf(lake.spark, name, lake.format).newest()
    checkpoint = str(lake.directory / "cp")
    query = write_batches(lake.tracked, input_rows(lake), name, lake.format, checkpoint)
    read = lake.read(
        lake.spark.readStream.table(name),
        reads={name: "read"}, untracked=[f"{name}@0-{version}"],
    )  # fmt: skip
    for slot in SLOTS[:3]:
        lake.pipeline.publish(slot)
    query.processAllAvailable()
    read.processAllAvailable()
    lake.finish()
    assert lake.rows_read() == [(1, -1), *lake.rows_published()]


def test_a_run_reads_the_version_that_it_was_given(lake: Lake, tmp_path: Path) -> None:
    for slot in SLOTS[:3]:
        lake.pipeline.publish(slot)
    query = write(lake)
    query.processAllAvailable()
    target, name, record = lake.pipeline.target, lake.pipeline.name, tmp_path / "runs.json"
    with Subscriber(target, name) as subscriber:
        assert subscriber.wait_until(SLOTS[2] + 1, "write", HANG_S)
    table = TableAsOf(lake.spark, out(lake), lake.format)
    expected = lake.rows_published()
    with CompletedReader(target, name, "write", record, slot="slot") as reader:
        taken = reader.take(table)
        assert taken is not None and taken.run.version == table.newest()
    # The job died, and what it was to read is changed, below and above where its run ends.
    lake.sql(f"DELETE FROM {{}} WHERE slot = {SLOTS[0]}")
    lake.pipeline.publish(SLOTS[3])
    query.processAllAvailable()
    assert table.newest() != taken.run.version
    with CompletedReader(target, name, "write", record, slot="slot") as reader:
        again = reader.take(table)
        assert again is not None and again.run.again and again.run.version == taken.run.version
        rows = sorted((row["slot"], row["row"]) for row in again.frame.collect())
        assert rows == expected
    assert json.loads(record.read_text())["begun"][-1] == taken.run.version


def test_reports_take_each_row_once_whatever_becomes_visible_early(
    lake: Lake, tmp_path: Path
) -> None:
    """A row at min time or above is in the version that is read, and waits."""
    target, name = lake.pipeline.target, lake.pipeline.name
    places = str(tmp_path / "report"), str(tmp_path / "runs.json")
    for slot in SLOTS[:2]:
        lake.pipeline.publish(slot)
    lake.pipeline.publish(SLOTS[2], commit=False)  # its front has not told of it
    query = write(lake)
    query.query.processAllAvailable()
    with Subscriber(target, name) as subscriber:
        assert subscriber.wait_until(SLOTS[1] + 1, "write", HANG_S)
        assert report_completed(lake.spark, target, name, out(lake), lake.format, *places)
        assert len(table_rows(lake)) == 9
        lake.pipeline.commit()
        query.wait_durable()
        assert subscriber.wait_until(SLOTS[2] + 1, "write", HANG_S)
        assert report_completed(lake.spark, target, name, out(lake), lake.format, *places)
        assert not report_completed(lake.spark, target, name, out(lake), lake.format, *places)
    reported = lake.spark.read.schema(SCHEMA).parquet(
        *map(str, (tmp_path / "report").glob("run=*"))
    )
    assert sorted((row["slot"], row["row"]) for row in reported.collect()) == lake.rows_published()


def test_a_database_is_written_once_a_batch_and_noted(
    spark: SparkSession, pipelines: Pipelines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink that knows nothing of batches. Its reader, a node of its own, consumes what was noted."""
    pipeline = pipelines("write", "read")
    tracked = Tracked(spark, pipeline.target, pipeline.name)
    frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    places = str(tmp_path / "orders.db"), str(tmp_path / "notes"), str(tmp_path / "cp")
    for slot in SLOTS[:3]:
        pipeline.publish(slot)

    def fails_once(directory: str, batch: int, names: Sequence[str]) -> None:
        """The batch is in the database, and comes again."""
        if batch == 1:
            monkeypatch.undo()
            raise RuntimeError("between the database's commit and the note")
        note_commit(directory, batch, names)

    monkeypatch.setattr("examples.database.note_commit", fails_once)
    query = write_database(tracked, frame.parquet(pipeline.input), *places)
    with pytest.raises(Exception, match="between the database's commit and the note"):
        query.processAllAvailable()
    query.stop()
    query = write_database(tracked, frame.parquet(pipeline.input), *places)
    query.processAllAvailable()
    with closing(sqlite3.connect(places[0])) as connection:
        rows = connection.execute("SELECT slot, row FROM orders ORDER BY row").fetchall()
    assert rows == [(slot, row) for row, slot in enumerate(pipeline.slots)]
    names = [f"orders/{batch}" for batch in range(3)]
    with NodeClient(pipeline.target, pipeline.name, "reader") as reader:
        reader.join(HANG_S)
        slots = reader.resolve_units("read", names, 1_000)
        assert slots == dict(zip(names, SLOTS, strict=False))
        read = pipeline.segments.index("read")
        cells = Cells.of((read, slots[name], unit_value(name), 1) for name in names)
        reader.commit(TickContent(consumed=cells)).result(HANG_S)
        pipeline.leave()
        pipeline.assert_finished()
    query.stop()


def test_the_newest_version_is_not_one_that_the_session_remembers(lake: Lake) -> None:
    """Iceberg's catalogs remember a table that was called by its name, as it was."""
    rows = lake.spark.createDataFrame([(1, 1)], SCHEMA)
    rows.write.format(lake.format).mode("append").save(lake.table)
    table = TableAsOf(lake.spark, out(lake), lake.format)
    first = table.newest()
    assert table.load(first).count() == 1
    rows.write.format(lake.format).mode("append").save(lake.table)  # not by its name
    newest = table.newest()
    assert newest != first
    assert (table.load(first).count(), table.load(newest).count()) == (1, 2)
    by_place = TableAsOf(lake.spark, lake.table, lake.format)
    assert by_place.newest() == newest
    assert (by_place.load(first).count(), by_place.load(None).count()) == (1, 2)
