"""A Spark session with the jars of S3A, for an S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from tests.connectors.parts.s3 import S3Server


@contextmanager
def s3a_session(server: S3Server, jars: str) -> Iterator[SparkSession]:
    """Ended with its JVM's context in the end. jars: for `spark.jars`."""
    settings = {
        "spark.jars": jars, "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2", **server.spark_settings(),
    }  # fmt: skip
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()
