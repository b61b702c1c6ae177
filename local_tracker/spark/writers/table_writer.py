"""Appends the DataFrame of each batch to a Delta or Iceberg table from within `foreachBatch`, each batch once.

A batch is one commit to the table, in which its query and number stand, as in those of the table's own
streaming sink: so a batch that has been committed is not written again, whatever is killed before Spark
knows of it, and what it created is found in the table's log. With it is noted which run evaluated it, and
over which offsets.

Before a query writes to a table for the first time, that is noted beside its checkpoint's logs. So nobody
looks for its batches in tables that it has not written, nor behind the version at which it began.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from local_tracker.spark.formats import iceberg
from local_tracker.spark.formats.outputs import Output
from local_tracker.spark.formats.tables import TableSource, delta_table, iceberg_table, table_writer
from local_tracker.spark.query.logs import CheckpointLog
from local_tracker.spark.query.plans import Routes
from local_tracker.spark.writers.each_batch import Calls, WritingQuery
from tracker.errors import Code, FilesError, TrackingError
from tracker.files import Stores

_MAX_CLAIM_BYTES = 1 << 16
_OWN_OPTIONS = {
    "delta": {"txnappid", "txnversion", "usermetadata", "replacewhere", "partitionoverwritemode"},
    "iceberg": {"branch", "overwrite-mode"},
}
_SNAPSHOT_PROPERTY = "snapshot-property."


@dataclass(frozen=True, slots=True)
class Note:
    """What is noted in a batch's commit. run: of the query, that evaluated it; offsets: a digest of those
    that it was evaluated over."""

    run: str
    offsets: str

    def to_json(self) -> str:
        return json.dumps({"lowmark": {"run": self.run, "offsets": self.offsets}})

    @classmethod
    def from_json(cls, text: str, where: str) -> Note:
        """Raises TrackingError for what `to_json` did not write."""
        try:
            value = json.loads(text)["lowmark"]
            return cls(str(value["run"]), str(value["offsets"]))
        except (KeyError, RecursionError, TypeError, ValueError):
            raise TrackingError(
                f"{where} was not written by tracked.writer(...), or without what it notes there "
                f"({text[:200]!r}); write the table by the writer alone, and leave "
                f"spark.databricks.delta.commitInfo.enabled as it is"
            ) from None


class QueryInTable:
    """What one query has written to a table by our writer. Thread-safe."""

    def __init__(self, table: TableSource, stores: Stores, query: str, since: int) -> None:
        """since: the first version that may be the query's."""
        self._log, self._where = table_writer(table, stores, query, since), table.location
        self._lock = threading.RLock()
        self._found: dict[int, tuple[Note, tuple[str, ...]]] = {}

    def note(self, batch: int) -> Note | None:
        """Of a batch that is in the table; None if it is not. Raises FilesError and TableRefused, and
        TrackingError for a commit that is not the writer's."""
        found = self._find(batch)
        return None if found is None else found[0]

    def names(self, batch: int) -> tuple[str, ...]:
        """The units that a batch has created. Raises as `note`."""
        found = self._find(batch)
        return () if found is None else found[1]

    def run(self, batch: int) -> str | None:
        """The run that evaluated a batch; None if it is not in the table. Raises as `note`."""
        found = self._find(batch)
        return None if found is None else found[0].run

    def forget(self, batch: int) -> None:
        """Nobody asks for the batch again, nor for those before it."""
        with self._lock:
            self._log.forget(batch)
            for earlier in [number for number in self._found if number <= batch]:
                del self._found[earlier]

    def _find(self, batch: int) -> tuple[Note, tuple[str, ...]] | None:
        with self._lock:
            if batch not in self._found:
                text = self._log.note(batch)
                if text is None:
                    return None
                note = Note.from_json(text, f"batch {batch} in table {self._where}")
                self._found[batch] = note, self._log.names(batch)
            return self._found[batch]


class WrittenTable:
    """A table that queries of this driver write. Thread-safe."""

    def __init__(self, table: TableSource, stores: Stores) -> None:
        self.table, self.location = table, stores.location(table.location)
        self.calls = Calls(f"table {self.location}")
        self._stores, self._lock = stores, threading.RLock()
        self._queries: dict[str, QueryInTable | None] = {}
        """None: the query has not written here, by its checkpoint."""

    def check(self) -> None:
        """Raises TrackingError where a reader could not tell what it has read of what is written here."""
        if self.table.format != "iceberg":
            return
        found = iceberg_table(self.table, self._stores)
        found.refresh()
        if found.merges_manifests:
            raise TrackingError(
                f"table {self.location} merges the manifests of what is appended, so that Iceberg's own "
                f"reader may skip files, and which it has read cannot be told; set the table's property "
                f"'commit.manifest-merge.enabled' to 'false' (ALTER TABLE ... SET TBLPROPERTIES)"
            )

    def began(self, query: str, checkpoint: CheckpointLog) -> QueryInTable | None:
        """What a query has written, in this run or an earlier one; None if it has not begun."""
        with self._lock:
            if query not in self._queries:
                since = self._noted(checkpoint)
                self._queries[query] = None if since is None else self._of(query, since)
            return self._queries[query]

    def begin(self, query: str, checkpoint: CheckpointLog) -> QueryInTable:
        """As `began`, of a query that is going to write; durable beside its checkpoint's logs."""
        with self._lock:
            found = self.began(query, checkpoint)
            if found is None:
                since = 0
                if self.table.format == "delta":
                    since = delta_table(self.table, self._stores).newest() + 1
                text = json.dumps({"table": self.location, "since": since})
                checkpoint.files.create_if_absent(self._claim(checkpoint), text.encode())
                first = self._noted(checkpoint)  # perhaps of another driver
                found = self._queries[query] = self._of(query, since if first is None else first)
            return found

    def started(self, query: str) -> None:
        """The query is started again, perhaps by another driver in between."""
        with self._lock:
            self._queries.pop(query, None)

    def _of(self, query: str, since: int) -> QueryInTable:
        return QueryInTable(self.table, self._stores, query, since)

    def _claim(self, checkpoint: CheckpointLog) -> str:
        digest = hashlib.sha256(self.location.encode()).hexdigest()[:16]
        return f"{checkpoint.root}/_lowmark/tables/{digest}.json"

    def _noted(self, checkpoint: CheckpointLog) -> int | None:
        path = self._claim(checkpoint)
        raw = checkpoint.files.read_whole(path, _MAX_CLAIM_BYTES)
        if raw is None:
            return None
        try:
            return int(json.loads(raw)["since"])
        except (KeyError, RecursionError, TypeError, ValueError) as error:
            raise FilesError(
                f"{path} does not say since when a table is written: {error!r}; restore it",
                Code.FILES_LOG,
            ) from None


