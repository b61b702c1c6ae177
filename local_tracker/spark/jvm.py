"""The little that is asked of the driver's JVM beyond PySpark's own API."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

_LISTENERS_TIMEOUT_MS = 10_000


def checkpoint_root(query: StreamingQuery) -> str:
    """Where a query keeps its checkpoint."""
    return str(query._jsq.streamingQuery().resolvedCheckpointRoot())


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
    for place in range(count):
        by_root.setdefault(str(sources.apply(place).toString()), []).append(str(place))
    return [
        tuple(places)
        for root, places in by_root.items()
        if len(places) > 1 and root.startswith("FileStreamSource[")
    ]


class StageTasks:
    """How many tasks the first attempt of a stage had, by the driver's status store.

    (`statusTracker` shows only the latest attempt, which may be the re-run of a few.)
    """

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext

    def __call__(self, stage: int) -> int | None:
        """None if the store does not know the stage (any more)."""
        java_context = self._context._jsc.sc()
        gateway, jvm = self._context._gateway, self._context._jvm
        assert gateway is not None and jvm is not None
        # What the store knows arrives on the listener bus, which may lag behind the commit.
        java_context.listenerBus().waitUntilEmpty(_LISTENERS_TIMEOUT_MS)
        no_quantiles = gateway.new_array(jvm.double, 0)
        try:
            attempt = java_context.statusStore().stageAttempt(
                stage, 0, False, jvm.java.util.ArrayList(), False, no_quantiles
            )
        except Py4JJavaError as error:
            if "NoSuchElement" in str(error.java_exception):
                return None
            raise
        return int(attempt._1().numTasks())
