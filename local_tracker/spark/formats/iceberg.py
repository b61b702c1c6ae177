"""What a micro-batch read from an Iceberg table, and what it wrote to one, from the table's metadata alone.

A table's metadata is one JSON document, which lists its snapshots, each with its parent and a summary. A
streaming sink's snapshot names its query and batch there. A streaming source's offset names a snapshot
and how many of the files that it added have been read, and a source only reads what was appended. So
producer and consumer come to the same units without a word to each other: a unit is a snapshot that
appends rows, `iceberg:<table uuid>/<snapshot id>`. It is consumed by the batch that reads the last of its
files, and held by those that read some before.

How many files it added stands in the summary. That places count these files alone is so where a
snapshot's manifests hold nothing else, as those of streaming sinks; a snapshot of anyone else, whose
manifests may have been merged with older ones, is consumed when a source has gone on to a later one.

Where the current metadata are only the table's catalog knows, but for a table in a file system, whose
metadata files are numbered. So they come from a function: of the driver's JVM, or `hadoop_metadata`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from local_tracker.spark.formats.interface import (
    Leaf,
    Source,
    TableFormat,
    TableRefused,
    TableSource,
    Taken,
)
from tracker.errors import Code, FilesError, TrackingError
from tracker.files import Files, Stores

MAX_METADATA_BYTES = 256 << 20
"""The largest metadata that are read."""

MAX_BATCH_UNITS = 50_000
"""The most snapshots that one batch may consume. One tick consumes them all, and may hold 100,000 names."""

_QUERY, _BATCH = "spark.sql.streaming.queryId", "spark.sql.streaming.epochId"
QUERY, BATCH, NOTE = "lowmark.query", "lowmark.batch", "lowmark.note"
"""In the summary of a snapshot of our own writer's: of which batch of which query it is, and what is noted of
that. In small letters, since options are."""

_SNAPSHOT_PROPERTY = "snapshot-property."
_MERGES = "commit.manifest-merge.enabled"
_NO_SNAPSHOT = -1
_HINT = "version-hint.text"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One snapshot. parent: None for the first; added: the number of data files that it adds; query and
    batch: of the streaming sink that wrote it, or of our own writer, if one did; note: of the latter."""

    id: int
    parent: int | None
    operation: str
    added: int
    query: str | None
    batch: int
    note: str = ""

    @property
    def is_unit(self) -> bool:
        return self.operation == "append" and self.added > 0

    def is_read_up_to(self, place: int) -> bool:
        """Whether the files before `place` are certainly all that it added."""
        return self.query is not None and place >= self.added


@dataclass(frozen=True, slots=True)
class IcebergOffset:
    """Up to where a source has read: all before a snapshot, and of that the files before `place`. The
    snapshot is -1 where the table had none."""

    snapshot: int
    place: int


def parse_offset(text: str) -> IcebergOffset:
    """Raises FilesError for what is no offset of an Iceberg source."""
    try:
        value = json.loads(text)
        if value["version"] != 1 or value["scan_all_files"] is not False:
            raise ValueError(
                "it is of another version, or of a source that reads more than was added"
            )
        snapshot, place = value["snapshot_id"], value["position"]
        if type(snapshot) is not int or type(place) is not int:
            raise ValueError("its numbers are none")
        return IcebergOffset(snapshot, place)
    except (KeyError, RecursionError, TypeError, ValueError) as error:
        raise FilesError(
            f"{text[:200]!r} is no offset of an Iceberg source: {error!r}", Code.FILES_LOG
        ) from None


