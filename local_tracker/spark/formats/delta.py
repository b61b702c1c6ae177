"""What a micro-batch read from a Delta table, and what it wrote to one, from the table's own log alone.

Each version of a table is a commit, a JSON file with the actions of one transaction. A streaming
sink's commit names its query and batch in a `txn` action. A streaming source's offset names a version,
and the place of a file among those that the commit added. So producer and consumer come to the same
units without a word to each other: a unit is a version that adds rows, `delta:<table id>/<version>`.
All of it was created by one tick, in one slot, so single files would tell nothing more; and a path
would not do, since deletion vectors add the same path again. A version is consumed by the batch that
reads the last of its files, and held by those that read some before.

What only rearranges (`dataChange` is false: OPTIMIZE) or only takes away is no unit. What does both
(MERGE, UPDATE, overwriting) adds old rows again, and is a unit like any other: who reads it, reads it
anew. Commits are read one by one, and never checkpoints or compacted logs, in which what cancels out
is gone.

A query that begins without a starting version reads the table as it is at some version, in an order of
its own, from files in which older commits may have been merged. What all versions up to that one
created is consumed by the batch that ends this snapshot, and held by those before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from local_tracker.spark.formats.interface import (
    Leaf,
    Reading,
    Source,
    TableFormat,
    TableRefused,
    TableSource,
    Taken,
    scala_map,
)
from tracker.errors import Code, FilesError
from tracker.files import End, Files, Stores

MAX_COMMIT_BYTES = 1 << 30
"""The largest commit that is read."""

MAX_ACTION_BYTES = 16 << 20
"""The longest line of a commit: one file with its statistics."""

MAX_SNAPSHOT_UNITS = 50_000
"""The most versions with new rows that a query may begin with. One tick consumes them all, and may hold
100,000 names."""

_BLOCK_BYTES = 1 << 20
_BEFORE_ALL = -100
_LOG = "_delta_log"
_OWN_OPTIONS = {"txnappid", "txnversion", "usermetadata", "replacewhere", "partitionoverwritemode"}
_OUTSIDE = {"catalogManaged", "catalogOwned", "catalogOwned-preview"}


@dataclass(frozen=True, slots=True)
class Commit:
    """One version. adds: the number of files with new rows; removes: whether it takes rows away; batches:
    by application, the number that it gives its transaction; table_id: where the commit sets it; note: what
    its writer has added for people and programs (`userMetadata`)."""

    version: int
    adds: int
    removes: bool
    batches: Mapping[str, int]
    table_id: str | None
    operation: str
    note: str = ""

    def units(self, table_id: str) -> tuple[str, ...]:
        """The name of its unit; none where it adds no rows."""
        return (f"delta:{table_id}/{self.version}",) if self.adds else ()


@dataclass(frozen=True, slots=True, order=True)
class DeltaOffset:
    """Up to where a source has read: the files of a version up to and with `place`, none of them where
    that is negative. in_snapshot: it reads the table as of that version, in an order of its own."""

    version: int
    place: int
    table_id: str = field(compare=False)
    in_snapshot: bool = field(compare=False, default=False)


def parse_offset(text: str) -> DeltaOffset:
    """Raises FilesError for what is no offset of a Delta source."""
    try:
        value = json.loads(text)
        if value["sourceVersion"] not in (1, 3):
            raise ValueError("its version is not known")
        version, place = value["reservoirVersion"], value["index"]
        if type(version) is not int or type(place) is not int or version < 0:
            raise ValueError("its numbers are none")
        # Before all of a version is -1; -20 and -19, around a change of its schema, come behind that.
        place = _BEFORE_ALL if place == -1 else place
        return DeltaOffset(
            version, place, str(value["reservoirId"]), value["isStartingVersion"] is True
        )
    except (KeyError, RecursionError, TypeError, ValueError) as error:
        raise FilesError(
            f"{text[:200]!r} is no offset of a Delta source: {error!r}", Code.FILES_LOG
        ) from None


class DeltaTable:
    """The log of one table. For one reader, or one writer, in one thread."""

    def __init__(self, location: str, files: Files) -> None:
        """location: a path as `files` takes it."""
        self.location = location
        self._directory, self._files = f"{location}/{_LOG}", files

    def exists(self) -> bool:
        return any(_is_commit(name) for name in self._files.names(self._directory))

    def newest(self) -> int:
        """The newest version; -1 where there is none."""
        names = self._files.names(self._directory)
        return max((int(name[:20]) for name in names if _is_commit(name)), default=-1)

    def has(self, version: int) -> bool:
        return self._files.size(self._path(version)) is not None

    def commit(self, version: int) -> Commit:
        """As `find`; raises FilesError where the commit is gone."""
        commit = self.find(version)
        if commit is None:
            raise FilesError(
                f"{self._path(version)} does not exist: the commit has been cleaned up, or is kept by a "
                f"catalog, so what it added cannot be told; follow a query before its table's log is "
                f"cleaned up behind it, raise delta.logRetentionDuration, or name the versions that are "
                f"not tracked: untracked=['{self.location}@0-{version}']",
                Code.FILES_LOG,
            )
        return commit

    def find(self, version: int) -> Commit | None:
        """A commit; None where there is none. Raises FilesError where it is not what Delta writes, and
        TableRefused where the table's commits are not all here."""
        path = self._path(version)
        last = self._files.read_end(path, _BLOCK_BYTES)
        if last is None:
            return None
        if last.size > MAX_COMMIT_BYTES:
            raise FilesError(
                f"{path} has {last.size} bytes; commits of {MAX_COMMIT_BYTES} at most are read",
                Code.FILES_LOG,
            )
        reading = _Reading(version, self.location)
        for line in self._lines(path, last):
            try:
                reading.take(json.loads(line))
            except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
                raise FilesError(
                    f"{path} has a line that is no action of Delta's ({error!r}): {line[:200]!r}",
                    Code.FILES_LOG,
                ) from None
        return reading.commit()

    def table_id(self, version: int) -> str:
        """The id of the table as of a version. Raises FilesError where no commit tells it any more."""
        for earlier in range(version, -1, -1):
            found = self._id_in_checksum(earlier) or self.commit(earlier).table_id
            if found is not None:
                return found
        raise FilesError(
            f"{self._directory} has no metaData action up to version {version}", Code.FILES_LOG
        )

    def _id_in_checksum(self, version: int) -> str | None:
        """The table's id in the summary that writers may leave beside a commit."""
        path = f"{self._directory}/{version:020d}.crc"
        size = self._files.size(path)
        if size is None or size > MAX_ACTION_BYTES:
            return None
        try:
            return str(json.loads(self._files.read(path, 0, size))["metadata"]["id"])
        except (KeyError, RecursionError, TypeError, ValueError):
            return None

    def _path(self, version: int) -> str:
        return f"{self._directory}/{version:020d}.json"

    def _lines(self, path: str, last: End) -> Iterator[bytes]:
        """Of a file whose last bytes have been read, all of them if it is short."""
        rest, begin, size = b"", 0, last.size
        while begin < size:
            block = last.data
            if len(block) < size:
                block = self._files.read(path, begin, min(size, begin + _BLOCK_BYTES))
            begin += len(block)
            *lines, rest = (rest + block).split(b"\n")
            if len(rest) > MAX_ACTION_BYTES:
                raise FilesError(
                    f"{path} has an action of more than {MAX_ACTION_BYTES} bytes", Code.FILES_LOG
                )
            yield from (line for line in lines if line.strip())
        if rest.strip():
            yield rest


