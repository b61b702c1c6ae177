"""A pipeline changes while a query runs: the query hears of it, labels by the edges that there are, or ends and names
what it is to be started without."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from local_tracker.spark.session.tracked import Tracked
from tests.spark.conftest import Pipelines
from tests.spark.support import SCHEMA, Pipeline
from tests.spark.test_queries import start_copy
from tests.waits import HANG_S, until
from tracker.client import Subscriber
from tracker.core.model import Edge
from tracker.errors import TrackingError


@pytest.fixture
def pipeline(pipelines: Pipelines) -> Pipeline:
    return pipelines("parse", "enrich")


@pytest.fixture
def tracked(spark: SparkSession, pipeline: Pipeline) -> Iterator[Tracked]:
    tracked = Tracked(spark, pipeline.target, pipeline.name)
    yield tracked
    tracked.stop()


def change(pipeline: Pipeline, segments: tuple[str, ...], *edges: Edge) -> None:
    spec = pipeline.admin.pipeline(pipeline.name).spec
    pipeline.admin.apply(replace(spec, segments=segments, edges=edges, removed=()))


def open_slots(pipeline: Pipeline, segment: str) -> list[int]:
    explained = pipeline.admin.explain(pipeline.name, segment, max_cells=100)
    return sorted(cell.slot for part in explained.parts for cell in part.cells)


def test_a_running_query_labels_by_the_edges_that_there_are(
    spark: SparkSession, pipeline: Pipeline, tracked: Tracked
) -> None:
    query = start_copy(tracked, spark, pipeline, creates=["enrich"])
    change(pipeline, ("parse", "enrich"), Edge("parse", "enrich", 100))
    until(lambda: query.routes.delays == {(0, 1): 100})
    pipeline.publish(5)
    query.processAllAvailable()
    assert open_slots(pipeline, "enrich") == [105]
    with Subscriber(pipeline.target, pipeline.name) as subscriber:
        assert subscriber.wait_until(105, "enrich", HANG_S)
    change(pipeline, ("parse", "enrich"), Edge("parse", "enrich"))
    until(lambda: query.routes.delays == {(0, 1): 0})
    for slot in (7, 300):
        pipeline.publish(slot)
        query.processAllAvailable()
    # What came in at 7 cannot come there below what was announced while the way was longer.
    assert open_slots(pipeline, "enrich") == [105, 300]


def test_a_query_that_creates_in_a_segment_that_is_removed_ends_and_is_started_without_it(
    spark: SparkSession, pipeline: Pipeline, tracked: Tracked
) -> None:
    query = start_copy(tracked, spark, pipeline, creates=["enrich"])
    pipeline.publish(5)
    query.processAllAvailable()
    change(pipeline, ("parse",))
    removed = r"creates in segment 'enrich', which was removed .* start the query without it"
    with pytest.raises(TrackingError, match=removed):
        query.awaitTermination()
    with pytest.raises(TrackingError, match=removed):
        start_copy(tracked, spark, pipeline, creates=["enrich"])
    pipeline.publish(7)
    query = start_copy(tracked, spark, pipeline)
    query.processAllAvailable()
    with Subscriber(pipeline.target, pipeline.name) as subscriber:
        assert subscriber.wait_until(8, "parse", HANG_S)


def test_a_query_runs_on_when_a_segment_goes_that_another_writer_of_its_session_is_for(
    spark: SparkSession, pipeline: Pipeline, tracked: Tracked
) -> None:
    to_other = Edge("parse", "other")
    change(pipeline, ("parse", "enrich", "other"), Edge("parse", "enrich"), to_other)
    tracked.writer(str(pipeline.directory / "enriched"), creates=["enrich"])
    publish = tracked.writer(str(pipeline.directory / "out"), creates=["other"])
    query = tracked.start(
        spark.readStream.schema(SCHEMA).parquet(pipeline.input).writeStream.foreachBatch(publish)
        .option("checkpointLocation", str(pipeline.directory / "cp")),
        node_id="copy", reads="parse", creates=["other"],
    )  # fmt: skip
    change(pipeline, ("parse", "other"), to_other)
    until(lambda: query.routes.spec.removed == ("enrich",))
    pipeline.publish(5)
    query.processAllAvailable()
    assert open_slots(pipeline, "other") == [5]


def test_a_query_ends_whose_edge_is_gone(
    spark: SparkSession, pipeline: Pipeline, tracked: Tracked
) -> None:
    query = start_copy(tracked, spark, pipeline, creates=["enrich"])
    change(pipeline, ("parse", "enrich", "other"), Edge("other", "enrich"))
    with pytest.raises(TrackingError, match=r"creates in 'enrich', but .* has no edge between"):
        query.awaitTermination()


def test_a_query_reads_on_what_is_in_a_segment_that_is_removed(
    spark: SparkSession, pipeline: Pipeline, tracked: Tracked, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline.publish(5)
    change(pipeline, ("parse", "enrich", "other"))
    pipeline.leave()
    with caplog.at_level(logging.WARNING, "lowmark.spark"):
        query = start_copy(tracked, spark, pipeline)
        change(pipeline, ("enrich", "other"))
        until(lambda: "reads segment 'parse', which was removed" in caplog.text)
    query.processAllAvailable()
    with Subscriber(pipeline.target, pipeline.name) as subscriber:
        assert subscriber.wait_until(6, "parse", HANG_S)
    assert query.isActive
