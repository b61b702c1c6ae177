"""Queries that write and read Iceberg tables, by the real connector; each announcement is held against the
rows that were there when it was heard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from examples.tables import read_iceberg, write_iceberg
from tests.cluster.children import until
from tests.connectors.lake.lakes import SLOTS, IcebergLake
from tests.connectors.lake.sessions import CATALOG
from tests.spark.conftest import Pipelines
from tests.spark.support import SCHEMA


@pytest.fixture
def lake(spark: SparkSession, pipelines: Pipelines, tmp_path: Path) -> Iterator[IcebergLake]:
    made = IcebergLake(spark, pipelines("write", "read", "after"), tmp_path)
    yield made
    made.tracked.stop()


def rewrite(lake: IcebergLake) -> None:
    """Compacts the table's files."""
    table = lake.name.removeprefix(f"{CATALOG}.")
    options = "map('min-input-files', '1', 'rewrite-all', 'true')"
    lake.spark.sql(
        f"CALL {CATALOG}.system.rewrite_data_files(table => '{table}', options => {options})"
    )


def test_a_table_is_written_and_read(lake: IcebergLake) -> None:
    for slot in SLOTS[:3]:
        lake.pipeline.publish(slot)
    frame = lake.spark.readStream.schema(SCHEMA).parquet(lake.pipeline.input)
    with lake.witness():
        write = write_iceberg(lake.tracked, frame, lake.name, str(lake.directory / "cp"))
        write.processAllAvailable()
        out, checkpoint = str(lake.directory / "out"), str(lake.directory / "cp-read")
        read = read_iceberg(lake.tracked, lake.spark, lake.name, out, checkpoint)
        for slot in SLOTS[3:]:
            lake.pipeline.publish(slot)
            write.processAllAvailable()
            read.processAllAvailable()
        lake.finish()
    assert lake.rows_read() == lake.rows_published()


def test_a_reader_that_is_added_later_reads_a_compacted_table_in_parts(lake: IcebergLake) -> None:
    with lake.witness("write", "read", "after"):
        write = lake.write(files=2)
        for slot in SLOTS[:4]:
            lake.pipeline.publish(slot)
        write.processAllAvailable()
        rewrite(lake)
        for slot in SLOTS[4:]:
            lake.pipeline.publish(slot)
            write.processAllAvailable()
        read = lake.read(creates=["after"])  # one file a batch: snapshots are read in parts
        read.processAllAvailable()
        after = lake.copy_on()
        rewrite(lake)  # is nobody's
        lake.pipeline.publish(60)
        write.processAllAvailable()
        read.processAllAvailable()
        after.processAllAvailable()
        lake.finish()
    assert lake.rows_read() == lake.rows_published()


def test_a_reader_may_begin_before_the_table_has_rows(lake: IcebergLake) -> None:
    with lake.witness():
        read = lake.read()
        write = lake.write(files=3)
        for slot in SLOTS:
            lake.pipeline.publish(slot)
        write.processAllAvailable()
        read.processAllAvailable()
        lake.finish()
    assert lake.rows_read() == lake.rows_published()


def test_snapshots_that_nobody_has_tracked_are_named(lake: IcebergLake) -> None:
    rows = lake.spark.createDataFrame([(1, -1)], SCHEMA)
    rows.writeTo(lake.name).append()
    found = lake.spark.sql(f"SELECT snapshot_id FROM {lake.name}.snapshots").collect()
    snapshot = found[0]["snapshot_id"]
    lake.pipeline.publish(SLOTS[0])
    lake.write().processAllAvailable()
    read = lake.read()
    read.query.processAllAvailable()
    until(lambda: f"snapshot {snapshot} (append) of table" in lake.waits())
    read.stop()
    with lake.witness("write"):
        lake.read(untracked=[f"{lake.table}@{snapshot}"]).processAllAvailable()
        lake.finish()


def test_a_snapshot_that_overwrites_is_not_left_out_in_silence(lake: IcebergLake) -> None:
    write = lake.write()
    lake.pipeline.publish(SLOTS[0])
    write.processAllAvailable()
    skipping: Any = {"streaming-skip-overwrite-snapshots": "true"}
    read = lake.read(lake.source(**skipping))
    read.processAllAvailable()
    lake.sql("INSERT OVERWRITE {} VALUES (1, 1)")
    lake.pipeline.publish(SLOTS[1])
    write.query.processAllAvailable()
    read.query.processAllAvailable()
    until(lambda: read.tracking_failure is not None)
    assert "(overwrite) adds rows, and the query has left out all of it" in str(
        read.tracking_failure
    )


def test_both_queries_are_followed_from_outside(lake: IcebergLake) -> None:
    """By their checkpoints and the table's metadata alone; neither knows of it."""
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


def test_what_is_staged_or_on_another_branch_is_refused(lake: IcebergLake) -> None:
    write = lake.write()
    lake.pipeline.publish(SLOTS[0])
    write.processAllAvailable()
    write.stop()
    lake.sql("ALTER TABLE {} SET TBLPROPERTIES ('write.wap.enabled' = 'true')")
    lake.spark.conf.set("spark.wap.id", "audit")
    try:
        write = lake.write()
        lake.pipeline.publish(SLOTS[1])
        until(lambda: write.tracking_failure is not None)
    finally:
        lake.spark.conf.unset("spark.wap.id")
    assert "is not among those of the main branch" in str(write.tracking_failure)
    assert lake.pipeline.describe().segments[0].min_time <= SLOTS[1]


def test_expired_snapshots_are_named(lake: IcebergLake) -> None:
    write = lake.write()
    for slot in SLOTS[:3]:
        lake.pipeline.publish(slot)
    write.processAllAvailable()
    copy = lake.source().writeStream.format("parquet")
    copy = copy.option("checkpointLocation", str(lake.directory / "cp-read"))
    read = copy.option("path", str(lake.directory / "out")).start()
    read.processAllAvailable()
    read.stop()
    table = lake.name.removeprefix(f"{CATALOG}.")
    lake.spark.sql(
        f"CALL {CATALOG}.system.expire_snapshots(table => '{table}', "
        "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)"
    )
    with pytest.raises(Exception, match="of none of the tables that are named, or of one that no"):
        follow = lake.attached()[1]
        follow.wait_durable(5)
