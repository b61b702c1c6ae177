"""One tracker for all, and one Spark session at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tracker
from local_tracker.spark.session.tracked import Tracked
from tests.spark.support import Pipeline
from tests.spark_matrix.registry import LOCAL
from tests.spark_matrix.sessions import make_session
from tracker.core.model import Edge


@pytest.fixture(scope="session", params=[LOCAL], ids=lambda profile: profile.name)
def spark(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """Two local cores, but for tests that name another profile of the matrix."""
    started = make_session(request.param, tmp_path_factory.mktemp("spark"))
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


TrackedIn = Callable[[Pipeline], Tracked]


@pytest.fixture
def tracked_in(spark: SparkSession) -> Iterator[TrackedIn]:
    made: list[Tracked] = []

    def make(pipeline: Pipeline) -> Tracked:
        made.append(Tracked(spark, pipeline.target, pipeline.name))
        return made[-1]

    yield make
    for tracked in made:
        tracked.stop()
