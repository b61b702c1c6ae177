"""The real parts, one of each for all tests here, and one Spark session; a test is skipped, with the reason,
where a part can't be had.

Tests that are marked `long` are run by `make connectors`: `make test` has no time for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

import pytest
from pyspark.sql import SparkSession

from tests.connectors.parts.cache import Unavailable
from tests.connectors.parts.hdfs import HdfsCluster
from tests.connectors.parts.jars import spark_jars
from tests.connectors.parts.kafka import KafkaBroker
from tests.connectors.parts.s3 import S3Server
from tests.connectors.parts.together import BUCKET
from tests.spark.conftest import target
from tests.spark_matrix.registry import LOCAL
from tests.spark_matrix.sessions import make_session

__all__ = ["target"]

T = TypeVar("T")
JARS = ("s3a", "spark-kafka")
HASTY = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": 100}
"""A broker looks for transactions that have timed out, every 10 s else."""


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with or_skip(lambda: KafkaBroker(tmp_path_factory.mktemp("kafka"), **HASTY)) as broker:
        yield broker


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsCluster]:
    with or_skip(lambda: HdfsCluster(tmp_path_factory.mktemp("hdfs"))) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with or_skip(lambda: S3Server(tmp_path_factory.mktemp("s3"), BUCKET)) as server:
        yield server


@pytest.fixture(scope="session")
def spark(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """For all modules: which jars a driver has is settled when its JVM begins, which ends with this process."""
    jars = or_skip(lambda: spark_jars(*JARS))
    settings = {"spark.jars": jars, **s3.spark_settings(), **HdfsCluster.spark_settings()}
    started = make_session(replace(LOCAL, settings=settings), tmp_path_factory.mktemp("spark"))
    yield started
    started.stop()


def or_skip(make: Callable[[], T]) -> T:
    """A part; the test is skipped where it can't be had."""
    try:
        return make()
    except Unavailable as error:
        pytest.skip(str(error))
