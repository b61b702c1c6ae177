"""Where a query's input comes from and its output goes, and that each of its sources is accounted for
(promise 6).

A source that nobody has named would be read in silence: min time would pass what came from it. So
each source of a plan is in a segment (by the directory of its files, or by ranges of its offsets), or
it is declared that it is not tracked. Before a query is started that is checked by its plan; of each
batch, and of a query of which there is only the checkpoint, by the offset log.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from local_tracker.spark.formats.interface import QueryReads, Source, TableRefused
from local_tracker.spark.formats.ranges import OffsetRanges, partitions
from local_tracker.spark.formats.tables import Tables, names_versions, untracked_versions
from local_tracker.spark.query.compose import ComposeError
from local_tracker.spark.query.logs import BatchOffsets
from local_tracker.spark.query.places import folder, may_list
from tracker.client.node import segment_number
from tracker.core.model import PipelineSpec
from tracker.errors import TrackingError
from tracker.files import STORES, Stores

log = logging.getLogger("lowmark.spark")

_WILDCARD = re.compile(r"[*?\[{\\]")


class UnaccountedError(ComposeError):
    """A source is in no segment, and nobody declared that it is not tracked. Names source and plan."""


class Routes:
    """Where a query's input comes from and its output goes, by segment numbers.

    creates: the segments of what it writes. rows: by segment, the column with the slots of the rows in
    its files, where rows are the items. ranges: sources with partitioned offsets, by their numbers, each
    of them once for every topic that is tracked.
    """

    def __init__(
        self,
        spec: PipelineSpec,
        read: QueryReads,
        creates: Sequence[str],
        node_id: str,
        rows: Mapping[str, str] | None = None,
        plan: Sequence[Source] | None = None,
        stores: Stores = STORES,
        *,
        first_versions: Mapping[str, int] | None = None,
        as_front: bool = False,
    ) -> None:
        """read: `reads` are the segment of all files, or segments by directory, of files or a table; `untracked`
        sources by their numbers, and, with a `/`, directories, and versions of a table (`/data/t@0-7`).
        plan: the query's sources, if they are known. first_versions: by the sources' numbers, the version
        with which the reader of a table was told to begin, where there is no plan that says it. as_front: the
        query is a front of what it creates, and may read nothing that is tracked. Raises LowmarkError for an
        unknown segment, TrackingError where the pipeline has no edge for what the query does, or its plan
        has a source that is not accounted for."""
        self._location, reads, untracked = stores.location, read.reads, read.untracked
        self.spec, self._plan, self._node_id = spec, plan, node_id
        self.ranges = {
            number: (given,) if isinstance(given, OffsetRanges) else tuple(given)
            for number, given in read.ranges.items()
        }
        self._untracked_topics = frozenset(read.untracked_topics)
        self._one = self.number(reads) if isinstance(reads, str) else None
        by_directory: dict[str, int | None] = {}
        if not isinstance(reads, str):
            by_directory |= {path: self.number(name) for path, name in reads.items()}
        by_directory |= {
            path: None for path in untracked if "/" in path and not names_versions(path)
        }
        self._by_directory = sorted(
            ((_slashed(self._location(path)), number) for path, number in by_directory.items()),
            key=lambda item: -len(item[0]),
        )
        self._untracked = {name for name in untracked if "/" not in name}
        self._places = {
            source.number: self._location(source.directory)
            for source in plan or ()
            if source.directory is not None and self.is_tracked(source.number)
        }
        try:
            self._check_plan(plan or ())
            self.tables = self._tables(stores, first_versions or {}, untracked)
        except (UnaccountedError, TableRefused) as error:
            raise TrackingError(f"query {node_id!r}: {error}") from None
        self.creates = tuple(self.number(name) for name in creates)
        self.rows = {self.number(name): column for name, column in (rows or {}).items()}
        self._needs_edges = bool(self.read_segments()) or not as_front
        self._check_rows(rows or {})
        self._check_creates(spec, creates)
        self._warn_of_removed(spec, ())
        self.delays = self._delays()
        try:
            self._check_tables_by_units()
        except UnaccountedError as error:
            raise TrackingError(f"query {node_id!r}: {error}") from None

    def number(self, segment: str) -> int:
        """The number of a segment; raises LowmarkError if the pipeline has none of that name."""
        return segment_number(self.spec, segment)

    def change(self, spec: PipelineSpec, more: Iterable[int]) -> None:
        """The pipeline has become `spec`: from here on batches are labelled by its edges. more: segments, by
        number, in which the query creates beside its own. Raises TrackingError where it cannot go on so."""
        creates = dict.fromkeys(spec.segments[number] for number in self.creates)
        self._check_creates(spec, creates)
        self._check_not_removed(spec, (spec.segments[number] for number in more))
        before, self.spec = self.spec, spec
        self._warn_of_removed(spec, before.removed)
        self.delays = self._delays()

    def _delays(self) -> dict[tuple[int, int], int]:
        """The delay, in slots, of each edge (source, target) by segment numbers."""
        delays: dict[tuple[int, int], int] = {}
        for edge in self.spec.edges:
            key = self.number(edge.source), self.number(edge.target)
            delays[key] = min(edge.delay, delays.get(key, edge.delay))
        return delays

    def is_tracked(self, source: str) -> bool:
        return source not in self._untracked

    @property
    def lists(self) -> Mapping[str, str] | None:
        """The places of files and tables that the plan's sources list, perhaps with wildcards, by the sources'
        numbers; None without a plan."""
        return None if self._plan is None else self._places

    def reads_too(self, source: str, by: str, unit: str) -> bool:
        """Whether a source of the plan may read a unit that another one has taken."""
        place, of_table = self._places[source], self.tables.location
        if place == self._places.get(by):
            return True
        is_file = of_table(source) is None and of_table(by) is None
        return is_file and may_list(place, self._location(unit))

    def folder(self, file: str) -> str:
        """As `places.folder`, by a file's name."""
        return folder(self._location(file))

    def unread(self, folders: Collection[str]) -> int:
        """In how many of the directories that are named none of these folders lies."""
        seen = [_slashed(folder) for folder in folders]
        return sum(
            not any(folder.startswith(directory) for folder in seen)
            for directory, _ in self._by_directory
        )

    def segment(self, unit: str) -> int | None:
        """The number of a file's segment; None if the file is not tracked. Raises UnaccountedError
        where nothing is declared of it."""
        return self._segment_of(self._location(unit) if self._by_directory else unit)

    def _segment_of(self, path: str) -> int | None:
        """As `segment`, by a location; that of a directory ends with a slash."""
        for directory, number in self._by_directory:
            if path.startswith(directory):
                return number
        if self._one is not None:
            return self._one
        known = [directory for directory, _ in self._by_directory]
        raise UnaccountedError(
            f"{path} is in none of the directories that the query reads: {known}; name its directory in "
            f"reads, or in untracked if it is not tracked"
        )

    def _tables(
        self, stores: Stores, first_versions: Mapping[str, int], untracked: Sequence[str]
    ) -> Tables:
        planned = {
            source.number: source.table
            for source in self._plan or ()
            if source.table is not None and source.number not in self._untracked
        }
        return Tables(
            stores,
            lambda location: self._segment_of(_slashed(location)),
            [directory.rstrip("/") for directory, _ in self._by_directory],
            None if self._plan is None else planned,
            first_versions,
            untracked_versions(untracked, self._location),
        )

    def by_segment(self, names: Iterable[str]) -> dict[int, tuple[str, ...]]:
        """Names of tracked files, each once, by the numbers of their segments. Raises as `segment`."""
        found: dict[int, dict[str, None]] = {}
        for name in names:
            segment = self.segment(name)
            if segment is not None:
                found.setdefault(segment, {})[name] = None
        return {segment: tuple(group) for segment, group in found.items()}

    def _check_plan(self, plan: Sequence[Source]) -> None:
        """Raises UnaccountedError where a source of the plan is not accounted for, or one is named that
        the plan has not."""
        if self._plan is None:
            return
        have = {source.number for source in plan}
        for named, what in ((set(self.ranges), "ranges"), (self._untracked, "untracked")):
            if missing := sorted(named - have):
                raise UnaccountedError(
                    f"{what} names source {missing[0]!r}, which the plan has not: {self._shown()} (a "
                    f"directory is named with a /)"
                )
        for source in plan:
            if not self._accounts_for(source):
                raise self._unaccounted(f"source {source.number}, {source.what},")

    def check_offsets(self, offsets: BatchOffsets) -> None:
        """Raises UnaccountedError where a batch has read from a source that is not accounted for."""
        if self._plan is not None and len(offsets.sources) != len(self._plan):
            raise UnaccountedError(
                f"batch {offsets.batch} has offsets of {len(offsets.sources)} sources, "
                f"{sorted(offsets.sources)}, and the plan has {len(self._plan)}: {self._shown()}; start "
                f"the query again, over the sources that its checkpoint began with"
            )
        for number, text in offsets.sources.items():
            if text is None or number in self._untracked:
                continue
            if number in self.ranges:
                self._check_topics(f"batch {offsets.batch}: source {number}", number, text)
                continue
            # Of a file source the files themselves are judged.
            if offsets.log_offset(number) is None and not self.tables.reads(number, text):
                what = "no source of files"
                if self.tables.format_of(text) is not None:
                    what = "of none of the tables that are named, or of one that no longer has its past"
                raise self._unaccounted(
                    f"batch {offsets.batch}: source {number}, which is {what} (its offset is {text[:200]}),"
                )
        self._check_tables_by_units()

    def _check_topics(self, what: str, number: str, text: str) -> None:
        """Raises UnaccountedError where a source has read from a topic that is not accounted for, as one
        whose topics are told by a pattern may."""
        known = {source.within for source in self.ranges[number]}
        if None in known:
            return
        topics = {partition.rsplit("/", 1)[0] for partition in partitions(text, what)}
        if unknown := sorted(topics - known - self._untracked_topics):
            raise UnaccountedError(
                f"{what} has read topic {unknown[0]!r}, which is not accounted for: name its segment in "
                f"reads, or the topic in untracked, if min time may pass what comes from there"
            )

    def _check_tables_by_units(self) -> None:
        """Raises UnaccountedError where a table's rows were to be items: they are not read back."""
        for segment in self.tables.segments() & set(self.rows):
            raise UnaccountedError(
                f"segment {self.spec.segments[segment]!r} is of a table, and was to be tracked by its rows, "
                f"in column {self.rows[segment]!r}: tables are tracked by units alone; leave it out of rows"
            )

    def _accounts_for(self, source: Source) -> bool:
        if source.number in self.ranges or source.number in self._untracked:
            return True
        if source.directory is None:
            return False
        if self._one is not None:
            return True
        wanted = _WILDCARD.split(source.directory, maxsplit=1)[0]
        whole = wanted == source.directory
        path = _slashed(self._location(wanted)) if whole else self._location(wanted)
        return any(
            path.startswith(directory) or directory.startswith(path)
            for directory, _ in self._by_directory
        )

    def _unaccounted(self, what: str) -> UnaccountedError:
        return UnaccountedError(
            f"{what} is not accounted for: files and tables are named in reads by their directory, topics by "
            f"their names, other sources in ranges by their number, and what is not to be tracked, so that "
            f"min time passes it, in "
            f"untracked, by number or directory; the plan has {self._shown()}"
        )

    def _shown(self) -> str:
        if self._plan is None:
            return "what the checkpoint logs"
        return ", ".join(f"{source.number}: {source.what}" for source in self._plan) or "no source"

    def read_segments(self) -> set[str]:
        """The names of the segments that the query reads."""
        numbers = {number for _, number in self._by_directory} | {self._one}
        numbers |= {self.number(one.segment) for each in self.ranges.values() for one in each}
        return {self.spec.segments[number] for number in numbers if number is not None}

    def segments(self) -> set[str]:
        """The names of the segments that the query reads or creates in."""
        return self.read_segments() | {self.spec.segments[number] for number in self.creates}

    def leads_back(self) -> bool:
        """Whether what the query creates can come back to it."""
        edges = {(edge.source, edge.target) for edge in self.spec.edges}
        reached = {self.spec.segments[number] for number in self.creates}
        while more := {target for source, target in edges if source in reached} - reached:
            reached |= more
        return not reached.isdisjoint(self.read_segments())

    def _check_creates(self, spec: PipelineSpec, creates: Iterable[str]) -> None:
        """Raises TrackingError where the query could not create in a segment by the graph of `spec`."""
        sources = self.read_segments()
        self._check_not_removed(spec, creates)
        for target in creates if self._needs_edges else ():
            if not any(edge.source in sources and edge.target == target for edge in spec.edges):
                raise TrackingError(
                    f"query {self._node_id!r} reads {sorted(sources)} and creates in {target!r}, but "
                    f"pipeline {spec.name!r} has no edge between them; declare one (lowmark pipelines apply), or start "
                    f"the query without that segment in creates"
                )

    def _check_not_removed(self, spec: PipelineSpec, creates: Iterable[str]) -> None:
        for target in creates:
            if target in spec.removed:
                raise TrackingError(
                    f"query {self._node_id!r} creates in segment {target!r}, which was removed from pipeline "
                    f"{spec.name!r} and takes nothing more; start the query without it in creates"
                )

    def _warn_of_removed(self, spec: PipelineSpec, before: Sequence[str]) -> None:
        """What is in a segment that was removed is still to be read."""
        for name in sorted(self.read_segments() & {*spec.removed} - {*before}):
            log.warning(
                "query %r reads segment %r, which was removed from pipeline %r: nothing more comes there; when it is "
                "complete, start the query without it in reads, or stop it", self._node_id, name, spec.name,
            )  # fmt: skip

    def _check_rows(self, rows: Mapping[str, str]) -> None:
        known = self.segments()
        for name, column in rows.items():
            if name not in known:
                raise TrackingError(
                    f"query {self._node_id!r} neither reads nor creates in {name!r}, whose rows were to be "
                    f"tracked by column {column!r}"
                )


def _slashed(path: str) -> str:
    return path.rstrip("/") + "/"
