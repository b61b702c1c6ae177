"""The little that is asked of the driver's JVM beyond PySpark's own API."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
from pyspark.sql.utils import ForeachBatchFunction

from local_tracker.spark.formats.interface import Leaf, Source, scala_map
from local_tracker.spark.formats.registry import formats
from local_tracker.spark.scala import class_name, has_method, items, optional, private_field
from local_tracker.spark.state.backlog import EventTimes, event_times
from local_tracker.spark.state.recognise import state_plan
from local_tracker.spark.state.rules import POLICY, StatePlan
from tracker.errors import TrackingError
from tracker.files.locations import text_of

_LISTENERS_TIMEOUT_MS = 10_000
_FILES = frozenset(("inputFiles", "location"))
_LOCAL = frozenset(
    ("CTERelationRef", "CommandResult", "LocalRelation", "OneRowRelation", "Range", "UnionLoopRef")
)
"""Leaves of plans that read nothing, or what is read elsewhere in the plan."""
_TIMED = frozenset(
    ("Aggregate", "Deduplicate", "DeduplicateWithinWatermark", "Distinct", "EventTimeWatermark")
)


def hadoop_configuration(spark: SparkSession) -> Any:
    """Of the session: `spark.hadoop.*`, and what the cluster has in its files."""
    return spark._jsparkSession.sessionState().newHadoopConf()


def java_array(spark: SparkSession, class_: Any, *items: Any) -> Any:
    """For a method that takes any number of arguments."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    array = gateway.new_array(class_, len(items))
    for index, item in enumerate(items):
        array[index] = item
    return array


def checkpoint_root(query: StreamingQuery) -> str:
    """Where a query keeps its checkpoint."""
    return text_of(str(query._jsq.streamingQuery().resolvedCheckpointRoot()))


def is_running(query: StreamingQuery) -> bool:
    """Whether a query may commit a batch yet. One that is to stop is not active for Spark from that moment on, while the
    batch that is under way may still come to its end; its session has it among those that are active until it is over."""
    if query.isActive:
        return True
    known = query._jsq.sparkSession().streams().get(query.id)
    return known is not None and str(known.runId()) == query.runId


def newest_progress(query: StreamingQuery) -> tuple[int, str] | None:
    """What the query has reported last, by its batch and moment; None before its first report. Each
    batch is reported when it is over."""
    progress = query._jsq.streamingQuery().lastProgress()
    return None if progress is None else (int(progress.batchId()), str(progress.timestamp()))


def sink(query: StreamingQuery) -> Any:
    """A query's sink, which calls itself `FileSink[<directory>]`, `ForeachBatchSink`, ..."""
    return query._jsq.streamingQuery().sink()


class StageTasks:
    """How many tasks the first attempt of a stage had, by the driver's status store.

    (`statusTracker` shows only the latest attempt, which may be the re-run of a few.)
    """

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext

    def __call__(self, stage: int) -> int | None:
        """None if the store does not know the stage (any more)."""
        found = self._of_store(stage)
        if found is None:
            # What the store knows arrives on the listener bus, which may lag behind the commit. All of the bus is
            # hardly ever empty where other queries run, so it is waited for only then, and not for ever.
            try:
                self._context._jsc.sc().listenerBus().waitUntilEmpty(_LISTENERS_TIMEOUT_MS)
            except Py4JJavaError as error:
                if "TimeoutException" not in str(error.java_exception):
                    raise
            found = self._of_store(stage)
        return found

    def _of_store(self, stage: int) -> int | None:
        gateway, jvm = self._context._gateway, self._context._jvm
        assert gateway is not None and jvm is not None
        no_quantiles = gateway.new_array(jvm.double, 0)
        try:
            attempt = (
                self._context._jsc.sc()
                .statusStore()
                .stageAttempt(stage, 0, False, jvm.java.util.ArrayList(), False, no_quantiles)
            )
        except Py4JJavaError as error:
            if "NoSuchElement" in str(error.java_exception):
                return None
            raise
        return int(attempt._1().numTasks())


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """What is known of a query before it is started. sources: None where they are only known from its
    offset log. checkpoint: where it keeps one by which it can be found again, else None. sink: its format,
    with its options. trigger: its class. each_batch: PySpark's holder of the function of
    `foreachBatch`, which it calls as its `func`. mode: of output, as Spark calls it; empty where it is not
    known. state: what its state does; None where no plan is known. event_times: as its files have them."""

    session: SparkSession
    sources: tuple[Source, ...] | None
    sink: str
    path: str | None
    name: str | None
    checkpoint: str | None
    is_continuous: bool
    each_batch: ForeachBatchFunction | None
    options: Mapping[str, str] = field(default_factory=dict)
    trigger: str = ""
    mode: str = ""
    state: StatePlan | None = None
    event_times: tuple[EventTimes, ...] = ()


