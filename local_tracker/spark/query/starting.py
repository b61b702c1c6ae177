"""What is done before a query is started: all that can be refused is refused here.

Nothing has been touched then: no other session of the node is closed, and no query runs.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, DataFrameWriter
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from local_tracker.spark import jvm
from local_tracker.spark.formats.interface import Source
from local_tracker.spark.formats.reader_options import ReaderOptions
from local_tracker.spark.formats.sinks import Sink
from local_tracker.spark.jvm import PlannedQuery
from local_tracker.spark.query.follow import Follower, refuse_another_node, refuse_another_query
from local_tracker.spark.query.logs import CheckpointLog
from local_tracker.spark.query.plans import Routes
from local_tracker.spark.query.ticks import QueryTicks
from local_tracker.spark.session import connect
from tracker.client import Admin, NodeClient
from tracker.client.known import known_at, known_beside
from tracker.core.log import Joined
from tracker.core.model import NodeKind
from tracker.errors import TrackingError
from tracker.files import Stores

_JOIN_TIMEOUT_S = 30.0

log = logging.getLogger("lowmark.spark")


def check_planned(writer: Any, node_id: str, creates: Sequence[str] = ()) -> PlannedQuery:
    """What a writer would start that is to create in segments. Raises TrackingError for what cannot be
    tracked at all; a query that has been started already, by `toTable`, say, is stopped."""
    is_remote = connect.is_remote(writer)
    if isinstance(writer, StreamingQuery) or (is_remote and hasattr(writer, "runId")):
        writer.stop()
        raise TrackingError(
            f"query {node_id!r} was started before it was handed over (toTable() and start() do so), so "
            f"nobody has followed it; it has been stopped. Hand over the writer: for a table that is "
            f"kept in files, writer.format(...).option('path', <its directory>)"
        )
    if not isinstance(writer, DataStreamWriter) and not connect.is_writer(writer):
        raise TrackingError(
            f"query {node_id!r}: start() takes what frame.writeStream gives, not {writer!r}"
        )
    planned = connect.planned_query(writer) if is_remote else jvm.planned_query(writer)
    if planned.is_continuous:
        raise TrackingError(
            f"query {node_id!r} has a continuous trigger, whose epochs are no batches, so what they "
            f"read and wrote cannot be told; use trigger(processingTime=...) or trigger(realTime=...)"
        )
    if is_remote:
        connect.check_start(planned, node_id, creates)
    if planned.checkpoint is None:
        log.warning(
            "query %r has no checkpointLocation: when it is started again, it reads all of its input "
            "again, and is refused under this node id", node_id,
        )  # fmt: skip
    return planned


def written_frame(writer: Any, node_id: str) -> tuple[DataFrame, str]:
    """The frame that a job's writer writes, and its format. Raises TrackingError for what is no writer."""
    if connect.is_remote(writer) and hasattr(writer, "_write"):
        return connect.written_frame(writer)
    if not isinstance(writer, DataFrameWriter):
        raise TrackingError(f"job {node_id!r}: job() takes what frame.write gives, not {writer!r}")
    return jvm.written_frame(writer)


def job_files(
    frame: Any, node_id: str, reads: str | Mapping[str, str], untracked: Sequence[str]
) -> list[str]:
    """The files that a job's frame reads. Raises TrackingError where it reads none, or something else that could be
    tracked."""
    of = connect if connect.is_remote(frame) else jvm
    names: list[str] = of.job_files(frame, node_id, untracked)
    if reads and not names:
        raise TrackingError(
            f"job {node_id!r} is to read {reads!r}, and there is no file in what its frame reads, so it would consume "
            f"nothing: run it when there is one, over a frame that reads it by its path or a table's name"
        )
    return names


