"""Where a program under `lowmark query check` reads and writes: in folders of the check's own, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter

from local_tracker.spark.session.drafting import replaced
from tracker.errors import TrackingError
from tracker.testing.checking import _rows_in
from tracker.testing.places import Places


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path / "own")


def writer_to(spark: SparkSession, places: Places, sink: str) -> DataStreamWriter:
    frame = spark.readStream.schema("row INT").json(places.read("data/in"))
    return frame.writeStream.format(sink).option("checkpointLocation", "data/checkpoint")


def test_what_writes_elsewhere_than_in_files_is_refused(
    spark: SparkSession, places: Places
) -> None:
    for writer, table, shown in (
        (writer_to(spark, places, "kafka").option("topic", "orders"), "", "kafka"),
        (writer_to(spark, places, "parquet"), "lake.orders", "table lake.orders"),
    ):
        with pytest.raises(TrackingError, match=rf"writes to {shown}, .* by kill_and_restart"):
            places.move(writer, table)
    places.move(writer_to(spark, places, "noop"))
    places.move(writer_to(spark, places, "parquet").option("path", "data/out"))


def test_what_a_batch_writes_is_new_and_in_folders_of_the_check(
    spark: SparkSession, places: Places, tmp_path: Path
) -> None:
    out, other = str(tmp_path / "out"), str(tmp_path / "other")
    with replaced(*places.replacing()):
        spark.range(2).write.format("json").option("path", out).save()
        spark.range(3).write.format("json").options(path=other).mode("append").save()
    assert not Path(out).exists() and not Path(other).exists()
    assert [len(list(_rows_in(Path(places.of(each))))) for each in (out, other)] == [2, 3]


def test_files_that_nobody_here_can_read_are_named(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(2).write.orc(str(tmp_path / "out"))
    with pytest.raises(TrackingError, match=r"orc cannot be compared: a check reads Parquet"):
        list(_rows_in(tmp_path / "out"))
