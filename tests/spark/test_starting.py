"""What a query is refused for before it is started, and that nothing has been touched then.

A source that nobody has named, an output that nothing publishes, and another query's node id: each
would end in a wrong answer that nobody reports (promise 6), or in a query that runs and is stopped.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from local_tracker.spark.formats.ranges import OffsetRanges
from local_tracker.spark.query.logs import CheckpointLog
from local_tracker.spark.session.options import TrackingOptions
from local_tracker.spark.session.tracked import Tracked, TrackedQuery
from tests.spark.conftest import Pipelines, TrackedIn
from tests.spark.support import SCHEMA, Pipeline
from tests.waits import HANG_S
from tracker.client import NodeClient
from tracker.errors import TrackingError


def files(spark: SparkSession, pipeline: Pipeline) -> DataFrame:
    return spark.readStream.schema(SCHEMA).parquet(pipeline.input)


def rate(spark: SparkSession) -> DataFrame:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    return source.selectExpr("value AS slot", "value AS row")


def sink(frame: DataFrame, pipeline: Pipeline, checkpoint: str | None = "cp") -> DataStreamWriter:
    writer = frame.writeStream.format("noop")
    if checkpoint is None:
        return writer
    return writer.option("checkpointLocation", str(pipeline.directory / checkpoint))


def nothing_was_touched(spark: SparkSession, pipeline: Pipeline, checkpoint: str = "cp") -> None:
    """No query runs, no checkpoint was begun, and the node has no key."""
    assert not spark.streams.active
    assert not (pipeline.directory / checkpoint).exists()
    with NodeClient(pipeline.target, pipeline.name, "parse") as node:
        assert node.check_join(HANG_S).key.incarnation == 0


# --- sources --------------------------------------------------------------------------------------


def test_a_source_that_nobody_has_named_is_refused(
    spark: SparkSession, tracked_in: TrackedIn, pipelines: Pipelines
) -> None:
    pipeline = pipelines("parse")
    tracked = tracked_in(pipeline)
    both = files(spark, pipeline).union(rate(spark))
    socket = spark.readStream.format("socket").option("host", "localhost").option("port", 9)
    elsewhere = f"{pipeline.directory}/elsewhere"
    refused: list[tuple[DataFrame, str | Mapping[str, str], Mapping[str, Any], str]] = [
        (both, "parse", {}, r"source 1, rate-micro-batch, .*0: FileSource\[.*\], 1: rate-micro-batch"),
        (socket.load(), "parse", {}, r"source 0, socket,"),
        (both, {elsewhere: "parse"}, {"untracked": ["1"]}, r"source 0, FileSource\["),
        (both, {}, {"untracked": ["1"]}, r"source 0, FileSource\["),
        (both, "parse", {"untracked": ["1", "2"]}, r"untracked names source '2'"),
        (both, "parse", {"untracked": ["rate"]}, r"untracked names source 'rate'"),
        (
            files(spark, pipeline), "parse",
            {"options": TrackingOptions(ranges={"7": OffsetRanges("parse", lambda *_: [])})},
            r"ranges names source '7'",
        ),
    ]  # fmt: skip
    for frame, reads, more, message in refused:
        with pytest.raises(TrackingError, match=message):
            tracked.start(sink(frame, pipeline), node_id="parse", reads=reads, **more)
    nothing_was_touched(spark, pipeline)


def test_sources_that_are_accounted_for_are_followed(
    spark: SparkSession, tracked_in: TrackedIn, pipelines: Pipelines
) -> None:
    """A union of files, some of which are not tracked, and of a source that is not."""
    pipeline = pipelines("parse")
    aside = pipeline.directory / "aside"
    spark.range(2).selectExpr("id AS slot", "id AS row").write.parquet(str(aside))
    other = spark.readStream.schema(SCHEMA).parquet(str(aside))
    frame = files(spark, pipeline).union(rate(spark)).union(other)
    query = tracked_in(pipeline).start(
        sink(frame, pipeline), node_id="parse", reads="parse", untracked=["1", str(aside)]
    )
    pipeline.publish(3)
    pipeline.leave()
    pipeline.assert_finished()
    query.stop()
    assert query.tracking_failure is None


def test_a_source_with_a_name_goes_by_it(
    spark: SparkSession, tracked_in: TrackedIn, pipelines: Pipelines
) -> None:
    """As its checkpoint does."""
    pipeline = pipelines("parse")
    with named_sources(spark):
        ours = spark.readStream.schema(SCHEMA).name("ours").parquet(pipeline.input)
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1)
        theirs = source.name("theirs").load().selectExpr("value AS slot", "value AS row")
        tracked, writer = tracked_in(pipeline), sink(ours.union(theirs), pipeline)
        with pytest.raises(
            TrackingError, match=r"source theirs, rate-micro-batch,.*ours: FileSource"
        ):
            tracked.start(writer, node_id="parse", reads="parse")
        tracked.start(writer, node_id="parse", reads="parse", untracked=["theirs"])
        pipeline.publish(3)
        pipeline.leave()
        pipeline.assert_finished()
        tracked.stop()


@pytest.mark.parametrize("wildcard", ["", "/s*.parquet"])
def test_sources_with_names_that_read_one_directory_must_take_the_same_files(
    spark: SparkSession, tracked_in: TrackedIn, pipelines: Pipelines, wildcard: str
) -> None:
    """One takes the oldest file, the other the newest: as whole files, both would be done with when half is read."""
    pipeline = pipelines("parse")
    for slot in (1, 2):
        pipeline.publish(slot)
    for age, file in enumerate(sorted(Path(pipeline.input).glob("*.parquet"), reverse=True)):
        os.utime(file, (time.time() - 60 * age, time.time() - 60 * age))
    with named_sources(spark):
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).name("oldest")
        oldest = reader.parquet(pipeline.input)
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).name("newest")
        newest = reader.option("latestFirst", "true").parquet(pipeline.input + wildcard)
        writer = sink(oldest.union(newest), pipeline)
        query = tracked_in(pipeline).start(writer, node_id="parse", reads="parse")
        with pytest.raises(TrackingError, match="read the same directory and took different files"):
            query.wait_durable(HANG_S)
            query.processAllAvailable()


def test_a_frame_that_is_united_with_itself_is_refused(
    spark: SparkSession, tracked_in: TrackedIn, pipelines: Pipelines
) -> None:
    """Spark reads it once, and logs it as two sources."""
    pipeline = pipelines("parse")
    frame = files(spark, pipeline)
    with pytest.raises(TrackingError, match=r"source 0, FileSource\[.*\], twice, as of a frame"):
        writer = sink(frame.union(frame), pipeline)
        tracked_in(pipeline).start(writer, node_id="parse", reads="parse")
    nothing_was_touched(spark, pipeline)


@contextmanager
def named_sources(spark: SparkSession) -> Iterator[None]:
    """Lets sources have names, by which checkpoints know them."""
    settings = {
        "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
        "spark.sql.streaming.offsetLog.formatVersion": "2",
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            spark.conf.unset(name)


def test_a_query_that_is_followed_by_no_batches_is_refused_by_name(
    spark: SparkSession, tracked_in: TrackedIn, pipelines: Pipelines
) -> None:
    pipeline = pipelines("parse")
    tracked = tracked_in(pipeline)
    rates = spark.readStream.format("rate").load()
    with pytest.raises(TrackingError, match="continuous trigger"):
        writer = sink(rates, pipeline).trigger(continuous="1 second")
        tracked.start(writer, node_id="parse", reads="parse", untracked=["0"])
    table = sink(files(spark, pipeline), pipeline, "table").format("parquet")
    with pytest.raises(TrackingError, match=r"toTable\(\).*has been stopped"):
        tracked.start(table.toTable("started_before"), node_id="parse", reads="parse")
    with pytest.raises(TrackingError, match=r"takes what frame\.writeStream gives"):
        tracked.start(files(spark, pipeline), node_id="parse", reads="parse")
    nothing_was_touched(spark, pipeline)


def test_a_query_without_a_checkpoint_gets_a_warning(
    spark: SparkSession,
    tracked_in: TrackedIn,
    pipelines: Pipelines,
    caplog: pytest.LogCaptureFixture,
) -> None:
    pipeline = pipelines("parse")
    with caplog.at_level(logging.WARNING, "lowmark.spark"):
        tracked_in(pipeline).start(
            sink(files(spark, pipeline), pipeline, None), node_id="parse", reads="parse"
        ).stop()
    assert "has no checkpointLocation" in caplog.text


# --- what is created ------------------------------------------------------------------------------


class Written:
    """A query that publishes by a writer, when it is told to."""

    def __init__(self, spark: SparkSession, tracked: Tracked, pipeline: Pipeline) -> None:
        self.publishes = True
        self.more: Callable[[DataFrame, int], None] = lambda frame, batch: None
        self._tracked, self._pipeline = tracked, pipeline
        publish = tracked.writer(str(pipeline.directory / "out"))

        def each_batch(frame: DataFrame, batch: int) -> None:
            if self.publishes:
                publish(frame, batch)
            self.more(frame, batch)

        self._writer = (
            files(spark, pipeline)
            .writeStream.foreachBatch(each_batch)
            .option("checkpointLocation", str(pipeline.directory / "cp"))
        )

    def start(self, **options: Any) -> TrackedQuery:
        return self._tracked.start(
            self._writer, node_id="parse", reads="parse", creates=["after"], **options
        )


def test_what_nothing_could_publish_is_refused(
    spark: SparkSession, tracked_in: TrackedIn, pipelines: Pipelines
) -> None:
    pipeline = pipelines("parse", "after", "last")
    tracked = tracked_in(pipeline)
    writer = (
        files(spark, pipeline)
        .writeStream.foreachBatch(lambda frame, batch: frame.count())
        .option("checkpointLocation", str(pipeline.directory / "cp"))
    )
    with pytest.raises(TrackingError, match=r"create in \['after'\].*tracked.writer"):
        tracked.start(writer, node_id="parse", reads="parse", creates=["after"])
    tracked.writer(str(pipeline.directory / "out"), creates=["last"])
    with pytest.raises(TrackingError, match=r"create in \['after'\].*tracked.writer"):
        tracked.start(writer, node_id="parse", reads="parse", creates=["after"])
    nothing_was_touched(spark, pipeline)


def test_a_batch_may_publish_nothing_where_that_is_said(
    spark: SparkSession, tracked_in: TrackedIn, pipelines: Pipelines
) -> None:
    pipeline = pipelines("parse", "after")
    written = Written(spark, tracked_in(pipeline), pipeline)
    written.publishes = False
    query = written.start(options=TrackingOptions(may_publish_nothing=True))
    pipeline.publish(1)
    query.processAllAvailable()
    query.stop()
    assert query.last_durable_batch == 0


def test_a_writer_for_a_segment_that_a_query_knows_nothing_of_disturbs_it_when_it_is_called(
    spark: SparkSession, tracked_in: TrackedIn, pipelines: Pipelines
) -> None:
    pipeline = pipelines("parse", "after")
    tracked = tracked_in(pipeline)
    written = Written(spark, tracked, pipeline)
    query, elsewhere = written.start(), pipeline.directory / "elsewhere"
    publish = tracked.writer(str(elsewhere), creates=["unheard_of"])
    pipeline.publish(1)
    query.processAllAvailable()  # the writer is another query's
    written.more = publish
    pipeline.publish(2)
    with pytest.raises(StreamingQueryException, match="has no segment 'unheard_of'"):
        query.processAllAvailable()
    assert not list(elsewhere.glob("*.parquet"))


# --- who it is ------------------------------------------------------------------------------------


def test_a_query_takes_over_where_it_says_so(
    spark: SparkSession, tracked_in: TrackedIn, pipelines: Pipelines
) -> None:
    pipeline = pipelines("parse")
    first = tracked_in(pipeline).start(
        sink(files(spark, pipeline), pipeline), node_id="parse", reads="parse"
    )
    second = tracked_in(pipeline).start(
        sink(files(spark, pipeline), pipeline, "copy"),
        node_id="parse", reads="parse", options=TrackingOptions(take_over=True),
    )  # fmt: skip
    pipeline.publish(1)
    second.processAllAvailable()
    with pytest.raises(TrackingError, match="fenced"):
        first.processAllAvailable()
        first.awaitTermination()
    assert second.last_durable_batch == 0


def test_a_query_is_known_by_its_checkpoint_before_it_runs(
    spark: SparkSession, tracked_in: TrackedIn, pipelines: Pipelines
) -> None:
    """It may be started again at once, and Spark gives it the id that it has joined with; also where a
    checkpoint was before of which only what a shell does not show is left."""
    pipeline = pipelines("parse")
    (pipeline.directory / "cp").mkdir()
    (pipeline.directory / "cp/.metadata.crc").write_bytes(b"crc\0\0\0\2\0\1\2\3\4")
    for _ in range(2):
        query = tracked_in(pipeline).start(
            sink(files(spark, pipeline), pipeline), node_id="parse", reads="parse"
        )
        assert CheckpointLog(str(pipeline.directory / "cp")).query_id == str(query.id)
        query.stop()
    assert not list(Path(pipeline.directory / "cp").glob(".metadata.*"))


def test_a_query_is_tracked_under_one_node_id(
    spark: SparkSession, tracked_in: TrackedIn, pipelines: Pipelines
) -> None:
    """Under another one, what it has read and written would count once more. Whoever runs is not stopped by that."""
    pipeline = pipelines("parse")
    query = tracked_in(pipeline).start(
        sink(files(spark, pipeline), pipeline), node_id="parse", reads="parse"
    )
    pipeline.publish(1)
    query.processAllAvailable()
    with pytest.raises(TrackingError, match="batches up to 0 of the query were told under node id"):
        tracked_in(pipeline).start(
            sink(files(spark, pipeline), pipeline), node_id="renamed", reads="parse"
        )
    assert query.isActive and query.failure is None
    query.stop()
