"""python -m tests.spark_matrix.classes FILE: archives the classes of Spark, so that JVMs which begin with the archive
take half the time for it.

An archive is of one Java and of the very jars from which it was made: a JVM that finds others loads its classes as ever.
Nothing is done where there is a file.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark_matrix.registry import Profile
from tests.spark_matrix.sessions import SETTINGS, make_session

_OPTIONS = "spark.driver.extraJavaOptions"


def archive(file: Path) -> None:
    """The classes that a query of files with state in it needs, whose rows pass through Python."""
    unfinished = file.with_suffix(f".{os.getpid()}")
    options = f"{SETTINGS[_OPTIONS]} -XX:ArchiveClassesAtExit={unfinished} -Xlog:disable"
    profile = Profile("classes", "local[2]", {_OPTIONS: options})
    with tempfile.TemporaryDirectory() as directory:
        spark = make_session(profile, Path(directory))
        run_query(spark, Path(directory))
        spark.stop()
        # A JVM that is killed archives nothing: it ends by itself where it hears no more.
        jvm = SparkContext._gateway.proc  # noqa: SLF001
        jvm.stdin.close()
        jvm.wait()
    unfinished.replace(file)


def run_query(spark: SparkSession, directory: Path) -> None:
    """Two batches of one, of which the second emits."""
    source, sink = directory / "in", directory / "out"
    source.mkdir()
    for number in range(2):
        rows = pa.table({"row": [number], "at_s": [number * 10_000]})
        pq.write_table(rows, source / f"{number}.parquet")
    frame = spark.readStream.schema("row long, at_s long").option("maxFilesPerTrigger", 1)
    counted = (
        frame.parquet(str(source))
        .mapInArrow(lambda batches: batches, "row long, at_s long")
        .withColumn("at", F.timestamp_seconds("at_s"))
        .withWatermark("at", "1 second")
        .groupBy(F.window("at", "1 minute"))
        .count()
    )
    writer = counted.writeStream.option("checkpointLocation", str(directory / "checkpoint"))
    query = writer.foreachBatch(lambda batch, _: batch.write.mode("append").parquet(str(sink)))
    query.start().processAllAvailable()
    assert spark.read.parquet(str(sink)).count() == 1
    spark.read.json(spark.sparkContext.parallelize(['{"row": 1}'])).collect()


if __name__ == "__main__":
    target = Path(sys.argv[1])
    if not target.exists():
        archive(target)
