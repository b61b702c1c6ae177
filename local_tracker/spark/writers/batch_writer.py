"""Publishes what `foreachBatch` is given as files, each batch once (`published`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import DataFrame

from local_tracker.spark.formats.published import PublishedBatches
from local_tracker.spark.session.tracked_query import TrackedQuery
from local_tracker.spark.writers.each_batch import Calls
from tracker.files import Stores


class BatchWriter:
    """Publishes the DataFrame of each batch as files in a directory; made by `Tracked.writer`."""

    def __init__(
        self,
        admitted_query: Callable[[str], TrackedQuery],
        out: str,
        fmt: str,
        creates: Sequence[str] | None,
        partition_by: Sequence[str],
        options: Mapping[str, str],
        stores: Stores,
    ) -> None:
        self.batches = PublishedBatches(out, stores)
        self.creates = None if creates is None else tuple(creates)
        self._admitted_query, self._format = admitted_query, fmt
        self._partition_by, self._options = tuple(partition_by), dict(options)
        self._calls = Calls(self.batches.directory)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Publish a batch's DataFrame, unless it has been published before."""
        query_id, run = self._calls.begin(frame, batch)
        query = self._admitted_query(query_id)
        offsets = query.checkpoint.offsets(batch).text

        def write(directory: str) -> None:
            writer = frame.write.format(self._format).options(**self._options)
            if self._partition_by:
                writer = writer.partitionBy(*self._partition_by)
            writer.save(directory)
            query.check_acks(batch, run)

        def name_of(name: str, ordinal: int) -> str:
            return f"b{batch:08d}-{query_id[:8]}-{name}"

        self.batches.publish(query_id, batch, offsets, run, write, name_of)
