"""The pipeline: a file front, one tracked query, and a subscriber that knows when it is done."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tracker
from examples.sessions import make_session
from examples.word_count.text import words
from fronts import FileFront
from local_tracker.spark import Tracked, TrackedQuery
from tracker.core.model import PipelineSpec
from tracker.core.slots import DEFAULT_SLACK_NS, FOREVER, slot_of

LINES_PER_FILE = 500
FILES_PER_BATCH = 4
TIMEOUT_S = 120.0

PIPELINE = "words"


@dataclass(frozen=True)
class Counts:
    """What the pipeline came to. `open_items`: items that were still in flight at the end."""

    words: Counter[str]
    files: int
    batches: int
    open_items: int


def spec() -> PipelineSpec:
    """One segment, fed by one front; it begins now."""
    start_slot = slot_of(time.time_ns(), DEFAULT_SLACK_NS)
    return PipelineSpec(PIPELINE, ("count",), fronts=("reference",), start_slot=start_slot)


def start_counting(
    spark: SparkSession, tracked: Tracked, directory: Path, counts: Path
) -> TrackedQuery:
    """The query, as anyone would write it; `Tracked` starts it."""
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
        .option("checkpointLocation", str(counts.parent / "checkpoint"))
    )
    return tracked.start(writer, node_id="count", reads="count")


def newest_counts(directory: Path) -> Counter[str]:
    """Each word's count in the newest batch that has it."""
    newest: dict[str, tuple[int, int]] = {}
    for path in directory.glob("*.parquet"):
        for row in pq.read_table(path).to_pylist():
            newest[row["word"]] = max(
                newest.get(row["word"], (-1, 0)), (row["batch"], row["count"])
            )
    return Counter({word: count for word, (_, count) in newest.items()})


def count_words(text: list[str], root: Path) -> Counts:
    """Counts the words of some lines, with all files below `root`. Raises TimeoutError if min time
    does not get to the end."""
    source, counts = root / "lines", root / "counts"
    source.mkdir(parents=True)
    files = 0
    with tracker.embedded() as embedded:
        embedded.register(spec())
        subscriber = embedded.subscriber(PIPELINE)
        spark = make_session("word count", root)
        tracked = Tracked(spark, embedded.target, PIPELINE)
        try:
            query = start_counting(spark, tracked, source, counts)
            with FileFront(
                embedded.target, PIPELINE, "reference", "count", source, format="json"
            ) as front:
                for first in range(0, len(text), LINES_PER_FILE):
                    front.write([{"line": line} for line in text[first : first + LINES_PER_FILE]])
                    files += 1
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
        state = embedded.admin().pipeline(PIPELINE).state
        return Counts(counted, files, batches, sum(s.open_items for s in state.segments))
