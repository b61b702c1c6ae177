"""Writes the DataFrame of each batch to a Kafka topic from within `foreachBatch`, and says which batch a
record is of.

The batch's slots are known before it writes, so each record carries query, batch and slots as headers.
When the write has returned, and before Spark commits the batch, the topic's ends are asked and the batch is
covered by its manifest (`kafka_sink`): the next batch has not begun then. A batch that has a manifest has
been written whole, and is not written again.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from local_tracker.spark.formats.brokers import JvmTopic
from local_tracker.spark.formats.kafka_sink import TopicSink, topic_output
from local_tracker.spark.formats.outputs import Output
from local_tracker.spark.formats.sinks import AtRest
from local_tracker.spark.query.logs import CheckpointLog
from local_tracker.spark.query.plans import Routes
from local_tracker.spark.writers.each_batch import BatchWriter, Calls, Writing
from tracker.errors import TrackingError

HEADER = "lowmark."
"""Begins the headers of a record: `lowmark.query`, `lowmark.batch`, `lowmark.slot.<segment>`."""

_HEADERS = "headers"


class TopicWriter(BatchWriter):
    """Writes the DataFrame of each batch, with columns as Kafka's sink takes them (`value`, and `key`,
    `headers`, `partition` if wanted), to one topic."""

    claims = True

    def __init__(self, writing: Writing) -> None:
        super().__init__(writing)
        topic = self.topic = writing.out
        if writing.partition_by:
            raise TrackingError(
                f"a writer to topic {topic!r} has no partition_by: records have a column `partition`, or `key`"
            )
        given = {name.lower(): value for name, value in writing.options.items()}
        if given.get("kafka.acks", "all") not in ("all", "-1"):
            raise TrackingError(
                f"the writer for topic {topic!r} needs kafka.acks=all, not {given['kafka.acks']!r}: records "
                f"that a batch has written may be lost else"
            )
        self.place = f"topic {topic!r}"
        self._topic_place = writing.place_of(topic)
        self._lock = threading.RLock()
        self._sinks: dict[str, TopicSink] = {}  # that have been claimed, by query
        self._others: set[str] = set()  # queries that have not claimed it, and another one has
        self._calls = Calls(self.place)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Writes a batch's DataFrame, unless it has been written whole before. Raises TrackingError out of
        turn, StateError where the topic is another query's, and as the query does that waits for slots."""
        query_id, run = self._calls.begin(frame, batch)
        query = self._writing.admitted_query(query_id)
        sink = self._claimed(query_id, query.routes, query.checkpoint)
        if sink.covered(batch) is not None:
            return
        named = sink.named(query.slots_to_write(batch, sink.segments.values()))
        if lacking := sorted(set(sink.segments) - set(named)):
            raise TrackingError(
                f"batch {batch} writes to topic {self.topic!r} for segment {lacking[0]!r}, but no edge leads "
                f"there from the segments that it read; register one"
            )
        stamped = _stamped(frame, query_id, batch, named)
        stamped.write.format("kafka").options(**self._writing.options).option(
            "topic", self.topic
        ).save()
        query.check_acks(batch, run)
        sink.cover(batch, sink.look(), named)

    def resumed(self, query_id: str, routes: Routes, checkpoint: CheckpointLog) -> TopicSink | None:
        """The topic as the query has claimed it, in this run or an earlier one; None if it has not."""
        with self._lock:
            if query_id in self._sinks or query_id in self._others:
                return self._sinks.get(query_id)
            sink = self._make(query_id, routes, checkpoint)
            is_ours = sink.resume()
            if is_ours:
                self._sinks[query_id] = sink
            elif is_ours is False:
                self._others.add(query_id)
            return self._sinks.get(query_id)

    def claimed(self, query_id: str) -> AtRest | None:
        """The same, where that is known already."""
        with self._lock:
            return self._sinks.get(query_id)

    def output(self, query_id: str, routes: Routes, checkpoint: CheckpointLog) -> Output | None:
        numbers = self.segments(routes)
        claimed = self.resumed(query_id, routes, checkpoint) if numbers else None
        return None if claimed is None else topic_output(claimed, numbers)

    def _claimed(self, query_id: str, routes: Routes, checkpoint: CheckpointLog) -> TopicSink:
        """The topic, claimed for the query. Raises as `TopicSink.begin`."""
        resumed = self.resumed(query_id, routes, checkpoint)
        if resumed is not None:
            return resumed
        with self._lock:
            sink = self._make(query_id, routes, checkpoint)
            try:
                sink.begin()
            except BaseException:
                sink.close()
                raise
            self._sinks[query_id] = sink
            return sink

    def _make(self, query_id: str, routes: Routes, checkpoint: CheckpointLog) -> TopicSink:
        segments = {routes.spec.segments[number]: number for number in self.segments(routes)}
        topic = JvmTopic(self._writing.session, self.topic, self._writing.options)
        sink = TopicSink(self._topic_place, topic, segments, query_id, topic.close)
        close = sink.close

        def ended() -> None:
            with self._lock:
                self._sinks.pop(query_id, None)
            close()

        sink.close = ended
        sink.follow(checkpoint)
        return sink


def _stamped(frame: DataFrame, query_id: str, batch: int, slots: Mapping[str, int]) -> DataFrame:
    """The frame with headers, behind those that it has."""
    stamps = {"query": query_id, "batch": str(batch)}
    stamps |= {f"slot.{segment}": str(slot) for segment, slot in slots.items()}
    made: Any = f.array(
        *(
            f.struct(f.lit(HEADER + name).alias("key"), f.lit(value.encode()).alias("value"))
            for name, value in stamps.items()
        )
    )
    if _HEADERS in frame.columns:
        made = f.concat(
            f.coalesce(f.col(_HEADERS), f.array().cast(frame.schema[_HEADERS].dataType)), made
        )
    return frame.withColumn(_HEADERS, made)
