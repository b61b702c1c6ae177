"""Kafka topics: as the source of a query."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json

from fronts.front import FrontOptions
from local_tracker.spark.session.tracked import Tracked, TrackedQuery
from lowmark import KafkaFront
from tests.connectors.connector import AFTER, PARSE, How, Site
from tests.connectors.kinds.files import Files, OnS3, into_files
from tests.spark.support import SCHEMA, Fronts
from tests.spark_matrix.world import World
from tests.waits import HANG_S
from tracker.client import Admin
from tracker.core.model import PipelineSpec

PARTITIONS = 2
ROWS = 4
"""Records that are written under each slot."""
_NEVER_MS = 86_400_000


class TopicFronts(Fronts):
    """A topic with a `KafkaFront` that labels what comes when it is told to, under a given slot."""

    def __init__(
        self,
        target: str,
        spec: PipelineSpec,
        topic: str,
        topics: str,
        brokers: str,
        created: Callable[[str, str, int], None],
    ) -> None:
        self.target, self.name, self.segments = target, spec.name, spec.segments
        self.admin = Admin(target)
        self.slots: list[int] = []
        self.partitions = PARTITIONS
        self._brokers = brokers
        self._topic, self._slack_ns, self._tell = topic, spec.slack_ns, created
        self._ends: dict[int, int] = {}
        self._now_ns = 0
        self._front = KafkaFront(
            target,
            spec.name,
            "front",
            PARSE,
            topic,
            topics,
            brokers=brokers,
            options=FrontOptions(clock=lambda: self._now_ns, poll_interval_ms=_NEVER_MS),
        ).start()

    def write(self, slot: int) -> None:
        """Some records over all partitions, labelled with the slot."""
        # A new one each time: one that is there already learns of new partitions too late.
        config = {"bootstrap.servers": self._brokers, "acks": "all"}
        producer = Producer(config, logger=logging.getLogger("tests.kafka"))
        for _ in range(ROWS):
            row = len(self.slots)
            partition = row % self.partitions
            value = json.dumps({"slot": slot, "row": row}).encode()
            offset = self._ends.get(partition, 0)
            self._tell(PARSE, item(self._topic, partition, offset), slot)
            producer.produce(self._topic, value, partition=partition)
            self._ends[partition] = offset + 1
            self.slots.append(slot)
        assert producer.flush(HANG_S) == 0
        self._now_ns = slot * self._slack_ns
        self._front.look()

    def leave(self) -> None:
        self._front.leave()

    def close(self) -> None:
        self._front.close()
        self.admin.close()


def item(topic: str, partition: int, offset: int) -> str:
    return f"{topic}/{partition}/{offset}"


def records(before: Any, after: Any) -> Iterator[tuple[str, None]]:
    """The records between two offsets of Spark's log; they have the slots that they were written under."""
    for topic, ends in after.items():
        for partition, end in ends.items():
            begin = 0 if before is None else before.get(topic, {}).get(partition, 0)
            for offset in range(begin, end):
                yield item(topic, int(partition), offset), None


class FromKafka(OnS3, Files):
    """From a topic into files."""

    number, name, jars = 3, "a Kafka topic into files", ("s3a", "spark-kafka")

    def settings(self) -> dict[str, str]:
        self.parts.broker  # noqa: B018 - is started
        return super().settings()

    def site(self, world: World) -> Site:
        more = {
            "brokers": self.parts.broker.bootstrap, "topic": topic_of(world),
            "topics": str(world.directory / "topics"),
        }  # fmt: skip
        return Site(super().site(world).url, more)

    @staticmethod
    def options(site: Site) -> dict[str, Any]:
        return {"topics": site.more["topics"]}

    def open(self, world: World) -> None:
        more, broker = self.site(world).more, self.parts.broker
        broker.create_topic(more["topic"], PARTITIONS)

        def run(spec: PipelineSpec) -> TopicFronts:
            return TopicFronts(
                world.target, spec, more["topic"], more["topics"], more["brokers"], world.truth.created
            )  # fmt: skip

        world.open(PARSE, AFTER, run=run)
        self.follow(world)

    def follow(self, world: World) -> None:
        """Follows both queries by `truth`."""
        world.follow("cp", PARSE, world.sink("out", AFTER), ranges=records)
        world.follow("cp-after", AFTER)

    def publish(self, world: World, *slots: int) -> None:
        for slot in slots:
            fronts_of(world).write(slot)

    def add_partitions(self, world: World) -> None:
        fronts_of(world).partitions = PARTITIONS + 1
        self.parts.broker.add_partitions(topic_of(world), PARTITIONS + 1)

    @staticmethod
    def start(spark: SparkSession, tracked: Tracked, site: Site, how: How) -> TrackedQuery:
        source = spark.readStream.format("kafka").options(
            **{
                "kafka.bootstrap.servers": site.more["brokers"],
                "subscribe": site.more["topic"],
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": str(ROWS * how.files),
            }
        )
        rows = source.load().select(from_json(col("value").cast("string"), SCHEMA).alias("value"))
        writer = into_files(rows.select("value.slot", "value.row"), site, how)
        reads = {site.more["topic"]: PARSE}
        return tracked.start(writer, node_id=PARSE, reads=reads, creates=[AFTER])

    @contextmanager
    def away(self) -> Iterator[None]:
        self.parts.broker.kill()
        try:
            yield
        finally:
            self.parts.broker.start()


def topic_of(world: World) -> str:
    return world.name.replace(" ", "-")


def fronts_of(world: World) -> TopicFronts:
    assert isinstance(world.pipeline, TopicFronts)
    return world.pipeline
