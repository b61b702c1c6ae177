"""Publishes what `foreachBatch` is given as files, each batch once (`published`)."""

from __future__ import annotations

from pyspark.sql import DataFrame

from local_tracker.spark.formats.outputs import Output, published_output
from local_tracker.spark.formats.published import PublishedBatches
from local_tracker.spark.query.logs import CheckpointLog
from local_tracker.spark.query.plans import Routes
from local_tracker.spark.writers.each_batch import BatchWriter, Calls, Writing


class FileBatchWriter(BatchWriter):
    """Publishes batches as files in a directory."""

    def __init__(self, writing: Writing) -> None:
        super().__init__(writing)
        self.batches = PublishedBatches(writing.out, writing.stores)
        self.place = self.batches.directory
        self._calls = Calls(self.place)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        query_id, run = self._calls.begin(frame, batch)
        query = self._writing.admitted_query(query_id)
        self.segments(query.routes)  # refuses what the query's pipeline has not
        offsets = query.checkpoint.offsets(batch).text
        asked = self._writing

        def write(directory: str) -> None:
            writer = frame.write.format(asked.fmt).options(**asked.options)
            if asked.partition_by:
                writer = writer.partitionBy(*asked.partition_by)
            writer.save(directory)
            query.check_acks(batch, run)

        def name_of(name: str, ordinal: int) -> str:
            return f"b{batch:08d}-{query_id[:8]}-{name}"

        self.batches.publish(query_id, batch, offsets, run, write, name_of)

    def output(self, query_id: str, routes: Routes, checkpoint: CheckpointLog) -> Output | None:
        if any(name not in routes.spec.segments for name in self.creates or ()):
            return None  # of segments that are newer than the query: none of its batches is let in
        return published_output(self.batches, query_id, self.segments(routes))
