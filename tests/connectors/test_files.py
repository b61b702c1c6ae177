"""What is asked of files, of S3A over an S3 server and of HDFS, by a session with their jars."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from local_tracker.spark.hadoop_files import SessionStores
from tests.connectors.conftest import BUCKET, or_skip
from tests.connectors.parts.cache import FETCH_TIMEOUT_S
from tests.connectors.parts.hdfs import HdfsCluster
from tests.connectors.parts.jars import spark_jars
from tests.connectors.parts.s3 import S3Server
from tests.connectors.sessions import s3a_session
from tests.files.specification import *  # noqa: F403
from tests.files.stores import Store

pytestmark = pytest.mark.timeout(3 * FETCH_TIMEOUT_S)  # where a part is fetched first


@pytest.fixture(scope="module")
def session(s3: S3Server) -> Iterator[SparkSession]:
    jars = or_skip(lambda: spark_jars("s3a"))
    with s3a_session(s3, jars) as spark:
        yield spark


@pytest.fixture(params=["s3a", "hdfs"])
def store(request: pytest.FixtureRequest, session: SparkSession) -> Store:
    top = f"s3a://{BUCKET}"
    if request.param == "hdfs":
        hdfs: HdfsCluster = request.getfixturevalue("hdfs")
        top = hdfs.url
    stores = SessionStores(session)
    root = stores.location(f"{top}/tests/{uuid4().hex}/a directory")
    return Store(stores.files(root), root)


@pytest.fixture
def exclusive(store: Store) -> Store:
    return store
