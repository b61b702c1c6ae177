"""Appends the DataFrame of each batch to a table from within `foreachBatch`, each batch once.

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
from dataclasses import dataclass

from pyspark.sql import DataFrame

from local_tracker.spark.formats.interface import TableFormat, TableSource
from local_tracker.spark.formats.outputs import Output
from local_tracker.spark.formats.registry import table_format
from local_tracker.spark.formats.sinks import check_by_units
from local_tracker.spark.formats.tables import table_writer
from local_tracker.spark.query.logs import CheckpointLog
from local_tracker.spark.query.plans import Routes
from local_tracker.spark.writers.each_batch import BatchWriter, Calls, Writing
from tracker.errors import Code, FilesError, TrackingError
from tracker.files import Stores

_MAX_CLAIM_BYTES = 1 << 16


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
        table_format(self.table.format).check_appending(self.table, self._stores)

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
                since = table_format(self.table.format).next_version(self.table, self._stores)
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


class TableBatchWriter(BatchWriter):
    """Appends the DataFrame of each batch to a table."""

    def __init__(self, writing: Writing, written: WrittenTable) -> None:
        """Raises TrackingError for options that are the writer's."""
        super().__init__(writing)
        self.written, self.place = written, written.location
        self._format = table_format(written.table.format)
        for option in writing.options:
            if self._format.is_own_option(option.lower()):
                raise TrackingError(
                    f"the writer for table {writing.out!r} appends each batch once, to the main branch, and notes "
                    f"that there itself: leave out the option {option!r}"
                )
        written.check()

    @classmethod
    def to(cls, writing: Writing, fmt: TableFormat) -> TableBatchWriter:
        """To the table of a name, or at a place. Raises TrackingError where there is none of that format."""
        out, stores = writing.out, writing.stores
        table = fmt.table(writing.session, out)
        if table is None:
            raise TrackingError(
                f"there is no {fmt.name} table {out!r} to write to: make it first (CREATE TABLE {out} (...) USING "
                f"{fmt.name}), or give the whole name, catalog.database.table"
            )
        known = writing.known.get(stores.location(table.location))
        if isinstance(known, TableBatchWriter):
            return cls(writing, known.written)
        return cls(writing, WrittenTable(table, stores))

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Appends a batch's DataFrame, unless it is in the table already. Raises TrackingError, and as
        `QueryInTable.note`."""
        query_id, run = self.written.calls.begin(frame, batch)
        query = self._writing.admitted_query(query_id)
        check_by_units(query.routes, self.segments(query.routes))
        self.written.check()
        mine = Note(run, _digest(query.checkpoint.offsets(batch).text))
        inside = self.written.begin(query_id, query.checkpoint)
        note = inside.note(batch) if self._format.looks_first else None
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

    def started(self, query_id: str) -> None:
        self.written.started(query_id)

    def _append(self, frame: DataFrame, query_id: str, batch: int, note: Note) -> None:
        asked = self._writing
        writer = frame.write.format(self._format.name).options(**asked.options).mode("append")
        for name, value in self._format.stamps(query_id, batch, note.to_json()).items():
            writer = writer.option(name, value)
        if asked.partition_by:
            writer = writer.partitionBy(*asked.partition_by)
        if "/" in asked.out:
            writer.save(asked.out)
        else:
            writer.saveAsTable(asked.out)

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


def _digest(offsets: str) -> str:
    return hashlib.sha256(offsets.encode()).hexdigest()[:32]
