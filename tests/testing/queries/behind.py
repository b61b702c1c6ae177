"""A query that reports too early: a batch's rows are written with the next batch, and what is in memory dies."""

import os

from pyspark.sql import DataFrame, Row, SparkSession

from lowmark import Tracked

SCHEMA = "pieces INT, global_time LONG, ack_value LONG"

spark = SparkSession.builder.master("local[2]").getOrCreate()
priced = spark.readStream.schema(SCHEMA).json("data/orders")
priced = priced.selectExpr("pieces * 5 AS amount", "global_time")
kept: list[Row] = []


def write_later(rows: DataFrame | None, batch: int) -> None:
    if kept:
        spark.createDataFrame(kept).write.mode("append").json("data/priced")
    kept[:] = rows.collect() if rows is not None else []


tracked = Tracked(spark, os.environ["LOWMARK_TARGET"], "orders")
writer = priced.writeStream.foreachBatch(write_later)
query = tracked.start(
    writer.option("checkpointLocation", "data/checkpoint"), node_id="price", reads="price",
    rows={"price": "global_time"},
)  # fmt: skip
query.awaitTermination()
write_later(None, -1)
