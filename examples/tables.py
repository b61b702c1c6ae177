"""Two tracked queries over a table: one writes it, the other reads it (docs/delta.md, docs/iceberg.md)."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from lowmark import Tracked, TrackedQuery


def write_delta(tracked: Tracked, frame: DataFrame, table: str, checkpoint: str) -> TrackedQuery:
    """Appends what comes in to the Delta table at the location `table`."""
    writer = frame.writeStream.format("delta").option("path", table)
    writer = writer.option("checkpointLocation", checkpoint)
    return tracked.start(writer, node_id="write", reads="write", creates=["read"])


def read_delta(
    tracked: Tracked, spark: SparkSession, table: str, out: str, checkpoint: str
) -> TrackedQuery:
    """Copies a Delta table into files, as it grows."""
    frame = spark.readStream.format("delta").load(table)
    writer = frame.writeStream.format("parquet").option("path", out)
    writer = writer.option("checkpointLocation", checkpoint)
    return tracked.start(writer, node_id="read", reads={table: "read"})


def write_iceberg(tracked: Tracked, frame: DataFrame, table: str, checkpoint: str) -> TrackedQuery:
    """Appends what comes in to the Iceberg table of a catalog, `catalog.database.name`."""
    writer = frame.writeStream.format("iceberg").option("checkpointLocation", checkpoint)
    return tracked.start(writer, node_id="write", reads="write", creates=["read"], to_table=table)


def read_iceberg(
    tracked: Tracked, spark: SparkSession, table: str, out: str, checkpoint: str
) -> TrackedQuery:
    """Copies an Iceberg table into files, as it grows."""
    frame = spark.readStream.format("iceberg").load(table)
    writer = frame.writeStream.format("parquet").option("path", out)
    writer = writer.option("checkpointLocation", checkpoint)
    return tracked.start(writer, node_id="read", reads="read")