class IcebergTable:
    """The snapshots of one table, as they were when it was last asked. For one thread."""

    def __init__(self, location: str, metadata: Callable[[], str]) -> None:
        """metadata: returns the current metadata, as JSON."""
        self.location, self._metadata = location, metadata
        self.snapshots: dict[int, Snapshot] = {}
        self.current: int | None = None
        self.uuid = ""
        self.merges_manifests = True
        """Whether a snapshot's manifests may be merged with older ones, but for a streaming sink's."""

    def refresh(self) -> None:
        """Asks again. Raises FilesError for what are no metadata, TableRefused for those of another table."""
        text = self._metadata()
        if len(text) > MAX_METADATA_BYTES:
            raise FilesError(
                f"table {self.location}: its metadata have {len(text)} characters; of at most "
                f"{MAX_METADATA_BYTES} they are read: expire snapshots",
                Code.FILES_LOG,
            )
        try:
            value = json.loads(text)
            uuid, current = str(value["table-uuid"]), value.get("current-snapshot-id")
            snapshots = [_snapshot(entry) for entry in value.get("snapshots", [])]
            merges = str(value.get("properties", {}).get(_MERGES, "true")).lower() == "true"
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise FilesError(
                f"table {self.location} has no metadata of Iceberg's: {error!r}", Code.FILES_LOG
            ) from None
        if self.uuid not in ("", uuid):
            raise TableRefused(
                f"table {self.location} was made anew: its id was {self.uuid} and is {uuid}, so its "
                f"snapshots are others than those that the query knows; start over, with an empty "
                f"checkpoint and another node id"
            )
        self.merges_manifests = merges
        self.uuid, self.current = uuid, None if current == _NO_SNAPSHOT else current
        self.snapshots = {snapshot.id: snapshot for snapshot in snapshots}

    def ancestors(self, snapshot: int | None) -> Iterator[Snapshot]:
        """A snapshot and those before it, the newest first, as far as they are kept."""
        while snapshot is not None and snapshot in self.snapshots:
            found = self.snapshots[snapshot]
            yield found
            snapshot = found.parent

    def unit(self, snapshot: Snapshot) -> str:
        return f"iceberg:{self.uuid}/{snapshot.id}"


