"""Queries that write and read Delta tables, by the real connector; each announcement is held against the
rows that were there when it was heard."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.connectors.lake.lakes import COLUMNS, SLOTS, DeltaLake, table_name
from tests.spark.conftest import Pipelines
from tests.spark.support import SCHEMA
from tests.waits import until
from tracker.errors import TrackingError


@pytest.fixture
def lake(spark: SparkSession, pipelines: Pipelines, tmp_path: Path) -> Iterator[DeltaLake]:
    made = DeltaLake(spark, pipelines("write", "read", "after"), tmp_path)
    yield made
    made.tracked.stop()


def test_a_reader_may_be_told_the_version_that_it_begins_with(lake: DeltaLake) -> None:
    for slot in SLOTS:
        lake.pipeline.publish(slot)
    write = lake.write()
    write.processAllAvailable()
    with pytest.raises(TrackingError, match="startingTimestamp, or startingVersion 'latest'"):
        lake.read(lake.source(startingVersion="latest"))
    read = lake.read(lake.source(startingVersion="2"))
    read.processAllAvailable()
    # What it has not read is open for good, so nothing passes it.
    lake.pipeline.leave()
    segment = lake.pipeline.describe().segments[1]
    assert (segment.open_items, segment.min_time) == (2, SLOTS[0])
    assert [slot for slot, _ in lake.rows_read()][::3] == list(SLOTS[2:])


CHANGES = {
    "UPDATE": "UPDATE {} SET row = row + 100 WHERE row = 1",
    "MERGE": "MERGE INTO {} AS old USING (SELECT 2 AS row) AS new ON old.row = new.row "
    "WHEN MATCHED THEN UPDATE SET row = 102",
    "WRITE": "INSERT INTO {} REPLACE WHERE slot = 10 VALUES (10, 7)",
}
"""Statements that take rows away and add some, by the operation that Delta notes."""


def test_what_changes_rows_is_a_unit_that_its_writer_has_to_create(lake: DeltaLake) -> None:
    write = lake.write()
    lake.pipeline.publish(SLOTS[0])
    write.processAllAvailable()
    read = lake.read(lake.source(ignoreChanges="true"))
    for version, (operation, statement) in enumerate(CHANGES.items(), 1):
        lake.sql(statement)
        read.query.processAllAvailable()
        until(lambda v=version, o=operation: f"version {v} ({o}) of table" in lake.waits())  # type: ignore[misc]
        assert lake.pipeline.describe().segments[1].min_time <= SLOTS[0] + 1
        read.stop()
        passed = [f"{lake.table}@1-{version}"]
        read = lake.read(lake.source(ignoreChanges="true"), untracked=passed)
        read.processAllAvailable()
    lake.pipeline.publish(SLOTS[1])
    write.processAllAvailable()
    read.processAllAvailable()
    lake.finish()


def test_a_sink_in_complete_mode_replaces_the_table(lake: DeltaLake) -> None:
    frame = lake.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    counts = frame.parquet(lake.pipeline.input).groupBy("slot").count()
    writer = counts.writeStream.format("delta").outputMode("complete")
    writer = writer.option("checkpointLocation", lake.url("cp"))
    writer = writer.option("path", lake.table)
    write = lake.tracked.start(writer, node_id="write", reads="write", creates=["read"])
    for slot in SLOTS[:3]:
        lake.pipeline.publish(slot)
    write.processAllAvailable()
    read = lake.read(lake.source(ignoreChanges="true"))
    lake.pipeline.publish(SLOTS[3])
    write.processAllAvailable()
    read.processAllAvailable()
    lake.finish()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"readChangeFeed": "true"}, "change data feed"),
        ({"startingTimestamp": "2020-01-01"}, "which no log records"),
    ],
)
def test_what_cannot_be_told_of_a_reader_is_refused_at_once(
    lake: DeltaLake, options: dict[str, Any], said: str
) -> None:
    lake.spark.sql(
        f"CREATE TABLE {lake.name} ({COLUMNS}) USING delta "
        "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    with pytest.raises(TrackingError, match=said):
        lake.read(lake.source(**options))
    assert not lake.look("cp-read").exists()


def test_a_reader_that_leaves_out_changes_is_stopped_at_the_first(lake: DeltaLake) -> None:
    """And is not let on by being told otherwise: what it has left out stays out."""
    write = lake.write()
    lake.pipeline.publish(SLOTS[0])
    write.processAllAvailable()
    read = lake.read(lake.source(skipChangeCommits="true"))
    read.processAllAvailable()
    lake.sql("UPDATE {} SET row = row + 100 WHERE row = 1")
    until(lambda: read.tracking_failure is not None)
    refused = "version 1 (UPDATE) takes rows away and adds some"
    assert refused in str(read.tracking_failure)
    read.stop()
    read = lake.read(lake.source(ignoreChanges="true"))
    until(lambda: read.tracking_failure is not None)
    assert refused in str(read.tracking_failure)


def test_the_version_that_a_reader_began_with_counts_when_it_is_told_another(
    lake: DeltaLake,
) -> None:
    """Spark takes it once; what the first batch has read is not durable yet."""
    lake.append(lake.spark.createDataFrame([(1, -1)], SCHEMA))
    lake.pipeline.publish(SLOTS[0])
    lake.write().processAllAvailable()
    for version in ("0", "1"):
        read = lake.read(lake.source(startingVersion=version))
        read.query.processAllAvailable()
        until(lambda: "version 0 (WRITE) of table" in lake.waits())
        read.stop()
    assert lake.pipeline.describe().segments[1].open_items == 1
    passed = [f"{lake.table}@0"]
    lake.read(lake.source(startingVersion="1"), untracked=passed).processAllAvailable()
    lake.finish()


def test_rows_that_are_brought_back_are_refused(lake: DeltaLake) -> None:
    write = lake.write()
    lake.pipeline.publish(SLOTS[0])
    lake.pipeline.publish(SLOTS[1])
    write.processAllAvailable()
    read = lake.read(lake.source(ignoreDeletes="true"))
    read.processAllAvailable()
    lake.sql("RESTORE TABLE {} TO VERSION AS OF 0")  # only takes rows away
    lake.pipeline.publish(SLOTS[2])
    write.processAllAvailable()
    read.processAllAvailable()
    lake.sql("RESTORE TABLE {} TO VERSION AS OF 1")  # brings some, and takes some
    read.stop()
    read = lake.read(lake.source(ignoreChanges="true"))
    until(lambda: read.tracking_failure is not None)
    assert "version 4 (RESTORE) brings rows back" in str(read.tracking_failure)


def test_a_table_in_the_catalog_is_found_by_its_location(lake: DeltaLake) -> None:
    name = table_name(lake.pipeline)
    lake.spark.sql(f"CREATE TABLE {name} ({COLUMNS}) USING delta LOCATION '{lake.table}'")
    frame = lake.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    writer = frame.parquet(lake.pipeline.input).writeStream.format("delta")
    writer = writer.option("checkpointLocation", lake.url("cp"))
    with lake.witness():
        write = lake.tracked.start(
            writer, node_id="write", reads="write", creates=["read"], to_table=name
        )
        read = lake.read(lake.spark.readStream.table(name), reads={lake.table: "read"})
        for slot in SLOTS:
            lake.pipeline.publish(slot)
        write.processAllAvailable()
        read.processAllAvailable()
        lake.finish()
    lake.spark.sql(f"DROP TABLE {name}")
    assert lake.rows_read() == lake.rows_published()


def test_a_table_that_was_made_anew_is_refused(lake: DeltaLake) -> None:
    write = lake.write()
    lake.pipeline.publish(SLOTS[0])
    write.processAllAvailable()
    shutil.rmtree(lake.table)
    lake.pipeline.publish(SLOTS[1])
    until(lambda: write.tracking_failure is not None or write.query.exception() is not None)
    assert lake.pipeline.describe().segments[0].min_time <= SLOTS[1]
