"""A Spark driver, to be killed: python -m tests.barrier.driver TARGET DIRECTORY

Its tracked query brings rows of several files together, with their files' slots, into files in no order.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import functions

from local_tracker.spark.session.tracked import Tracked
from tests.barrier.pipeline import DELIVER, NAME, READ, read_directory, written_directory
from tests.cluster.told import end_with_parent
from tests.spark_matrix.registry import Profile
from tests.spark_matrix.sessions import make_session


def main(target: str, directory: str) -> None:
    end_with_parent()
    root = Path(directory)
    spark = make_session(Profile("barrier", "local[1]"), root / "spark")
    tracked = Tracked(spark, target, NAME)
    rows = spark.readStream.schema("key string, id string").json(str(read_directory(root)))
    slot = functions.regexp_extract("_metadata.file_name", r"^s(-?\d+)-", 1).cast("long")
    writer = (
        rows.select(slot.alias("slot"), "key", "id")
        .writeStream.format("parquet")
        .option("path", str(written_directory(root)))
        .option("checkpointLocation", str(root / "checkpoint"))
        .trigger(processingTime="100 milliseconds")
    )
    query = tracked.start(writer, node_id="query", reads=READ, creates=[DELIVER])
    print("ready", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