class DeltaReader:
    """What the batches of a query took of a table."""

    def __init__(
        self,
        table: DeltaTable,
        options: Mapping[str, str] | None = None,
        first: int | None = None,
        untracked: Sequence[range] = (),
    ) -> None:
        """options: those of the query's reader; None where they are not known. first: the version that
        it begins with, where no option says so. untracked: versions whose units are not tracked. Raises
        TableRefused for options with which it cannot be told what a batch read."""
        self._table, self._untracked = table, tuple(untracked)
        _check_options(options or {}, table.location)
        reading = _reading(options or {})
        self._skips = reading.skips
        self._first = first if reading.first is None else reading.first
        self._knows_options = options is not None
        self._snapshot: tuple[int, tuple[str, ...]] = (-1, ())
        self._read_id: str | None = None
        """Of the table, as the offsets say."""

    def reads(self, text: str) -> bool:
        """Whether an offset is of this table."""
        return parse_offset(text).table_id == self._table.table_id(self._table.newest())

    def taken(self, before: str | None, after: str) -> Taken:
        """What lies between two offsets; `before` is None where the query began. Raises FilesError where
        the log no longer tells, TableRefused for what cannot be told rightly."""
        if before == after:
            return Taken()
        end, start = parse_offset(after), None if before is None else parse_offset(before)
        self._read_id = end.table_id
        if start is not None and start.table_id != end.table_id:
            raise self._made_anew(start.table_id, end.table_id)
        if start is None and self._first is not None:
            start = DeltaOffset(self._first, _BEFORE_ALL, end.table_id)
        if start is None or start.in_snapshot:
            return self._of_snapshot(end)
        if end < start or end.in_snapshot:
            raise FilesError(
                f"{self._table.location}: the offset went back from {before} to {after}",
                Code.FILES_LOG,
            )
        return self._of_commits(start, end)

    def _of_snapshot(self, end: DeltaOffset) -> Taken:
        """Of a batch that reads the table as it was, or ends doing so: then it has read all that the
        versions up to `end` have ever added."""
        if end.in_snapshot:
            return Taken(held=self._up_to(end.version, end.table_id))
        earlier = self._up_to(end.version - 1, end.table_id)
        rest = self._of_commits(DeltaOffset(end.version, _BEFORE_ALL, end.table_id), end)
        return Taken((*earlier, *rest.consumed), rest.held)

    def _up_to(self, version: int, table_id: str) -> tuple[str, ...]:
        """The units of all versions up to one."""
        if self._snapshot[0] == version:
            return self._snapshot[1]
        units: list[str] = []
        current: str | None = None
        for number in self._tracked(0, version):
            commit = self._table.commit(number)
            current = commit.table_id or current or table_id
            units += commit.units(current)
            if len(units) > MAX_SNAPSHOT_UNITS:
                raise TableRefused(
                    f"table {self._table.location}: more than {MAX_SNAPSHOT_UNITS} of the versions 0 to "
                    f"{version} add rows, so a query that begins with them all cannot be followed; let it "
                    f"begin later (startingVersion), or name those that are not tracked "
                    f"(untracked=['{self._table.location}@0-...'])"
                )
        if current not in (None, table_id):
            raise self._made_anew(table_id, str(current))
        self._snapshot = version, tuple(units)
        return self._snapshot[1]

    def _of_commits(self, start: DeltaOffset, end: DeltaOffset) -> Taken:
        consumed: list[str] = []
        held: list[str] = []
        last = end.version if end.place >= 0 else end.version - 1
        for version in self._tracked(start.version, last):
            commit = self._table.commit(version)
            if commit.table_id not in (None, end.table_id):
                raise self._made_anew(end.table_id, str(commit.table_id))
            place = end.place if version == end.version else commit.adds - 1
            if place >= commit.adds:
                raise FilesError(
                    f"table {self._table.location}: version {version} adds {commit.adds} files, and the "
                    f"query has read the one at place {place}: the log has been rewritten",
                    Code.FILES_LOG,
                )
            first = max(0, start.place + 1) if version == start.version else 0
            if first > place:
                continue
            self._check_change(commit)
            read = consumed if place == commit.adds - 1 else held
            read += commit.units(end.table_id)
        return Taken(tuple(consumed), tuple(held))

    def _tracked(self, first: int, last: int) -> Iterator[int]:
        """The versions from `first` to `last`, but for those that are not tracked."""
        for version in range(first, last + 1):
            if not any(version in versions for versions in self._untracked):
                yield version

    def shown(self, unit: str) -> str | None:
        table, _, version = unit.removeprefix("delta:").partition("/")
        if table != self._read_id:
            return None
        commit = self._table.find(int(version))
        wrote = f" ({commit.operation})" if commit and commit.operation else ""
        return f"version {version}{wrote} of table {self._table.location}"

    def _check_change(self, commit: Commit) -> None:
        """Raises TableRefused where it cannot be told what a reader took of a commit that adds rows and
        takes some away."""
        what = f"table {self._table.location}: version {commit.version} ({commit.operation})"
        if commit.operation == "RESTORE" and commit.adds:
            raise TableRefused(
                f"{what} brings rows back that were there before, which no query has created; read the "
                f"table anew, with another checkpoint and node id"
            )
        if not commit.removes:
            return
        if self._skips:
            raise TableRefused(
                f"{what} takes rows away and adds some, and the query leaves out all of it "
                f"(skipChangeCommits), so that the rows that it added would pass for processed; start over "
                f"without skipChangeCommits (with ignoreChanges, say), with an empty checkpoint and another "
                f"node id, or name the version as not tracked: "
                f"untracked=['{self._table.location}@{commit.version}']"
            )
        if not self._knows_options:
            raise TableRefused(
                f"{what} takes rows away and adds some, and a checkpoint does not say what its query does "
                f"with such a version (ignoreChanges, skipChangeCommits); start the query by "
                f"Tracked.start, which sees its options"
            )

    def _made_anew(self, before: str, after: str) -> TableRefused:
        return TableRefused(
            f"table {self._table.location} was made anew: its id was {before} and is {after}, so its "
            f"versions are others than those that the query has read; start over, with an empty "
            f"checkpoint and another node id"
        )


