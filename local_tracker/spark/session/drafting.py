"""What queries that there are read and write: by a program that would start them, or by the checkpoint of one that ran.

`lowmark init --from` makes a pipeline of it. A program is run up to its end, and none of its queries is started: what it
hands to Spark, or to `Tracked`, is looked at as `Tracked.start` would.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from local_tracker.spark.formats.ranges import RangesError, partitions
from local_tracker.spark.query.logs import CheckpointLog
from tracker.errors import TrackingError
from tracker.files import STORES, FilesError, child, parent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter

    from local_tracker.spark.formats.interface import Source
    from local_tracker.spark.jvm import PlannedQuery

TOPIC = "topic "
"""Begins the place of what is read from, or written to, a topic of Kafka."""
_SINK_LOG = "_spark_metadata"


@dataclass(frozen=True, slots=True)
class Draft:
    """A query. name: of its node, and of its segment; reads, writes: places: a directory, of a table too, or `topic NAME`;
    others: sources that are neither, as Spark shows them; ended: by what its program ended behind it, before its own end."""

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    ended: str = ""


def drafts_of_program(program: Path) -> list[Draft]:
    """Of the queries that a program would start. Raises TrackingError where it starts none."""
    drafts: list[Draft] = []
    try:
        with _nothing_is_started(drafts):
            runpy.run_path(str(program), run_name="__main__")
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}"
        if not drafts:
            raise TrackingError(f"{program} has ended before it started a query: {why}") from error
        # One that goes on with what a query has written may well end so; or there is more behind it.
        if not (isinstance(error, SystemExit) and not error.code):
            drafts[-1] = replace(drafts[-1], ended=why.partition("\n")[0])
    if not drafts:
        raise TrackingError(f"{program} starts no streaming query")
    return drafts


class _NotStarted:
    """What a program has instead of a query: one that has ended."""

    isActive = False

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


@contextmanager
def _nothing_is_started(drafts: list[Draft]) -> Iterator[None]:
    """While it lasts, queries that are to be started are looked at instead."""
    from pyspark.sql.streaming import StreamingQueryManager

    from local_tracker.spark.jvm import planned_query
    from local_tracker.spark.session.tracked import Tracked

    def look(writer: DataStreamWriter, table: str = "", name: str = "") -> _NotStarted:
        drafts.append(_draft(planned_query(writer), name, table, len(drafts)))
        return _NotStarted()

    def tracked_start(_: Any, writer: Any, *, node_id: str, **more: Any) -> _NotStarted:
        return look(writer, more.get("to_table") or "", node_id)

    with replaced(
        *starts_by(look), (StreamingQueryManager, "awaitAnyTermination", lambda *_: None),
        (Tracked, "start", tracked_start),
    ):  # fmt: skip
        yield


Replaced = tuple[type, str, Callable[..., Any]]
"""A class, one of its methods, and what stands for it."""


def starts_by(start: Callable[[DataStreamWriter, str], Any]) -> tuple[Replaced, Replaced]:
    """What stands for the two methods of Spark that start a query: a function of a writer, with all that it is given, and
    of the table's name, if that is given."""
    from pyspark.sql.streaming import DataStreamWriter

    def start_of(
        writer: Any, path: Any = None, format: Any = None, outputMode: Any = None,
        partitionBy: Any = None, queryName: Any = None, **options: Any,
    ) -> Any:  # fmt: skip
        given = {
            "format": format, "outputMode": outputMode, "partitionBy": partitionBy, "queryName": queryName,
        }  # fmt: skip
        for method, value in given.items():
            if value is not None:
                getattr(writer, method)(value)
        return start(writer.options(**options, **({} if path is None else {"path": path})), "")

    def to_table(writer: Any, tableName: str, *given: Any, **options: Any) -> Any:
        return start(writer, tableName)

    return (DataStreamWriter, "start", start_of), (DataStreamWriter, "toTable", to_table)