class IcebergReader:
    """What the batches of a query took of a table."""

    def __init__(self, table: IcebergTable, untracked: Sequence[range] = ()) -> None:
        """untracked: snapshots that are not tracked, each as a range of its id alone; as a range that begins
        with 0, those before it aren't either."""
        self._table = table
        self._untracked = {each.start for each in untracked if len(each) == 1}
        self._untracked_up_to = {each.stop - 1 for each in untracked if each.start == 0}

    def reads(self, text: str) -> bool:
        """Whether an offset is of this table."""
        return self._knows(parse_offset(text).snapshot)

    def taken(self, before: str | None, after: str) -> Taken:
        """What lies between two offsets; `before` is None where the query began. Raises FilesError where
        the metadata no longer tell, TableRefused for what cannot be told rightly."""
        end, start = parse_offset(after), None if before is None else parse_offset(before)
        if end == start or end.snapshot == _NO_SNAPSHOT:
            return Taken()
        if not self._knows(end.snapshot):
            raise self._unknown(end.snapshot)
        consumed: list[str] = []
        held: list[str] = []
        for snapshot in self._between(start, end):
            if snapshot.operation == "overwrite" and snapshot.added and snapshot.id != end.snapshot:
                raise self._left_out(snapshot)
            if not snapshot.is_unit:
                continue
            first = start.place if start is not None and snapshot.id == start.snapshot else 0
            if snapshot.is_read_up_to(first):
                continue
            if snapshot.id != end.snapshot or snapshot.is_read_up_to(end.place):
                consumed.append(self._table.unit(snapshot))
            elif end.place > first:
                held.append(self._table.unit(snapshot))
        if len(consumed) > MAX_BATCH_UNITS:
            raise TableRefused(
                f"table {self._table.location}: one batch has read {len(consumed)} snapshots, the limit is "
                f"{MAX_BATCH_UNITS}; let the query begin later (stream-from-timestamp), or read less in a "
                f"batch (streaming-max-files-per-micro-batch)"
            )
        return Taken(tuple(consumed), tuple(held))

    def shown(self, unit: str) -> str | None:
        uuid, _, snapshot = unit.removeprefix("iceberg:").partition("/")
        if uuid != self._table.uuid or not unit.startswith("iceberg:"):
            return None
        found = self._table.snapshots.get(int(snapshot))
        wrote = f" ({found.operation})" if found is not None else ""
        return f"snapshot {snapshot}{wrote} of table {self._table.location}"

    def _knows(self, snapshot: int) -> bool:
        if snapshot not in self._table.snapshots:
            self._table.refresh()
        return snapshot in self._table.snapshots

    def _between(self, start: IcebergOffset | None, end: IcebergOffset) -> list[Snapshot]:
        """The tracked snapshots from that of `start` to that of `end`, the oldest first."""
        chain: list[Snapshot] = []
        is_tracked, oldest = True, None
        for snapshot in self._table.ancestors(end.snapshot):
            is_tracked = is_tracked and snapshot.id not in self._untracked_up_to
            if is_tracked and snapshot.id not in self._untracked:
                chain.append(snapshot)
            if start is not None and snapshot.id == start.snapshot:
                return chain[::-1]
            oldest = snapshot
        is_whole = not is_tracked or oldest is None or oldest.parent is None
        if start is None or (start.snapshot == _NO_SNAPSHOT and is_whole):
            return chain[::-1]
        what = (
            f"table {self._table.location}: snapshot {start.snapshot}, up to which the query had read, is not "
            f"among those before {end.snapshot}"
        )
        if start.snapshot == _NO_SNAPSHOT:
            what = (
                f"table {self._table.location} was empty when the query began, and of those before "
                f"{end.snapshot} the first are gone"
            )
        if start.snapshot in self._table.snapshots:
            raise TableRefused(
                f"{what}: the table was rolled back; start over with an empty checkpoint and another node id"
            )
        raise FilesError(
            f"{what}: snapshots have been expired that the query had not been followed over; keep them longer "
            f"(history.expire), or start over with an empty checkpoint and another node id",
            Code.FILES_LOG,
        )

    def _unknown(self, snapshot: int) -> FilesError:
        return FilesError(
            f"table {self._table.location} has no snapshot {snapshot}: it has been expired, or the table made "
            f"anew, so what was read of it cannot be told; follow a query before its table's snapshots are "
            f"expired behind it",
            Code.FILES_LOG,
        )

    def _left_out(self, snapshot: Snapshot) -> TableRefused:
        return TableRefused(
            f"table {self._table.location}: snapshot {snapshot.id} (overwrite) adds rows, and the query has "
            f"left out all of it (streaming-skip-overwrite-snapshots), so that they would pass for "
            f"processed; append to the table alone, or name the snapshot as not tracked: "
            f"untracked=['{self._table.location}@{snapshot.id}']"
        )


