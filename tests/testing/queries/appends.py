"""A query that doubles rows: a batch that comes again is appended again."""

from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.builder.master("local[2]").getOrCreate()
orders = spark.readStream.schema("pieces INT").json("data/orders")


def append(rows: DataFrame, batch: int) -> None:
    rows.write.mode("append").json("data/priced")


writer = orders.selectExpr("pieces * 5 AS amount").writeStream.foreachBatch(append)
query = writer.option("checkpointLocation", "data/checkpoint").start()
query.awaitTermination()
