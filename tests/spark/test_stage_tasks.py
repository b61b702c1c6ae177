"""How many tasks a stage had, by Spark's status store, whose listeners may lag behind."""

from __future__ import annotations

import threading

import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from local_tracker.spark import jvm
from local_tracker.spark.jvm import StageTasks
from tests.waits import HANG_S


def a_stage_of(spark: SparkSession, partitions: int) -> int:
    """A stage that has run with so many tasks, by what its tasks say."""
    numbers = spark.sparkContext.parallelize(range(partitions), partitions)
    (stage,) = {*numbers.map(lambda _: TaskContext.get().stageId()).collect()}
    return stage


def test_a_stage_has_its_tasks_and_one_that_never_was_has_none(spark: SparkSession) -> None:
    assert StageTasks(spark)(a_stage_of(spark, 3)) == 3
    assert StageTasks(spark)(1_000_000) is None


class Slow(StreamingQueryListener):
    """Takes in the progress of a query only when it is let go on."""

    def __init__(self) -> None:
        self.reached, self.goes_on = threading.Event(), threading.Event()

    def onQueryStarted(self, event: object) -> None: ...
    def onQueryIdle(self, event: object) -> None: ...
    def onQueryTerminated(self, event: object) -> None: ...

    def onQueryProgress(self, event: object) -> None:
        self.reached.set()
        self.goes_on.wait(HANG_S)


def test_a_listener_that_is_slow_elsewhere_holds_nothing_up(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, slow = a_stage_of(spark, 4), Slow()
    assert StageTasks(spark)(stage) == 4
    monkeypatch.setattr(jvm, "_LISTENERS_TIMEOUT_MS", 1)
    spark.streams.addListener(slow)
    query = spark.readStream.format("rate").load().writeStream.format("noop").start()
    try:
        assert slow.reached.wait(HANG_S)
        assert StageTasks(spark)(stage) == 4
        assert StageTasks(spark)(1_000_000) is None
    finally:
        slow.goes_on.set()
        query.stop()
        spark.streams.removeListener(slow)
