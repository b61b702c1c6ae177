"""Two tracked queries over a table: one writes it, the other reads it, and what is complete of it is read by
a job (docs/delta.md, docs/iceberg.md)."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from lowmark import CompletedReader, Tracked, TrackedQuery
from lowmark.spark import TableAsOf


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


def write_batches(
    tracked: Tracked, frame: DataFrame, table: str, fmt: str, checkpoint: str
) -> TrackedQuery:
    """Appends each batch to a Delta or Iceberg table from within a function, once."""
    publish = tracked.writer(table, fmt)

    def each_batch(rows: DataFrame, batch: int) -> None:
        publish(rows.where("row >= 0"), batch)

    writer = frame.writeStream.foreachBatch(each_batch).option("checkpointLocation", checkpoint)
    return tracked.start(writer, node_id="write", reads="write", creates=["read"])


def report_completed(
    spark: SparkSession, target: str, pipeline: str, table: str, fmt: str, report: str, record: str
) -> bool:
    """Reports the rows of a table that have become complete since the last report, each once, by one version
    of the table; False if none have."""
    with CompletedReader(target, pipeline, "write", record, slot="slot") as reader:
        taken = reader.take(TableAsOf(spark, table, fmt))
        if taken is None:
            return False
        taken.frame.write.mode("overwrite").parquet(f"{report}/run={taken.run.number}")
        taken.done()
        return True
