"""A tracked query whose checkpoint, input and sink are in an S3 bucket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

import tracker
from local_tracker.spark.formats.hadoop_files import SessionStores
from local_tracker.spark.query.logs import SinkLog
from local_tracker.spark.session.tracked import Tracked, TrackedQuery
from tests.connectors.parts.together import BUCKET
from tests.waits import HANG_S, until
from tracker.client.embedded import EmbeddedTracker
from tracker.core.model import Cells, Edge, Heartbeat, PipelineSpec, TickContent
from tracker.core.model.ack_values import unit_value
from tracker.core.model.units import unit_name

REQUESTS_A_BATCH = {"read": 8, "list": 1}
"""Of a batch of one file in and one file out, and of asking whether it is durable."""


class Lake:
    """A pipeline over a folder of the bucket: a front, `parse`, and whoever reads what that writes."""

    def __init__(self, running: EmbeddedTracker, spark: SparkSession) -> None:
        self.spark, self.stores = spark, SessionStores(spark)
        self.root = f"s3a://{BUCKET}/{uuid4().hex[:8]}"
        self._running, self.target = running, running.target
        running.register(
            PipelineSpec("lake", ("parse", "after"), (Edge("parse", "after"),), fronts=("front",))
        )
        self._front = running.node("lake", "front")
        self._front.join()
        self._front.join_front("front", "parse")

    def publish(self, slot: int, *values: int) -> None:
        """The front publishes a file, and promises that no other of its slot follows."""
        where = self.stores.location(f"{self.root}/in/s{slot}-front-{slot:08d}.json")
        text = "".join(f"{json.dumps({'value': value})}\n" for value in values)
        self.stores.files(where).create(where, text.encode())
        created = Cells.of([(0, slot, unit_value(unit_name(where)), 1)])
        self._front.commit(TickContent(created=created)).result(HANG_S)
        beat = Heartbeat("front", slot + 1)
        self._front.commit(TickContent(heartbeats=(beat,))).result(HANG_S)

    def start(self) -> TrackedQuery:
        frame = self.spark.readStream.schema("value INT").json(f"{self.root}/in")
        writer = frame.writeStream.format("parquet").option("path", f"{self.root}/out")
        writer = writer.option("checkpointLocation", f"{self.root}/cp")
        tracked = Tracked(self.spark, self._running.target, "lake")
        return tracked.start(writer, node_id="parse", reads="parse", creates=["after"])

    def open_slots(self) -> list[int]:
        with self._running.admin() as admin:
            return [segment.open_slots for segment in admin.pipeline("lake").state.segments]

    def await_open_slots(self, *expected: int) -> None:
        until(lambda: self.open_slots() == list(expected), lambda: f"{self.open_slots()}")


@pytest.fixture
def lake(spark: SparkSession) -> Iterator[Lake]:
    with tracker.embedded() as embedded:
        yield Lake(embedded, spark)


@pytest.mark.long
def test_what_a_query_reads_and_writes_there_is_told(lake: Lake) -> None:
    """Also of batches that were over while nobody followed them."""
    lake.publish(1, 5, 6)
    query = lake.start()
    query.processAllAvailable()
    lake.await_open_slots(0, 1)
    for slot, value in (
        (2, 7),
        (3, 8),
    ):  # a batch with both would have one output, of the earlier slot
        lake.publish(slot, value)
        query.processAllAvailable()
    lake.await_open_slots(0, 3)
    query.stop()
    lake.publish(4, 9)
    lake.await_open_slots(1, 3)
    again = lake.start()
    again.processAllAvailable()
    lake.await_open_slots(0, 4)
    again.stop()
    names = SinkLog(f"{lake.root}/out", lake.stores).created(0)
    assert all(name.startswith(f"s3://{BUCKET}/") for name in names) and names


def test_a_batch_is_told_by_so_many_requests(lake: Lake) -> None:
    """However long it takes: the query itself says when it is over."""
    slots = range(1, 6)
    lake.publish(slots[0], 0)
    query = lake.start()
    query.processAllAvailable()
    counted = query.checkpoint.stores.requests
    before = counted()[f"s3://{BUCKET}"]
    for slot in slots[1:]:
        lake.publish(slot, slot)
        query.processAllAvailable()
    after = counted()[f"s3://{BUCKET}"]
    for kind, most in REQUESTS_A_BATCH.items():
        assert after[kind] - before[kind] <= most * len(slots[1:]), (before, after)
    query.stop()


def test_an_idle_query_sends_next_to_nothing(lake: Lake) -> None:
    """It is asked itself whether there is something to look for."""
    lake.publish(1, 5)
    query = lake.start()
    query.processAllAvailable()
    lake.await_open_slots(0, 1)
    counted = query.checkpoint.stores.requests
    store = f"s3://{BUCKET}"
    before = counted()[store]
    looks = query.query.lastProgress
    until(lambda: query.query.lastProgress != looks, timeout_s=HANG_S)
    after = counted()[store]
    assert sum(after.values()) - sum(before.values()) <= 5
    query.stop()
