"""What Spark reports of a query comes with what the tracker says of its segments."""

from __future__ import annotations

import queue
from typing import Any

import pytest
from pyspark.sql import SparkSession

from local_tracker.spark.session import progress_listener
from local_tracker.spark.session.progress_listener import KEY, ProgressListener
from local_tracker.spark.session.tracked import Tracked
from tests.spark.conftest import Pipelines
from tests.spark.support import SCHEMA, Pipeline
from tests.waits import HANG_S, until
from tracker.client import Admin


def reports_until(reports: queue.Queue[dict[str, Any]], batch: int) -> dict[str, Any]:
    """The report of a batch."""
    while (report := reports.get(timeout=HANG_S))["batchId"] != batch:
        pass
    return report


def start(spark: SparkSession, tracked: Tracked, pipeline: Pipeline) -> Any:
    frame = spark.readStream.schema(SCHEMA).parquet(pipeline.input)
    place = pipeline.directory
    writer = frame.writeStream.option("path", str(place / "out"))
    writer = writer.option("checkpointLocation", str(place / "cp"))
    return tracked.start(writer, node_id="parse", reads="parse", creates=["count"])


def settle(pipeline: Pipeline, slot: int) -> None:
    """Until every process says that a slot is done in the first segment, and that 5 is open in the second."""

    def says(address: str) -> bool:
        with Admin(address) as admin:
            parse, count = admin.pipeline(pipeline.name).state.segments
        return parse.min_time > slot and count.min_time == 5

    until(lambda: all(says(address) for address in pipeline.target.split(",")))


def test_min_time_and_lag_are_in_what_a_listener_tells(
    spark: SparkSession, target: str, pipelines: Pipelines
) -> None:
    pipeline = pipelines("parse", "count")
    tracked = Tracked(spark, target, pipeline.name)
    reports: queue.Queue[dict[str, Any]] = queue.Queue()
    listener = ProgressListener(tracked, reports.put)
    spark.streams.addListener(listener)
    try:
        query = start(spark, tracked, pipeline)
        for batch, slot in enumerate((5, 20)):
            pipeline.publish(slot)
            query.processAllAvailable()
            settle(pipeline, slot)
            report = reports_until(reports, batch)
            assert (report["id"], report["numInputRows"]) == (str(query.id), 3)
        told = report[KEY]
        assert told["pipeline"] == pipeline.name
        whole, parse, count = told["segments"]
        assert [each["segment"] for each in (whole, parse, count)] == [None, "parse", "count"]
        assert 6 <= parse["min_time"] <= 21, "it may not count the batch yet"
        assert count["min_time"] == 5 == whole["min_time"]
        assert count["lag_slots"] in (1, 16) and count["lag_ms"] == 10 * count["lag_slots"]
        assert count["time"] == "1970-01-01T00:00:00.050000+00:00" and count["open_items"] >= 1
        assert KEY not in query.lastProgress, "Spark's own reports stay as they are"
    finally:
        spark.streams.removeListener(listener)
        tracked.stop()
        listener.close()


def test_reports_are_told_all_the_same_where_no_tracker_answers(
    spark: SparkSession, target: str, pipelines: Pipelines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_listener, "ANSWER_TIMEOUT_S", 0.1)
    pipeline = pipelines("parse", "count")
    tracked = Tracked(spark, target, pipeline.name)
    reports: queue.Queue[dict[str, Any]] = queue.Queue()
    query = start(spark, tracked, pipeline)
    tracked.target = "127.0.0.1:1"
    listener = ProgressListener(tracked, reports.put)
    spark.streams.addListener(listener)
    try:
        pipeline.publish(5)
        query.processAllAvailable()
        told = reports_until(reports, 0)[KEY]
        assert told.keys() == {"pipeline", "error"} and told["error"]
    finally:
        spark.streams.removeListener(listener)
        listener.close()
        tracked.stop()
