"""Ack calls of user code: counted once, whatever Spark evaluates, and not before the batch commits.

The operator hands malformed rows to the world outside of the query (segment `side`), where a plain
node takes them out again. Were an ack counted twice it would cancel itself, and once too seldom it
would never be there: in both cases `side` could not become empty.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from local_tracker import acks
from local_tracker.spark import Tracked, TrackedQuery, TrackingError
from tests.spark.conftest import CLUSTER, ONLY_LOCAL, Pipelines
from tests.spark.support import (
    SCHEMA,
    Batches,
    Pipeline,
    Witness,
    parse_operator,
    published_rows,
    take_out_of_side,
)
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
