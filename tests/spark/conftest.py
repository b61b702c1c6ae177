"""One tracker for all, and one Spark session at a time: `local` first, then two real executors."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

import tracker
from tests.spark.support import Pipeline
from tracker.core.model import Edge

LOCAL = "local[2,2]"  # two cores; a task may fail once
CLUSTER = "local-cluster[2,1,1024]"  # two executors, each a process with one core


ONLY_LOCAL = pytest.mark.parametrize("spark", [LOCAL], indirect=True)
"""For tests in which executors don't matter."""


def session(master: str, directory: Path) -> SparkSession:
    """A small, quiet session; `directory` is for what Spark leaves behind."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = os.path.dirname(pyspark.__file__)
    os.environ["SPARK_WORKER_DIR"] = str(directory / "work")
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # The JVM, and all that it starts, has the environment that it was launched with.
    os.environ.setdefault("LOWMARK_DIRECTORY", str(directory / "lowmark"))
    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.executor.memory", "512m")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


@pytest.fixture(scope="session", params=[LOCAL, CLUSTER])
def spark(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    started = session(request.param, tmp_path_factory.mktemp("spark"))
    yield started
    started.stop()


@pytest.fixture(scope="session")
def target() -> Iterator[str]:
    with tracker.embedded(shards=2) as embedded:
        yield embedded.target


class Pipelines:
    """Makes pipelines for one test and closes them after it."""

    def __init__(self, target: str, name: str, directory: Path) -> None:
        self._target, self._name, self._directory = target, name, directory
        self._made: list[Pipeline] = []

    def __call__(self, *segments: str, edges: tuple[Edge, ...] = ()) -> Pipeline:
        pipeline = Pipeline(self._target, self._name, self._directory, segments, *edges)
        self._made.append(pipeline)
        return pipeline

    def close(self) -> None:
        for pipeline in self._made:
            pipeline.close()


@pytest.fixture
def pipelines(target: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Pipelines]:
    made = Pipelines(target, request.node.name, tmp_path)
    yield made
    made.close()