class DeltaWriter:
    """The commits of one query to a table, by the numbers of its batches."""

    def __init__(self, table: DeltaTable, query: str, since: int = 0) -> None:
        """since: the first version that may be the query's."""
        self._table, self._query, self._since = table, query, since
        self._found: dict[int, Commit] = {}
        self._begin = self._end = -1
        """Versions begin <= v < end have been looked at."""
        self._table_id: str | None = None

    def has(self, batch: int) -> bool:
        return self._commit(batch) is not None

    def names(self, batch: int) -> tuple[str, ...]:
        """The units that a batch created; none where it has no commit. Raises as `DeltaTable.commit`."""
        commit = self._commit(batch)
        if commit is None or not commit.adds:
            return ()
        if self._table_id is None:
            self._table_id = self._table.table_id(commit.version)
        return commit.units(self._table_id)

    def note(self, batch: int) -> str | None:
        """What is noted in a batch's commit; None where it has none."""
        commit = self._commit(batch)
        return None if commit is None else commit.note

    def forget(self, batch: int) -> None:
        for earlier in [number for number in self._found if number <= batch]:
            del self._found[earlier]

    def _commit(self, batch: int) -> Commit | None:
        if self._end < 0:
            self._begin = self._end = self._table.newest() + 1
        while batch not in self._found and (commit := self._table.find(self._end)) is not None:
            self._take(commit)
            self._end += 1
        # A query's batches are in the order of versions: what is older than all that is known is before.
        while batch < min(self._found, default=batch + 1) and self._begin > self._since:
            self._begin -= 1
            self._take(self._table.commit(self._begin))
        found = self._found.get(batch)
        if found is None and self._end and not self._table.has(self._end - 1):
            raise FilesError(
                f"table {self._table.location}: version {self._end - 1} was there and is gone: the table "
                f"was made anew, or its log cleaned up; what the query writes now cannot be told",
                Code.FILES_LOG,
            )
        return found

    def _take(self, commit: Commit) -> None:
        if self._table_id not in (None, commit.table_id or self._table_id):
            raise TableRefused(
                f"table {self._table.location} was made anew in version {commit.version}: its id was "
                f"{self._table_id} and is {commit.table_id}; start over, with an empty checkpoint and "
                f"another node id"
            )
        batch = commit.batches.get(self._query)
        if batch is not None:
            self._found[batch] = commit