def planned_query(writer: DataStreamWriter) -> PlannedQuery:
    """What a writer would start, by its fields and the analysed plan; starts nothing."""
    spark, plan = writer._spark, writer._df._jdf.queryExecution().analyzed()
    options = private_field(writer._jwrite, "extraOptions")
    name = _option(options, "queryName")
    trigger = class_name(private_field(writer._jwrite, "trigger"))
    mode = str(private_field(writer._jwrite, "outputMode").toString())
    leaves = plan.collectLeaves()
    streams = [leaf for leaf in items(leaves) if leaf.isStreaming()]
    sources = tuple(_source(spark, index, leaf) for index, leaf in enumerate(streams))
    _check_once(sources, streams)
    return PlannedQuery(
        spark,
        sources,
        str(private_field(writer._jwrite, "source")),
        _option(options, "path"),
        name,
        _checkpoint_location(spark, _option(options, "checkpointLocation"), name),
        trigger == "ContinuousTrigger",
        _each_batch(spark, private_field(writer._jwrite, "foreachBatchWriter")),
        scala_map(options),
        trigger,
        mode,
        state_plan(spark, plan, mode, str(spark.conf.get(POLICY, "min"))),
        event_times(plan),
    )


def _check_once(sources: Sequence[Source], leaves: Sequence[Any]) -> None:
    """Raises TrackingError for a source of files that the plan has twice, by one and the same leaf."""
    files = [
        (source, leaf)
        for source, leaf in zip(sources, leaves, strict=True)
        if source.directory is not None and source.table is None
    ]
    for (source, one), (_, other) in itertools.combinations(files, 2):
        if one == other:
            raise TrackingError(
                f"the plan has source {source.number}, {source.what}, twice, as of a frame that is united with "
                f"itself: Spark takes both for one, and its checkpoint does not tell what either has read; make the "
                f"second frame by a spark.readStream of its own, or the rows by one that is exploded"
            )


def written_frame(writer: DataFrameWriter) -> tuple[DataFrame, str]:
    """The frame that a writer of a batch writes, and the format."""
    return writer._df, str(private_field(writer._jwrite, "source")).lower()


def leaves(plan: Any) -> list[Any]:
    """What a plan, and each subquery in it, reads."""
    return [
        leaf
        for each in (plan, *items(plan.subqueriesAll()))
        for leaf in items(each.collectLeaves())
    ]


def planned_now(frame: DataFrame) -> list[Any]:
    """What a frame would read, were it run now: what the session has cached by now is in the place of what it is of. (Each
    frame looks once, when it is first run.)"""
    return leaves(frame._jdf.alias("now").queryExecution().withCachedData())


def file_index(leaf: Any) -> Any:
    """By which the leaf of a plan finds its files; None of one that reads none."""
    kind = class_name(leaf)
    # A `HadoopFsRelation`, or, as Delta has it, a class without a name of that kind.
    if kind == "LogicalRelation":
        relation = leaf.relation()
        if all(has_method(relation, each) for each in _FILES):
            return relation.location()
    if kind == "DataSourceV2Relation" and has_method(table := leaf.table(), "fileIndex"):
        return table.fileIndex()
    return None


