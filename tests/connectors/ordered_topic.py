"""A topic that a barrier writes, and what its readers see."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from tests.connectors.parts.kafka import KafkaBroker
from tests.consumers.barrier.conformance import BARRIER
from tests.waits import HANG_S, until
from tracker.client.brokers import KafkaTopic
from tracker.consumers.reorder import Released
from tracker.errors import StateError

_numbers = itertools.count(1)


class OrderedTopic:
    """A topic of its own."""

    kind = "kafka"
    KILLS = 2

    def __init__(self, broker: KafkaBroker, partitions: int = 1, name: str = "") -> None:
        self.broker, self.topic = broker, name or f"ordered-{next(_numbers)}"
        self.where: Mapping[str, str] = {
            "topic": self.topic, "brokers": broker.bootstrap, "partitions": str(partitions),
        }  # fmt: skip
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        self.make(partitions)

    def make(self, partitions: int = 1) -> None:
        made = self.admin.create_topics([NewTopic(self.topic, partitions, 1)])
        made[self.topic].result(HANG_S)

    def make_anew(self) -> None:
        self.admin.delete_topics([self.topic])[self.topic].result(HANG_S)
        until(self._is_gone, "the topic is not deleted")
        self.make()

    def _is_gone(self) -> bool:
        try:
            KafkaTopic(self.topic, self.broker.bootstrap).ends()
        except StateError:
            return True
        return False

    def delete_rows(self) -> None:
        """As retention does."""
        end = KafkaTopic(self.topic, self.broker.bootstrap).ends().ends[f"{self.topic}/0"]
        upto = TopicPartition(self.topic, 0, end)
        self.admin.delete_records([upto])[upto].result(HANG_S)

    def add_partitions(self, partitions: int) -> None:
        """From here on the topic has so many."""
        self.admin.create_partitions([NewPartitions(self.topic, partitions)])[self.topic].result(
            HANG_S
        )

    def configure(self, setting: str, value: str) -> None:
        entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
        topic = ConfigResource(ConfigResource.Type.TOPIC, self.topic, incremental_configs=[entry])
        self.admin.incremental_alter_configs([topic])[topic].result(HANG_S)

    def rows(self, barrier: str = BARRIER) -> list[Released]:
        """Partition after partition."""
        return [row for rows in self.by_partition(barrier) for row in rows]

    def by_partition(self, barrier: str = BARRIER) -> list[list[Released]]:
        ends = KafkaTopic(self.topic, self.broker.bootstrap).ends().ends
        return [
            [_row(message) for message in committed(self.broker, self.topic, number)
             if _headers(message)["lowmark.barrier"] == barrier]
            for number in range(len(ends))
        ]  # fmt: skip


def committed_end(place: OrderedTopic) -> int:
    """Up to where the transactions of a topic are decided, in partition 0."""
    consumer = Consumer({
        "bootstrap.servers": place.broker.bootstrap, "group.id": "reader", "isolation.level": "read_committed",
    })  # fmt: skip
    try:
        return int(
            consumer.get_watermark_offsets(TopicPartition(place.topic, 0), timeout=HANG_S)[1]
        )
    finally:
        consumer.close()


def committed(broker: KafkaBroker, topic: str, partition: int = 0) -> list[Any]:
    """The records of a partition, to its end, that a reader sees who reads what is committed."""
    consumer = Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": "reader", "isolation.level": "read_committed",
        "enable.partition.eof": True, "enable.auto.commit": False, "fetch.wait.max.ms": 10,
    })  # fmt: skip
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        found = []
        while True:
            message = consumer.poll(HANG_S)
            assert message is not None, f"{topic} was not read to its end"
            if message.error() is None:
                found.append(message)
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()  # noqa: SLF001
                return found
    finally:
        consumer.close()


def _headers(message: Any) -> dict[str, str]:
    return {name: value.decode() for name, value in message.headers()}


def _row(message: Any) -> Released:
    headers = _headers(message)
    position, slot = int(headers["lowmark.position"]), int(headers["lowmark.slot"])
    return Released(position, slot, message.key().decode(), message.value())
