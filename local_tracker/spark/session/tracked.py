"""Tracked Spark queries: an ordinary Structured Streaming query becomes a node of a pipeline.

    tracked = Tracked(spark, "127.0.0.1:7070", pipeline="flights")
    query = tracked.start(
        frame.writeStream.format("parquet").option("path", out).option("checkpointLocation", cp),
        node_id="parse", reads="parse", creates=["enrich"],
    )

Nothing of the query changes, neither its plan nor its result. After a batch is over, its tick is
composed from Spark's own logs (`logs`, `ticks`) and committed (`follow`).
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrameWriter, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from local_tracker.spark import jvm
from local_tracker.spark.formats.hadoop_files import session_stores
from local_tracker.spark.formats.interface import QueryReads, SourcePlan
from local_tracker.spark.formats.registry import accounted, format_named
from local_tracker.spark.formats.sinks import NotedSink, RunningSink, Sink, SinkPlan
from local_tracker.spark.jvm import PlannedQuery, StageTasks
from local_tracker.spark.query.compose import Evaluations
from local_tracker.spark.query.emits import EmittingFront, EventTime, emitting_front
from local_tracker.spark.query.logs import CheckpointLog
from local_tracker.spark.query.plans import Routes
from local_tracker.spark.query.starting import (
    StartingQuery,
    check_admission,
    check_planned,
    check_started,
    job_files,
    written_frame,
)
from local_tracker.spark.query.ticks import QueryTicks
from local_tracker.spark.session import connect
from local_tracker.spark.session.jobs import JobNode
from local_tracker.spark.session.options import TrackingOptions
from local_tracker.spark.session.tracked_query import TrackedQuery
from local_tracker.spark.state.backlog import Backlog
from local_tracker.spark.state.chosen import chosen_plan, may_create
from local_tracker.spark.state.holds import StateHolds, begin_state
from local_tracker.spark.state.rules import StatePlan
from local_tracker.spark.state.running import RunningQuery
from local_tracker.spark.versions import check_connect, check_version
from local_tracker.spark.writers.each_batch import (
    BatchWriter,
    EachBatchSink,
    Writing,
    check_each_batch,
)
from local_tracker.worker import bundle, route
from local_tracker.worker.settings import CREDENTIALS
from tracker.client import Admin, SecureTarget
from tracker.client.topics import TopicPlace
from tracker.core.model import HeldSlot
from tracker.errors import TrackingError

__all__ = ["BatchWriter", "Tracked", "TrackedQuery"]

_ADMISSION_TIMEOUT_S = 60.0
_KEPT_RUNS = 1_000
_MAX_RUNS_BYTES = 1 << 20


class Tracked:
    """The tracked queries of one Spark session in one pipeline. Thread-safe."""

    def __init__(
        self,
        spark: SparkSession,
        target: str | Sequence[str],
        pipeline: str,
        *,
        untried_pyspark: str | None = None,
        topics: str | None = None,
    ) -> None:
        """`target`: host:port of a tracker process, or several; a SecureTarget's files are taken on
        executors too, from the same paths, unless these have credentials in their environment.
        `untried_pyspark`: a version of PySpark to go on with although it has not been tried, such as
        "4.4". topics: the directory in which it is noted who labels which offsets of Kafka topics. Raises
        TrackingError for a version, or a kind of session, that cannot be tracked."""
        check_version(pyspark.__version__, untried_pyspark)
        self._is_remote = connect.is_remote(spark)
        if self._is_remote:
            check_connect(pyspark.__version__)
        self.spark, self.target, self.pipeline = spark, target, pipeline
        self._topics, self._stores = topics, session_stores(spark)
        self._tasks_acknowledge = False
        self._writers: dict[str, BatchWriter] = {}  # by what they write
        self._admitted: dict[str, TrackedQuery | TrackingError] = {}
        self._changed = threading.Condition()

    def track(self, acks: object) -> None:
        """Let user code of the queries started from here on call `acks`: ships the workers' side to
        the executors and counts what it hands over. `acks` is the module `local_tracker.acks`."""
        if getattr(acks, "__name__", None) != "local_tracker.acks":
            raise TrackingError(f"track() takes the module local_tracker.acks, not {acks!r}")
        if self._is_remote:
            raise connect.refuse_acks()
        if not self._tasks_acknowledge:
            self.spark.sparkContext.addPyFile(_bundle())
            self._tasks_acknowledge = True

    def writer(
        self,
        out: str,
        fmt: str = "parquet",
        *,
        creates: Sequence[str] | None = None,
        partition_by: Sequence[str] = (),
        **options: str,
    ) -> BatchWriter:
        """A function for `foreachBatch`, or to be called once a batch within one, that publishes a
        batch's DataFrame as files in the directory `out`, each batch once (`published`); with `fmt`
        "kafka", to the topic `out`, with headers that name query, batch and slots (`topic_writer`); with
        "delta" or "iceberg", to the table of the name `out`, or, with a `/`, at that place (`table_writer`).
        `creates`: segments of the readers of `out`, if others than the query's. Raises TrackingError in a
        Spark Connect session."""
        if self._is_remote:
            raise connect.refuse_writer()
        with self._changed:
            known = dict(self._writers)
        writer = format_named(fmt).writer(
            Writing(
                self.spark, self._stores, self._admitted_query, self._place, known, out, fmt,
                creates, partition_by, options,
            )
        )  # fmt: skip
        with self._changed:
            self._writers[writer.place] = writer
        return writer

    def start(
        self,
        writer: DataStreamWriter,
        *,
        node_id: str,
        reads: str | Mapping[str, str],
        creates: Sequence[str] = (),
        rows: Mapping[str, str] | None = None,
        untracked: Sequence[str] = (),
        to_table: str | None = None,
        options: TrackingOptions | None = None,
    ) -> TrackedQuery:
        """Start a query and track it.

        reads: the segment that its input files are in, or segments by directory, of files or a table, by a table's
        name, or by Kafka topic; creates: the segments of the queries that read what its sink writes. rows: segments
        whose items are rows instead of files, each with the column of the rows' slots, for all who write or read it.
        untracked: sources that are in none of these, by number, topics, directories (with a `/`), and versions of a
        table (`/data/t@0-7`). to_table: starts it as `writer.toTable(...)` would. options: what is rare. Raises
        TrackingError if the plan's sources, the segments, the sink or the checkpoint don't fit, and LowmarkError
        where the tracker refuses the query; nothing has been started or ended then.
        """
        planned, given = check_planned(writer, node_id, creates), options or TrackingOptions()
        emits = given.emits
        with ExitStack() as undoing:
            starting = StartingQuery(
                self.target, self.pipeline, node_id, planned, given.take_over, self._stores
            )
            undoing.callback(starting.node.close)
            undoing.callback((admin := Admin(self.target)).close)
            asked = starting.ask()
            sources = starting.sources(asked)
            read = QueryReads(reads, untracked, given.ranges)
            read = accounted(read, SourcePlan(self.spark, sources or (), self._stores, self._place))
            routes = Routes(
                asked.spec, read, creates, node_id, rows, sources, self._stores, as_front=bool(emits)
            )  # fmt: skip
            sink = self._sink(planned, starting, routes, given, to_table)
            sink.check()
            front = self._front(emits, creates, routes, planned.mode, writer)
            check_admission(node_id, starting, admin, asked, routes)
            held_in = self._may_create(planned, routes, creates)
            state, mode = planned.state, planned.mode
            plan = chosen_plan(node_id, given.state, state, mode, held_in, emits, asked)
            sink.open()
            undoing.callback(sink.close)
            joined = starting.join(sink)
            emission = front.join(starting.node, joined.spec) if front else None
            publishes = self._publishes(sink, given.may_publish_nothing)
            held: list[HeldSlot] = []
            if plan and starting.checkpoint:  # without one nothing is found again
                held = begin_state(plan, starting.checkpoint, starting.node, sink.has)
            with self._task_settings(node_id):
                query = writer.toTable(to_table) if to_table else writer.start()
            undoing.push(partial(self._not_started, query, node_id))
            ticks = self._ticks(
                query, starting, admin, sink, given.operators, plan, held,
                emits=emission, publishes=publishes, may_create=[routes.number(s) for s in held_in],
            )  # fmt: skip
            most = given.max_batches_behind or self._max_batches_behind()
            tracked_query = TrackedQuery(
                query, node_id, starting.node, admin, ticks, joined, most, emission, sink.at_rest()
            )
            undoing.pop_all()
        self._admit(query.id, tracked_query)
        return tracked_query

    def job(
        self,
        writer: DataFrameWriter,
        out: str,
        *,
        node_id: str,
        reads: str | Mapping[str, str],
        creates: Sequence[str] = (),
        job_id: str | None = None,
        rows: Mapping[str, str] | None = None,
        untracked: Sequence[str] = (),
    ) -> int:
        """Run a plain batch job: publish a DataFrame over files as files in the directory
        `out`, and commit what it read and wrote as one tick. writer: what `frame.write` gives, with its format,
        options and partitions. Returns the number of the job's run, from 0, when the tracker has it.

        The job consumes all files that the DataFrame's sources list; each may be read
        by one run of a node. A frame that lists none is refused, and so is what is cached, and what is neither files
        nor made by this program. job_id: whatever names the run to its scheduler; when it is run again
        after it has published, nothing is done, and the number is returned. untracked: directories of
        input that is not tracked, such as a table that is joined, and other sources by their names. The other arguments
        are those of `start`. After a crash the next run tells what the last one published. Raises
        TrackingError; unless the message says that a run has been published, nothing was.
        """
        frame, fmt = written_frame(writer, node_id)
        if not format_named(fmt).is_files:
            raise TrackingError(
                f"job {node_id!r} is to write {fmt}, and jobs publish files: start a query with "
                f"trigger(availableNow=True) instead, whose sink is that"
            )
        inputs = job_files(frame, node_id, reads, untracked)
        job = JobNode(
            self.target, self.pipeline, node_id, out, reads=reads, creates=creates, rows=rows,
            untracked=untracked, stores=self._stores,
        )  # fmt: skip
        try:
            return job.run(inputs, writer.save, job_id)
        finally:
            job.close()

    def min_time(self, segment: str | None = None) -> int:
        """Min time of a segment, or of the whole pipeline, for code that runs in the driver, such as the
        function of `foreachBatch`: a slot, exclusive, as the local tracker of the driver's host has heard
        it last. That is started on first use, and is the host's one subscription; in tasks,
        `acks.min_time` asks the same. Raises HandOverError, also for an unknown segment."""
        return route.relayed(self._properties("driver")).min_time(segment)

    def stop(self) -> None:
        """Stop all queries that were started here."""
        with self._changed:
            queries = [q for q in self._admitted.values() if isinstance(q, TrackedQuery)]
        for query in queries:
            query.stop()

    def query(self, query_id: str) -> TrackedQuery | None:
        """The query of that id, if it was started here."""
        with self._changed:
            found = self._admitted.get(query_id)
        return found if isinstance(found, TrackedQuery) else None

    # --- inside -----------------------------------------------------------------------------------

    def _place(self, topic: str) -> TopicPlace:
        """Where it is kept what is known of a topic."""
        if self._topics is None:
            raise TrackingError(
                f"topic {topic!r} is to be tracked, and it is not known where its labels are noted: give "
                f"the directory, Tracked(..., topics=DIRECTORY), the same for all who label, write or read it"
            )
        return TopicPlace(self._topics, self.pipeline, topic, self._stores)

    def _sink(
        self,
        planned: PlannedQuery,
        starting: StartingQuery,
        routes: Routes,
        given: TrackingOptions,
        to_table: str | None,
    ) -> Sink:
        """Where a query writes."""
        plan = SinkPlan(
            starting.node_id, starting.id, planned, routes, starting.checkpoint, self._stores,
            self._place, given.emits, to_table,
        )  # fmt: skip
        if given.noted is not None:
            return NotedSink(plan, given.noted)
        if planned.each_batch is not None:
            return EachBatchSink(plan, self._all_writers, acknowledge=self._tasks_acknowledge)
        return format_named(planned.sink).sink(plan)

    def _all_writers(self) -> list[BatchWriter]:
        with self._changed:
            return list(self._writers.values())

    def _may_create(
        self, planned: PlannedQuery, routes: Routes, creates: Sequence[str]
    ) -> list[str]:
        """As `may_create`."""
        if planned.each_batch is None:
            return list(creates)
        named = [writer.creates for writer in self._all_writers()]
        return may_create(creates, named, routes.read_segments(), routes.spec)

    def _front(
        self,
        emits: str | EventTime | None,
        creates: Sequence[str],
        routes: Routes,
        mode: str,
        writer: DataStreamWriter,
    ) -> EmittingFront | None:
        """The front that a query is to be of what it emits. Raises as `emitting_front`."""
        if emits is None:
            return None
        by_rows = {routes.spec.segments[number] for number in routes.rows}
        operators = None if self._is_remote else jvm.timed_operators(writer)
        return emitting_front(emits, creates, routes.spec, by_rows, mode, operators)

    def _publishes(self, sink: Sink, may_publish_nothing: bool) -> tuple[int, ...]:
        """The segments in which each batch with input leaves something, be it a note of nothing; a function of
        `foreachBatch` is held to it from here on."""
        planned = sink.plan.planned
        segments = sink.plan.routes.creates if sink.leaves and not may_publish_nothing else ()
        if planned.each_batch is not None and segments:
            check_each_batch(planned.each_batch, self._check_published)
        return segments

    def _not_started(
        self, query: StreamingQuery, node_id: str, _: object, error: object, *__: object
    ) -> None:
        self._admit(query.id, TrackingError(f"query {node_id!r} was not started: {error}"))
        query.stop()

    def _check_published(self, query_id: str, batch: int) -> None:
        self._admitted_query(query_id).check_published(batch)

    def _ticks(
        self,
        query: StreamingQuery,
        starting: StartingQuery,
        admin: Admin,
        sink: Sink,
        operators: Sequence[str],
        plan: StatePlan | None,
        held: Sequence[HeldSlot],
        **more: Any,
    ) -> QueryTicks:
        """Of a query that was started. plan: by which its state is held; held: what is; more: as `QueryTicks`
        takes it."""
        planned, routes = sink.plan.planned, sink.plan.routes
        running = self._running(query, planned, starting)
        checkpoint, state = running.checkpoint, None
        if plan is not None:
            before = starting.planned_before
            asked = None if self._is_remote else RunningQuery(self.spark, query, checkpoint.root, before)  # fmt: skip
            backlog = partial(Backlog, self.spark, planned.event_times, routes.spec.slack_ns)
            state = StateHolds.of(
                plan, checkpoint, starting.node.joined, held, running=asked,
                backlog=backlog if planned.event_times else None,
            )  # fmt: skip
        return QueryTicks(
            starting.node, admin, routes, checkpoint, sink.outputs(running),
            evaluations=self._evaluations(query, checkpoint, operators), state=state, **more,
        )  # fmt: skip

    def _evaluations(
        self, query: StreamingQuery, checkpoint: CheckpointLog, operators: Sequence[str]
    ) -> Evaluations | None:
        if not self._tasks_acknowledge:
            return None
        runs = _record_run(checkpoint, str(query.runId))
        return Evaluations(runs, None, StageTasks(self.spark), tuple(operators))

    def _running(
        self, query: StreamingQuery, planned: PlannedQuery, starting: StartingQuery
    ) -> RunningSink:
        """The sink of a query that was started, with its checkpoint."""
        if starting.checkpoint is not None:
            check_started(query, starting.id, starting.checkpoint.root)
        if self._is_remote:
            assert starting.checkpoint is not None, "check_start() lets no other in"
            text = connect.sink_description(planned)
            return RunningSink(self.spark, text, starting.checkpoint)
        log = CheckpointLog(jvm.checkpoint_root(query), self._stores)
        java = jvm.sink(query)
        return RunningSink(self.spark, str(java.toString()), log, java)

    def _max_batches_behind(self) -> int:
        retained = int(self.spark.conf.get("spark.sql.streaming.minBatchesToRetain", "100") or 100)
        return max(1, retained - 10)

    @contextmanager
    def _task_settings(self, node_id: str) -> Iterator[None]:
        """Local properties that tasks of a query started within inherit."""
        if not self._tasks_acknowledge:
            yield
            return
        context = self.spark.sparkContext
        settings = self._properties(node_id)
        before = {name: context.getLocalProperty(name) for name in settings}
        for name, value in settings.items():
            context.setLocalProperty(name, value)
        try:
            yield
        finally:
            for name, earlier in before.items():
                context.setLocalProperty(name, earlier)

    def _properties(self, node_id: str) -> dict[str, str]:
        target = self.target if isinstance(self.target, str) else ",".join(self.target)
        properties = {
            "lowmark.target": target,
            "lowmark.pipeline": self.pipeline,
            "lowmark.node_id": node_id,
        }
        if isinstance(self.target, SecureTarget):
            own = self.target.credentials
            paths = (own.ca, own.cert, own.key, own.token_file)
            named = zip(CREDENTIALS, paths, strict=True)
            properties |= {f"lowmark.{name}": os.path.abspath(path) for name, path in named if path}
        return properties

    def _admit(self, query_id: str, outcome: TrackedQuery | TrackingError) -> None:
        with self._changed:
            self._admitted[str(query_id)] = outcome
            self._changed.notify_all()

    def _admitted_query(self, query_id: str) -> TrackedQuery:
        """The query of that id, once `start` has checked its checkpoint."""
        with self._changed:
            self._changed.wait_for(lambda: query_id in self._admitted, _ADMISSION_TIMEOUT_S)
            outcome = self._admitted.get(query_id)
        if isinstance(outcome, TrackedQuery):
            return outcome
        raise outcome or TrackingError(
            f"query {query_id} uses tracked.writer(...) but was not started by tracked.start(...)"
        )


_bundle_directory: tempfile.TemporaryDirectory[str] | None = None


def _bundle() -> str:
    """The zip of the workers' side, made once in a driver and served to executors while it lives."""
    global _bundle_directory
    if _bundle_directory is None:
        _bundle_directory = tempfile.TemporaryDirectory(prefix="lowmark-")
        unnamed = bundle.build_zip(os.path.join(_bundle_directory.name, "bundle.zip"))
        # Spark refuses other contents under a name that it knows: the name tells the contents.
        digest = hashlib.sha256(Path(unnamed).read_bytes()).hexdigest()[:16]
        os.rename(unnamed, os.path.join(_bundle_directory.name, f"lowmark-{digest}.zip"))
    return os.path.join(_bundle_directory.name, os.listdir(_bundle_directory.name)[0])


def _record_run(checkpoint: CheckpointLog, run: str) -> list[str]:
    """Add a run to the list of a query's runs, beside Spark's logs; returns all, oldest first. Which
    run evaluated a batch last cannot be told from anything else once a driver is gone."""
    path = f"{checkpoint.root}/_lowmark/runs"
    runs = (checkpoint.files.read_whole(path, _MAX_RUNS_BYTES) or b"").decode().split()
    runs = [*runs[-_KEPT_RUNS:], run]
    checkpoint.files.create(path, "\n".join(runs).encode())
    return runs
