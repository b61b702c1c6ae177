"""User code in a job reads min time; what it acknowledges, the matrix shows (sections 1, 2, 5 and 9)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession, functions

from local_tracker import acks
from local_tracker.spark.session.tracked import Tracked
from tests.spark.conftest import Pipelines
from tests.spark.support import (
    SCHEMA,
    Pipeline,
)
from tests.waits import HANG_S, until
from tracker.client import Subscriber
from tracker.core.model import Edge


@pytest.fixture
def pipeline(pipelines: Pipelines) -> Pipeline:
    return pipelines("parse", edges=(Edge("parse", "side"),))


@pytest.fixture
def tracked(spark: SparkSession, pipeline: Pipeline) -> Iterator[Tracked]:
    made = Tracked(spark, pipeline.target, pipeline.name)
    made.track(acks)
    yield made
    made.stop()


def local_trackers() -> set[Path]:
    return set(Path(os.environ["LOWMARK_DIRECTORY"]).glob("*.sock"))


def test_code_in_a_job_reads_min_time_from_its_host(
    tracked: Tracked, spark: SparkSession, pipeline: Pipeline
) -> None:
    """In the tasks and in the driver; both see what is announced, and never more: the batch that asks
    is itself in flight."""
    before = local_trackers()
    in_driver: list[int] = []
    writer = tracked.writer(str(pipeline.directory / "out"), "json")

    @functions.pandas_udf("long")
    def heard(rows: pd.Series) -> pd.Series:
        return rows * 0 + acks.min_time("parse")

    def each_batch(frame: DataFrame, batch: int) -> None:
        in_driver.append(tracked.min_time("parse"))
        assert tracked.min_time() <= min(tracked.min_time("parse"), tracked.min_time("side"))
        writer(frame.withColumn("heard", heard("row")), batch)

    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    pipeline.publish(3)
    query = tracked.start(
        stream.parquet(pipeline.input)
        .writeStream.foreachBatch(each_batch)
        .option("checkpointLocation", str(pipeline.directory / "cp")),
        node_id="parse", reads="parse",
    )  # fmt: skip
    query.processAllAvailable()
    with Subscriber(pipeline.target, pipeline.name) as subscriber:
        assert subscriber.wait_until(4, "parse", HANG_S)
    # The host hears of it a moment later than this subscriber.
    until(lambda: tracked.min_time("parse") >= 4)
    pipeline.publish(9)
    query.processAllAvailable()
    rows = spark.read.json(str(pipeline.directory / "out")).collect()
    assert all(row.heard <= row.slot for row in rows), "a row is never told that it is complete"
    assert in_driver[0] <= 3 and 4 <= in_driver[1] <= 9
    assert {row.heard for row in rows if row.slot == 9} <= set(range(4, 10))
    # Two hold: one that the executor's tasks share, and the driver's; none for each task or batch.
    assert len(local_trackers() - before) <= 2
