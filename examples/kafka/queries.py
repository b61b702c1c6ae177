"""The two queries: from topic to topic, and from topic to files. Nothing in them is there for Lowmark but the
way in which they are started."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from examples.kafka.pipeline import ORDERS, PIPELINE, PRICED
from lowmark import Tracked, TrackedQuery

ORDER = "shop string, pieces int"
PRICE = 5


def price(spark: SparkSession, target: str, brokers: str, topics: str, data: str) -> TrackedQuery:
    """Prices each order."""
    tracked = Tracked(spark, target, PIPELINE, topics=topics)
    order = f.from_json(f.col("value").cast("string"), ORDER).alias("order")
    orders = _records(spark, brokers, ORDERS).select(order).select("order.*")
    priced = orders.withColumn("amount", f.col("pieces") * PRICE)
    writer = (
        priced.select(f.to_json(f.struct("shop", "amount")).alias("value"))
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", brokers)
        .option("topic", PRICED)
        .option("checkpointLocation", f"{data}/price")
    )
    return tracked.start(writer, node_id="price", reads={ORDERS: "price"}, creates=["store"])


def store(spark: SparkSession, target: str, brokers: str, topics: str, data: str) -> TrackedQuery:
    """Stores what has a price."""
    tracked = Tracked(spark, target, PIPELINE, topics=topics)
    priced = f.from_json(f.col("value").cast("string"), "shop string, amount int").alias("priced")
    writer = (
        _records(spark, brokers, PRICED)
        .select(priced)
        .select("priced.*")
        .writeStream.format("parquet")
        .option("path", f"{data}/stored")
        .option("checkpointLocation", f"{data}/store")
    )
    return tracked.start(writer, node_id="store", reads={PRICED: "store"})


def _records(spark: SparkSession, brokers: str, topic: str) -> DataFrame:
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", brokers)
    return source.option("subscribe", topic).option("startingOffsets", "earliest").load()
