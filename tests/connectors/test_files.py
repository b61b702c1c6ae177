"""What is asked of files, of S3A over an S3 server and of HDFS, by a session with their jars."""

from __future__ import annotations

from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from local_tracker.spark.formats.hadoop_files import SessionStores
from tests.connectors.parts.hdfs import HdfsCluster
from tests.connectors.parts.together import BUCKET
from tests.files.specification import *  # noqa: F403
from tests.files.stores import Store


@pytest.fixture(params=["s3a", pytest.param("hdfs", marks=pytest.mark.long)])
def store(request: pytest.FixtureRequest, spark: SparkSession) -> Store:
    top = f"s3a://{BUCKET}"
    if request.param == "hdfs":
        hdfs: HdfsCluster = request.getfixturevalue("hdfs")
        top = hdfs.url
    stores = SessionStores(spark)
    root = stores.location(f"{top}/tests/{uuid4().hex}/a directory")
    return Store(stores.files(root), root)


@pytest.fixture
def exclusive(store: Store) -> Store:
    return store
