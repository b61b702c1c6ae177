"""The real parts, one of each for all tests here; a test is skipped, with the reason, where a part can't
be had."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
from pyspark import SparkContext

from tests.connectors.parts import hdfs as hdfs_part
from tests.connectors.parts import jars
from tests.connectors.parts.cache import Unavailable
from tests.connectors.parts.hdfs import HdfsCluster
from tests.connectors.parts.kafka import KafkaBroker
from tests.connectors.parts.s3 import S3Server

T = TypeVar("T")
JVM_ENDS_WITHIN_S = 60.0
BUCKET = "lowmark"


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with or_skip(lambda: KafkaBroker(tmp_path_factory.mktemp("kafka"))) as broker:
        yield broker


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsCluster]:
    if not jars.are_fetched(hdfs_part.JARS):
        pytest.skip("HDFS is fetched by `make connectors`, which tries it as a whole")
    with or_skip(lambda: HdfsCluster(tmp_path_factory.mktemp("hdfs"))) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with or_skip(lambda: S3Server(tmp_path_factory.mktemp("s3"), BUCKET)) as server:
        yield server


@pytest.fixture(scope="module", autouse=True)
def jvm_of_its_own() -> Iterator[None]:
    """Which jars a driver has is settled when its JVM begins, which outlives the sessions that it serves: each
    module's begins anew."""
    yield
    gateway = SparkContext._gateway
    if gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()  # what the JVM that PySpark has started waits for
    gateway.proc.wait(JVM_ENDS_WITHIN_S)


def or_skip(make: Callable[[], T]) -> T:
    """A part; the test is skipped where it can't be had."""
    try:
        return make()
    except Unavailable as error:
        pytest.skip(str(error))
