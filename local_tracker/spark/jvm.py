"""The little that is asked of the driver's JVM beyond PySpark's own API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
from pyspark.sql.utils import ForeachBatchFunction

from local_tracker.spark.formats.tables import TableSource
from local_tracker.spark.query.plans import KafkaSource, Source
from local_tracker.spark.scala import class_name, items, iterated, optional, private_field
from local_tracker.spark.state.backlog import EventTimes, event_times
from local_tracker.spark.state.recognise import state_plan
from local_tracker.spark.state.rules import POLICY, StatePlan

_LISTENERS_TIMEOUT_MS = 10_000
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
    return str(query._jsq.streamingQuery().resolvedCheckpointRoot())


def newest_progress(query: StreamingQuery) -> tuple[int, str] | None:
    """What the query has reported last, by its batch and moment; None before its first report. Each
    batch is reported when it is over."""
    progress = query._jsq.streamingQuery().lastProgress()
    return None if progress is None else (int(progress.batchId()), str(progress.timestamp()))


def sink_description(query: StreamingQuery) -> str:
    """A query's sink as it calls itself: `FileSink[<directory>]`, `ForeachBatchSink`, ..."""
    return str(query._jsq.streamingQuery().sink().toString())


def sources_with_one_root(query: StreamingQuery) -> list[tuple[str, ...]] | None:
    """Groups of sources, by their directories under `sources/`, that list the same directory, as in
    a self-join. None while the query has not been planned yet."""
    sources = query._jsq.streamingQuery().sources()
    count = sources.size()
    if count == 0:
        return None
    by_root: dict[str, list[str]] = {}
    for index in range(count):
        by_root.setdefault(str(sources.apply(index).toString()), []).append(str(index))
    return [
        tuple(indices)
        for root, indices in by_root.items()
        if len(indices) > 1 and root.startswith("FileStreamSource[")
    ]


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


def repartition(spark: SparkSession, checkpoint: str, partitions: int) -> None:
    """Repartitions the state in a checkpoint, as Spark does it since 4.2, where it is private."""
    spark._streamingCheckpointManager.repartition(checkpoint, partitions)


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
    return PlannedQuery(
        spark,
        tuple(_source(spark, index, leaf) for index, leaf in enumerate(streams)),
        str(private_field(writer._jwrite, "source")),
        _option(options, "path"),
        name,
        _checkpoint_location(spark, _option(options, "checkpointLocation"), name),
        trigger == "ContinuousTrigger",
        _each_batch(spark, private_field(writer._jwrite, "foreachBatchWriter")),
        {str(pair._1()): str(pair._2()) for pair in iterated(options)},
        trigger,
        mode,
        state_plan(spark, plan, mode, str(spark.conf.get(POLICY, "min"))),
        event_times(plan),
    )


def written_frame(writer: DataFrameWriter) -> tuple[DataFrame, str]:
    """The frame that a writer of a batch writes, and the format."""
    return writer._df, str(private_field(writer._jwrite, "source")).lower()


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


def _source(spark: SparkSession, index: int, leaf: Any) -> Source:
    """A source, from the leaf of the plan that reads it. Spark numbers sources in the order of leaves,
    or calls them by the name that the reader has given them."""
    methods = {method.getName() for method in leaf.getClass().getMethods()}
    number, what = str(index), str(leaf.nodeName())
    if "sourceIdentifyingName" in methods:
        given = leaf.sourceIdentifyingName()
        if given.getClass().getSimpleName() == "UserProvided":
            number = str(given.name())
    if "sourceName" in methods:
        what = str(leaf.sourceName())
    if what.startswith("FileSource["):
        return Source(number, what, what.removeprefix("FileSource[").removesuffix("]"))
    if "table" in methods and _is_iceberg(leaf.table()):
        table = _iceberg_source(leaf.table(), spark)
        return Source(number, f"iceberg[{table.location}]", table.location, table=table)
    if what == "kafka" and "extraOptions" in methods:
        return Source(number, what, kafka=_kafka(leaf.extraOptions()))
    if what == "delta" and "dataSource" in methods:
        options = _scala_map(leaf.dataSource().options())
        table = TableSource("delta", options["path"], options)
        return Source(number, f"delta[{table.location}]", table.location, table=table)
    return Source(number, what)


