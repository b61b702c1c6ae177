"""A query over windows holds what is only in its state: in a real session, through a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter

from local_tracker.spark.session.tracked import Tracked, TrackedQuery
from local_tracker.spark.state import backlog
from tests.spark.conftest import Pipelines
from tests.spark.support import Pipeline, can_read_state
from tests.waits import HANG_S, until
from tracker.client import NodeClient
from tracker.client.state_names import UNSEEN, bound_of
from tracker.errors import TrackingError

HOUR_S = 3_600


class Hours:
    """Counts rows by the hour of their number, in seconds since 1970."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, directory: Path) -> None:
        self._spark, self.pipeline, self._directory = spark, pipeline, directory
        self._tracked = Tracked(spark, pipeline.target, pipeline.name)
        self.out = str(directory / "out")

    def frame(self) -> DataFrame:
        rows = self._spark.readStream.schema("slot long, row long").parquet(self.pipeline.input)
        timed = rows.select(F.timestamp_seconds(F.col("slot") * 60).alias("at"))
        return timed.withWatermark("at", "10 minutes").groupBy(F.window("at", "1 hour")).count()

    def writer(self, frame: DataFrame | None = None) -> DataStreamWriter:
        writer = (self.frame() if frame is None else frame).writeStream.format("parquet")
        writer = writer.outputMode("append").option("path", self.out)
        return writer.option("checkpointLocation", str(self._directory / "cp"))

    def start(self, frame: DataFrame | None = None, **more: Any) -> TrackedQuery:
        return self._tracked.start(
            self.writer(frame), node_id="hours", reads="hours", creates=["report"], **more
        )


@pytest.fixture
def hours(spark: SparkSession, pipelines: Pipelines, tmp_path: Path) -> Iterator[Hours]:
    """Slots are minutes: a row of slot 130 is of the third hour."""
    yield Hours(spark, pipelines("hours", "report"), tmp_path)


MINUTE = 6_000
"""In slots of 10 ms."""


@pytest.mark.parametrize(
    ("is_read_again", "by_a_later_run"), [(True, False), (False, False), (True, True)]
)
def test_a_backlog_in_one_batch_holds_what_is_still_in_state(
    hours: Hours,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    is_read_again: bool,
    by_a_later_run: bool,
) -> None:
    """Ten files, each a minute of slots and six seconds of event time apart: what is before the watermark is out in
    the next batch. by_a_later_run: the driver was gone before it had told any of it."""
    if not is_read_again:
        monkeypatch.setattr(backlog, "MAX_FILES", 9)
    for minute in range(1, 11):
        hours.pipeline.publish(minute * MINUTE)
    rows = spark.readStream.schema("slot long, row long").parquet(hours.pipeline.input)
    timed = rows.select(F.timestamp_millis("slot").alias("at"))
    windows = timed.withWatermark("at", "10 seconds").groupBy(F.window("at", "6 seconds")).count()
    if by_a_later_run:
        untracked = hours.writer(windows).start()
        untracked.processAllAvailable()
        untracked.stop()
    query = hours.start(windows)
    query.processAllAvailable()
    until(lambda: query.last_durable_batch == 1)
    with NodeClient(hours.pipeline.target, hours.pipeline.name, "hours") as node:
        held = {each.slot for each in node.check_join(HANG_S).holds}
    query.stop()
    assert min(held) == (8 if is_read_again else 1) * MINUTE


def test_a_batch_that_spark_finds_in_its_sink_is_held_by_the_windows_that_it_is_in(
    hours: Hours, spark: SparkSession, tmp_path: Path
) -> None:
    """The driver was killed before `commits/1`: Spark does not evaluate the batch, and its watermark stays."""
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    try:
        untracked = hours.writer().start()
        for slot in (5, 110):
            hours.pipeline.publish(slot)
            untracked.processAllAvailable()
        untracked.stop()
    finally:
        spark.conf.unset("spark.sql.streaming.noDataMicroBatches.enabled")
    for name in ("1", ".1.crc"):
        (tmp_path / "cp/commits" / name).unlink()
    query = hours.start()
    query.processAllAvailable()
    until(lambda: query.last_durable_batch == 1)
    with NodeClient(hours.pipeline.target, hours.pipeline.name, "hours") as node:
        held = {bound_of(each.name): each.slot for each in node.check_join(HANG_S).holds}
    first, second = HOUR_S * 1000, 2 * HOUR_S * 1000
    expected = {first: 5, second: 110} if can_read_state() else {first: 5, UNSEEN: 110}
    assert held == expected
    query.stop()
    with pytest.raises(TrackingError, match="was closed before it was to leave"):
        query.stop(leave=True)
