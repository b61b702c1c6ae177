"""What a format is to the tracker: a kind of source and sink, such as files, Kafka's topics, or Delta's tables.

Everybody else asks a format by these methods, and knows none by its name; `registry` finds them. Another one is a
class that a package names as an entry point of the group `lowmark.formats`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from local_tracker.spark.formats.ranges import OffsetRanges
from local_tracker.spark.query.compose import ComposeError
from local_tracker.spark.scala import has_method, items, iterated
from local_tracker.spark.versions import source_names
from tracker.client.topics import TopicPlace
from tracker.errors import TrackingError
from tracker.files import Files, Stores

if TYPE_CHECKING:
    from local_tracker.spark.formats.outputs import Output
    from local_tracker.spark.formats.sinks import RunningSink, Sink, SinkPlan
    from local_tracker.spark.writers.each_batch import BatchWriter, Writing


class TableRefused(ComposeError):
    """What a query does with a table cannot be told rightly. Names the table, the version and what to
    do."""


@dataclass(frozen=True, slots=True)
class TopicsSource:
    """What a source reads of topics, whose records are numbered. topics: by their names, or all that match
    `pattern`; options: of the reader, as given."""

    topics: tuple[str, ...]
    pattern: str | None
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table that a source of a plan reads, or a sink writes, and whose log is read. format: by its name, as
    Spark's; location: as Spark has it; options: of its reader, None where they are not known; metadata: the current ones, as JSON, of a table
    whose catalog alone knows which they are."""

    format: str
    location: str
    options: Mapping[str, str] | None = field(default_factory=dict)
    metadata: Callable[[], str] | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A streaming source of a plan. number: what the checkpoint calls it, its index in the plan from
    "0", or the name that `readStream.name()` gave it. what: as Spark shows it. directory: of a source
    of files, perhaps with wildcards, or of a table; else None. topics, table: what it reads of these; else
    None."""

    number: str
    what: str
    directory: str | None = None
    topics: TopicsSource | None = None
    table: TableSource | None = None


@dataclass(frozen=True, slots=True)
class QueryReads:
    """What a query's arguments say of its sources: reads, untracked and ranges as for `Tracked.start`, ranges also
    those of topics. untracked_topics: of sources that read tracked ones too."""

    reads: str | Mapping[str, str]
    untracked: Sequence[str] = ()
    ranges: Mapping[str, OffsetRanges | Sequence[OffsetRanges]] = field(default_factory=dict)
    untracked_topics: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """What is known of where a query that is going to start reads. place_of: where it is recorded who labels a
    topic."""

    session: Any
    sources: Sequence[Source]
    stores: Stores
    place_of: Callable[[str], TopicPlace]


class Leaf:
    """What a plan reads in one place. session: of Spark; node: the leaf of the analysed plan; number, what: of the
    source, as in `Source`."""

    def __init__(self, session: Any, index: int, node: Any) -> None:
        """index: of the source. Spark numbers sources in the order of leaves, or calls them by the name that the
        reader has given them."""
        self.session, self.node = session, node
        given, self.what = source_names(node)
        self.number = str(index) if given is None else given

    def has(self, method: str) -> bool:
        """Whether the leaf has a method."""
        return has_method(self.node, method)

    @classmethod
    def first_of(cls, frame: Any) -> Leaf:
        """Of a frame that reads one place."""
        plan = frame._jdf.queryExecution().analyzed()
        return cls(frame.sparkSession, 0, items(plan.collectLeaves())[0])


@dataclass(frozen=True, slots=True)
class Taken:
    """Names of units. consumed: those that the query has read whole, with this batch; held: those of
    which the batch has read something, and which are not read to their end. What the batch creates
    comes from both."""

    consumed: tuple[str, ...] = ()
    held: tuple[str, ...] = ()


class TableReader(Protocol):
    """What the batches of a query took of one table."""

    def reads(self, text: str) -> bool:
        """Whether an offset of a source of this format is of this table."""

    def taken(self, before: str | None, after: str) -> Taken:
        """What lies between two offsets, as JSON; `before` is None where the query began. Raises
        FilesError where the table's log no longer tells, and TableRefused."""

    def shown(self, unit: str) -> str | None:
        """A unit of this table, as people know it: the table's location, the version, and who wrote it;
        None for another one."""


class TableWriter(Protocol):
    """What the batches of one query wrote to one table."""

    def has(self, batch: int) -> bool:
        """Whether the batch has been committed to the table, be it without rows."""

    def names(self, batch: int) -> tuple[str, ...]:
        """The units that it created."""

    def note(self, batch: int) -> str | None:
        """What our own writer has noted with the batch; None where the batch has not been committed."""

    def forget(self, batch: int) -> None:
        """Nobody asks for the batch again, nor for those before it."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How a source reads its table, as far as no log says it. first: the version that it began with; None for the
    table as it was. skips: whether it leaves out what takes rows away."""

    first: int | None
    skips: bool


