"""A Kafka topic, asked about by `confluent-kafka`, which is imported where it is used: few need it."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from tracker.client.topics import TopicEnds
from tracker.errors import Code, StateError, UnavailableError

BROKER_TIMEOUT_S = 10.0
"""How long one answer of the brokers is waited for."""
_NEW_TOPIC_S = 0.1  # until it is asked again about a topic that may be new
KNOWN_AFTER_S = 1.0
"""A topic that no broker knows for so long is not there: of one that was created a moment ago, not every one knows."""

Brokers = str | Mapping[str, Any]
"""`host:port,host:port`, or a whole configuration as confluent-kafka takes it."""


class KafkaTopic:
    """A topic, asked about by `confluent-kafka`. Thread-safe."""

    def __init__(self, name: str, brokers: Brokers, timeout_s: float = BROKER_TIMEOUT_S) -> None:
        """Raises LowmarkError where confluent-kafka is not installed."""
        confluent(name)
        from confluent_kafka.admin import AdminClient

        self.name, self._timeout_s = name, timeout_s
        self._admin = AdminClient(configuration(brokers), logger=logging.getLogger("lowmark.kafka"))

    def ends(self) -> TopicEnds:
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(OffsetSpec.latest())

    def earliest(self) -> TopicEnds:
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(OffsetSpec.earliest())

    def _offsets(self, spec: Any) -> TopicEnds:
        """Asked again for a while where not every broker knows the topic yet, or who leads its partitions: of one
        that was created a moment ago, say."""
        from confluent_kafka import KafkaError, KafkaException

        begun_s = time.monotonic()
        while True:
            try:
                return self._offsets_now(spec)
            except KafkaException as error:
                code, passed_s = error.args[0].code(), time.monotonic() - begun_s
                is_unknown = code == KafkaError.UNKNOWN_TOPIC_OR_PART
                if is_unknown and passed_s > KNOWN_AFTER_S:
                    raise StateError(
                        f"there is no topic {self.name!r}: create it first", Code.STATE_TOPIC
                    ) from None
                led_later = code in (
                    KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION,
                    KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH,
                )  # fmt: skip
                if not is_unknown and (not led_later or passed_s > self._timeout_s):
                    raise UnavailableError(
                        f"topic {self.name!r}: no broker has answered: {error}",
                        Code.UNAVAILABLE_BROKER,
                    ) from None
            except TimeoutError:
                raise UnavailableError(
                    f"topic {self.name!r}: no broker has answered within {self._timeout_s:g} s",
                    Code.UNAVAILABLE_BROKER,
                ) from None
            time.sleep(_NEW_TOPIC_S)

    def _offsets_now(self, spec: Any) -> TopicEnds:
        from confluent_kafka import TopicCollection, TopicPartition

        asked = self._admin.describe_topics(
            TopicCollection([self.name]), request_timeout=self._timeout_s
        )
        described = asked[self.name].result(self._timeout_s)
        numbers = [partition.id for partition in described.partitions]
        listed = self._admin.list_offsets(
            {TopicPartition(self.name, number): spec for number in numbers},
            request_timeout=self._timeout_s,
        )
        found = {at.partition: one.result(self._timeout_s) for at, one in listed.items()}
        ends = {f"{self.name}/{number}": int(one.offset) for number, one in found.items()}
        return TopicEnds(_java_id(str(described.topic_id)), ends)


def configuration(brokers: Brokers) -> dict[str, Any]:
    """As confluent-kafka takes it, for the caller to add to."""
    return {"bootstrap.servers": brokers} if isinstance(brokers, str) else dict(brokers)


def confluent(topic: str) -> Any:
    """The module. Raises LowmarkError where it is not installed."""
    try:
        import confluent_kafka
    except ImportError as error:
        raise StateError(
            f"topic {topic!r} is asked about by confluent-kafka, which is not installed: pip install "
            f"'lowmark[kafka]' ({error})",
            Code.STATE_EXTRA,
        ) from None
    return confluent_kafka


def _java_id(text: str) -> str:
    """A topic's id as Kafka's own tools and clients write it."""
    return text.replace("+", "-").replace("/", "_").rstrip("=")
