"""The flows of a declarative pipeline (`spark-pipelines run`), as its storage shows them.

Each streaming flow of a table keeps its checkpoints in `<storage>/_checkpoints/<catalog>/<database>/
<table>/<flow>/<version>`. A full refresh of a table begins the next version, which is another query and
reads everything again, and empties the table; the old version stays. A flow reads the directories of other
tables, or files from elsewhere. It is a segment of its own, whose items are the files that it is to read.
Materialized views are computed anew in each run, and keep no checkpoint: they are no flows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from local_tracker.spark.query.logs import CheckpointLog
from tracker.core.model import Edge, PipelineSpec
from tracker.errors import TrackingError
from tracker.files import STORES, Stores, child, parent

MAX_FLOWS = 200
"""Flows of one pipeline that are followed; each has two threads."""

DEFAULT_CATALOG, DEFAULT_DATABASE = "spark_catalog", "default"
_CHECKPOINTS = "_checkpoints"


@dataclass(frozen=True, slots=True)
class Flow:
    """A streaming flow. directory: of its checkpoints. versions: the numbers of those that there are, in
    order; begun: those of which a query has begun."""

    catalog: str
    database: str
    table: str
    name: str
    directory: str
    versions: tuple[int, ...]
    begun: tuple[int, ...]

    @property
    def segment(self) -> str:
        """What its segment and its node are called: after the table, with what is not the default."""
        where = (self.catalog, self.database)
        names = [] if where == (DEFAULT_CATALOG, DEFAULT_DATABASE) else [*where]
        return ".".join([*names, self.table, *([] if self.name == self.table else [self.name])])

    def checkpoint(self, version: int) -> str:
        return child(self.directory, str(version))


def find_flows(storage: str, stores: Stores = STORES) -> list[Flow]:
    """All flows of which the storage shows a checkpoint. Raises FilesError, and TrackingError beyond
    the limit."""
    top = child(stores.location(storage), _CHECKPOINTS)
    files = stores.files(top)

    def folders(directory: str) -> list[str]:
        return sorted(name for name in files.names(directory) if not name.startswith("."))

    found: list[Flow] = []
    for catalog in folders(top):
        for database in folders(child(top, catalog)):
            for table in folders(child(top, f"{catalog}/{database}")):
                for name in folders(child(top, f"{catalog}/{database}/{table}")):
                    where = child(top, f"{catalog}/{database}/{table}/{name}")
                    versions = tuple(sorted(int(v) for v in folders(where) if v.isdecimal()))
                    begun = tuple(
                        v for v in versions if files.size(child(where, f"{v}/metadata")) is not None
                    )
                    found.append(Flow(catalog, database, table, name, where, versions, begun))
                    if len(found) > MAX_FLOWS:
                        raise TrackingError(
                            f"{top} has more than {MAX_FLOWS} flows, which is the limit of one "
                            f"command: follow its queries one by one (lowmark query attach)"
                        )
    return found


class Tables:
    """Where tables keep their files."""

    def __init__(
        self, warehouse: str, elsewhere: Mapping[str, str] | None = None, stores: Stores = STORES
    ) -> None:
        """warehouse: the directory of tables without a place of their own; elsewhere: directories of others,
        by `table`, `database.table` or `catalog.database.table`."""
        self._warehouse = stores.location(warehouse)
        self._elsewhere = {name: stores.location(path) for name, path in (elsewhere or {}).items()}

    def directory(self, flow: Flow) -> str:
        """Of the table that a flow writes."""
        database = f"{flow.database}.{flow.table}"
        for name in (f"{flow.catalog}.{database}", database, flow.table):
            if name in self._elsewhere:
                return self._elsewhere[name]
        folder = "" if flow.database == DEFAULT_DATABASE else f"{flow.database}.db/"
        return child(self._warehouse, f"{folder}{flow.table}")


@dataclass(frozen=True, slots=True)
class FlowReads:
    """What a flow has read, by its logs. tables: the flows that write what it reads. directories: of other
    files. others: the numbers of sources that are not files, each with an offset."""

    flow: Flow
    tables: tuple[Flow, ...]
    directories: tuple[str, ...]
    others: tuple[tuple[str, str], ...]

    @property
    def nothing_yet(self) -> bool:
        return not (self.tables or self.directories or self.others)


def flows_by_table(flows: Iterable[Flow], tables: Tables) -> dict[str, Flow]:
    """Flows by the directories of the tables that they write. Raises TrackingError where two write one."""
    by_table: dict[str, Flow] = {}
    for flow in flows:
        directory = tables.directory(flow)
        if (other := by_table.setdefault(directory, flow)) is not flow:
            raise TrackingError(
                f"flows {other.name!r} and {flow.name!r} write one table of files, {directory}, whose log "
                f"does not tell their batches apart: write a table for each, and one that reads both"
            )
    return by_table


def is_directory(untracked: str) -> bool:
    """Whether what is not to be tracked is a directory, and no `SEGMENT=NUMBER` of a source."""
    return "/" in untracked


def what_flows_read(
    flows: Sequence[Flow], tables: Tables, stores: Stores = STORES
) -> list[FlowReads]:
    """What each flow has read, from the logs of its newest version that tell it. Raises FilesError, and
    TrackingError where two flows write one table."""
    by_table = flows_by_table(flows, tables)
    return [_reads(flow, by_table, stores) for flow in flows]


def _reads(flow: Flow, by_table: Mapping[str, Flow], stores: Stores) -> FlowReads:
    writers: dict[str, Flow] = {}
    directories: dict[str, None] = {}
    others: dict[str, str] = {}
    for version in reversed(flow.begun):
        log = CheckpointLog(flow.checkpoint(version), stores)
        for batch in reversed(log.readable()):
            offsets = log.offsets(batch)
            for number, text in offsets.sources.items():
                if text is not None and offsets.log_offset(number) is None:
                    others[number] = text
            for names in log.consumed(batch).values():
                for name in names:
                    _place(stores.location(name), by_table, writers, directories)
        if writers or directories or others:
            break
    return FlowReads(
        flow, tuple(writers.values()), tuple(sorted(directories)), tuple(sorted(others.items()))
    )


def _place(
    path: str, by_table: Mapping[str, Flow], writers: dict[str, Flow], directories: dict[str, None]
) -> None:
    """Notes of one file who writes it: a flow of the pipeline, or whoever fills a directory."""
    where = parent(path)
    while where not in by_table and "=" in where.rpartition("/")[2]:
        where = parent(where)  # a folder of partitions
    if where in by_table:
        writers[by_table[where].segment] = by_table[where]
    else:
        directories[where] = None


def derived_pipeline(
    name: str, reads: Iterable[FlowReads], untracked: Collection[str], start_slot: int
) -> PipelineSpec:
    """The pipeline that flows make: a segment each, an edge to each reader of what a flow writes, and a front
    for each directory of other files that is read. It is open: a pipeline that is run again has no end.

    untracked: directories that no front labels, and `SEGMENT=NUMBER` of sources. Raises TrackingError where
    a flow has read nothing yet, or what is not files."""
    edges: list[Edge] = []
    known = list(reads)
    for each in known:
        segment = each.flow.segment
        if each.nothing_yet:
            raise TrackingError(
                f"flow {segment!r} has read nothing yet, so it is not known what: run the pipeline once with "
                f"some input, or write its file by hand (lowmark pipelines apply)"
            )
        for number, offset in each.others:
            if f"{segment}={number}" not in untracked:
                raise TrackingError(
                    f"flow {segment!r} reads source {number}, which is no source of files (its offset is "
                    f"{offset[:200]}): leave it out with --set untracked={segment}={number}, and min time "
                    f"passes what comes from there"
                )
        edges += [Edge(writer.segment, segment) for writer in each.tables]
    fronts = sum(len(tracked_directories(each, untracked)) for each in known)
    return PipelineSpec(
        name, tuple(each.flow.segment for each in known), tuple(edges), front_count=fronts, open=True,
        start_slot=start_slot,
    )  # fmt: skip


def tracked_directories(reads: FlowReads, untracked: Collection[str]) -> list[str]:
    """The directories that a flow reads and fronts are to fill."""
    passed = [path.rstrip("/") + "/" for path in untracked if is_directory(path)]
    return [d for d in reads.directories if not any(f"{d}/".startswith(p) for p in passed)]


def pipeline_text(
    spec: PipelineSpec, reads: Iterable[FlowReads], untracked: Collection[str]
) -> str:
    """The file of a derived pipeline, as `lowmark pipelines apply` takes it."""

    def lines() -> Iterator[str]:
        yield f"name: {spec.name}"
        yield f"start: slot:{spec.start_slot}"
        yield "open: true"
        yield "segments:"
        yield from (f"  - {_quoted(segment)}" for segment in spec.segments)
        if spec.edges:
            yield "edges:"
        for edge in spec.edges:
            yield f"  - {{from: {_quoted(edge.source)}, to: {_quoted(edge.target)}}}"
        yield f"fronts: {spec.front_count}"
        for each in reads:
            for directory in tracked_directories(each, untracked):
                yield f"# a front of segment {each.flow.segment} labels what comes to {directory}"

    return "\n".join(lines()) + "\n"


def _quoted(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"