class _Reading:
    """Puts a commit together, action by action."""

    def __init__(self, version: int, location: str) -> None:
        self._version, self._location = version, location
        self._adds, self._removes = 0, False
        self._batches: dict[str, int] = {}
        self._table_id: str | None = None
        self._operation = self._note = ""

    def take(self, action: dict[str, Any]) -> None:
        if (add := action.get("add")) is not None:
            self._adds += bool(add["dataChange"])
        elif (remove := action.get("remove")) is not None:
            self._removes = self._removes or bool(remove["dataChange"])
        elif (txn := action.get("txn")) is not None:
            self._batches[str(txn["appId"])] = int(txn["version"])
        elif (metadata := action.get("metaData")) is not None:
            self._table_id = str(metadata["id"])
        elif (info := action.get("commitInfo")) is not None:
            self._operation = str(info.get("operation", ""))
            self._note = str(info.get("userMetadata") or "")
        elif (protocol := action.get("protocol")) is not None:
            self._check(protocol)

    def _check(self, protocol: dict[str, Any]) -> None:
        features = {
            *(protocol.get("readerFeatures") or ()),
            *(protocol.get("writerFeatures") or ()),
        }
        if kept := sorted(features & _OUTSIDE):
            raise TableRefused(
                f"table {self._location} keeps its commits in a catalog (table feature {kept[0]}), where "
                f"they are not read; use a table whose commits are in its {_LOG}"
            )

    def commit(self) -> Commit:
        return Commit(
            self._version, self._adds, self._removes, self._batches, self._table_id, self._operation,
            self._note,
        )  # fmt: skip


