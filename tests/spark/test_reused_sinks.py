"""A sink's directory that has another query's log.

Spark leaves out a batch of a number that the log has, without a word: what the query reads is written nowhere, and what
the log says of that number is another query's.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import Pipelines, TrackedIn
from tests.spark.test_attached import attached, logs, running
from tests.spark.test_starting import files, nothing_was_touched, sink
from tests.spark.written_logs import Logs
from tracker.client.embedded import EmbeddedTracker
from tracker.errors import FilesError, TrackingError

__all__ = ["logs", "running"]

AHEAD = r"_spark_metadata has batches up to 1, and the query's checkpoint ends at "


def test_a_query_is_refused_over_a_sink_that_is_ahead_of_its_checkpoint(
    spark: SparkSession, tracked_in: TrackedIn, pipelines: Pipelines
) -> None:
    """A new checkpoint, and the directory that the old one's batches were written to."""
    pipeline = pipelines("parse", "after")
    out = str(pipeline.directory / "out")
    (pipeline.directory / "sent").mkdir()
    for number in range(2):
        (pipeline.directory / f"sent/{number}.json").write_text('{"slot": 1, "row": 1}')
        earlier = spark.readStream.schema("slot long, row long").json(f"{pipeline.directory}/sent")
        writer = earlier.writeStream.format("parquet").option("path", out)
        writer = writer.option("checkpointLocation", str(pipeline.directory / "earlier"))
        writer.trigger(availableNow=True).start().awaitTermination()
    pipeline.publish(1)
    again = sink(files(spark, pipeline), pipeline).format("parquet").option("path", out)
    with pytest.raises(FilesError, match=AHEAD + "-1"):
        tracked_in(pipeline).start(again, node_id="parse", reads="parse", creates=["after"])
    nothing_was_touched(spark, pipeline)


def test_it_is_not_followed_from_outside_either(
    running: EmbeddedTracker, logs: Logs, tmp_path: Path
) -> None:
    """Two batches of the query before, and one of a new checkpoint, which Spark wrote nowhere."""
    before = Logs(tmp_path / "before")
    for number in range(2):
        before.batch(number, number + 1)
    logs.batch(0, 3)
    with pytest.raises(FilesError, match=AHEAD + "0"):
        attached(running, logs, sink=str(before.sink)).start()


def test_a_batch_that_spark_leaves_out_is_not_taken_for_one_that_wrote_nothing(
    spark: SparkSession, tracked_in: TrackedIn, pipelines: Pipelines
) -> None:
    """Another query writes to the directory, too, and is ahead by then."""
    pipeline = pipelines("parse", "after")
    out = pipeline.directory / "out"
    both = sink(files(spark, pipeline), pipeline).format("parquet").option("path", str(out))
    query = tracked_in(pipeline).start(both, node_id="parse", reads="parse", creates=["after"])
    pipeline.publish(1)
    query.processAllAvailable()
    shutil.copy(out / "_spark_metadata/0", out / "_spark_metadata/7")
    pipeline.publish(2)
    with pytest.raises(
        TrackingError, match=r"batch 1 had input and published nothing for .'after'"
    ):
        query.processAllAvailable()
        query.awaitTermination()
    assert query.last_durable_batch == 0
