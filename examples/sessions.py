"""A Spark session for the examples: small micro-batches on two local cores."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    # A few thousand rows a batch on two cores: what saves planning, compiling and small tasks counts.
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # Nothing is emitted without input, so a batch without input would only cost time.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # A query without input looks for some a hundred times a second by default, which costs a fifth of a processor.
    "spark.sql.streaming.pollingDelay": "100ms",
}


def make_session(
    name: str, directory: Path, settings: Mapping[str, str] = MappingProxyType({})
) -> SparkSession:
    """A session whose Python workers run this interpreter; what Spark leaves behind goes to
    `directory`. settings: more of them."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local[2]").appName(name)
    builder = builder.config("spark.sql.warehouse.dir", str(directory / "warehouse"))
    for setting, value in (SETTINGS | dict(settings)).items():
        builder = builder.config(setting, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@contextmanager
def session(
    name: str, directory: Path, settings: Mapping[str, str] = MappingProxyType({})
) -> Iterator[SparkSession]:
    """Such a session, which is stopped in the end."""
    spark = make_session(name, directory, settings)
    try:
        yield spark
    finally:
        spark.stop()
