"""Queries that write and read Iceberg tables, by the real connector; each announcement is held against the
rows that were there when it was heard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.connectors.lake.lakes import SLOTS, IcebergLake
from tests.spark.conftest import Pipelines
from tests.spark.support import SCHEMA
from tests.waits import HANG_S, until
from tracker.errors import TrackingError


@pytest.fixture
def lake(spark: SparkSession, pipelines: Pipelines, tmp_path: Path) -> Iterator[IcebergLake]:
    made = IcebergLake(spark, pipelines("write", "read", "after"), tmp_path)
    yield made
    made.tracked.stop()


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
    read = lake.plain_reader().start()
    read.processAllAvailable()
    read.stop()
    lake.clean_up()
    with pytest.raises(Exception, match="of none of the tables that are named, or of one that no"):
        follow = lake.attached()[1]
        follow.wait_durable(HANG_S)


def test_a_sink_in_complete_mode_is_refused_where_it_is_to_create(lake: IcebergLake) -> None:
    """Before anything is started; who gates on the segment that it reads needs nothing created."""
    frame = lake.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    rows = frame.parquet(lake.pipeline.input).groupBy("slot").count()
    rows = rows.selectExpr("slot", "count AS row")
    writer = rows.writeStream.format("iceberg").outputMode("complete")
    writer = writer.option("checkpointLocation", lake.url("cp"))
    started: dict[str, Any] = {"node_id": "write", "reads": "write", "to_table": lake.name}
    with pytest.raises(TrackingError, match="replaces an Iceberg table with each batch"):
        lake.tracked.start(writer, creates=["read"], **started)
    assert not lake.look("cp").exists()
    write = lake.tracked.start(writer, creates=[], **started)
    for slot in SLOTS[:3]:
        lake.pipeline.publish(slot)
    write.processAllAvailable()
    lake.finish()
    assert len(lake.spark.read.table(lake.name).collect()) == 3


def test_a_reader_is_refused_that_has_read_what_was_rolled_back(lake: IcebergLake) -> None:
    """And one that begins later never finds it: what was created there holds min time."""
    write = lake.write()
    lake.pipeline.publish(SLOTS[0])
    write.processAllAvailable()
    first = lake.newest()
    lake.pipeline.publish(SLOTS[1])
    write.processAllAvailable()
    read = lake.plain_reader().start()
    read.processAllAvailable()
    read.stop()
    lake.call("rollback_to_snapshot", f"snapshot_id => {first}")
    lake.pipeline.publish(SLOTS[2])
    write.processAllAvailable()
    with pytest.raises(StreamingQueryException):  # of Iceberg's own
        lake.plain_reader().start().processAllAvailable()
    writer = lake.plain_reader().option("path", lake.url("later"))
    writer = writer.option("checkpointLocation", lake.url("cp-later"))
    later = lake.tracked.start(writer, node_id="later", reads="read")
    later.processAllAvailable()
    lake.pipeline.leave()
    assert lake.pipeline.describe().segments[1].min_time == SLOTS[1]
