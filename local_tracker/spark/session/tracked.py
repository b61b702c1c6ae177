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
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, overload

import pyspark
from pyspark.sql import DataFrameWriter, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from local_tracker.spark import jvm
from local_tracker.spark.formats.brokers import JvmTopic
from local_tracker.spark.formats.hadoop_files import session_stores
from local_tracker.spark.formats.kafka import TopicReads, topic_reads
from local_tracker.spark.formats.kafka_sink import TopicSink
from local_tracker.spark.formats.outputs import (
    Output,
    noted_output,
    published_output,
    sink_output,
    table_output,
    topic_output,
)
from local_tracker.spark.formats.table_names import TableNames
from local_tracker.spark.formats.tables import (
    TABLE_FORMATS,
    TableSource,
    table_writer,
)
from local_tracker.spark.jvm import PlannedQuery, StageTasks, sources_with_one_root
from local_tracker.spark.query.compose import Evaluations
from local_tracker.spark.query.emits import EmittingFront, EventTime, emitting_front
from local_tracker.spark.query.logs import CheckpointLog, SinkLog
from local_tracker.spark.query.plans import Routes, Source
from local_tracker.spark.query.starting import (
    KAFKA,
    StartingQuery,
    check_admission,
    check_each_batch,
    check_planned,
    topic_sink,
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
from local_tracker.spark.versions import check_version
from local_tracker.spark.writers.batch_writer import BatchWriter
from local_tracker.spark.writers.table_writer import TableBatchWriter, WrittenTable
from local_tracker.spark.writers.topic_writer import TopicWriter
from local_tracker.worker import bundle, route
from local_tracker.worker.settings import CREDENTIALS
from tracker.client import Admin, SecureTarget
from tracker.client.topics import TopicPlace
from tracker.core.model import HeldSlot
from tracker.errors import TrackingError

__all__ = ["BatchWriter", "Tracked", "TrackedQuery"]

_ADMISSION_TIMEOUT_S = 60.0
_PLANNING_TIMEOUT_S = 60.0
_PLANNING_POLL_S = 0.02
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
            connect.check_session(pyspark.__version__)
        self.spark, self.target, self.pipeline = spark, target, pipeline
        self._topics, self._stores = topics, session_stores(spark)
        self._tasks_acknowledge = False
        self._writers: dict[str, BatchWriter] = {}
        self._topic_writers: dict[str, TopicWriter] = {}
        self._table_writers: dict[str, TableBatchWriter] = {}  # by the table's location
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

    @overload
    def writer(  # type: ignore[overload-overlap]  # that word is another kind of sink
        self,
        out: str,
        fmt: Literal["kafka"],
        *,
        creates: Sequence[str] | None = None,
        partition_by: Sequence[str] = (),
        **options: str,
    ) -> TopicWriter: ...
    @overload
    def writer(  # type: ignore[overload-overlap]  # as are these
        self,
        out: str,
        fmt: Literal["delta", "iceberg"],
        *,
        creates: Sequence[str] | None = None,
        partition_by: Sequence[str] = (),
        **options: str,
    ) -> TableBatchWriter: ...
    @overload
    def writer(
        self,
        out: str,
        fmt: str = "parquet",
        *,
        creates: Sequence[str] | None = None,
        partition_by: Sequence[str] = (),
        **options: str,
    ) -> BatchWriter: ...
    def writer(
        self,
        out: str,
        fmt: str = "parquet",
        *,
        creates: Sequence[str] | None = None,
        partition_by: Sequence[str] = (),
        **options: str,
    ) -> BatchWriter | TopicWriter | TableBatchWriter:
        """A function for `foreachBatch`, or to be called once a batch within one, that publishes a
        batch's DataFrame as files in the directory `out`, each batch once (`published`); with `fmt`
        "kafka", to the topic `out`, with headers that name query, batch and slots (`topic_writer`); with
        "delta" or "iceberg", to the table of the name `out`, or, with a `/`, at that place (`table_writer`).
        `creates`: segments of the readers of `out`, if others than the query's. Raises TrackingError in a
        Spark Connect session."""
        if self._is_remote:
            raise connect.refuse_writer()
        if fmt.lower() == KAFKA:
            return self._topic_writer(out, creates, partition_by, options)
        if fmt.lower() in TABLE_FORMATS:
            return self._table_writer(out, fmt.lower(), creates, partition_by, options)
        writer = BatchWriter(
            self._admitted_query, out, fmt, creates, partition_by, options, self._stores
        )
        with self._changed:
            self._writers[writer.batches.directory] = writer
        return writer

    def _topic_writer(
        self,
        topic: str,
        creates: Sequence[str] | None,
        partition_by: Sequence[str],
        options: Mapping[str, str],
    ) -> TopicWriter:
        if partition_by:
            raise TrackingError(
                f"a writer to topic {topic!r} has no partition_by: records have a column `partition`, or `key`"
            )
        place = self._place(topic)

        def sink(query_id: str, segments: Mapping[str, int]) -> TopicSink:
            asked = JvmTopic(self.spark, topic, options)
            return TopicSink(place, asked, segments, query_id, asked.close)

        writer = TopicWriter(self._admitted_query, sink, topic, creates, options)
        with self._changed:
            self._topic_writers[topic] = writer
        return writer

    def _table_writer(
        self,
        out: str,
        fmt: str,
        creates: Sequence[str] | None,
        partition_by: Sequence[str],
        options: Mapping[str, str],
    ) -> TableBatchWriter:
        table = jvm.table_of(self.spark, out, fmt)
        if table is None:
            raise TrackingError(
                f"there is no {fmt} table {out!r} to write to: make it first (CREATE TABLE {out} (...) USING "
                f"{fmt}), or give the whole name, catalog.database.table"
            )
        with self._changed:
            known = self._table_writers.get(self._stores.location(table.location))
        written = WrittenTable(table, self._stores) if known is None else known.written
        writer = TableBatchWriter(
            self._admitted_query, written, out, creates, partition_by, options
        )
        with self._changed:
            self._table_writers[written.location] = writer
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
        emits, noted = given.emits, given.noted
        with ExitStack() as undoing:
            starting = self._starting(planned, node_id, given.take_over)
            undoing.callback(starting.node.close)
            undoing.callback((admin := Admin(self.target)).close)
            asked = starting.ask()
            read = self._read_topics(sources := starting.sources(asked), reads, untracked, given)
            routes = read.routes(asked.spec, creates, node_id, rows, sources, self._stores, bool(emits))  # fmt: skip
            self._check_creates(planned, routes, creates, noted, to_table)
            front = self._front(emits, creates, routes, planned.mode, writer)
            check_admission(node_id, starting, admin, asked, routes)
            held_in = self._may_create(planned, routes, creates)
            plan = chosen_plan(
                node_id, given.state, planned.state, planned.mode, held_in, emits, asked
            )
            sink = None if noted else topic_sink(planned, starting, routes, self._place, emits)
            undoing.callback(sink.close if sink else tuple)
            joined = starting.join(sink)
            emission = front.join(starting.node, joined.spec) if front else None
            publishes = self._publishes(
                planned, routes, noted or to_table, given.may_publish_nothing
            )
            held = self._begin_state(plan, planned, starting, routes, noted) if plan else []
            with self._task_settings(node_id):
                query = writer.toTable(to_table) if to_table else writer.start()
            undoing.push(partial(self._not_started, query, node_id))
            ticks = self._ticks(
                query, planned, starting, admin, routes, noted, sink, given.operators, plan, held,
                emits=emission, publishes=publishes, may_create=[routes.number(s) for s in held_in],
            )  # fmt: skip
            sinks = self._sinks(planned, starting.id, sink)
            most = given.max_batches_behind or self._max_batches_behind()
            tracked_query = TrackedQuery(
                query, node_id, starting.node, admin, ticks, joined, most, emission, sinks
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

        The job consumes all files that the DataFrame's sources list (`inputFiles()`); each may be read
        by one run of a node. job_id: whatever names the run to its scheduler; when it is run again
        after it has published, nothing is done, and the number is returned. untracked: directories of
        input that is not tracked, such as a table that is joined. The other arguments are those of
        `start`. After a crash the next run tells what the last one published. Raises
        TrackingError; unless the message says that a run has been published, nothing was.
        """
        frame, fmt = written_frame(writer, node_id)
        if fmt in TABLE_FORMATS:
            raise TrackingError(
                f"job {node_id!r} is to write a {fmt} table, and jobs publish files: start a query with "
                f"trigger(availableNow=True) instead, whose sink is the table"
            )
        job = JobNode(
            self.target, self.pipeline, node_id, out, reads=reads, creates=creates, rows=rows,
            untracked=untracked, stores=self._stores,
        )  # fmt: skip
        try:
            return job.run(frame.inputFiles(), writer.save, job_id)
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

    def _starting(self, planned: PlannedQuery, node_id: str, take_over: bool) -> StartingQuery:
        return StartingQuery(self.target, self.pipeline, node_id, planned, take_over, self._stores)

    def _read_topics(
        self,
        sources: Sequence[Source] | None,
        reads: str | Mapping[str, str],
        untracked: Sequence[str],
        options: TrackingOptions,
    ) -> TopicReads:
        given = sources or ()
        read = topic_reads(given, reads, untracked, options.ranges, self._place, self._topic_id)
        if self._is_remote:
            return read
        where = TableNames(self.spark, self._stores, given)
        reads = read.reads
        if not isinstance(reads, str):
            reads = {where.location(name): segment for name, segment in reads.items()}
        untracked = tuple(where.location(name) for name in read.untracked)
        return replace(read, reads=reads, untracked=untracked)

    def _place(self, topic: str) -> TopicPlace:
        """Where it is kept what is known of a topic."""
        if self._topics is None:
            raise TrackingError(
                f"topic {topic!r} is to be tracked, and it is not known where its labels are noted: give "
                f"the directory, Tracked(..., topics=DIRECTORY), the same for all who label, write or read it"
            )
        return TopicPlace(self._topics, self.pipeline, topic, self._stores)

    def _topic_id(self, topic: str, options: Mapping[str, str]) -> str:
        with closing(JvmTopic(self.spark, topic, options)) as asked:
            return asked.ends().topic_id

    def _check_creates(
        self,
        planned: PlannedQuery,
        routes: Routes,
        creates: Sequence[str],
        noted: str | None,
        to_table: str | None,
    ) -> None:
        """Raises TrackingError where it cannot be known what a query creates."""
        if not creates or noted is not None or planned.sink.lower() == KAFKA:
            return
        if planned.sink in TABLE_FORMATS and (by_rows := {*routes.creates} & {*routes.rows}):
            raise TrackingError(
                f"the query is to create by rows in {routes.spec.segments[min(by_rows)]!r}, and writes a "
                f"table: tables are tracked by units alone; leave the segment out of rows"
            )
        if planned.sink == "iceberg" and planned.mode == "Complete":
            raise TrackingError(
                f"the query is to create in {list(creates)}, and replaces an Iceberg table with each batch "
                f"(outputMode complete): Iceberg's source does not read what replaces, so nobody could consume "
                f"it; use append, or start the query with creates=[]: min time of the segment that it reads "
                f"says up to when the table has all"
            )
        if planned.each_batch is None:
            if planned.path is None and to_table is None:
                raise _unreadable(planned.sink)
            return  # the sink itself is looked at once there is one
        with self._changed:
            by: list[BatchWriter | TopicWriter | TableBatchWriter] = [*self._writers.values()]
            by += [*self._topic_writers.values(), *self._table_writers.values()]
        lacking = [c for c in creates if not any(w.creates is None or c in w.creates for w in by)]
        if lacking:
            raise TrackingError(
                f"the query is to create in {lacking}, and its function of foreachBatch has nothing to "
                f"publish by: make a tracked.writer(...) for it before the query is started, and call it "
                f"in every batch; or start the query with creates=[]"
            )

    def _may_create(
        self, planned: PlannedQuery, routes: Routes, creates: Sequence[str]
    ) -> list[str]:
        """As `may_create`."""
        if planned.each_batch is None:
            return list(creates)
        with self._changed:
            writers = (self._writers, self._topic_writers, self._table_writers)
            named = [writer.creates for each in writers for writer in each.values()]
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

    def _publishes(
        self, planned: PlannedQuery, routes: Routes, recorded: str | None, may_publish_nothing: bool
    ) -> tuple[int, ...]:
        """The segments in which each batch with input leaves something, be it a note of nothing; a function of
        `foreachBatch` is held to it from here on. recorded: where that is, if neither there nor in the sink."""
        leaves = planned.each_batch or recorded or planned.sink in TABLE_FORMATS
        segments = routes.creates if leaves and not may_publish_nothing else ()
        if planned.each_batch is not None and segments:
            check_each_batch(planned.each_batch, self._check_published)
        return segments

    def _begin_state(
        self,
        plan: StatePlan,
        planned: PlannedQuery,
        starting: StartingQuery,
        routes: Routes,
        noted: str | None,
    ) -> list[HeldSlot]:
        """As `begin_state`. Of a table it is not asked whether it has a batch: there it is taken to."""
        checkpoint = starting.checkpoint
        if checkpoint is None:  # of which nothing is found again
            return []

        def is_there(batch: int) -> bool:
            if planned.sink.lower() == KAFKA:
                return False  # which writes each batch anew
            if noted is not None:
                return noted_output(noted, routes.creates, self._stores).has(batch)
            if planned.each_batch is not None:
                outputs = self._published_outputs(starting.id, routes, checkpoint)
                return any(output.has(batch) for output in outputs)
            if planned.sink in TABLE_FORMATS or planned.path is None:
                return True
            return SinkLog(planned.path, self._stores).has(batch)

        return begin_state(plan, checkpoint, starting.node, is_there)

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
        planned: PlannedQuery,
        starting: StartingQuery,
        admin: Admin,
        routes: Routes,
        noted: str | None,
        sink: TopicSink | None,
        operators: Sequence[str],
        plan: StatePlan | None,
        held: Sequence[HeldSlot],
        **more: Any,
    ) -> QueryTicks:
        """Of a query that was started. plan: by which its state is held; held: what is; more: as `QueryTicks`
        takes it."""
        checkpoint, description, twins = self._running(query, planned, starting)
        state = None
        if plan is not None:
            before = starting.planned_before
            running = None if self._is_remote else RunningQuery(self.spark, query, checkpoint.root, before)  # fmt: skip
            backlog = partial(Backlog, self.spark, planned.event_times, routes.spec.slack_ns)
            state = StateHolds.of(
                plan, checkpoint, starting.node.joined, held, running=running,
                backlog=backlog if planned.event_times else None,
            )  # fmt: skip
        outputs = self._outputs(checkpoint, description, routes, noted, sink)
        evaluations = self._evaluations(query, checkpoint, operators)
        return QueryTicks(
            starting.node, admin, routes, checkpoint, outputs,
            evaluations=evaluations, twins=twins, sink=sink, state=state, **more,
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
    ) -> tuple[CheckpointLog, str | TableSource, Callable[[], Iterable[tuple[str, ...]]]]:
        """The checkpoint of a query that was started, its sink as it calls itself, or the table that it is,
        and which of its sources list one directory."""
        if self._is_remote:
            assert starting.checkpoint is not None, "check_start() lets no other in"
            connect.check_started(query, starting.id, starting.checkpoint.root)
            return starting.checkpoint, connect.sink_description(planned), tuple
        log = CheckpointLog(jvm.checkpoint_root(query), self._stores)
        sink = jvm.sink_table(query, self.spark) or jvm.sink_description(query)
        return log, sink, _Twins(query)

    def _outputs(
        self,
        checkpoint: CheckpointLog,
        sink: str | TableSource,
        routes: Routes,
        noted: str | None,
        topic: TopicSink | None,
    ) -> Callable[[], Iterable[Output]]:
        """Where the query's batches leave files, or records."""
        query_id = checkpoint.query_id
        outputs: tuple[Output, ...] = ()
        if noted is not None:
            outputs = (noted_output(noted, routes.creates, self._stores),)
        elif isinstance(sink, TableSource):
            table = table_writer(sink, self._stores, query_id)
            outputs = (table_output(table, routes.creates),) if routes.creates else ()
        elif sink.startswith("ForeachBatch"):
            with self._changed:
                for writer in self._table_writers.values():
                    writer.written.started(query_id)
            return partial(self._published_outputs, query_id, routes, checkpoint)
        elif routes.creates and topic is None:
            if not sink.startswith("FileSink["):
                raise _unreadable(sink)
            log = SinkLog(sink.removeprefix("FileSink[").removesuffix("]"), self._stores)
            outputs = (sink_output(log, routes.creates),)
        return lambda: outputs

    def _published_outputs(
        self, query_id: str, routes: Routes, checkpoint: CheckpointLog
    ) -> Iterator[Output]:
        with self._changed:
            writers, to_topics = [*self._writers.values()], [*self._topic_writers.values()]
            to_tables = [*self._table_writers.values()]
        for to_table in to_tables:
            if (output := to_table.output(query_id, routes, checkpoint)) is not None:
                yield output
        for to_topic in to_topics:
            numbers = to_topic.segments(routes)
            claimed = to_topic.resumed(query_id, routes, checkpoint) if numbers else None
            if claimed is not None:
                yield topic_output(claimed, numbers)
        for writer in writers:
            own = writer.creates
            segments = routes.creates if own is None else tuple(routes.number(s) for s in own)
            if segments or self._tasks_acknowledge:
                yield published_output(writer.batches, query_id, segments)

    def _sinks(
        self, planned: PlannedQuery, query_id: str, sink: TopicSink | None
    ) -> Callable[[], list[TopicSink]] | None:
        """The topics that a query has claimed by now; None if it will claim none."""
        if sink is not None:
            return lambda: [sink]
        with self._changed:
            writers = list(self._topic_writers.values())
        if planned.each_batch is None or not writers:
            return None
        return lambda: [s for w in writers if (s := w.claimed(query_id)) is not None]

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


def _unreadable(sink: str) -> TrackingError:
    return TrackingError(
        f"what the sink {sink} has committed cannot be read: use a file sink, a Delta or Iceberg table, Kafka, "
        f"foreachBatch with "
        f"tracked.writer(...), or noted=DIRECTORY with a sink that notes what it commits; or start the "
        f"query with creates=[]"
    )


class _Twins:
    """Which sources of a query list one directory; known once Spark has planned the query."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._known: list[tuple[str, ...]] | None = None

    def __call__(self) -> list[tuple[str, ...]]:
        deadline = time.monotonic() + _PLANNING_TIMEOUT_S
        while self._known is None:
            self._known = sources_with_one_root(self._query)
            if self._known is None:
                if not self._query.isActive or time.monotonic() > deadline:
                    return []
                time.sleep(_PLANNING_POLL_S)
        return self._known


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
