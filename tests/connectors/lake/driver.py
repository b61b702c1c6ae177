"""A driver that writes a table from within `foreachBatch`, and kills itself and its JVM by SIGKILL when the
table has batch BATCH and Spark has not committed it.

    python -m tests.connectors.lake.driver TARGET PIPELINE DIRECTORY FORMAT TABLE WAREHOUSE BATCH

It ends with status 3 if there was no such batch.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from local_tracker.spark.session.tracked import Tracked, TrackedQuery
from scripts.summary import ROOT
from tests.connectors.lake.sessions import CATALOG, lake_session
from tests.spark.support import SCHEMA
from tests.waits import PROGRAM_S
from tracker.testing.killing import Killer
from tracker.testing.moments import MISSED


def start(
    spark: SparkSession, tracked: Tracked, directory: Path, fmt: str, table: str,
    written: Callable[[int], object] = lambda batch: None, more: int = 0,
) -> TrackedQuery:  # fmt: skip
    """The query: one file a batch. written: is called when a batch is in the table; more: is added to the
    number of each row."""
    frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    publish = tracked.writer(table, fmt)

    def each_batch(rows: DataFrame, batch: int) -> None:
        publish(rows.withColumn("row", rows["row"] + more), batch)
        written(batch)

    writer = frame.parquet(str(directory / "in")).writeStream.foreachBatch(each_batch)
    writer = writer.option("checkpointLocation", str(directory / "cp"))
    return tracked.start(writer, node_id="write", reads="write", creates=["read"])


def run_driver(
    spark: SparkSession, tracked: Tracked, directory: Path, fmt: str, table: str, batch: int
) -> int:
    """Runs the driver until it has died, with the catalog that this session has; returns its status."""
    command = [
        sys.executable, "-m", __name__, str(tracked.target), tracked.pipeline, str(directory), fmt, table,
        str(spark.conf.get(f"spark.sql.catalog.{CATALOG}.warehouse")), str(batch),
    ]  # fmt: skip
    return subprocess.run(command, cwd=ROOT, timeout=PROGRAM_S, check=False).returncode


def main(
    target: str, pipeline: str, directory: Path, fmt: str, table: str, warehouse: str, batch: int
) -> None:
    spark = lake_session(directory / "driver")
    spark.conf.set(f"spark.sql.catalog.{CATALOG}.warehouse", warehouse)
    killer = Killer.here(batch)
    tracked = Tracked(spark, target, pipeline)
    query = start(spark, tracked, directory, fmt, table, killer.die_at)
    query.processAllAvailable()
    query.stop()
    spark.stop()
    sys.exit(MISSED)


if __name__ == "__main__":
    main(
        sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4], sys.argv[5], sys.argv[6],
        int(sys.argv[7]),
    )  # fmt: skip
