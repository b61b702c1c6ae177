"""`lowmark query attach --storage` beside a real declarative pipeline, run twice: as ever, then with a full refresh.

The command runs where PySpark cannot be imported.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest

import tracker
from fronts.files import FileFront
from fronts.front import FrontOptions
from tests.cluster.children import Running
from tests.cluster.tracker import lowmark
from tests.spark_matrix.sessions import submit_options
from tests.waits import HANG_S, PROGRAM_S, until
from tracker.client.embedded import EmbeddedTracker
from tracker.client.pipeline_file import load_pipeline
from tracker.core.model.slots import DEFAULT_SLACK_NS

pytestmark = [
    pytest.mark.skipif(
        pyspark.__version__ < "4.1", reason="declarative pipelines come with PySpark 4.1"
    ),
]

DEFINITION = """
name: copies
storage: file://{top}/storage
libraries:
  - glob:
      include: src/**
"""
TABLES = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()

@dp.table
def parse():
    files = spark.readStream.schema("row long").option("maxFilesPerTrigger", 1)
    return files.parquet({source!r})

@dp.table
def enrich():
    return spark.readStream.table("parse").selectExpr("row * 2 AS row")
"""
PIPELINE = """
name: copies
start: slot:0
open: true
segments: [enrich, parse]
edges:
  - parse -> enrich
fronts: 1
"""
SETTINGS = {
    # Without it the tables of the run before are not known, and their directories are in the way.
    "spark.sql.catalogImplementation": "hive",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


class Declared:
    """A declarative pipeline of two streaming tables."""

    def __init__(self, top: Path) -> None:
        self.top = top
        (top / "src").mkdir()
        (top / "spark-pipeline.yml").write_text(DEFINITION.format(top=top))
        (top / "src/tables.py").write_text(TABLES.format(source=str(top / "in")))

    def run(self, *more: str) -> None:
        """`spark-pipelines run`, to its end."""
        home = os.path.dirname(pyspark.__file__)
        environment = {
            **os.environ, "SPARK_HOME": home, "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SUBMIT_OPTS": submit_options(SETTINGS),
            "SPARK_TESTING": "1",  # its Connect server takes a port of its own
        }  # fmt: skip
        with (self.top / "run.log").open("wb") as said:
            process = subprocess.Popen(
                [f"{home}/bin/spark-pipelines", "run", *more], cwd=self.top,
                env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                start_new_session=True,
            )  # fmt: skip
        try:
            status = process.wait(PROGRAM_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        assert status == 0, (self.top / "run.log").read_text()[-3000:]

    def rows(self, table: str) -> list[int]:
        folder = self.top / "spark-warehouse" / table
        return sorted(
            r for f in folder.glob("*.parquet") for r in pq.read_table(f)["row"].to_pylist()
        )

    def attach(self, *more: str) -> tuple[str, ...]:
        return (
            "query", "attach", "--storage", str(self.top / "storage"), "--pipeline", "copies",
            "--warehouse", str(self.top / "spark-warehouse"), *more,
        )  # fmt: skip


@pytest.fixture
def running() -> Iterator[EmbeddedTracker]:
    with tracker.embedded() as embedded:
        yield embedded


def open_items(running: EmbeddedTracker) -> list[int]:
    return [s.open_items for s in running.admin().pipeline("copies").state.segments]


def test_runs_and_a_full_refresh_are_followed(tmp_path: Path, running: EmbeddedTracker) -> None:
    declared, slot = Declared(tmp_path), 0
    running.register(load_pipeline(PIPELINE))
    attached = Running(
        "tests.spark.without_spark", *declared.attach("--target", running.target),
        errors=tmp_path / "attach.log",
    )  # fmt: skip
    front = FileFront(
        running.target,
        "copies",
        "front",
        "parse",
        tmp_path / "in",
        options=FrontOptions(heartbeat_interval_ms=20, clock=lambda: slot * DEFAULT_SLACK_NS),
    )
    with attached, front, running.subscriber("copies") as subscriber:

        def publish(*slots: int) -> None:
            nonlocal slot
            for slot in slots:
                front.write([{"row": slot}, {"row": slot + 100}])
            front.wait_durable(HANG_S)
            slot += 1  # the front promises beyond it

        publish(3, 4)
        declared.run()
        assert subscriber.wait_until(5, "enrich", timeout_s=HANG_S), attached.errors()
        assert open_items(running) == [0, 0]

        publish(7)
        until(lambda: open_items(running) == [0, 1])
        declared.run("--full-refresh", "parse", "--refresh", "enrich")
        assert subscriber.wait_until(8, "enrich", timeout_s=HANG_S), attached.errors()
        until(lambda: open_items(running) == [0, 0], attached.errors)
        # As Spark has it: the refreshed table anew, and its reader has read it on top of what it had.
        assert declared.rows("parse") == [3, 4, 7, 103, 104, 107]
        assert declared.rows("enrich") == sorted([6, 8, 206, 208] * 2 + [14, 214])
        assert attached.stop() == 0, attached.errors()
    said = [line for _, line in attached.lines]
    assert said == ["enrich: committed up to batch 1", "parse: committed up to batch 2"]
    versions = tmp_path / "storage/_checkpoints/spark_catalog/default/parse/parse"
    assert {path.name for path in versions.iterdir()} == {"0", "1"}

    derived = lowmark(*declared.attach("--set", "print_only=true", "--set", "start=slot:0")).stdout
    assert load_pipeline(derived) == load_pipeline(PIPELINE)
    assert f"# a front of segment parse labels what comes to {tmp_path}/in" in derived
