"""The three streaming queries, as anyone would write them: nothing here knows of the tracker, but the
two lines by which the first acknowledges the rows that it hands to a side output.

    airports' files -> parse -> Parquet -> enrich -> Parquet -> aggregate -> Parquet
                          └-> malformed rows -> dead letters (plain Python)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from examples.flights.data import data_file, parse_line

RAW_SCHEMA = "row BIGINT, line STRING"
"""What the airports publish: a flight's place in the data, and its unparsed line."""

FLIGHT_SCHEMA = (
    "row BIGINT, scheduled_s BIGINT, carrier STRING, flight INT, tailnum STRING, origin STRING, "
    "dest STRING, dep_delay_min INT, arr_delay_min INT"
)
ENRICHED_SCHEMA = FLIGHT_SCHEMA + ", seats INT, dest_name STRING"

ARROW_FLIGHT = pa.schema(
    [
        ("row", pa.int64()),
        ("scheduled_s", pa.int64()),
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        ("tailnum", pa.string()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("dep_delay_min", pa.int32()),
        ("arr_delay_min", pa.int32()),
    ]
)

Malformed = list[tuple[int, int, str, str]]
"""Rows that could not be parsed: (row, slot, line, why)."""


def parser(
    hand_over: Callable[[Malformed], None], slot_of: Callable[[Mapping[str, Any]], int]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that parses raw lines, and hands the malformed ones of its
    partition over when it has seen all of it. slot_of: under which a raw row came in."""

    def parse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        malformed: Malformed = []
        for batch in batches:
            flights = []
            for raw in batch.to_pylist():
                row, line = raw["row"], raw["line"]
                try:
                    flights.append({"row": row, **parse_line(line)})
                except ValueError as error:
                    malformed.append((row, slot_of(raw), line, str(error)))
            yield pa.RecordBatch.from_pylist(flights, schema=ARROW_FLIGHT)
        if malformed:
            hand_over(malformed)

    return parse


def raw_flights(spark: SparkSession, directory: str) -> DataFrame:
    """What the airports publish in a directory, with the names of the files."""
    raw = spark.readStream.schema(RAW_SCHEMA).parquet(directory)
    return raw.select("row", "line", F.col("_metadata.file_name").alias("file_name"))


def parsed(
    raw: DataFrame, parse: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
) -> DataFrame:
    """Flights with typed columns. The small files of a micro-batch become one, so that the next query
    has one to open; before the parser, not after it, so that a task runs the parser once."""
    return raw.coalesce(1).mapInArrow(parse, FLIGHT_SCHEMA)


def flights_in(spark: SparkSession, directory: str, schema: str) -> DataFrame:
    """What the query before has written into a directory."""
    return spark.readStream.schema(schema).parquet(directory)


def enriched(spark: SparkSession, flights: DataFrame) -> DataFrame:
    """Flights with the seats of their plane and the name of their destination, where known."""
    planes = _table(spark, "planes.csv", "tailnum STRING, seats INT")
    airports = _table(spark, "airports.csv", "faa STRING, name STRING").select(
        F.col("faa").alias("dest"), F.col("name").alias("dest_name")
    )
    joined = flights.join(F.broadcast(planes), "tailnum", "left").join(
        F.broadcast(airports), "dest", "left"
    )
    columns = [field.split()[0] for field in ENRICHED_SCHEMA.split(", ")]
    return joined.select(*columns).coalesce(1)


def _table(spark: SparkSession, name: str, schema: str) -> DataFrame:
    """Some columns of a table of the data, kept in memory."""
    columns = [field.split()[0] for field in schema.split(", ")]
    table = spark.read.option("header", True).option("nullValue", "NA").csv(str(data_file(name)))
    typed = [F.col(field.split()[0]).cast(field.split()[1]) for field in schema.split(", ")]
    return table.select(*columns).select(*typed).cache()


def aggregated(flights: DataFrame) -> DataFrame:
    """Totals of each carrier and route so far; for output mode `update` or `complete`."""
    return flights.groupBy("carrier", "origin", "dest").agg(
        F.count("*").alias("flights"),
        F.sum("dep_delay_min").alias("dep_delay_min"),
        F.count("arr_delay_min").alias("arrived"),
        F.sum("arr_delay_min").alias("arr_delay_min"),
        F.coalesce(F.sum("seats"), F.lit(0)).alias("seats"),
        F.max("dest_name").alias("dest_name"),
    )
