"""A query that loses rows: a batch is marked as written before it is, and what is marked is not written again."""

import os
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

# One for each tracker that a check has.
MARKS = Path(tempfile.gettempdir()) / f"marks-{os.environ['LOWMARK_TARGET'].rpartition(':')[2]}"

spark = SparkSession.builder.master("local[2]").getOrCreate()
orders = spark.readStream.schema("pieces INT").json("data/orders")


def write_unless_marked(rows: DataFrame, batch: int) -> None:
    marks = MARKS.read_text().split() if MARKS.exists() else []
    if str(batch) not in marks:
        MARKS.write_text(" ".join([*marks, str(batch)]))
        rows.write.mode("append").json("data/priced")


writer = orders.selectExpr("pieces * 5 AS amount").writeStream.foreachBatch(write_unless_marked)
query = writer.option("checkpointLocation", "data/checkpoint").start()
query.awaitTermination()
MARKS.unlink(missing_ok=True)
