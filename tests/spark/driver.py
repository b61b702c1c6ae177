"""A driver that kills itself and its JVM between a batch's sink commit and its `commits/N`.

    python -m tests.spark.driver TARGET PIPELINE DIRECTORY BATCH

Runs the query of `test_driver_killed` and, when the sink has committed BATCH, dies by SIGKILL, so
that nothing is tidied up. It ends with status 3 if `commits/BATCH` was there already.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession

from local_tracker import acks
from local_tracker.spark.tracked import Tracked, TrackedQuery
from tests.spark.conftest import LOCAL, session
from tests.spark.support import SCHEMA, parse_operator

DOWNSTREAM = "after"


def start(spark: SparkSession, target: str, pipeline: str, directory: Path) -> TrackedQuery:
    """The query: one file a batch, so that batch N is the front's file N; its code acknowledges."""
    tracked = Tracked(spark, target, pipeline)
    tracked.track(acks)
    return tracked.start(
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(directory / "in"))
        .mapInArrow(parse_operator(), SCHEMA)
        .writeStream.format("parquet")
        .option("path", str(directory / "out"))
        .option("checkpointLocation", str(directory / "cp")),
        node_id="parse", reads="parse", creates=[DOWNSTREAM],
    )  # fmt: skip


def kill_when_sink_has(jvm: int, directory: Path, batch: int) -> None:
    """Wait for the sink's commit; then end the JVM and this process at once."""
    sink = directory / "out/_spark_metadata" / str(batch)
    while not os.path.exists(directory / "cp/offsets" / str(batch)):
        time.sleep(0.005)
    while not os.path.exists(sink):
        pass  # the gap is some milliseconds wide: no time to sleep
    os.kill(jvm, signal.SIGKILL)
    if os.path.exists(directory / f"cp/commits/{batch}"):
        os._exit(3)
    os.kill(os.getpid(), signal.SIGKILL)


def main(target: str, pipeline: str, directory: Path, batch: int) -> None:
    spark = session(LOCAL, directory)
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    jvm = gateway.proc.pid
    threading.Thread(target=kill_when_sink_has, args=(jvm, directory, batch)).start()
    start(spark, target, pipeline, directory).awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