def _kafka(options: Any) -> KafkaSource:
    """What a source of Kafka's reads, by the options of its reader, whose names have any case."""
    given = {
        str(entry.getKey()): str(entry.getValue())
        for entry in options.asCaseSensitiveMap().entrySet()
    }
    lower = {name.lower(): value for name, value in given.items()}
    topics: list[str] = []
    if "subscribe" in lower:
        topics = [name.strip() for name in lower["subscribe"].split(",")]
    elif "assign" in lower:
        topics = list(json.loads(lower["assign"]))
    return KafkaSource(tuple(t for t in topics if t), lower.get("subscribepattern"), given)


def _checkpoint_location(spark: SparkSession, given: str | None, name: str | None) -> str | None:
    """Where Spark keeps a query's checkpoint, as it finds it itself."""
    if given is None:
        root = spark.conf.get("spark.sql.streaming.checkpointLocation", None)
        given = f"{root}/{name}" if root and name else None
    if given is None:
        return None
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    path = jvm.org.apache.hadoop.fs.Path(given)
    files = path.getFileSystem(hadoop_configuration(spark))
    return str(files.makeQualified(path).toString())


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


def sink_table(query: StreamingQuery, spark: SparkSession) -> TableSource | None:
    """The table that a query's sink writes to, if its log is read."""
    sink = query._jsq.streamingQuery().sink()
    text = str(sink.toString())
    if text.startswith("DeltaSink["):
        return TableSource("delta", text.removeprefix("DeltaSink[").removesuffix("]"))
    return _iceberg_source(sink, spark) if _is_iceberg(sink) else None


def table_of(spark: SparkSession, table: str, fmt: str) -> TableSource | None:
    """A table by its name in the session's catalogs or, with a `/`, by where it is; None where there is none
    of that format. A Delta table need not be where it is said to be, yet."""
    is_path = "/" in table
    if fmt == "delta" and is_path:
        return TableSource("delta", table)
    try:
        if fmt == "delta":
            found = spark.sql(f"DESCRIBE DETAIL {table}").first()
            is_delta = found is not None and found["format"] == "delta"
            return TableSource("delta", str(found["location"])) if is_delta and found else None
        frame = spark.read.format("iceberg").load(table) if is_path else spark.table(table)
    except AnalysisException:
        return None
    leaf = frame._jdf.queryExecution().analyzed().collectLeaves().apply(0)
    methods = {method.getName() for method in leaf.getClass().getMethods()}
    is_iceberg = "table" in methods and _is_iceberg(leaf.table())
    return _iceberg_source(leaf.table(), spark) if is_iceberg else None


def _is_iceberg(table: Any) -> bool:
    return bool(table.getClass().getName().startswith("org.apache.iceberg.spark."))


def _iceberg_source(table: Any, spark: SparkSession) -> TableSource:
    """A table of Spark's from Iceberg's connector, which asks the table's catalog for its metadata."""
    jvm, known = spark.sparkContext._jvm, table.table()
    assert jvm is not None
    parser = jvm.org.apache.iceberg.TableMetadataParser

    def metadata() -> str:
        known.refresh()
        return str(parser.toJson(known.operations().current()))

    return TableSource("iceberg", str(known.location()), metadata=metadata)


def _scala_map(given: Any) -> dict[str, str]:
    return {str(entry._1()): str(entry._2()) for entry in iterated(given)}


def _option(options: Any, name: str) -> str | None:
    found = optional(options.get(name))
    return None if found is None else str(found)
