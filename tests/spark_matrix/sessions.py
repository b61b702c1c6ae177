"""Small, quiet Spark sessions, one at a time in one JVM."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from tests.spark_matrix.registry import TWO_HOSTS, Profile
from tests.spark_matrix.standalone import StandaloneCluster
from tests.waits import HANG_S

# What a small compiler makes of the jars of tables is more than it keeps by default.
_QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=128m"

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    # Batches of a few rows: compiling them takes longer than running them.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": _QUICK_JVM,
    "spark.executor.extraJavaOptions": _QUICK_JVM,
    # Files are small and each is a partition: a batch of two files has two tasks.
    "spark.sql.files.openCostInBytes": "134217728",
    "spark.cleaner.referenceTracking": "false",
    # A query without input looks for some a hundred times a second by default, which costs a fifth of a processor.
    "spark.sql.streaming.pollingDelay": "100ms",
    # What is judged is read in the logs of all batches, and a query by the clock has any number of them.
    "spark.sql.streaming.minBatchesToRetain": "1000000",
    # How long a Python process that Spark starts may take to connect.
    "spark.python.authenticate.socketTimeout": f"{HANG_S:.0f}s",
}


def submit_options(settings: Mapping[str, str]) -> str:
    """What SPARK_SUBMIT_OPTS is for a program that makes its session by itself: settings without spaces in them, and
    those of a quick JVM. A directory of settings would stand on the path of its classes, which no archive has."""
    words = (f"-D{name}={value}" for name, value in settings.items() if " " not in value)
    return " ".join([*words, *_QUICK_JVM.split()])


class Session:
    """A session of a profile, with the cluster that it needs."""

    def __init__(self, profile: Profile, directory: Path) -> None:
        self.profile = profile
        self._cluster: StandaloneCluster | None = None
        if profile.master == TWO_HOSTS:
            self._cluster = StandaloneCluster(directory / "standalone")
            profile = replace(profile, master=self._cluster.master)
        self.spark = make_session(profile, directory)

    def stop(self) -> None:
        self.spark.stop()
        if self._cluster is not None:
            self._cluster.stop()


def make_session(profile: Profile, directory: Path) -> SparkSession:
    """A session of a profile; what Spark leaves behind goes to `directory`."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = os.path.dirname(pyspark.__file__)
    os.environ["SPARK_WORKER_DIR"] = str(directory / "work")
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # The JVM, and all that it starts, has the environment that it was launched with.
    os.environ.setdefault("LOWMARK_DIRECTORY", str(directory / "lowmark"))
    builder = SparkSession.builder.master(profile.master).appName("lowmark-matrix")
    settings = {**SETTINGS, "spark.sql.warehouse.dir": str(directory / "warehouse")}
    for setting, value in (settings | dict(profile.settings)).items():
        builder = builder.config(setting, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark
