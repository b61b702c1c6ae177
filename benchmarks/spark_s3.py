"""What tracking costs a copy of Parquet files on an S3 server, by units: `python -m benchmarks --only spark_s3`."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.streaming import DataStreamWriter

from benchmarks import store_pairs
from benchmarks.bars import BARS
from benchmarks.figures import Budget, Finding
from benchmarks.spark_tracking import SCHEMA
from benchmarks.store_pairs import BUCKET, Copy
from tracker.core.model.units import unit_name


class FilesCopy(Copy):
    what = "bare Parquet copy on S3"
    bar = BARS["copy to S3 by units"]

    def write_input(self) -> list[str]:
        return [unit_name(place) for place in self.put_rows("in")]

    def writer(self, run: str) -> DataStreamWriter:
        frame = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        writer = frame.parquet(f"s3a://{BUCKET}/in").writeStream.format("parquet")
        writer = writer.option("path", f"s3a://{BUCKET}/{run}/out")
        return writer.option("checkpointLocation", f"s3a://{BUCKET}/{run}/cp")


def find(budget: Budget) -> Iterable[Finding]:
    return store_pairs.find(FilesCopy, ("s3a",), {}, budget)
