"""The pipeline: a file front, one tracked query, and a subscriber that knows when it is done.

With `partitions`, the query's state is given so many at the moment of global time that half of the text
has come in, while the other half keeps coming.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from examples.sessions import make_session
from examples.word_count.text import words
from lowmark import (
    FOREVER,
    FileFront,
    PipelineSpec,
    Subscriber,
    Tracked,
    TrackedQuery,
    embedded,
    slot_of,
)
from lowmark.nodes import DEFAULT_SLACK_NS
from lowmark.spark import ROCKSDB, Rescaled, rescale_query

LINES_PER_FILE = 500
FILES_PER_BATCH = 4
TIMEOUT_S = 120.0

PIPELINE = "words"


@dataclass(frozen=True)
class Counts:
    """What the pipeline came to. `open_items`: items that were still in flight at the end. `rescaled`:
    how the state got another number of partitions, if it was to."""

    words: Counter[str]
    files: int
    batches: int
    open_items: int
    rescaled: Rescaled | None = None


def spec() -> PipelineSpec:
    """One segment, fed by one front; it begins now."""
    start_slot = slot_of(time.time_ns(), DEFAULT_SLACK_NS)
    return PipelineSpec(PIPELINE, ("count",), fronts=("reference",), start_slot=start_slot)


def start_counting(
    spark: SparkSession, tracked: Tracked, directory: Path, counts: Path, **trigger: Any
) -> TrackedQuery:
    """The query, as anyone would write it; `Tracked` starts it. Its checkpoint lies beside the counts.
    trigger: as for `DataStreamWriter.trigger`."""
    text = spark.readStream.schema("line STRING").option("maxFilesPerTrigger", FILES_PER_BATCH)
    split = F.udf(words, "array<string>")
    each = text.json(str(directory)).select(F.explode(split("line")).alias("word"))
    write = tracked.writer(str(counts))

    def publish(frame: DataFrame, batch: int) -> None:
        write(frame.withColumn("batch", F.lit(batch)).coalesce(1), batch)

    writer = (
        each.groupBy("word")
        .count()
        .writeStream.queryName("count")
        .outputMode("update")
        .foreachBatch(publish)
        .option("checkpointLocation", str(checkpoint_of(counts)))
    )
    if trigger:
        writer = writer.trigger(**trigger)
    return tracked.start(writer, node_id="count", reads="count")


def checkpoint_of(counts: Path) -> Path:
    return counts.parent / "checkpoint"


def make_rescalable(spark: SparkSession) -> None:
    """Spark can repartition state that RocksDB keeps. To be set before a query's first batch."""
    provider = f"org.apache.spark.sql.execution.streaming.state.{ROCKSDB}"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)


def publish(front: FileFront, text: Sequence[str]) -> list[int]:
    """Publishes lines in files of `LINES_PER_FILE`; returns the slot of each file."""
    slots = []
    for first in range(0, len(text), LINES_PER_FILE):
        file = front.write([{"line": line} for line in text[first : first + LINES_PER_FILE]])
        assert file is not None
        slots.append(file.slot)
    return slots


def publish_and_rescale(
    spark: SparkSession, tracked: Tracked, query: TrackedQuery, front: FileFront,
    subscriber: Subscriber, text: Sequence[str], counts: Path, partitions: int,
) -> tuple[TrackedQuery, Rescaled, int]:  # fmt: skip
    """Half of the text comes in; at the moment of its last file the state gets its partitions; the rest
    comes in meanwhile. Returns the query as started again, what was done, and the number of files."""

    def start(**trigger: Any) -> TrackedQuery:
        return start_counting(spark, tracked, front.directory, counts, **trigger)

    half = len(text) // (2 * LINES_PER_FILE) * LINES_PER_FILE
    slots = publish(front, text[:half])

    def wait_for(slot: int) -> None:
        if not subscriber.wait_until(slot + 1, "count", TIMEOUT_S):
            raise TimeoutError(f"slot {slot} was not complete after {TIMEOUT_S:g} s")

    def reached() -> None:
        wait_for(slots[-1])
        rest.append(pool.submit(publish, front, text[half:]))

    rest: list[Any] = []
    wait_for(slots[0])  # a query that has not run has no state
    with ThreadPoolExecutor(1) as pool:
        query, done = rescale_query(
            spark, query, start, checkpoint_of(counts), partitions, reached=reached
        )
        return query, done, len(slots) + len(rest[0].result(TIMEOUT_S))


def newest_counts(directory: Path) -> Counter[str]:
    """Each word's count in the newest batch that has it."""
    newest: dict[str, tuple[int, int]] = {}
    for path in directory.glob("*.parquet"):
        for row in pq.read_table(path).to_pylist():
            newest[row["word"]] = max(
                newest.get(row["word"], (-1, 0)), (row["batch"], row["count"])
            )
    return Counter({word: count for word, (_, count) in newest.items()})


def count_words(text: list[str], root: Path, partitions: int | None = None) -> Counts:
    """Counts the words of some lines, with all files below `root`. Raises TimeoutError if min time
    does not get to the end."""
    source, counts = root / "lines", root / "counts"
    source.mkdir(parents=True)
    rescaled: Rescaled | None = None
    # The JVM is started before any thread of gRPC's runs: a fork would take those with it.
    spark = make_session("word count", root)
    if partitions is not None:
        make_rescalable(spark)
    with embedded() as tracker:
        tracker.register(spec())
        subscriber = tracker.subscriber(PIPELINE)
        tracked = Tracked(spark, tracker.target, PIPELINE)
        try:
            query = start_counting(spark, tracked, source, counts)
            with FileFront(
                tracker.target, PIPELINE, "reference", "count", source, format="json"
            ) as front:
                if partitions is None:
                    files = len(publish(front, text))
                else:
                    query, rescaled, files = publish_and_rescale(
                        spark, tracked, query, front, subscriber, text, counts, partitions
                    )
                front.leave()
            if not subscriber.wait_until(FOREVER, timeout_s=TIMEOUT_S):
                raise TimeoutError(
                    f"min time is {subscriber.min_time()} after {TIMEOUT_S:g} s; the query says "
                    f"{query.exception()}"
                )
            counted = newest_counts(counts)
            batches = query.last_durable_batch + 1
        finally:
            tracked.stop()
            spark.stop()
        state = tracker.admin().pipeline(PIPELINE).state
        open_items = sum(s.open_items for s in state.segments)
        return Counts(counted, files, batches, open_items, rescaled)