class StartingQuery:
    """A query that is going to be started, and its node, which joins for it. id: the query's; checkpoint:
    its logs, if it keeps any."""

    def __init__(
        self,
        target: str | Sequence[str],
        pipeline: str,
        node_id: str,
        planned: PlannedQuery,
        take_over: bool,
        stores: Stores,
        *,
        front_in: str | None = None,
    ) -> None:
        """stores: what the session reaches. front_in: of a Spark front, the directory that it publishes to.
        Raises FilesError where the checkpoint is out of reach."""
        location = planned.checkpoint
        self.checkpoint = None if location is None else CheckpointLog(location, stores)
        has_id = self.checkpoint is not None and self.checkpoint.exists()
        self.id = self.checkpoint.query_id if self.checkpoint and has_id else str(uuid.uuid4())
        self._is_new = not has_id
        self.node_id, self._planned, self._take_over = node_id, planned, take_over
        self._reads: ReaderOptions | None = None
        self.planned_before = -1
        """The last batch that an earlier run had planned, as of `join`, where state emits later."""
        record = front_in or (self.checkpoint.root if self.checkpoint else None)
        self.node = NodeClient(
            target, pipeline, node_id, kind=NodeKind.QUERY if front_in is None else NodeKind.FRONT,
            known=known_at(known_beside(record, pipeline, node_id), stores) if record else None,
        )  # fmt: skip
        self.node.never_left = True  # a query never does: it may be started again

    def ask(self) -> Joined:
        """What the node would get if it joined; nothing is begun. Raises TrackingError where Spark
        will not start the query, because of one that runs, and RefusedError."""
        spark, name = self._planned.session, self._planned.name
        restarts = spark.conf.get("spark.sql.streaming.stopActiveRunOnRestart", "true") == "true"
        for other in spark.streams.active:
            same = str(other.id) == self.id
            if (same and not restarts) or (not same and name is not None and other.name == name):
                raise TrackingError(
                    f"query {other.name or other.id} runs in this session, and Spark does not start "
                    f"another of its {'checkpoint' if same else 'name'} beside it: stop it first"
                )
        return self.node.check_join(_JOIN_TIMEOUT_S, owner=self.id, take_over=self._take_over)

    def sources(self, asked: Joined) -> tuple[Source, ...] | None:
        """Those of the plan, with the options that count (`ReaderOptions`), which are noted when the node
        joins; None where they are not known. Raises as `ReaderOptions`."""
        self._reads = ReaderOptions(
            self.node_id, self.id, self.checkpoint, self._planned.sources, asked.last_batches
        )
        return self._reads.sources

    def join(self, sink: Sink | None = None) -> Joined:
        """Joins, having begun a new checkpoint as Spark would, so that the query gets the id that it
        joins with, and what its sink claims. Raises TrackingError where another query begins
        the same checkpoint, and as `Sink.begin`."""
        checkpoint = self.checkpoint
        # Where metadata were lost behind batches, Spark has something to say about that.
        if checkpoint and self._is_new and not (checkpoint.planned() or checkpoint.committed()):
            files, root = checkpoint.files, checkpoint.root
            files.delete(f"{root}/.metadata.crc")  # of a checkpoint that was here before
            if not files.create_if_absent(f"{root}/metadata", json.dumps({"id": self.id}).encode()):
                raise TrackingError(
                    f"another query has begun the checkpoint {root} at this moment; start this one on a "
                    f"checkpoint of its own, or again"
                )
        joined = self.node.join(_JOIN_TIMEOUT_S, owner=self.id, take_over=self._take_over)
        state = self._planned.state
        if checkpoint and state is not None and state.emits_later:
            self._end_earlier_run()
            self.planned_before = max(checkpoint.planned(), default=-1)
        if self._reads is not None:
            self._reads.note()
        if sink is not None:
            sink.begin()
        return joined

    def _end_earlier_run(self) -> None:
        """As Spark does when the query is started. By then it has been looked which batch of that its sink has: one that
        got there behind the look, and before the end, would be in the state, unknown to any watermark."""
        for other in self._planned.session.streams.active:
            if str(other.id) == self.id:
                other.stop()


def check_started(query: StreamingQuery, query_id: str, checkpoint: str) -> None:
    """Raises TrackingError where the query that Spark runs is not that of the checkpoint seen here."""
    if str(query.id) != query_id:
        raise TrackingError(
            f"Spark has started the query as {query.id}, but the checkpoint that this program sees at "
            f"{checkpoint} is of {query_id}: the two do not see the same storage under that name. Give "
            f"the whole address of shared storage, or run this program where its driver is"
        )


def check_admission(
    node_id: str, starting: StartingQuery, admin: Admin, asked: Joined, routes: Routes
) -> None:
    """Raises TrackingError where checkpoint and tracker don't fit, or what the checkpoint logs is not
    accounted for: as following it would, once the node has joined."""
    node, checkpoint = starting.node, starting.checkpoint
    if checkpoint is None or not checkpoint.exists():
        where = checkpoint.root if checkpoint is not None else "(no checkpointLocation)"
        refuse_another_query(f"query {node_id!r}", where, asked.last_batches)
        return
    refuse_another_node(f"query {node_id!r}", checkpoint, asked, routes.segments(), admin)
    ticks = QueryTicks(node, admin, routes, checkpoint)
    ticks.check_sources(node_id)
    Follower(
        node_id, node, checkpoint, ticks, asked,
        is_active=lambda: False, on_end=lambda: None,
    )  # fmt: skip
