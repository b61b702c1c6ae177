"""Ordinary queries, tracked by units, what is refused of them, and publishing; the matrix has the rest."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamReader, StreamingQuery

import tracker
from local_tracker.spark import jvm
from local_tracker.spark.session.options import TrackingOptions
from local_tracker.spark.session.tracked import Tracked, TrackedQuery
from tests.spark.conftest import Pipelines, TrackedIn
from tests.spark.support import SCHEMA, Pipeline
from tests.waits import HANG_S, until
from tracker.client import LowmarkError
from tracker.errors import TrackingError


def reader(spark: SparkSession, files: int = 2) -> DataStreamReader:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files)


def doubled(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("slot", "row * 2 AS twice")


def start_copy(
    tracked: Tracked, spark: SparkSession, pipeline: Pipeline, **options: Any
) -> TrackedQuery:
    return tracked.start(
        doubled(reader(spark, 1).parquet(pipeline.input))
        .writeStream.format("parquet")
        .option("path", str(pipeline.directory / "out"))
        .option("checkpointLocation", str(pipeline.directory / "cp")),
        **{"node_id": "parse", "reads": "parse", **options},
    )


def test_what_does_not_fit_is_refused_at_the_start(
    spark: SparkSession, tracked_in: TrackedIn, pipelines: Pipelines
) -> None:
    pipeline = pipelines("parse", "enrich")
    tracked = tracked_in(pipeline)
    with pytest.raises(LowmarkError, match="nowhere"):
        start_copy(tracked, spark, pipeline, reads="nowhere")
    with pytest.raises(TrackingError, match=r"no edge between them"):
        start_copy(tracked, spark, pipeline, reads="enrich", creates=["parse"])
    with pytest.raises(TrackingError, match=r"sink .* cannot be read"):
        tracked.start(
            reader(spark).parquet(pipeline.input).writeStream.format("noop"),
            node_id="parse", reads="parse", creates=["enrich"],
        )  # fmt: skip
    assert not spark.streams.active


def start_over(tracked: Tracked, pipeline: Pipeline, checkpoint: str) -> TrackedQuery:
    frame = reader(tracked.spark).parquet(pipeline.input)
    writer = frame.writeStream.format("noop")
    return tracked.start(
        writer.option("checkpointLocation", str(pipeline.directory / checkpoint)),
        node_id="parse", reads="parse",
    )  # fmt: skip


def test_a_checkpoint_is_where_spark_keeps_it(tracked_in: TrackedIn, pipelines: Pipelines) -> None:
    """A name is as it is written: Spark takes no `%20` for a space."""
    pipeline = pipelines("parse")
    pipeline.publish(1)
    query = start_over(tracked_in(pipeline), pipeline, "cp%20x")
    query.query.processAllAvailable()
    assert query.wait_durable(HANG_S) and query.last_durable_batch == 0
    assert query.checkpoint.root == str(pipeline.directory / "cp%20x")
    assert [path.name for path in pipeline.directory.glob("cp*")] == ["cp%20x"]


def test_a_checkpoint_that_is_not_the_running_query_s_is_not_followed(
    spark: SparkSession,
    tracked_in: TrackedIn,
    pipelines: Pipelines,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipeline = pipelines("parse")
    monkeypatch.setattr(jvm, "_checkpoint_location", lambda *_: str(pipeline.directory / "other"))
    with pytest.raises(TrackingError, match=r"Spark has started the query as .*/other is of"):
        start_over(tracked_in(pipeline), pipeline, "cp")
    assert not spark.streams.active


def test_a_query_far_ahead_of_the_tracker_is_stopped(
    spark: SparkSession, tracked_in: TrackedIn, pipelines: Pipelines
) -> None:
    """A unit that no one created cannot be placed: the query runs ahead up to its limit."""
    pipeline = pipelines("parse")
    for number in range(6):
        shutil.copy(pipeline_file(pipeline, spark), f"{pipeline.input}/stray{number}.parquet")
    query = start_copy(
        tracked_in(pipeline), spark, pipeline, options=TrackingOptions(max_batches_behind=2)
    )
    with pytest.raises(TrackingError, match="batches wait for the tracker"):
        query.awaitTermination()


def test_a_batch_that_is_committed_while_its_query_stops_is_counted(
    spark: SparkSession,
    tracked_in: TrackedIn,
    pipelines: Pipelines,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark says that a query isn't active as soon as it is to stop, and goes on with the batch that is under way: its last
    batches were looked up before that one was there, and nothing was said of it."""
    pipeline = pipelines("parse")
    pipeline.publish(1)
    running, told = threading.Event(), threading.Event()

    def take(frame: DataFrame, _: int) -> None:
        running.set()
        thread = frame.sparkSession.sparkContext._jvm.java.lang.Thread
        until(thread.interrupted)  # by `stop`; the query's thread may as well be past that
        assert told.wait(HANG_S)

    asked = jvm.is_running

    def is_running(query: StreamingQuery) -> bool:
        """Tells when it was asked of a query that is to stop."""
        is_stopping = not query.isActive
        answer = asked(query)
        if is_stopping:
            told.set()
        return answer

    monkeypatch.setattr(jvm, "is_running", is_running)
    query = tracked_in(pipeline).start(
        reader(spark).parquet(pipeline.input).writeStream.foreachBatch(take)
        .option("checkpointLocation", str(pipeline.directory / "cp")),
        node_id="parse", reads="parse",
    )  # fmt: skip
    assert running.wait(HANG_S)
    query.stop()
    assert (pipeline.directory / "cp/commits/0").exists()
    assert query.last_durable_batch == 0


def test_a_tracker_that_is_away_loses_nothing(
    spark: SparkSession, pipelines: Pipelines, tmp_path: Path
) -> None:
    """Batches end while no tracker answers; their ticks are durable when it is back."""
    with tracker.embedded() as embedded:
        pipeline = Pipeline(embedded.target, "away", tmp_path / "away", ("parse",))
        tracked = Tracked(spark, embedded.target, "away")
        query = start_copy(tracked, spark, pipeline)
        embedded.kill_shard(0)
        for slot in (1, 2, 3):
            pipeline.publish(slot, commit=False)
        query.query.processAllAvailable()
        assert query.checkpoint.committed() == [0, 1, 2]
        assert query.last_durable_batch == -1
        embedded.start_shard(0)
        pipeline.commit()
        query.processAllAvailable()
        assert query.last_durable_batch == 2
        pipeline.leave()
        pipeline.assert_finished()
        tracked.stop()
        pipeline.close()


def pipeline_file(pipeline: Pipeline, spark: SparkSession) -> Path:
    directory = pipeline.directory / "one"
    if not directory.exists():
        spark.range(3).selectExpr("id AS slot", "id AS row").coalesce(1).write.parquet(
            str(directory)
        )
    return next(directory.glob("*.parquet"))
