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
