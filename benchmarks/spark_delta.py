"""What tracking costs a copy from one Delta table on an S3 server into another, by units, on the PySpark that
Delta has a release for: `python -m benchmarks --only spark_delta`."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.streaming import DataStreamWriter

from benchmarks import store_pairs
from benchmarks.bars import BARS
from benchmarks.figures import Budget, Finding
from benchmarks.store_pairs import BATCHES, BUCKET, Copy

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # A commit of a few files is not worth fifty tasks.
    "spark.databricks.delta.snapshotPartitions": "1",
}
TABLE = f"s3a://{BUCKET}/table"


class DeltaCopy(Copy):
    """Each batch takes one version, of one file."""

    what = "bare copy from Delta to Delta on S3"
    bar = BARS["copy to Delta by units"]

    def write_input(self) -> list[str]:
        for place in self.put_rows("rows"):
            rows = self.spark.read.parquet(place).coalesce(1)
            rows.write.format("delta").mode("append").save(TABLE)
        (detail,) = self.spark.sql(f"DESCRIBE DETAIL delta.`{TABLE}`").collect()
        return [f"delta:{detail['id']}/{version}" for version in range(BATCHES)]

    def writer(self, run: str) -> DataStreamWriter:
        reader = self.spark.readStream.format("delta").option("maxFilesPerTrigger", 1)
        frame = reader.option("startingVersion", "0").load(TABLE)
        writer = frame.writeStream.format("delta").option("path", f"s3a://{BUCKET}/{run}/out")
        return writer.option("checkpointLocation", f"s3a://{BUCKET}/{run}/cp")


def find(budget: Budget) -> Iterable[Finding]:
    return store_pairs.find(DeltaCopy, ("delta", "s3a-3.4"), SETTINGS, budget)
