"""Ack calls of user code: counted once, whatever Spark evaluates, and not before the batch commits.

The operator hands malformed rows to the world outside of the query (segment `side`), where a plain
node takes them out again. Were an ack counted twice it would cancel itself, and once too seldom it
would never be there: in both cases `side` could not become empty.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession, functions

from local_tracker import acks
from local_tracker.spark.follow import TrackingError
from local_tracker.spark.tracked import Tracked, TrackedQuery
from tests.spark.conftest import CLUSTER, ONLY_LOCAL, Pipelines
from tests.spark.support import (
    SCHEMA,
    WAIT_S,
    Batches,
    Pipeline,
    Witness,
    parse_operator,
    published_rows,
    take_out_of_side,
)
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


def start(
    tracked: Tracked,
    spark: SparkSession,
    pipeline: Pipeline,
    each: Callable[[DataFrame], DataFrame],
) -> TrackedQuery:
    """The query: applies `each`, and evaluates it twice, by a count and by writing it."""
    writer = tracked.writer(str(pipeline.directory / "out"), "json")

    def two_actions(frame: DataFrame, batch: int) -> None:
        assert frame.count() > 0
        writer(frame, batch)

    frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 2)
    return tracked.start(
        each(frame.parquet(pipeline.input))
        .writeStream.foreachBatch(two_actions)
        .option("checkpointLocation", str(pipeline.directory / "cp")),
        node_id="parse",
        reads="parse",
    )


def run_to_the_end(
    tracked: Tracked,
    spark: SparkSession,
    pipeline: Pipeline,
    each: Callable[[DataFrame], DataFrame],
) -> None:
    done = published_rows(str(pipeline.directory / "cp"), str(pipeline.directory / "out"))
    with Witness(pipeline, {"parse": done}):
        for slot in (3, 4, 5, 9):
            pipeline.publish(slot, rows=5)
        query = start(tracked, spark, pipeline, each)
        query.processAllAvailable()
        assert query.last_durable_batch == 1
        take_out_of_side(pipeline)
        pipeline.leave()
        pipeline.assert_finished()
    rows = spark.read.schema(SCHEMA).json(str(pipeline.directory / "out")).collect()
    assert sorted(row.row for row in rows) == list(range(len(pipeline.slots)))


def local_trackers() -> set[Path]:
    return set(Path(os.environ["LOWMARK_DIRECTORY"]).glob("*.sock"))


def test_two_actions_count_once(tracked: Tracked, spark: SparkSession, pipeline: Pipeline) -> None:
    parse = parse_operator()
    before = local_trackers()
    run_to_the_end(tracked, spark, pipeline, lambda frame: frame.mapInArrow(parse, SCHEMA))
    executors = 2 if spark.sparkContext.master == CLUSTER else 1
    assert len(local_trackers() - before) == executors


def test_a_task_that_fails_after_its_hand_over_counts_once(
    tracked: Tracked, spark: SparkSession, pipeline: Pipeline
) -> None:
    parse = parse_operator()

    def fail_at_first(batches: Batches) -> Batches:
        kept = list(batches)  # so that `parse` has come to its end, and handed over
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0 and context.partitionId() == 0:
            raise RuntimeError("the first attempt fails")
        yield from kept

    run_to_the_end(
        tracked,
        spark,
        pipeline,
        lambda frame: frame.mapInArrow(parse, SCHEMA).mapInArrow(fail_at_first, SCHEMA),
    )


@ONLY_LOCAL
def test_code_that_is_not_deterministic_fails_the_query(
    tracked: Tracked, spark: SparkSession, pipeline: Pipeline
) -> None:
    @acks.operator("moody")
    def moody(batches: Batches) -> Batches:
        context = TaskContext.get()
        assert context is not None
        acks.create("side", 3, 1 + context.taskAttemptId())
        yield from batches

    pipeline.publish(3)
    query = start(tracked, spark, pipeline, lambda frame: frame.mapInArrow(moody, SCHEMA))
    with pytest.raises(TrackingError, match="operator 'moody' in batch 0"):
        query.awaitTermination()
    assert pipeline.describe().segments[1].open_items == 0
    assert pipeline.describe().min_time <= 3


@ONLY_LOCAL
@pytest.mark.timeout(600)  # it may be the first here, and start the session
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
        assert subscriber.wait_until(4, "parse", WAIT_S)
    # The host hears of it a moment later than this subscriber.
    while tracked.min_time("parse") < 4:
        threading.Event().wait(0.02)
    pipeline.publish(9)
    query.processAllAvailable()
    rows = spark.read.json(str(pipeline.directory / "out")).collect()
    assert all(row.heard <= row.slot for row in rows), "a row is never told that it is complete"
    assert in_driver[0] <= 3 and 4 <= in_driver[1] <= 9
    assert {row.heard for row in rows if row.slot == 9} <= set(range(4, 10))
    # Two hold: one that the executor's tasks share, and the driver's; none for each task or batch.
    assert len(local_trackers() - before) <= 2
