"""What holds for tables of every format, by the real connectors; each announcement is held against the rows
that were there when it was heard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.connectors.lake.lakes import SLOTS, DeltaLake, IcebergLake, Lake
from tests.connectors.parts.s3 import S3Server
from tests.connectors.parts.together import BUCKET
from tests.connectors.places import S3Place
from tests.spark.conftest import Pipelines
from tests.spark.support import SCHEMA
from tests.waits import until


@pytest.fixture(params=["delta", "iceberg"])
def lake(
    request: pytest.FixtureRequest, spark: SparkSession, pipelines: Pipelines, tmp_path: Path
) -> Iterator[Lake]:
    pipeline = pipelines("write", "read", "after")
    made: Lake
    if request.param == "iceberg":
        made = IcebergLake(spark, pipeline, tmp_path)
    elif request.param == "delta":
        made = DeltaLake(spark, pipeline, tmp_path)
    else:
        made = DeltaLake(spark, pipeline, tmp_path, request.getfixturevalue("bucket"))
    yield made
    made.tracked.stop()


@pytest.fixture
def bucket(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> S3Place:
    """A place there, which this process reaches by its environment."""
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    return S3Place(s3, BUCKET, tmp_path.name)


def test_a_table_is_written_and_read(lake: Lake) -> None:
    """By the programs of the page."""
    for slot in SLOTS[:3]:
        lake.pipeline.publish(slot)
    with lake.witness():
        write = lake.write_as_shown()
        write.processAllAvailable()
        read = lake.read_as_shown()
        for slot in SLOTS[3:]:
            lake.pipeline.publish(slot)
            write.processAllAvailable()
            read.processAllAvailable()
        lake.finish()
    assert lake.rows_read() == lake.rows_published()


def test_a_reader_that_is_added_later_reads_a_compacted_table_in_parts(lake: Lake) -> None:
    with lake.witness("write", "read", "after"):
        write = lake.write(files=2)
        for slot in SLOTS[:4]:
            lake.pipeline.publish(slot)
        write.processAllAvailable()
        lake.compact()
        for slot in SLOTS[4:]:
            lake.pipeline.publish(slot)
            write.processAllAvailable()
        read = lake.read(creates=["after"])  # one file a batch
        read.processAllAvailable()
        after = lake.copy_on()
        lake.compact()  # is nobody's
        lake.pipeline.publish(60)
        write.processAllAvailable()
        read.processAllAvailable()
        after.processAllAvailable()
        lake.finish()
    assert len(list((lake.look("cp-read") / "commits").glob("[0-9]*"))) >= 4
    assert lake.rows_read() == lake.rows_published()


def test_what_nobody_has_tracked_is_named(lake: Lake) -> None:
    lake.append(lake.spark.createDataFrame([(1, -1)], SCHEMA))
    first = lake.newest()
    lake.pipeline.publish(SLOTS[0])
    lake.write().processAllAvailable()
    read = lake.read()
    read.query.processAllAvailable()
    until(lambda: f"{lake.shown(first)} of table" in lake.waits())
    read.stop()
    with lake.witness("write"):
        lake.read(untracked=[f"{lake.table}@{first}"]).processAllAvailable()
        lake.finish()


@pytest.mark.parametrize("lake", ["delta", "delta on S3", "iceberg"], indirect=True)
def test_both_queries_are_followed_from_outside(lake: Lake) -> None:
    """By their checkpoints and the table's log alone; neither knows of it."""
    for slot in SLOTS:
        lake.pipeline.publish(slot)
    write = lake.plain_writer().start()
    write.processAllAvailable()
    read = lake.plain_reader().start()
    read.processAllAvailable()
    with lake.witness():
        follows = lake.attached()
        lake.finish()
    for follow in follows:
        follow.close()
    write.stop()
    read.stop()


def test_other_partitions_after_a_restart_and_a_wider_schema(lake: Lake) -> None:
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


def test_rows_that_are_only_taken_away_are_no_unit(lake: Lake) -> None:
    with lake.witness():
        write = lake.write()
        lake.pipeline.publish(SLOTS[0])
        write.processAllAvailable()
        read = lake.read(lake.source(**lake.over_deletions))
        read.processAllAvailable()
        lake.sql(f"DELETE FROM {{}} WHERE slot = {SLOTS[0]}")
        lake.pipeline.publish(SLOTS[1])
        write.processAllAvailable()
        read.processAllAvailable()
        lake.finish()
    assert lake.rows_read() == lake.rows_published()


def test_what_changes_rows_ends_a_reader_that_was_not_told_what_to_do(lake: Lake) -> None:
    """By the connector's own word; nothing passes the rows that it has not read."""
    write = lake.write()
    lake.pipeline.publish(SLOTS[0])
    write.processAllAvailable()
    read = lake.read()
    read.processAllAvailable()
    lake.sql("INSERT OVERWRITE {} VALUES (1, 1)")
    lake.pipeline.publish(SLOTS[1])
    write.processAllAvailable()
    until(lambda: not read.isActive)
    lake.pipeline.leave()
    assert lake.pipeline.describe().segments[1].min_time == SLOTS[1]


def test_what_has_been_cleaned_up_is_not_there_for_a_later_reader(lake: Lake) -> None:
    """Compacted, and the old files deleted. What a format's reader finds no more holds min time."""
    write = lake.write()
    for slot in SLOTS[:3]:
        lake.pipeline.publish(slot)
    write.processAllAvailable()
    lake.compact()
    lake.clean_up()
    lake.pipeline.publish(SLOTS[3])
    write.processAllAvailable()
    read = lake.read()
    read.processAllAvailable()
    lake.pipeline.leave()
    slots = sorted({slot for slot, _ in lake.rows_read()})
    first_lost = next((slot for slot in SLOTS[:4] if slot not in slots), None)
    if first_lost is None:
        lake.pipeline.assert_finished()
    else:
        assert lake.pipeline.describe().segments[1].min_time == first_lost
    assert (first_lost is None) == lake.keeps_rows
