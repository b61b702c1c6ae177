"""Batch jobs over DataFrames: what Spark lists as their input is what they consume."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from local_tracker.spark.session.tracked import Tracked
from tests.spark.conftest import Pipelines
from tests.spark.support import Pipeline
from tests.waits import HANG_S
from tracker.client import Subscriber
from tracker.errors import TrackingError


@pytest.fixture
def pipeline(pipelines: Pipelines) -> Pipeline:
    return pipelines("days", "report")


@pytest.fixture
def names(spark: SparkSession, pipeline: Pipeline) -> str:
    """A table of names for slots, which is not tracked."""
    path = str(pipeline.directory / "names")
    spark.createDataFrame([(10, "ten"), (20, "twenty")], "slot long, name string").write.json(path)
    return path


def new_files(spark: SparkSession, pipeline: Pipeline, first: int) -> DataFrame:
    """The files that the front has published from its batch `first` on."""
    paths = sorted(map(str, Path(pipeline.input).glob("s*")))
    return spark.read.parquet(*paths[first:])


def test_a_job_is_a_node(spark: SparkSession, pipeline: Pipeline, names: str) -> None:
    tracked = Tracked(spark, pipeline.target, pipeline.name)
    out = str(pipeline.directory / "out")

    def run(frame: DataFrame, day: str) -> int:
        joined = frame.join(spark.read.schema("slot long, name string").json(names), "slot")
        return tracked.job(
            joined.write.partitionBy("name"), out, node_id="days", reads="days",
            untracked=[names], job_id=day,
        )  # fmt: skip

    pipeline.publish(10)
    first = new_files(spark, pipeline, 0)
    assert run(first, "monday") == 0
    assert run(first, "monday") == 0  # the scheduler has not heard of its end
    pipeline.publish(20)
    with pytest.raises(TrackingError, match="has been read by its run 0"):
        run(new_files(spark, pipeline, 0), "tuesday")
    assert run(new_files(spark, pipeline, 1), "tuesday") == 1
    with Subscriber(pipeline.target, pipeline.name) as subscriber:
        assert subscriber.wait_until(21, "days", timeout_s=HANG_S), pipeline.describe()
    pipeline.leave()
    pipeline.assert_finished()
    written = sorted(path.relative_to(out) for path in Path(out).glob("name=*/*.parquet"))
    assert [path.parent.name for path in written] == ["name=ten", "name=twenty"]
    rows = [row for path in written for row in pq.ParquetFile(Path(out) / path).read().to_pylist()]
    assert sorted(row["row"] for row in rows) == list(range(6)), "each row once"


def test_a_job_that_would_hide_its_input_is_refused(
    spark: SparkSession, pipeline: Pipeline, names: str
) -> None:
    """Spark says of no cached frame which files it is of, nor of a checkpoint, nor what a filter leaves unread."""
    tracked = Tracked(spark, pipeline.target, pipeline.name)
    out = Path(pipeline.directory) / "out"

    def run(frame: DataFrame, *untracked: str) -> int:
        return tracked.job(
            frame.write, str(out), node_id="days", reads="days", untracked=[names, *untracked]
        )

    pipeline.publish(10)
    new = new_files(spark, pipeline, 0)
    new.count()
    new.inputFiles()  # it has been looked what of it is cached
    new.cache().count()
    with pytest.raises(
        TrackingError, match=r"job 'days' reads what the session has cached.*unpersist"
    ):
        run(new)
    new.createOrReplaceTempView("new")
    with pytest.raises(TrackingError, match="has cached"):
        run(spark.sql("SELECT 1 AS one WHERE EXISTS (SELECT * FROM new)"))
    new.unpersist()
    spark.catalog.dropTempView("new")
    for hidden in (new.localCheckpoint(), new.localCheckpoint(eager=False)):
        with pytest.raises(
            TrackingError, match="reads LogicalRDD, and a job consumes files: write"
        ):
            run(hidden)
    with pytest.raises(TrackingError, match="is to read 'days', and there is no file in what its"):
        run(spark.range(3).toDF("slot"))
    assert not list(out.glob("b*"))

    # What is made by the program, or said not to be tracked, hides nothing.
    mine = spark.createDataFrame([(10, "ten")], "slot long, name string")
    slots = spark.read.json(names).select("slot").localCheckpoint()
    joined = new.join(mine, "slot").join(slots, "slot")
    assert run(joined.where("false"), "LogicalRDD") == 0
    with Subscriber(pipeline.target, pipeline.name) as subscriber:
        pipeline.promise("front", 11)
        assert subscriber.wait_until(11, "days", timeout_s=HANG_S), pipeline.describe()


def test_a_job_reads_the_files_of_what_lies_within_expressions(
    spark: SparkSession, pipeline: Pipeline, names: str
) -> None:
    """By either way that Spark has to read files."""
    tracked = Tracked(spark, pipeline.target, pipeline.name)
    name = "spark.sql.sources.useV1SourceList"
    for number, ways in enumerate((spark.conf.get(name), "")):
        pipeline.publish(10 * (number + 1))
        spark.conf.set(name, ways)
        try:
            new_files(spark, pipeline, number).createOrReplaceTempView("new")
            spark.read.json(names).createOrReplaceTempView("names")
            frame = spark.sql("SELECT * FROM names WHERE slot IN (SELECT slot FROM new)")
            out = str(pipeline.directory / "out")
            assert number == tracked.job(
                frame.write, out, node_id="days", reads="days", untracked=[names]
            )
        finally:
            spark.conf.unset(name)
            spark.catalog.dropTempView("new")
            spark.catalog.dropTempView("names")
    pipeline.promise("front", 21)
    with Subscriber(pipeline.target, pipeline.name) as subscriber:
        assert subscriber.wait_until(21, "days", timeout_s=HANG_S), pipeline.describe()