def _given(options: Mapping[str, str]) -> dict[str, str]:
    """Options by their names, whose case is nobody's business."""
    return {name.lower(): value for name, value in options.items()}


def _check_options(options: Mapping[str, str], location: str) -> None:
    """Raises TableRefused for options with which what a reader takes is not told by its offsets."""
    given = _given(options)
    for name in ("readChangeFeed", "readChangeData"):
        if given.get(name.lower(), "").lower() == "true":
            raise TableRefused(
                f"table {location} is read as a change data feed ({name}), whose files are other ones than "
                f"those that a commit adds; read the table itself"
            )
    first = given.get("startingversion")
    if "startingtimestamp" in given or (first is not None and not first.isdigit()):
        raise TableRefused(
            f"table {location} is read from a moment on (startingTimestamp, or startingVersion 'latest'), "
            f"which no log records; name the version, as a number, with startingVersion"
        )


def _is_commit(name: str) -> bool:
    return len(name) == 25 and name.endswith(".json") and name[:20].isdigit()


def _reading(options: Mapping[str, str]) -> Reading:
    given = _given(options)
    first = given.get("startingversion", "")
    skips = given.get("skipchangecommits", "").lower() == "true"
    return Reading(int(first) if first.isdigit() else None, skips)


class DeltaFormat(TableFormat):
    """Tables of Delta Lake's."""

    name = "delta"
    # Delta itself leaves out a batch that it has; to look for it first could mean the whole log.
    looks_first = False

    def source(self, leaf: Leaf) -> Source | None:
        if leaf.what != self.name or not leaf.has("dataSource"):
            return None
        options = scala_map(leaf.node.dataSource().options())
        table = TableSource(self.name, options["path"], options)
        return Source(leaf.number, f"delta[{table.location}]", table.location, table=table)

    def is_offset(self, value: object) -> bool:
        return isinstance(value, dict) and "reservoirId" in value

    def is_table(self, location: str, files: Files) -> bool:
        return DeltaTable(location, files).exists()

    def reader(
        self, table: TableSource, stores: Stores, first: int | None, untracked: Sequence[range]
    ) -> DeltaReader:
        return DeltaReader(_log(table, stores), table.options, first, untracked)

    def written(
        self, table: TableSource, stores: Stores, query: str, since: int = 0
    ) -> DeltaWriter:
        return DeltaWriter(_log(table, stores), query, since)

    def sink_table(self, session: Any, sink: Any) -> TableSource | None:
        text = str(sink.toString())
        if not text.startswith("DeltaSink["):
            return None
        return TableSource(self.name, text.removeprefix("DeltaSink[").removesuffix("]"))

    def table(self, session: Any, name: str) -> TableSource | None:
        """As `TableFormat.table`. A table need not be where it is said to be, yet."""
        from pyspark.errors import AnalysisException

        if "/" in name:
            return TableSource(self.name, name)
        try:
            found = session.sql(f"DESCRIBE DETAIL {name}").first()
        except AnalysisException:
            return None
        if found is None or found["format"] != self.name:
            return None
        return TableSource(self.name, str(found["location"]))

    def reading(self, options: Mapping[str, str] | None) -> Reading:
        return _reading(options or {})

    def with_reading(self, options: Mapping[str, str] | None, reading: Reading) -> dict[str, str]:
        given = ("startingversion", "skipchangecommits")
        found = {
            name: value for name, value in (options or {}).items() if name.lower() not in given
        }
        if reading.first is not None:
            found["startingVersion"] = str(reading.first)
        return found | ({"skipChangeCommits": "true"} if reading.skips else {})

    def begins_whole(self, offset: str) -> bool:
        return parse_offset(offset).in_snapshot

    def is_own_option(self, name: str) -> bool:
        return name in _OWN_OPTIONS

    def next_version(self, table: TableSource, stores: Stores) -> int:
        return _log(table, stores).newest() + 1

    def stamps(self, query: str, batch: int, note: str) -> dict[str, str]:
        return {"txnAppId": query, "txnVersion": str(batch), "userMetadata": note}

    def newest_version(self, session: Any, table: str) -> int | None:
        named = f"delta.`{table}`" if "/" in table else table
        found = session.sql(f"DESCRIBE HISTORY {named} LIMIT 1").first()
        return None if found is None else int(found["version"])


def _log(table: TableSource, stores: Stores) -> DeltaTable:
    location = stores.location(table.location)
    return DeltaTable(location, stores.files(location))