def job_files(frame: DataFrame, node_id: str, untracked: Sequence[str]) -> list[str]:
    """The files that a job's frame reads. Raises TrackingError for what it reads beside files and local data."""
    names: list[str] = []
    for leaf in planned_now(frame):
        index, kind = file_index(leaf), class_name(leaf)
        if kind == "InMemoryRelation":
            raise refuse_cached(node_id)
        if index is not None:
            names += map(str, index.inputFiles())
        elif kind not in _LOCAL and not (kind == "LogicalRDD" and _is_local(leaf.rdd())):
            what = _shown(leaf, kind)
            if what not in untracked:
                raise refuse_source(node_id, what)
    return names


def _shown(leaf: Any, kind: str) -> str:
    """The name of what a leaf reads, as Spark has it."""
    if kind == "LogicalRelation":
        return str(leaf.relation().toString())
    return str(leaf.name() if kind == "DataSourceV2Relation" else leaf.nodeName())


def refuse_cached(node_id: str) -> TrackingError:
    """Why a job does not read what is cached."""
    return TrackingError(
        f"job {node_id!r} reads what the session has cached, which may be of other files than those that are there now: "
        f"unpersist() the frame, or spark.catalog.uncacheTable(...), before the run"
    )


def refuse_source(node_id: str, what: str) -> TrackingError:
    """Why a job does not read what is no file."""
    return TrackingError(
        f"job {node_id!r} reads {what}, and a job consumes files: write that to files first, and read these; or put "
        f"{what!r} into untracked, if it is not tracked, so that min time passes it"
    )


def _is_local(rdd: Any) -> bool:
    """Whether all of an RDD's rows come from this program."""
    before = [each.rdd() for each in items(rdd.dependencies())]
    return all(map(_is_local, before)) if before else class_name(rdd) == "ParallelCollectionRDD"


def timed_operators(writer: DataStreamWriter) -> tuple[str, ...]:
    """The operators of the analysed plan that set a watermark or keep state, by the names of their classes; and
    `Union`, where streams that are not grouped come together in what is emitted."""
    found: list[str] = []

    def walk(node: Any, is_grouped: bool) -> None:
        if not node.isStreaming():
            return
        name, children = class_name(node), items(node.children())
        streams = sum(bool(child.isStreaming()) for child in children)
        is_told = name in _TIMED or "State" in name
        joins, unites = name == "Join" and streams > 1, name == "Union" and not is_grouped
        if is_told or joins or unites:
            found.append(name)
        for child in children:
            walk(child, is_grouped or name == "Aggregate")

    walk(writer._df._jdf.queryExecution().analyzed(), False)
    return tuple(found)


def _source(spark: SparkSession, index: int, node: Any) -> Source:
    """A source, from the leaf of the plan that reads it."""
    leaf = Leaf(spark, index, node)
    found = (each.source(leaf) for each in formats())
    return next((one for one in found if one is not None), Source(leaf.number, leaf.what))


def _checkpoint_location(spark: SparkSession, given: str | None, name: str | None) -> str | None:
    """Where Spark keeps a query's checkpoint, as it finds it itself. In the text of a path of Hadoop's a `%20` is in the
    name of the directory, and no space."""
    if given is None:
        root = spark.conf.get("spark.sql.streaming.checkpointLocation", None)
        given = f"{root}/{name}" if root and name else None
    if given is None:
        return None
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    path = jvm.org.apache.hadoop.fs.Path(given)
    files = path.getFileSystem(hadoop_configuration(spark))
    return text_of(str(files.makeQualified(path).toString()))


def _each_batch(spark: SparkSession, function: Any) -> ForeachBatchFunction | None:
    """What PySpark calls for each batch, found by the id of the proxy that the JVM knows it by."""
    if function is None:
        return None
    gateway, jvm = spark.sparkContext._gateway, spark.sparkContext._jvm
    assert gateway is not None and jvm is not None
    captured = function.getClass().getDeclaredFields()[0]
    captured.setAccessible(True)
    handler = jvm.java.lang.reflect.Proxy.getInvocationHandler(captured.get(function))
    found = gateway.gateway_property.pool[str(private_field(handler, "id"))]
    assert isinstance(found, ForeachBatchFunction), found
    return found


def _option(options: Any, name: str) -> str | None:
    found = optional(options.get(name))
    return None if found is None else str(found)
