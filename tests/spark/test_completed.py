"""The gated reader over DataFrames: boundaries, timestamps, and when the DataFrame is made."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from local_tracker.spark.session.completed import CompletedReader, between, slot_of_timestamp
from tests.client.support import heard_everywhere
from tests.docs.pages import ROOT, blocks
from tests.spark.conftest import Pipelines
from tracker.consumers.periods.runs import Run
from tracker.core.model.slots import FOREVER, slot_of
from tracker.errors import TrackingError


def test_a_run_takes_its_slots_and_makes_the_frame_after_asking(
    spark: SparkSession, pipelines: Pipelines, tmp_path: Path
) -> None:
    pipeline = pipelines("read")
    pipeline.publish(10)  # an item that nobody consumes: min time stays at 10
    rows = spark.createDataFrame([(slot, slot) for slot in (8, 9, 10, 11)], "slot long, row long")
    with CompletedReader(
        pipeline.target, pipeline.name, "read", tmp_path / "runs.json", slot="slot"
    ) as reader:
        with pytest.raises(TypeError, match="lambda: spark"):
            reader.take(rows)
        heard_everywhere(pipeline.target, pipeline.name, 10, "read")
        made: list[int] = []

        def load() -> DataFrame:
            made.append(1)
            return rows

        taken = reader.take(load)
        assert taken is not None and (taken.run.from_slot, taken.run.to_slot) == (0, 10)
        assert [row["row"] for row in taken.frame.collect()] == [8, 9]
        taken.done()
        assert reader.take(load) is None and len(made) == 1

    # What has versions is read at the one that was the newest then, and again at that one.
    class Table:
        newest_one = 3

        def newest(self) -> int:
            return self.newest_one

        def load(self, version: int | None) -> DataFrame:
            return rows.where("slot != 8") if version == 4 else rows

    table = Table()
    for version in (3, 4):
        table.newest_one = version
        with CompletedReader(
            pipeline.target, pipeline.name, "read", tmp_path / "table.json", slot="slot"
        ) as reader:
            taken = reader.take(table)
            assert taken is not None and taken.run.version == 3
            assert [row["row"] for row in taken.frame.collect()] == [8, 9]

    # The same as docs/consumers.md shows it, over files.
    (program,) = [
        b.text for b in blocks(ROOT / "docs" / "consumers.md") if b.info == "python spark"
    ]
    rows.withColumnRenamed("slot", "global_time").write.parquet(f"{tmp_path}/orders")
    text = program.replace('"orders"', repr(pipeline.name)).replace('"load"', '"read"')
    text = text.replace("/data/", f"{tmp_path}/")
    exec(compile(text, "docs/consumers.md", "exec"), {"spark": spark, "target": pipeline.target})
    published = spark.read.parquet(f"{tmp_path}/report/run=0").collect()
    assert sorted(row["row"] for row in published) == [8, 9]

    cut = Run(0, 9, 11)
    assert [row["row"] for row in between(rows, cut, "slot").collect()] == [9, 10]
    everything = Run(0, 9, FOREVER)
    assert [row["row"] for row in between(rows, everything, F.col("slot")).collect()] == [9, 10, 11]


def test_a_run_has_files_that_came_after_the_session_had_read_their_table(
    spark: SparkSession, pipelines: Pipelines, tmp_path: Path
) -> None:
    """Spark goes on with the files that a table, or a view, had when it was read first."""
    pipeline, places = pipelines("read"), (f"{tmp_path}/table", f"{tmp_path}/view")

    def come(*slots: int) -> None:
        """By another session: this one would forget what it knows of where it writes."""
        for place in places:
            Path(place).mkdir(exist_ok=True)
            rows = {"global_time": pyarrow.array(slots, pyarrow.int64())}
            pyarrow.parquet.write_table(pyarrow.table(rows), f"{place}/{slots[0]}.parquet")

    come(1, 2)
    spark.sql(f"CREATE TABLE seen (global_time LONG) USING parquet LOCATION '{places[0]}'")
    spark.read.parquet(places[1]).createOrReplaceTempView("seen_too")
    try:
        assert [spark.table(name).count() for name in ("seen", "seen_too")] == [2, 2]
        come(3)
        pipeline.publish(10)
        heard_everywhere(pipeline.target, pipeline.name, 10, "read")
        for name in ("seen", "seen_too"):
            with CompletedReader(
                pipeline.target, pipeline.name, "read", tmp_path / f"{name}.json"
            ) as reader:
                taken = reader.take(partial(spark.table, name))
                assert taken is not None
                assert sorted(row["global_time"] for row in taken.frame.collect()) == [1, 2, 3]
    finally:
        spark.sql("DROP TABLE seen")
        spark.catalog.dropTempView("seen_too")


def test_a_run_has_files_that_came_after_they_were_cached(
    spark: SparkSession, pipelines: Pipelines, tmp_path: Path
) -> None:
    """Spark reads a cached table, and all that is equal to a cached frame, as it was."""
    pipeline, place = pipelines("read"), tmp_path / "table"
    place.mkdir()

    def come(slot: int) -> None:
        rows = {"global_time": pyarrow.array([slot], pyarrow.int64())}
        pyarrow.parquet.write_table(pyarrow.table(rows), f"{place}/{slot}.parquet")

    come(1)
    spark.sql(f"CREATE TABLE cached (global_time LONG) USING parquet LOCATION '{place}'")
    spark.sql("CACHE TABLE cached")
    frame = spark.read.parquet(str(place)).where("global_time < 9").cache()
    assert [frame.count(), spark.table("cached").count()] == [1, 1]
    try:
        come(3)
        pipeline.publish(10)
        heard_everywhere(pipeline.target, pipeline.name, 10, "read")
        loads: list[Callable[[], DataFrame]] = [partial(spark.table, "cached"), lambda: frame]
        for number, load in enumerate(loads):
            with CompletedReader(
                pipeline.target, pipeline.name, "read", tmp_path / f"{number}.json"
            ) as reader:
                taken = reader.take(load)
                assert taken is not None
                assert sorted(row["global_time"] for row in taken.frame.collect()) == [1, 3]
    finally:
        frame.unpersist()
        spark.sql("DROP TABLE cached")


def test_a_frame_that_lacks_what_a_query_has_written_since_is_refused(
    spark: SparkSession, pipelines: Pipelines, tmp_path: Path
) -> None:
    """Spark lists the files of a file sink once for each frame."""
    pipeline, out = pipelines("read"), f"{tmp_path}/out"

    def run() -> None:
        rows = spark.readStream.schema("slot long, row long").parquet(pipeline.input)
        writer = rows.writeStream.partitionBy("slot").option(
            "checkpointLocation", str(tmp_path / "cp")
        )
        writer.trigger(availableNow=True).start(out).awaitTermination()

    pipeline.publish(10)
    run()
    kept = spark.read.parquet(out)
    kept.createOrReplaceTempView("kept")
    pipeline.publish(20)
    heard_everywhere(pipeline.target, pipeline.name, 10, "read")

    def take(load: Callable[[], DataFrame]) -> None:
        record = tmp_path / "runs.json"
        with CompletedReader(pipeline.target, pipeline.name, "read", record, slot="slot") as reader:
            assert reader.take(load) is not None

    try:
        for load in (partial(spark.table, "kept"), lambda: kept):
            take(load)
        run()
        for load in (partial(spark.table, "kept"), lambda: kept):
            with pytest.raises(
                TrackingError, match=rf"lacks [1-9] files .* to \S*{out} .*lambda: spark"
            ):
                take(load)
        take(lambda: spark.read.parquet(out))

        made: list[DataFrame] = []

        def load() -> DataFrame:
            """The query commits behind the first frame."""
            made.append(spark.read.parquet(out))
            if len(made) == 1:
                pipeline.publish(30)
                run()
            return made[-1]

        take(load)
        assert len(made) == 2 and made[0].count() < made[1].count()
    finally:
        spark.catalog.dropTempView("kept")


def test_timestamps_become_the_slots_that_fronts_give(spark: SparkSession) -> None:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    unix_us = [-1_500_001, -1, 0, 9_999, 10_000, 1_772_442_300_123_456, 253_000_000_000_000_001]
    moments = [epoch + timedelta(microseconds=each) for each in unix_us]
    frame = spark.createDataFrame([(moment,) for moment in moments], "stamp timestamp")
    for slack_ns in (10_000_000, 60 * 10**9, 1_000):
        slots = frame.select(slot_of_timestamp(F.col("stamp"), slack_ns).alias("slot")).collect()
        assert [row["slot"] for row in slots] == [slot_of(us * 1_000, slack_ns) for us in unix_us]