class TableBatchWriter:
    """Appends the DataFrame of each batch to a table; made by `Tracked.writer`."""

    def __init__(
        self,
        admitted_query: Callable[[str], WritingQuery],
        written: WrittenTable,
        out: str,
        creates: Sequence[str] | None,
        partition_by: Sequence[str],
        options: Mapping[str, str],
    ) -> None:
        """out: the table's name, or where it is. Raises TrackingError for options that are the writer's."""
        self.written, self.creates = written, None if creates is None else tuple(creates)
        self._format = written.table.format
        for option in options:
            name = option.lower()
            if name in _OWN_OPTIONS[self._format] or name.startswith(_SNAPSHOT_PROPERTY):
                raise TrackingError(
                    f"the writer for table {out!r} appends each batch once, to the main branch, and notes "
                    f"that there itself: leave out the option {option!r}"
                )
        written.check()
        self._admitted_query, self._out = admitted_query, out
        self._partition_by, self._options = tuple(partition_by), dict(options)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Appends a batch's DataFrame, unless it is in the table already. Raises TrackingError, and as
        `QueryInTable.note`."""
        query_id, run = self.written.calls.begin(frame, batch)
        query = self._admitted_query(query_id)
        self._check_by_units(query.routes)
        self.written.check()
        mine = Note(run, _digest(query.checkpoint.offsets(batch).text))
        inside = self.written.begin(query_id, query.checkpoint)
        # Delta itself leaves out a batch that it has; to look for it first could mean the whole log.
        note = inside.note(batch) if self._format == "iceberg" else None
        if note is None:
            self._append(frame, query_id, batch, mine)
            note = inside.note(batch)
        self._check_written(batch, note, mine)
        if note == mine:
            query.check_acks(batch, run)

    def output(self, query_id: str, routes: Routes, checkpoint: CheckpointLog) -> Output | None:
        """What a query's batches leave in the table; None while it has not written there."""
        inside = self.written.began(query_id, checkpoint)
        if inside is None:
            return None
        return Output(
            self.segments(routes),
            inside.names,
            lambda batch: inside.note(batch) is not None,
            inside.run,
            inside.forget,
        )

    def segments(self, routes: Routes) -> tuple[int, ...]:
        """The numbers of the segments that a query creates in by this."""
        if self.creates is None:
            return routes.creates
        return tuple(routes.number(name) for name in self.creates)

    def _append(self, frame: DataFrame, query_id: str, batch: int, note: Note) -> None:
        writer = frame.write.format(self._format).options(**self._options).mode("append")
        for name, value in self._stamps(query_id, batch, note).items():
            writer = writer.option(name, value)
        if self._partition_by:
            writer = writer.partitionBy(*self._partition_by)
        if "/" in self._out:
            writer.save(self._out)
        else:
            writer.saveAsTable(self._out)

    def _stamps(self, query_id: str, batch: int, note: Note) -> dict[str, str]:
        """The options by which a commit says whose it is."""
        if self._format == "delta":
            return {
                "txnAppId": query_id, "txnVersion": str(batch), "userMetadata": note.to_json(),
            }  # fmt: skip
        properties = {
            iceberg.QUERY: query_id, iceberg.BATCH: str(batch), iceberg.NOTE: note.to_json(),
        }  # fmt: skip
        return {_SNAPSHOT_PROPERTY + name: value for name, value in properties.items()}

    def _check_written(self, batch: int, note: Note | None, mine: Note) -> None:
        """Raises TrackingError where what the table has of a batch is not what it should have."""
        if note is None:
            raise TrackingError(
                f"table {self.written.location} has nothing of batch {batch} after it was appended: where it "
                f"has later ones of the query, the checkpoint has been rolled back; restore the newer one, or "
                f"start over with an empty checkpoint"
            )
        if note.offsets != mine.offsets:
            raise TrackingError(
                f"table {self.written.location} has batch {batch} already, and for other offsets than those "
                f"of the checkpoint, which has been rolled back: restore the newer one, or start over with "
                f"an empty checkpoint"
            )

    def _check_by_units(self, routes: Routes) -> None:
        for number in self.segments(routes):
            if number in routes.rows:
                raise TrackingError(
                    f"the query is to create by rows in {routes.spec.segments[number]!r}, and writes a "
                    f"table: tables are tracked by units alone; leave the segment out of rows"
                )


def _digest(offsets: str) -> str:
    return hashlib.sha256(offsets.encode()).hexdigest()[:32]
