"""A query that loses nothing: the file sink, tracked."""

import os

from pyspark.sql import SparkSession

from lowmark import Tracked

SCHEMA = "pieces INT, global_time LONG, ack_value LONG"

spark = SparkSession.builder.master("local[2]").getOrCreate()
priced = spark.readStream.schema(SCHEMA).json("data/orders")
priced = priced.selectExpr("pieces * 5 AS amount", "global_time")
writer = priced.writeStream.format("parquet").option("path", "data/priced")
tracked = Tracked(spark, os.environ["LOWMARK_TARGET"], "orders")
query = tracked.start(
    writer.option("checkpointLocation", "data/checkpoint"), node_id="price", reads="price",
    rows={"price": "global_time"},
)  # fmt: skip
query.awaitTermination()