class Format(ABC):
    """A kind of source and sink."""

    name: str
    """What Spark's `format()` calls it, in small letters."""

    is_files: bool = False
    """Whether what is written are files, which a job can publish."""

    def source(self, leaf: Leaf) -> Source | None:
        """The source that reads there; None if it is not of this format."""
        return None

    def reads(self, read: QueryReads, plan: SourcePlan) -> QueryReads:
        """What arguments say of a query's sources, with the names that are this format's put into other terms:
        places, and numbers of sources. Raises TrackingError for what is not accounted for."""
        return read

    @abstractmethod
    def sink(self, plan: SinkPlan) -> Sink:
        """Where a query writes whose sink is of this format."""

    def output(self, plan: SinkPlan, running: RunningSink) -> Output | None:
        """What batches leave in the sink of a query that was started; None if it is not of this format."""
        return None

    def writer(self, writing: Writing) -> BatchWriter:
        """What publishes a batch from within `foreachBatch`. Raises TrackingError."""
        raise TrackingError(f"there is no tracked.writer(...) for format {writing.fmt!r}")


class TableFormat(Format):
    """Tables that keep a log: a unit is a version that adds rows."""

    @abstractmethod
    def is_offset(self, value: object) -> bool:
        """Whether an offset, parsed from its JSON, is of a source of this format."""

    @abstractmethod
    def is_table(self, location: str, files: Files) -> bool:
        """Whether there is a table of this format at a location."""

    @abstractmethod
    def reader(
        self, table: TableSource, stores: Stores, first: int | None, untracked: Sequence[range]
    ) -> TableReader:
        """What batches take of a table. first: the version that they begin with, where no option says so;
        untracked: versions that are not tracked. Raises TableRefused."""

    @abstractmethod
    def written(
        self, table: TableSource, stores: Stores, query: str, since: int = 0
    ) -> TableWriter:
        """What one query wrote to a table. since: the first version that may be the query's."""

    @abstractmethod
    def sink_table(self, session: Any, sink: Any) -> TableSource | None:
        """The table that a running query's sink, an object of Spark's, writes; None if it is none of these."""

    @abstractmethod
    def table(self, session: Any, name: str) -> TableSource | None:
        """A table by its name in the session's catalogs or, with a `/`, by where it is; None if there is none."""

    def reads(self, read: QueryReads, plan: SourcePlan) -> QueryReads:
        """Tables go by where they are: a name, perhaps with versions (`name@versions`), that means one of the plan's
        is put so."""
        tables = [
            s.table for s in plan.sources if s.table is not None and s.table.format == self.name
        ]
        known = {plan.stores.location(table.location) for table in tables}

        def located(name: str) -> str:
            table, at, versions = name.partition("@")
            if not known or "/" in table or table.isdigit():
                return name
            found = self.table(plan.session, table)
            where = None if found is None else plan.stores.location(found.location)
            return name if where is None or where not in known else where + at + versions

        reads = read.reads
        if not isinstance(reads, str):
            reads = {located(name): segment for name, segment in reads.items()}
        return replace(read, reads=reads, untracked=tuple(map(located, read.untracked)))

    def refused_mode(self, mode: str) -> str | None:
        """Why a query that creates may not write a table in an output mode (`Append`, ...); None if it may."""
        return None

    def sink(self, plan: SinkPlan) -> Sink:
        from local_tracker.spark.formats.sinks import TableSink

        return TableSink(plan, self)

    def output(self, plan: SinkPlan, running: RunningSink) -> Output | None:
        from local_tracker.spark.formats.outputs import table_output

        table = None if running.java is None else self.sink_table(running.session, running.java)
        if table is None:
            return None
        written = self.written(table, plan.stores, plan.query_id)
        return table_output(written, plan.routes.creates)

    def writer(self, writing: Writing) -> BatchWriter:
        from local_tracker.spark.writers.table_writer import TableBatchWriter

        return TableBatchWriter.to(writing, self)

    # --- options of readers that no log keeps

    def reading(self, options: Mapping[str, str] | None) -> Reading | None:
        """How a source reads by its own options; None where the log says all."""
        return None

    def with_reading(
        self, options: Mapping[str, str] | None, reading: Reading
    ) -> Mapping[str, str] | None:
        """The options of a reader that reads so."""
        return options

    def begins_whole(self, offset: str) -> bool:
        """Whether an offset is of a source that has begun with the table as it was."""
        return False

    # --- what is appended from within `foreachBatch`

    def is_own_option(self, name: str) -> bool:
        """Whether an option of a writer, in small letters, is not the user's, since each batch is appended once."""
        return False

    looks_first = False
    """Whether a batch must be looked for before it is appended, since the table itself takes it twice."""

    def next_version(self, table: TableSource, stores: Stores) -> int:
        """The first version that a query which begins to write now may make."""
        return 0

    def check_appending(self, table: TableSource, stores: Stores) -> None:
        """Raises TrackingError where a reader could not tell what it has read of what is appended."""

    @abstractmethod
    def stamps(self, query: str, batch: int, note: str) -> dict[str, str]:
        """The options by which a commit says whose it is."""

    # --- versions, for those who read a table more than once

    @abstractmethod
    def newest_version(self, session: Any, table: str) -> int | None:
        """The version that stands in a table now, by its name or, with a `/`, its place; None where it has none
        yet."""

    def forget_version(self, session: Any, table: str) -> None:
        """Lets go of what the session's catalogs remember of a table that has a name."""


def scala_map(given: Any) -> dict[str, str]:
    """A map of texts, of Scala's."""
    return {str(entry._1()): str(entry._2()) for entry in iterated(given)}
