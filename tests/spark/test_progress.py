"""A tracker's progress in Spark SQL: tables, functions and streams, and what their user reads when it is away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from local_tracker.spark.progress.frames import progress
from local_tracker.spark.progress.registered import register
from tests.client.support import heard_everywhere
from tests.docs.pages import ROOT, blocks
from tests.spark.conftest import Pipelines
from tests.spark.support import Pipeline
from tests.spark_matrix.progress import run_stream
from tracker.client import Admin
from tracker.core.model import PipelineSpec

AWAY = "127.0.0.1:9"
HOUR = 360_000
"""Slots of 10 ms."""


@pytest.fixture
def orders(pipelines: Pipelines) -> Pipeline:
    """At two hours and a bit, and nothing open."""
    pipeline = pipelines("load")
    move(pipeline, 2 * HOUR + 5)
    return pipeline


def move(pipeline: Pipeline, slot: int) -> None:
    pipeline.promise("front", slot)
    heard_everywhere(pipeline.target, pipeline.name, slot)


def program(of: Pipeline, info: str, directory: Path) -> str:
    """What docs/consumers.md shows, of this pipeline."""
    text = "\n".join(b.text for b in blocks(ROOT / "docs" / "consumers.md") if b.info == info)
    return (
        text.replace("'orders'", repr(of.name))
        .replace('"orders"', repr(of.name))
        .replace("/data/", f"{directory}/")
    )


def test_what_the_page_shows_runs(spark: SparkSession, orders: Pipeline, tmp_path: Path) -> None:
    spark.createDataFrame(
        [(HOUR - 1,), (HOUR,), (2 * HOUR + 1,)], "global_time long"
    ).write.parquet(f"{tmp_path}/orders")
    names: dict[str, Any] = {"spark": spark, "target": orders.target}
    text = program(orders, "python progress", tmp_path).replace(".start()", "")
    exec(compile(text, "docs/consumers.md", "exec"), names)
    run_stream(names["query"].trigger(availableNow=True))
    assert names["status"].where(f"pipeline = '{orders.name}'").count() == 2
    hours = {
        hour: spark.read.parquet(f"{tmp_path}/hours/1970-01-01T{hour}").collect()
        for hour in ("00", "01")
    }
    assert {hour: [row.global_time for row in rows] for hour, rows in hours.items()} == {
        "00": [HOUR - 1], "01": [HOUR],
    }  # fmt: skip
    spark.sql("SELECT timestamp '1970-01-01T01:00' AS at").createOrReplaceTempView("sold")
    status, count = (
        spark.sql(statement).collect()
        for statement in program(orders, "sql progress", tmp_path).split(";")
    )
    assert [row.segment for row in status] == [None, "load"]
    assert status[0].time.isoformat() == "1970-01-01T02:00:00.050000"
    assert count[0][0] == 1


def test_a_tracker_that_is_away_is_named_without_frames(spark: SparkSession) -> None:
    register(spark, AWAY, timeout_s=0.2)  # expires: what its user reads then is tested
    said = []
    with pytest.raises(AnalysisException) as failed:
        spark.read.format("lowmark").load().collect()
    said.append(str(failed.value))
    with pytest.raises(AnalysisException) as failed:
        spark.sql("SELECT * FROM lowmark_status('orders')")
    said.append(str(failed.value))
    for text in said:
        assert f"UnavailableError: the tracker at {AWAY} did not answer" in text
        assert "name another address: lowmark.spark.register(spark, 'host:port')" in text
        assert "Traceback" not in text and "\tat " not in text


def scanned(frame: DataFrame) -> int:
    """How many rows the source gave, before Spark filtered them."""
    frame.collect()
    plan: Any = frame
    leaf = plan._jdf.queryExecution().executedPlan().collectLeaves().head()
    return int(leaf.metrics().apply("numOutputRows").value())


def test_a_filter_by_name_asks_for_no_other_pipeline(spark: SparkSession, orders: Pipeline) -> None:
    with Admin(orders.target) as admin:
        admin.register(PipelineSpec("another", ("load",), fronts=("front",)))
    register(spark, orders.target)
    nodes = spark.read.format("lowmark").option("table", "nodes").load()
    min_times = spark.read.format("lowmark").load()
    assert scanned(min_times) >= 4
    assert scanned(min_times.where(f"pipeline = '{orders.name}' AND segment IS NULL")) == 2
    # The same without a source, as every version has it.
    frame = progress(spark, orders.target, "nodes", orders.name)
    assert frame.schema == nodes.schema
    found = nodes.where(f"pipeline = '{orders.name}'").collect()
    assert [row.node_id for row in frame.collect()] == [row.node_id for row in found] == ["front"]
