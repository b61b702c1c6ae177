"""What tracking adds to a query, measured where it adds it.

Two runs of one query differ by some 7 % by themselves, which is more than tracking costs: the difference between a tracked and an
untracked run says little. So both are watched. Tracking keeps whoever started the query waiting before Spark begins, and when Spark
has done all; and while Spark is at work, the driver's process and the threads of the JVM that serve it use processors. What they use is
counted as if Spark wanted all cores all the time: a query that is done in so many seconds of all of them takes that much longer, by a
share for each core. Where a core is free, it takes no longer at all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from local_tracker.spark.session.tracked_query import TrackedQuery

CORES = os.cpu_count() or 1
_SERVES = "Thread-"
"""How the names of the JVM's threads begin that carry out what Python asks."""


@dataclass(frozen=True)
class Watched:
    """One run. seconds: all of it; waited_s: of these outside of Spark's own calls; used_s: of processors, by the driver's process and
    the JVM's threads that serve it, while Spark was at work."""

    seconds: float
    waited_s: float
    used_s: float
    query: StreamingQuery | TrackedQuery

    def added_s(self, untracked: Watched) -> float:
        """What it has that one untracked has not."""
        waited_s = self.waited_s - untracked.waited_s
        return waited_s + (self.used_s - untracked.used_s) / CORES


def watched(
    spark: SparkSession,
    writer: DataStreamWriter,
    start: Callable[[DataStreamWriter], StreamingQuery | TrackedQuery],
) -> Watched:
    """Runs a query until it has done all, and the tracker has it, and stops it. start: starts the query of the writer, tracked or not."""
    served, spans = _served(spark), _Spans()
    plain = writer.start
    setattr(writer, "start", lambda *a, **b: spans.of(lambda: plain(*a, **b)))  # noqa: B010
    began = time.perf_counter()
    query = start(writer)
    tracked = query if isinstance(query, TrackedQuery) else None
    own = query if tracked is None else tracked.query
    used = time.process_time()
    spans.of(own.processAllAvailable)
    used = time.process_time() - used
    if tracked is not None:
        tracked.wait_durable()
    paused = time.perf_counter()
    used += _served_s(spark, served)
    paused = time.perf_counter() - paused
    spans.of(own.stop)
    if tracked is not None:
        tracked.stop()
        assert tracked.tracking_failure is None
    seconds = time.perf_counter() - began - paused
    return Watched(seconds, seconds - spans.seconds, used, query)


class _Spans:
    """Time that Spark's own calls take."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def of(self, call: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        try:
            return call()
        finally:
            self.seconds += time.perf_counter() - began


def _served(spark: SparkSession) -> dict[int, float]:
    """Seconds of processors of each of the JVM's threads that serve Python, by its number."""
    threads = spark._jvm.java.lang.management.ManagementFactory.getThreadMXBean()
    found = {}
    for info in threads.getThreadInfo(threads.getAllThreadIds()):
        if info is not None and str(info.getThreadName()).startswith(_SERVES):
            found[int(info.getThreadId())] = (
                max(0, threads.getThreadCpuTime(info.getThreadId())) / 1e9
            )
    return found


def _served_s(spark: SparkSession, before: dict[int, float]) -> float:
    """What threads have used that were not there before: whoever asks this asks by one that was."""
    return sum(used for thread, used in _served(spark).items() if thread not in before)
