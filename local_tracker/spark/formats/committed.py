"""The committed output of tracked queries in a directory, as a barrier's units: by the log of Spark's file sink,
or by the manifests of `tracked.writer` and of fronts in a driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from local_tracker.spark.formats.published import PublishedBatches
from local_tracker.spark.query.logs import SinkLog
from tracker.consumers.barrier.sources import Found
from tracker.errors import Code, FilesError
from tracker.files import STORES, Stores

SINK = "sink"
"""The scope of what the file sink's log says: of one query."""


class CommittedFiles:
    """The files that queries have committed to a directory; whatever else lies there counts for nothing.

    The file sink's log is purged behind its compactions: whoever was away so long is told all files of the
    newest one, so whoever asks knows what it has taken. Of manifests the last KEPT_MANIFESTS are kept: who was away
    longer is told all files that are there.
    """

    def __init__(self, location: str, stores: Stores = STORES) -> None:
        """Raises FilesError where it is out of reach."""
        self._batches = PublishedBatches(location, stores)
        self.name = self._batches.directory
        self._log = SinkLog(location, stores)

    def after(self, cursors: Mapping[str, int]) -> Iterator[Found]:
        known = cursors.get(SINK, -1)
        for batch in self._log.batches():
            if batch > known:
                yield Found(SINK, batch, self._created(batch))
        for scope in self._batches.scopes():
            numbers, known = self._batches.numbers(scope), cursors.get(scope, -1)
            if numbers and numbers[0] > known + 1:
                yield Found(scope, numbers[0] - 1, self._batches.all_units())
            for batch in numbers:
                if batch > known:
                    yield Found(scope, batch, self._batches.units(scope, batch))

    def _created(self, batch: int) -> tuple[str, ...]:
        try:
            return self._log.created(batch)
        except FilesError as error:
            if error.code != Code.FILES_LOG:
                raise
            return self._log.created_until(batch)