class IcebergWriter:
    """The snapshots of one query in a table, by the numbers of its batches."""

    def __init__(self, table: IcebergTable, query: str) -> None:
        self._table, self._query = table, query
        self._last: tuple[int, tuple[Snapshot, ...]] = (-1, ())

    def has(self, batch: int) -> bool:
        return bool(self._snapshots(batch))

    def names(self, batch: int) -> tuple[str, ...]:
        """The units that a batch created; none where it has no snapshot. Raises FilesError where that may have been
        expired, and TableRefused where it is one that readers do not see, or cannot read."""
        snapshots = self._snapshots(batch)
        if not snapshots and self._is_cut_before(batch):
            raise FilesError(
                f"table {self._table.location}: what batch {batch} wrote cannot be told, since snapshots of that time "
                f"have been expired; keep them longer (history.expire) than the query may be away",
                Code.FILES_LOG,
            )
        found = [snapshot for snapshot in snapshots if snapshot.added]
        for snapshot in found:
            if not snapshot.is_unit:
                raise TableRefused(
                    f"table {self._table.location}: snapshot {snapshot.id} ({snapshot.operation}) of batch "
                    f"{batch} replaces the table (outputMode complete), which Iceberg's source does not read, "
                    f"so nobody could consume it; use append, or follow the query with creates=[]"
                )
        return tuple(map(self._table.unit, found))

    def note(self, batch: int) -> str | None:
        """What is noted in a batch's snapshot; None where it has none. Raises as `names`."""
        found = self._snapshots(batch)
        return found[-1].note if found else None

    def forget(self, batch: int) -> None:
        """Nothing is kept."""

    def _snapshots(self, batch: int) -> tuple[Snapshot, ...]:
        if self._last[0] != batch or not self._last[1]:
            self._table.refresh()
            self._last = batch, self._find(batch)
        return self._last[1]

    def _find(self, batch: int) -> tuple[Snapshot, ...]:
        found = []
        # Where a second driver wrote the batch too, both are of the batch.
        for snapshot in self._table.ancestors(self._table.current):
            if snapshot.query == self._query and snapshot.batch <= batch:
                if snapshot.batch < batch:
                    break
                found.append(snapshot)
        if not found:
            self._refuse_elsewhere(batch)
        return tuple(found)

    def _is_cut_before(self, batch: int) -> bool:
        """Whether a batch's snapshot may have been expired: no earlier one of the query is left, nor the first of all."""
        last = None
        for snapshot in self._table.ancestors(self._table.current):
            if snapshot.query == self._query and snapshot.batch < batch:
                return False
            last = snapshot
        return last is not None and last.parent is not None

    def _refuse_elsewhere(self, batch: int) -> None:
        for snapshot in self._table.snapshots.values():
            if (snapshot.query, snapshot.batch) == (self._query, batch):
                raise TableRefused(
                    f"table {self._table.location}: snapshot {snapshot.id} of batch {batch} is not among those "
                    f"of the main branch: it is on another branch, staged (write.wap), or was rolled back, "
                    f"and readers of the table do not see it; write to the main branch"
                )


def hadoop_metadata(location: str, files: Files) -> str:
    """The current metadata of a table in a file system, as JSON. Raises FilesError where they are not there,
    TableRefused where only a catalog knows which they are."""
    directory = f"{location}/metadata"
    hint = files.read_whole(f"{directory}/{_HINT}", 100)
    if hint is None:
        if any(name.endswith(".metadata.json") for name in files.names(directory)):
            raise TableRefused(
                f"table {location} is kept in a catalog, which alone knows its current metadata: start the "
                f"query by Tracked.start, in a driver that has the catalog"
            )
        raise FilesError(f"{directory} holds no metadata of an Iceberg table", Code.FILES_LOG)
    try:
        version = int(hint)
    except ValueError:
        raise FilesError(
            f"{directory}/{_HINT} names no version: {hint!r}", Code.FILES_LOG
        ) from None
    # The hint may be one behind: versions are written before it.
    while files.size(f"{directory}/v{version + 1}.metadata.json") is not None:
        version += 1
    path = f"{directory}/v{version}.metadata.json"
    found = files.read_whole(path, MAX_METADATA_BYTES)
    if found is None:
        raise FilesError(
            f"{path} does not exist, or is compressed (write.metadata.compression-codec)",
            Code.FILES_LOG,
        )
    return found.decode()


def _snapshot(entry: dict[str, Any]) -> Snapshot:
    summary = entry.get("summary", {})
    own = QUERY in summary
    parent = entry.get("parent-snapshot-id")
    return Snapshot(
        int(entry["snapshot-id"]),
        None if parent is None else int(parent),
        str(summary.get("operation", "")),
        int(summary.get("added-data-files", 0)),
        summary.get(QUERY if own else _QUERY),
        int(summary.get(BATCH if own else _BATCH, -1)),
        str(summary.get(NOTE, "")),
    )