@contextmanager
def replaced(*methods: Replaced) -> Iterator[None]:
    """While it lasts, other functions stand for methods."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in methods]
    for owner, name, instead in methods:
        setattr(owner, name, instead)
    try:
        yield
    finally:
        for owner, name, original in before:
            setattr(owner, name, original)


def _draft(planned: PlannedQuery, name: str, table: str, number: int) -> Draft:
    reads: list[str] = []
    others: list[str] = []
    for source in planned.sources or ():
        places = _places(source)
        reads += places
        others += [] if places else [source.what]
    writes = _location(planned.session, table) if table else planned.path or ""
    if planned.sink.lower() == "kafka" and "topic" in planned.options:
        writes = TOPIC + planned.options["topic"]
    of_checkpoint = (planned.checkpoint or "").rstrip("/").rpartition("/")[2]
    of_sink = writes.rstrip("/").rpartition("/")[2].removeprefix(TOPIC)
    named = name or planned.name or of_checkpoint or of_sink or f"query{number}"
    return Draft(
        named, tuple(dict.fromkeys(reads)), (_place(writes),) if writes else (), tuple(others)
    )


def _location(session: SparkSession, table: str) -> str:
    """Of a table that has a name; the name where there is no such table yet."""
    from pyspark.errors import AnalysisException

    try:
        rows = session.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()
    except AnalysisException:
        return table
    return next((row.data_type for row in rows if row.col_name == "Location"), table)


def _places(source: Source) -> list[str]:
    if source.topics is not None and source.topics.topics:
        return [TOPIC + topic for topic in source.topics.topics]
    if source.table is not None:
        return [_place(source.table.location)]
    return [_place(source.directory)] if source.directory else []


def _place(path: str) -> str:
    """One spelling of each."""
    if path.startswith(TOPIC):
        return path
    try:
        return STORES.location(path).rstrip("/")
    except FilesError:  # of a kind that only Spark reaches
        return path.rstrip("/")


def draft_of_checkpoint(directory: str) -> Draft:
    """Of the query whose checkpoint a directory is; it does not show what the query writes. Raises TrackingError where it
    has read nothing yet, or what another query writes, and FilesError."""
    log = CheckpointLog(directory)
    if not log.exists():
        raise TrackingError(f"{log.root} is no checkpoint of a query: it has no metadata")
    batches = log.readable()
    if not batches:
        raise TrackingError(
            f"the query of {log.root} has read nothing yet: run it once with some input"
        )
    offsets = log.offsets(batches[-1])
    # Of all its batches: one alone may have had nothing of one of several sources.
    directories = (_directory(STORES.location(n)) for n in log.consumed_until(batches[-1]))
    reads = dict.fromkeys(directories)
    others: dict[str, None] = {}
    for number, text in offsets.sources.items():
        if offsets.log_offset(number) == -1:
            raise TrackingError(
                f"source {number} of the query of {log.root} has read nothing yet, and nobody knows what it is: run the "
                f"query once with some input of each, or name the program that starts it"
            )
        if text is not None and offsets.log_offset(number) is None:
            topics = _topics(text)
            reads.update(dict.fromkeys(topics))
            others.update({} if topics else {f"source {number}, at {text[:200]}": None})
    for place in reads:
        if not place.startswith(TOPIC) and _is_written_by_a_query(place):
            raise TrackingError(
                f"the query of {log.root} reads {place}, which another one writes, and no checkpoint names what its "
                f"query writes: name the program that starts both, --from query.py"
            )
    return Draft(log.root.rpartition("/")[2], tuple(reads), others=tuple(others))


def _is_written_by_a_query(place: str) -> bool:
    return bool(STORES.files(place).names(child(place, _SINK_LOG)))


def _directory(path: str) -> str:
    """Of a file, without the folders of partitions."""
    where = parent(path)
    while "=" in where.rpartition("/")[2]:
        where = parent(where)
    return where


def _topics(offset: str) -> list[str]:
    try:
        found = [name.rpartition("/") for name in partitions(offset, "the offset")]
    except RangesError:
        return []
    if not all(topic and number.isdecimal() for topic, _, number in found):
        return []
    return list(dict.fromkeys(TOPIC + topic for topic, _, _ in found))


def writers_of(drafts: Sequence[Draft]) -> dict[str, Draft]:
    """By place, the query that writes there. Raises TrackingError where two do, or two queries have one name."""
    found: dict[str, Draft] = {}
    names: set[str] = set()
    for draft in drafts:
        if draft.name in names:
            raise TrackingError(
                f"two queries are called {draft.name!r}: give each a name (queryName) or a checkpoint of its own"
            )
        names.add(draft.name)
        for place in draft.writes:
            if place in found:
                raise TrackingError(
                    f"queries {found[place].name!r} and {draft.name!r} both write {place}, which is followed of one alone"
                )
            found[place] = draft
    return found
