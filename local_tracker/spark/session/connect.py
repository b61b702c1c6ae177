"""What is asked of a Spark Connect session, whose driver and JVM are elsewhere.

What a query would be is read from the message that would start it. How it goes on is read from its
checkpoint, by storage, as for a query that is followed from outside: so the checkpoint, and the directory
of a file sink, must lie where this program sees them under the same names as the server. Whether it is
that one is known by the query's id, which the session tells and the checkpoint holds.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.streaming import StreamingQuery

from local_tracker.spark.formats import files
from local_tracker.spark.formats.interface import Source
from local_tracker.spark.jvm import PlannedQuery, refuse_cached, refuse_source
from local_tracker.spark.state.message import message_state
from tracker.errors import TrackingError
from tracker.wire.fields import is_repeated

_CLASSIC = "use a classic session, in the driver"
NO_BROKERS = (
    f"its brokers are asked by the driver, which a Spark Connect session does not reach; {_CLASSIC}"
)
"""Why what a query writes to a topic cannot be told."""

_HIDES_FILES = re.compile(r"^[\s:+|-]*(InMemoryRelation|LogicalRDD)\b", re.MULTILINE)
"""In the text of a plan, what is read of files without naming them."""

log = logging.getLogger("lowmark.spark")


def is_remote(thing: object) -> bool:
    """Whether a session, or what was made by one, is of Spark Connect."""
    return any(made.__module__.startswith("pyspark.sql.connect.") for made in type(thing).__mro__)


def is_writer(thing: object) -> bool:
    """Whether something is what `frame.writeStream` gives in a Connect session."""
    return is_remote(thing) and hasattr(thing, "_write_proto")


def refuse_writer() -> TrackingError:
    """Why there is no `tracked.writer`."""
    return TrackingError(
        f"tracked.writer(...) cannot be used in a Spark Connect session, where the server runs the function "
        f"of foreachBatch in a process of its own, beyond this one: write by a file sink "
        f"(writer.format('parquet').option('path', ...)), or {_CLASSIC}"
    )


def refuse_acks() -> TrackingError:
    """Why user code cannot acknowledge."""
    return TrackingError(
        f"acks of user code cannot be used in a Spark Connect session: their Python files would reach "
        f"batch queries and no streaming ones, and tasks could not be told of their query. Track by units, "
        f"rows or ranges, without track(...), or {_CLASSIC}"
    )


def refuse_front(front: str) -> TrackingError:
    """Why a query cannot be a Spark front."""
    return TrackingError(
        f"front {front!r} cannot be a query of a Spark Connect session: it publishes in foreachBatch, which "
        f"the server runs in a process of its own; {_CLASSIC}"
    )


def check_start(planned: PlannedQuery, node_id: str, creates: Sequence[str]) -> None:
    """Raises TrackingError for what cannot be tracked of a query in a Connect session."""
    if planned.checkpoint is None:
        raise TrackingError(
            f"query {node_id!r} has no checkpointLocation, by which it is followed in a Spark Connect "
            f"session: set writer.option('checkpointLocation', ...), to storage that this program reaches too"
        )
    if creates and planned.sink in ("foreachBatch", "foreach"):
        raise TrackingError(
            f"query {node_id!r} is to create in {list(creates)} by {planned.sink}, which the server runs in "
            f"a process of its own in a Spark Connect session: write by a file sink, or {_CLASSIC}"
        )


def planned_query(writer: Any) -> PlannedQuery:
    """What a writer would start, by its message; starts nothing."""
    message, session = writer._write_proto, writer._session
    options = {name.lower(): value for name, value in message.options.items()}
    name = message.query_name or None
    sink = message.format or session.conf.get("spark.sql.sources.default", "parquet")
    for function, set_field in (("foreachBatch", "foreach_batch"), ("foreach", "foreach_writer")):
        sink = function if message.HasField(set_field) else sink
    plan = writer._write_stream._child.plan(session.client)
    mode = (message.output_mode or "append").capitalize()
    return PlannedQuery(
        session,
        _sources(plan),
        sink,
        message.path or options.get("path"),
        name,
        options.get("checkpointlocation") or _default_checkpoint(session, name),
        message.WhichOneof("trigger") == "continuous_checkpoint_interval",
        None,
        mode=mode,
        state=message_state(plan, mode, session),
    )


def written_frame(writer: Any) -> tuple[Any, str]:
    """The frame that a writer of a batch writes, and the format."""
    from pyspark.sql.connect.dataframe import DataFrame

    return DataFrame(writer._df, writer._spark), (writer._write.source or "").lower()


def job_files(frame: Any, node_id: str, untracked: Sequence[str]) -> list[str]:
    """As `jvm.job_files`, as far as the server tells: what is cached or checkpointed is in its explanation."""
    found = _HIDES_FILES.search(frame._explain_string(extended=True))
    if found is not None and found[1] == "InMemoryRelation":
        raise refuse_cached(node_id)
    if found is not None and found[1] not in untracked:
        raise refuse_source(node_id, found[1])
    return list(frame.inputFiles())


def sink_description(planned: PlannedQuery) -> str:
    """A query's sink as a classic one calls itself: `FileSink[<directory>]`, or its format."""
    if planned.path is None or planned.sink.lower() not in files.SINKS:
        return planned.sink
    return files.file_sink(planned.path)


def is_running(query: StreamingQuery) -> bool:
    """As `jvm.is_running`, as far as is known: it may go on where the session cannot be reached."""
    try:
        if query.isActive:
            return True
        session: Any = query
        return query.runId in {other.runId for other in session._session.streams.active}
    except Exception as error:
        log.warning(
            "it is not known whether query %s runs, and it is followed on: %s", query.id, error
        )
        return True


def _default_checkpoint(session: Any, name: str | None) -> str | None:
    root = session.conf.get("spark.sql.streaming.checkpointLocation", None)
    return f"{root}/{name}" if root and name else None


def _sources(plan: Any) -> tuple[Source, ...] | None:
    """The sources of a query in the order of its plan; None where the message does not show all of
    them, a table's or a view's, say, or Spark may take two for one."""
    reads = list(_messages(plan, "Read"))
    if any(read.WhichOneof("read_type") != "data_source" for read in reads) or any(
        next(_messages(plan, unclear), None) is not None
        for unclear in ("SQL", "WithRelations", "CachedRemoteRelation", "Any")
    ):
        return None
    streams = [read for read in reads if read.is_streaming]
    if len({read.SerializeToString(deterministic=True) for read in streams}) < len(streams):
        return None
    return tuple(_source(index, read.data_source) for index, read in enumerate(streams))


def _source(index: int, source: Any) -> Source:
    number = getattr(source, "source_name", "") or str(index)
    paths = [*source.paths, *(v for name, v in source.options.items() if name.lower() == "path")]
    if source.format.lower() in files.SOURCES and len(paths) == 1:
        return files.file_source(number, paths[0])
    return Source(number, source.format)


def _messages(message: Any, kind: str) -> Iterator[Any]:
    """All messages of a kind within another, in the order of fields."""
    if message.DESCRIPTOR.name == kind:
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            continue
        for part in value if is_repeated(field) else (value,):
            yield from _messages(part, kind)
