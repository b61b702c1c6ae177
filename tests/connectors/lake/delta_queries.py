"""Queries that write and read Delta tables, by the real connector; each announcement is held against the
rows that were there when it was heard."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from examples.tables import read_delta, write_delta
from local_tracker.spark.follow import TrackingError
from tests.cluster.children import until
from tests.connectors.lake.lakes import COLUMNS, SLOTS, DeltaLake
from tests.spark.conftest import Pipelines
from tests.spark.support import SCHEMA


@pytest.fixture
def lake(spark: SparkSession, pipelines: Pipelines, tmp_path: Path) -> Iterator[DeltaLake]:
    made = DeltaLake(spark, pipelines("write", "read", "after"), tmp_path)
    yield made
    made.tracked.stop()


def test_a_table_is_written_and_read(lake: DeltaLake) -> None:
    for slot in SLOTS[:3]:
        lake.pipeline.publish(slot)
    frame = lake.spark.readStream.schema(SCHEMA).parquet(lake.pipeline.input)
    with lake.witness():
        write = write_delta(lake.tracked, frame, lake.table, str(lake.directory / "cp"))
        write.processAllAvailable()
        out, checkpoint = str(lake.directory / "out"), str(lake.directory / "cp-read")
        read = read_delta(lake.tracked, lake.spark, lake.table, out, checkpoint)
        for slot in SLOTS[3:]:
            lake.pipeline.publish(slot)
            write.processAllAvailable()
            read.processAllAvailable()
        lake.finish()
    assert lake.rows_read() == lake.rows_published()


def test_a_reader_that_is_added_later_reads_a_compacted_table_in_parts(lake: DeltaLake) -> None:
    with lake.witness("write", "read", "after"):
        write = lake.write(files=2)
        for slot in SLOTS[:4]:
            lake.pipeline.publish(slot)
        write.processAllAvailable()
        lake.sql("OPTIMIZE {}")
        for slot in SLOTS[4:]:
            lake.pipeline.publish(slot)
            write.processAllAvailable()
        read = lake.read(creates=["after"])  # one file a batch: the snapshot has three
        read.processAllAvailable()
        after = lake.copy_on()
        lake.sql("OPTIMIZE {}")  # is nobody's
        lake.pipeline.publish(60)
        write.processAllAvailable()
        read.processAllAvailable()
        after.processAllAvailable()
        lake.finish()
    assert len(list((lake.directory / "cp-read/commits").glob("[0-9]*"))) >= 4
    assert lake.rows_read() == lake.rows_published()


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


def test_versions_that_nobody_has_tracked_are_named(lake: DeltaLake) -> None:
    lake.spark.createDataFrame([(1, -1)], SCHEMA).write.format("delta").save(lake.table)
    lake.pipeline.publish(SLOTS[0])
    lake.write().processAllAvailable()
    read = lake.read()
    read.query.processAllAvailable()
    until(lambda: "version 0 (WRITE) of table" in lake.waits())
    read.stop()
    with lake.witness("write"):
        lake.read(untracked=[f"{lake.table}@0"]).processAllAvailable()
        lake.finish()


def test_a_merge_is_a_unit_that_its_writer_has_to_create(lake: DeltaLake) -> None:
    write = lake.write()
    lake.pipeline.publish(SLOTS[0])
    write.processAllAvailable()
    read = lake.read(lake.source(ignoreChanges="true"))
    lake.sql("UPDATE {} SET row = row + 100 WHERE row = 1")
    read.query.processAllAvailable()
    until(lambda: "version 1 (UPDATE) of table" in lake.waits())
    assert lake.pipeline.describe().segments[1].min_time <= SLOTS[0] + 1
    read.stop()
    read = lake.read(lake.source(ignoreChanges="true"), untracked=[f"{lake.table}@1"])
    lake.pipeline.publish(SLOTS[1])
    write.processAllAvailable()
    read.processAllAvailable()
    lake.finish()


def test_a_sink_in_complete_mode_replaces_the_table(lake: DeltaLake) -> None:
    frame = lake.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    counts = frame.parquet(lake.pipeline.input).groupBy("slot").count()
    writer = counts.writeStream.format("delta").outputMode("complete")
    writer = writer.option("checkpointLocation", str(lake.directory / "cp"))
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
    assert not (lake.directory / "cp-read").exists()


def test_a_reader_that_leaves_out_changes_is_stopped_at_the_first(lake: DeltaLake) -> None:
    write = lake.write()
    lake.pipeline.publish(SLOTS[0])
    write.processAllAvailable()
    read = lake.read(lake.source(skipChangeCommits="true"))
    read.processAllAvailable()
    lake.sql("UPDATE {} SET row = row + 100 WHERE row = 1")
    until(lambda: read.tracking_failure is not None)
    assert "version 1 (UPDATE) takes rows away and adds some" in str(read.tracking_failure)


def test_a_table_in_the_catalog_is_found_by_its_location(lake: DeltaLake) -> None:
    name = f"t_{lake.directory.name.replace('-', '_')}"
    lake.spark.sql(f"CREATE TABLE {name} ({COLUMNS}) USING delta LOCATION '{lake.table}'")
    frame = lake.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    writer = frame.parquet(lake.pipeline.input).writeStream.format("delta")
    writer = writer.option("checkpointLocation", str(lake.directory / "cp"))
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


def test_both_queries_are_followed_from_outside(lake: DeltaLake) -> None:
    """By their checkpoints and the table's log alone; neither knows of it."""
    for slot in SLOTS:
        lake.pipeline.publish(slot)
    write = lake.plain_writer().start()
    write.processAllAvailable()
    copy = lake.source().writeStream.format("parquet")
    copy = copy.option("checkpointLocation", str(lake.directory / "cp-read"))
    read = copy.option("path", str(lake.directory / "out")).start()
    read.processAllAvailable()
    with lake.witness():
        follows = lake.attached()
        lake.finish()
    for follow in follows:
        follow.close()
    write.stop()
    read.stop()


def test_other_partitions_after_a_restart_and_a_wider_schema(lake: DeltaLake) -> None:
    with lake.witness("write"):
        write = lake.write(files=2)
        for slot in SLOTS[:4]:
            lake.pipeline.publish(slot)
        write.processAllAvailable()
        read = lake.read()
        read.processAllAvailable()
        write.stop()
        lake.sql("ALTER TABLE {} ADD COLUMNS (more bigint)")
        for slot in SLOTS[4:]:
            lake.pipeline.publish(slot)
        with lake.spark_setting("spark.sql.shuffle.partitions", "3"):
            write = lake.write(files=1)
            write.processAllAvailable()
        if not read.isActive:  # Delta's own word: a new schema needs a restart
            read.stop()
        read = lake.read()
        read.processAllAvailable()
        lake.finish()
    assert lake.rows_read() == lake.rows_published()


def test_a_table_that_was_made_anew_is_refused(lake: DeltaLake) -> None:
    write = lake.write()
    lake.pipeline.publish(SLOTS[0])
    write.processAllAvailable()
    shutil.rmtree(lake.table)
    lake.pipeline.publish(SLOTS[1])
    until(lambda: write.tracking_failure is not None or write.query.exception() is not None)
    assert lake.pipeline.describe().segments[0].min_time <= SLOTS[1]
