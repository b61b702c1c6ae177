"""Kafka with a real broker: a topic is labelled, read by a tracked query, and read to its end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from examples.kafka import pipeline, queries
from examples.kafka.front import label
from fronts.front import FrontOptions
from fronts.kafka import KafkaFront, KafkaGroup
from local_tracker.spark.formats.kafka import topic_ranges
from local_tracker.spark.session.attached import AttachedQuery
from local_tracker.spark.session.tracked import Tracked, TrackedQuery
from tests.cluster.children import now_slot
from tests.connectors.parts.kafka import KafkaBroker
from tests.waits import HANG_S, until
from tracker.client import Admin, Subscriber
from tracker.client.brokers import KafkaTopic
from tracker.core.model import Edge, PipelineSpec
from tracker.core.model.slots import FOREVER
from tracker.errors import StateError, TrackingError


class World:
    """A pipeline over a topic of its own, its front, and a tracked query that copies it to files; or to
    another topic, which a second one copies to files."""

    def __init__(
        self, spark: SparkSession, target: str, broker: KafkaBroker, name: str, directory: Path
    ) -> None:
        self.spark, self.target, self.broker = spark, target, broker
        self.name, self.topic, self.directory = name, name, directory
        self.topics = str(directory / "topics")
        self.tracked = Tracked(spark, target, name, topics=self.topics)
        with Admin(target) as admin:
            edges = (Edge("parse", "enrich"),)
            spec = PipelineSpec(
                name, ("parse", "enrich"), edges, front_count=1, start_slot=now_slot()
            )
            admin.register(spec)

    def produce(self, *numbers: int, partition: int = 0, topic: str | None = None) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "acks": "all"})
        for number in numbers:
            producer.produce(topic or self.topic, str(number).encode(), partition=partition)
        assert producer.flush(HANG_S) == 0

    def front(self) -> KafkaFront:
        return KafkaFront(
            self.target, self.name, "kafka", "parse", self.topic, self.topics,
            brokers=self.broker.bootstrap,
        )  # fmt: skip

    @property
    def second(self) -> str:
        """The topic that the first query writes, if it writes one."""
        return f"{self.topic}-second"

    def frame(self, topic: str | None = None, **options: str) -> DataFrame:
        reader = self.spark.readStream.format("kafka").option("subscribe", topic or self.topic)
        options = {
            "kafka.bootstrap.servers": self.broker.bootstrap,
            "startingOffsets": "earliest",
        } | options
        return reader.options(**options).load()

    def copy(self, frame: DataFrame | None = None) -> DataStreamWriter:
        frame = self.frame() if frame is None else frame
        return (
            frame.selectExpr("cast(value as string) as number")
            .writeStream.format("json")
            .option("path", f"{self.directory}/out")
            .option("checkpointLocation", f"{self.directory}/cp")
        )

    def start(self, frame: DataFrame | None = None) -> TrackedQuery:
        return self.tracked.start(self.copy(frame), node_id="copy", reads={self.topic: "parse"})

    def forward(self, tracked: Tracked | None = None) -> TrackedQuery:
        """The first of two queries: from topic to topic."""
        writer = (
            self.frame().selectExpr("value").writeStream.format("kafka")
            .option("kafka.bootstrap.servers", self.broker.bootstrap)
            .option("topic", self.second)
            .option("checkpointLocation", f"{self.directory}/cp-forward")
        )  # fmt: skip
        reads, creates = {self.topic: "parse"}, ["enrich"]
        return (tracked or self.tracked).start(
            writer, node_id="forward", reads=reads, creates=creates
        )

    def start_second(self) -> TrackedQuery:
        writer = self.copy(self.frame(self.second))
        return self.tracked.start(writer, node_id="copy", reads={self.second: "enrich"})

    @contextmanager
    def query(self) -> Iterator[TrackedQuery]:
        query = self.start()
        try:
            yield query
        finally:
            query.stop()

    def copied(self) -> list[int]:
        rows = self.spark.read.schema("number string").json(f"{self.directory}/out").collect()
        return sorted(int(row.number) for row in rows)

    def assert_complete(self) -> None:
        with Subscriber(self.target, self.name) as subscriber:
            assert subscriber.wait_until(FOREVER, timeout_s=HANG_S)
        assert self.open_items() == 0

    def open_items(self) -> int:
        with Admin(self.target) as admin:
            return sum(each.open_items for each in admin.pipeline(self.name).state.segments)


@pytest.fixture
def world(
    spark: SparkSession,
    target: str,
    broker: KafkaBroker,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> World:
    world = World(spark, target, broker, request.node.name, tmp_path)
    broker.create_topic(world.topic, 2)
    broker.create_topic(world.second, 2)
    return world


@pytest.mark.long
def test_a_partition_is_added_while_the_query_runs(world: World) -> None:
    with world.front() as front:
        world.produce(1)
        query = world.start()
        query.processAllAvailable()
        world.broker.add_partitions(world.topic, 3)
        until(lambda: len(front.topic.ends().ends) == 3)
        world.produce(2, 3, partition=2)
        query.processAllAvailable()
        front.leave()
    world.assert_complete()
    assert world.copied() == [1, 2, 3]
    query.stop()


@pytest.mark.long
def test_the_offsets_of_aborted_transactions_are_covered(world: World) -> None:
    producer = Producer(
        {
            "bootstrap.servers": world.broker.bootstrap,
            "transactional.id": world.topic,
            "acks": "all",
        }
    )
    producer.init_transactions(HANG_S)
    for keep in (False, True, False):
        producer.begin_transaction()
        producer.produce(world.topic, b"7", partition=0)
        assert producer.flush(HANG_S) == 0
        producer.commit_transaction(HANG_S) if keep else producer.abort_transaction(HANG_S)
    with world.front() as front:
        query = world.start(world.frame(**{"kafka.isolation.level": "read_committed"}))
        query.processAllAvailable()
        front.leave()
    world.assert_complete()
    assert world.copied() == [7]
    query.stop()


def test_a_group_shares_the_partitions_of_a_topic(world: World) -> None:
    def member(name: str) -> KafkaGroup:
        return KafkaGroup(
            world.target,
            world.name,
            "kafka",
            "parse",
            world.topic,
            world.topics,
            brokers=world.broker.bootstrap,
            options=FrontOptions(member=name, poll_interval_ms=20),
        )

    partitions = [f"{world.topic}/{number}" for number in range(2)]
    world.produce(1)
    with world.query() as query:
        with member("a") as a, member("b") as b:
            until(lambda: sorted(a.held + b.held) == partitions)
            world.produce(2, partition=1)
            query.processAllAvailable()
        world.produce(3, partition=1)  # while nobody labels
        with member("c") as c:
            until(lambda: c.held == partitions)
            query.processAllAvailable()
    assert world.copied() == [1, 2, 3]
    until(lambda: world.open_items() == 0)


@pytest.mark.long
def test_what_nobody_wrote_in_a_batch_keeps_no_reader_waiting(world: World) -> None:
    world.produce(1)
    with world.front() as front:
        forward, copy = world.forward(), world.start_second()
        forward.processAllAvailable()
        world.produce(9, topic=world.second)  # as a task would that was lost
        copy.processAllAvailable()
        world.produce(2)
        forward.processAllAvailable()
        copy.processAllAvailable()
        front.leave()
        world.assert_complete()
    assert world.copied() == [1, 2, 9]
    forward.stop()
    copy.stop()


def test_a_writer_stamps_its_records_and_writes_a_batch_once(world: World) -> None:
    publish = world.tracked.writer(
        world.second, "kafka", **{"kafka.bootstrap.servers": world.broker.bootstrap}
    )
    fails = [1]

    def each(frame: DataFrame, batch: int) -> None:
        publish(frame, batch)
        if batch in fails:
            fails.clear()
            raise RuntimeError("after the batch was written, and before it is over")

    def start() -> TrackedQuery:
        frame = world.frame(maxOffsetsPerTrigger="1").selectExpr("value")
        writer = frame.writeStream.foreachBatch(each)
        writer = writer.option("checkpointLocation", f"{world.directory}/cp-forward")
        reads, creates = {world.topic: "parse"}, ["enrich"]
        return world.tracked.start(writer, node_id="forward", reads=reads, creates=creates)

    with world.front() as front:
        for number in range(4):
            world.produce(number)
            front.look()
        copy = world.start_second()
        with pytest.raises(StreamingQueryException):
            start().processAllAvailable()
        forward = start()
        forward.processAllAvailable()
        copy.processAllAvailable()
        front.leave()
        world.assert_complete()
    assert world.copied() == [0, 1, 2, 3]
    forward.stop()
    copy.stop()
    records = world.spark.read.format("kafka").option("subscribe", world.second)
    records = records.option("kafka.bootstrap.servers", world.broker.bootstrap)
    rows = records.option("includeHeaders", "true").load().collect()
    stamps = sorted(
        (int(row.value), {h.key: bytes(h.value).decode() for h in row.headers}) for row in rows
    )
    assert [stamp["lowmark.batch"] for _, stamp in stamps] == ["0", "1", "2", "3"]
    assert {stamp["lowmark.query"] for _, stamp in stamps} == {forward.checkpoint.query_id}
    slots = [int(stamp["lowmark.slot.enrich"]) for _, stamp in stamps]
    assert slots == sorted(slots) and slots[0] < slots[-1]


def test_another_query_does_not_write_a_topic_that_has_a_writer(world: World) -> None:
    world.forward().stop()
    writer = (
        world.frame().selectExpr("value").writeStream.format("kafka")
        .option("kafka.bootstrap.servers", world.broker.bootstrap)
        .option("topic", world.second)
    )  # fmt: skip
    reads, creates = {world.topic: "parse"}, ["enrich"]
    other = writer.option("checkpointLocation", f"{world.directory}/cp-other")
    with pytest.raises(StateError, match=f"topic '{world.second}' .* belongs to query"):
        world.tracked.start(other, node_id="other", reads=reads, creates=creates)
    weak = other.option("kafka.acks", "1")
    with pytest.raises(TrackingError, match=r"kafka\.acks must be all"):
        world.tracked.start(weak, node_id="other", reads=reads, creates=creates)


def test_a_query_is_followed_from_outside(world: World) -> None:
    world.produce(1, 2)
    plain = world.copy().start()
    plain.processAllAvailable()
    plain.stop()
    source = topic_ranges(world.topics, world.name, world.topic, "parse", from_earliest=True)
    attached = AttachedQuery(
        world.target, world.name, "copy", f"{world.directory}/cp", reads={}, ranges={"0": source}
    )
    with world.front() as front:
        attached.start()
        front.leave()
        world.assert_complete()
    attached.close()


def test_a_topic_can_be_asked_about_as_soon_as_it_is_created(broker: KafkaBroker) -> None:
    for number in range(10):
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        (created,) = admin.create_topics([NewTopic(f"new-{number}", 8, 1)]).values()
        created.result(HANG_S)
        assert len(KafkaTopic(f"new-{number}", broker.bootstrap).ends().ends) == 8


def test_records_are_labelled_by_their_own_timestamps(
    target: str, broker: KafkaBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = "by-timestamps"
    broker.create_topic(
        name, 2, retention_ms=-1
    )  # of 1970: by its ordinary age the broker deletes them
    with Admin(target) as admin:
        admin.register(PipelineSpec(name, ("parse",), front_count=1, slack_ns=1_000_000))
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    for partition, time_ms in ((0, 1_000), (0, 1_001), (0, 1_050), (1, 1_020), (1, 1_010)):
        producer.produce(name, b"1", partition=partition, timestamp=time_ms)
    assert producer.flush(HANG_S) == 0
    front = KafkaFront(
        target,
        name,
        "f",
        "parse",
        name,
        tmp_path,
        brokers=broker.bootstrap,
        options=FrontOptions(timestamps=True),
    )
    with front:
        until(lambda: front.ends.get(f"{name}/0") == 2)  # beyond, partition 1 may bring more
        front.leave()
    assert front.late == 1
    assert "clock" not in caplog.text  # it has none of its own
    slots = topic_ranges(str(tmp_path), name, name, "parse").slots
    assert list(slots(f"{name}/0", 0, 3)) == [(0, 1, 1_000), (1, 2, 1_001), (2, 3, 1_050)]
    assert list(slots(f"{name}/1", 0, 2)) == [(0, 2, 1_020)]


@pytest.mark.long
def test_the_example_comes_to_its_end(
    spark: SparkSession, target: str, broker: KafkaBroker, tmp_path: Path
) -> None:
    for topic in (pipeline.ORDERS, pipeline.PRICED):
        broker.create_topic(topic, 2)
    pipeline.register(target)
    topics, data = str(tmp_path / "topics"), str(tmp_path)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    for pieces in range(1, 6):
        order = json.dumps({"shop": "corner", "pieces": pieces}).encode()
        producer.produce(pipeline.ORDERS, order, partition=pieces % 2)
    assert producer.flush(HANG_S) == 0
    front = label(target, broker.bootstrap, topics)
    price = queries.price(spark, target, broker.bootstrap, topics, data)
    store = queries.store(spark, target, broker.bootstrap, topics, data)
    price.processAllAvailable()
    store.processAllAvailable()
    front.leave()
    with Subscriber(target, pipeline.PIPELINE) as subscriber:
        assert subscriber.wait_until(FOREVER, timeout_s=HANG_S)
    stored = spark.read.parquet(f"{data}/stored").collect()
    assert sorted(row.amount for row in stored) == [5, 10, 15, 20, 25]
    price.stop()
    store.stop()


@pytest.mark.long
def test_a_topic_that_was_made_anew_is_refused(world: World) -> None:
    world.produce(1)
    with world.front():
        query = world.start()
        query.processAllAvailable()
        query.stop()
    world.broker.delete_topic(world.topic)
    until(lambda: _is_gone(KafkaTopic(world.topic, world.broker.bootstrap)))
    world.broker.create_topic(world.topic, 2)
    with pytest.raises(StateError, match="was deleted and made anew"):
        world.front().start()


def _is_gone(topic: KafkaTopic) -> bool:
    try:
        topic.ends()
    except StateError:
        return True
    return False