class IcebergFormat(TableFormat):
    """Tables of Apache Iceberg's."""

    name = "iceberg"
    looks_first = True

    def source(self, leaf: Leaf) -> Source | None:
        if (table := self._read_by(leaf)) is None:
            return None
        return Source(leaf.number, f"iceberg[{table.location}]", table.location, table=table)

    def is_offset(self, value: object) -> bool:
        return isinstance(value, dict) and {"snapshot_id", "position"} <= set(value)

    def is_table(self, location: str, files: Files) -> bool:
        """As `TableFormat.is_table`, be it one whose metadata only a catalog knows."""
        return any(name.endswith(".metadata.json") for name in files.names(f"{location}/metadata"))

    def reader(
        self, table: TableSource, stores: Stores, first: int | None, untracked: Sequence[range]
    ) -> IcebergReader:
        return IcebergReader(_known(table, stores), untracked)

    def written(
        self, table: TableSource, stores: Stores, query: str, since: int = 0
    ) -> IcebergWriter:
        return IcebergWriter(_known(table, stores), query)

    def sink_table(self, session: Any, sink: Any) -> TableSource | None:
        return self._of(session, sink) if _is_ours(sink) else None

    def table(self, session: Any, name: str) -> TableSource | None:
        from pyspark.errors import AnalysisException

        try:
            frame = (
                session.read.format(self.name).load(name) if "/" in name else session.table(name)
            )
        except AnalysisException:
            return None
        return self._read_by(Leaf.first_of(frame))

    def refused_mode(self, mode: str) -> str | None:
        if mode != "Complete":
            return None
        return (
            "replaces an Iceberg table with each batch (outputMode complete): Iceberg's source does not read "
            "what replaces, so nobody could consume it"
        )

    def is_own_option(self, name: str) -> bool:
        return name in ("branch", "overwrite-mode") or name.startswith(_SNAPSHOT_PROPERTY)

    def check_appending(self, table: TableSource, stores: Stores) -> None:
        found = _known(table, stores)
        found.refresh()
        if found.merges_manifests:
            raise TrackingError(
                f"table {found.location} merges the manifests of what is appended, so that Iceberg's own "
                f"reader may skip files, and which it has read cannot be told; set the table's property "
                f"'commit.manifest-merge.enabled' to 'false' (ALTER TABLE ... SET TBLPROPERTIES)"
            )

    def stamps(self, query: str, batch: int, note: str) -> dict[str, str]:
        properties = {QUERY: query, BATCH: str(batch), NOTE: note}
        return {_SNAPSHOT_PROPERTY + name: value for name, value in properties.items()}

    def newest_version(self, session: Any, table: str) -> int | None:
        self.forget_version(session, table)
        reader = session.read.format(self.name)
        refs = reader.load(f"{table}#refs") if "/" in table else reader.table(f"{table}.refs")
        main = refs.where("name = 'main'").first()
        return None if main is None else int(main["snapshot_id"])

    def forget_version(self, session: Any, table: str) -> None:
        """As `TableFormat.forget_version`: catalogs keep a table for half a minute, as it was."""
        if "/" not in table:
            session.sql(f"REFRESH TABLE {table}")

    def _read_by(self, leaf: Leaf) -> TableSource | None:
        if not leaf.has("table") or not _is_ours(leaf.node.table()):
            return None
        return self._of(leaf.session, leaf.node.table())

    def _of(self, session: Any, table: Any) -> TableSource:
        """A table of Spark's from Iceberg's connector, which asks the table's catalog for its metadata."""
        jvm, known = session.sparkContext._jvm, table.table()
        assert jvm is not None
        parser = jvm.org.apache.iceberg.TableMetadataParser

        def metadata() -> str:
            known.refresh()
            return str(parser.toJson(known.operations().current()))

        return TableSource(self.name, str(known.location()), metadata=metadata)


def _is_ours(table: Any) -> bool:
    return bool(table.getClass().getName().startswith("org.apache.iceberg.spark."))


def _known(table: TableSource, stores: Stores) -> IcebergTable:
    """Its metadata, as its catalog knows them."""
    location, metadata = stores.location(table.location), table.metadata
    if metadata is None:
        metadata = partial(hadoop_metadata, location, stores.files(location))
    return IcebergTable(location, metadata)
