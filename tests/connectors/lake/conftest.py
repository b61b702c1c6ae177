"""One Spark session with the jars of Delta and Iceberg for all queries, and the fixtures of the Spark
tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.connectors.lake.sessions import lake_session
from tests.connectors.parts.s3 import S3Server
from tests.spark.conftest import pipelines

__all__ = ["pipelines"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, s3: S3Server) -> Iterator[SparkSession]:
    started = lake_session(tmp_path_factory.mktemp("spark"), s3)
    yield started
    started.stop()
