"""The three queries over a topic and tables: what is in them is `examples.flights.queries`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter

from examples.flights import queries
from examples.flights.data import DAY_NS
from examples.flights.driver import tracked_parser
from examples.flights.pipeline import Places
from examples.lake.site import ENRICHED, TOPIC, Site
from lowmark import Tracked, TrackedQuery

TRIGGER = "2 seconds"
DAY_S = DAY_NS // 10**9


def make_tables(spark: SparkSession, site: Site) -> None:
    """The tables, empty: a query can only read what is there."""
    spark.sql(f"CREATE TABLE delta.`{site.url('parsed')}` ({queries.FLIGHT_SCHEMA}) USING delta")
    spark.sql(f"CREATE NAMESPACE {ENRICHED.rpartition('.')[0]}")
    spark.sql(f"CREATE TABLE {ENRICHED} ({queries.ENRICHED_SCHEMA}) USING iceberg")


def start_queries(
    spark: SparkSession, tracked: Tracked, places: Places, site: Site
) -> list[TrackedQuery]:
    """The three queries, each a node of the pipeline."""

    def writing(name: str, frame: DataFrame, fmt: str) -> DataStreamWriter:
        return (
            frame.writeStream.queryName(name)
            .format(fmt)
            .option("checkpointLocation", site.url(site.checkpoint(name)))
            .trigger(processingTime=TRIGGER)
        )

    make_tables(spark, site)
    parsed = queries.parsed(raw_flights(spark, site), tracked_parser(places.malformed, day_of))
    parse = tracked.start(
        writing("parse", parsed, "delta").option("path", site.url("parsed")),
        node_id="parse", reads={TOPIC: "parse"}, creates=["enrich"],
    )  # fmt: skip
    flights = spark.readStream.format("delta").option("startingVersion", "0")
    enriched = queries.enriched(spark, flights.load(site.url("parsed")))
    enrich = tracked.start(
        writing("enrich", enriched, "iceberg"),
        node_id="enrich", reads="enrich", creates=["aggregate"], to_table=ENRICHED,
    )  # fmt: skip
    totals = queries.aggregated(spark.readStream.format("iceberg").load(ENRICHED))
    aggregate = tracked.start(
        writing("aggregate", totals, "delta").outputMode("complete").option("path", site.url("totals")),
        node_id="aggregate", reads="aggregate",
    )  # fmt: skip
    return [parse, enrich, aggregate]


def raw_flights(spark: SparkSession, site: Site) -> DataFrame:
    """What the airports write, with the day under which the front labels it."""
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", site.brokers)
    records = source.option("subscribe", TOPIC).option("startingOffsets", "earliest").load()
    return records.select(
        F.col("key").cast("string").cast("long").alias("row"),
        F.col("value").cast("string").alias("line"),
        F.expr(f"unix_seconds(timestamp) div {DAY_S}").alias("day"),
    )


def day_of(raw: Mapping[str, Any]) -> int:
    """The slot of a raw row."""
    return int(raw["day"])
