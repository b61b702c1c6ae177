"""A Kafka topic, asked about by the clients of the driver's JVM, which the connector has brought there.

They take the very options of the query's reader or writer, so whatever those can reach, they can.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from tracker.client.topics import TopicEnds
from tracker.errors import Code, StateError, UnavailableError

BROKER_TIMEOUT_S = 10.0
"""How long one answer of the brokers is waited for."""

_PREFIX = "kafka."
_UNKNOWN_TOPIC = "UnknownTopicOrPartitionException"


class JvmTopic:
    """A `Topic` of the brokers that a reader's or writer's options name. `close()` it."""

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        options: Mapping[str, str],
        timeout_s: float = BROKER_TIMEOUT_S,
    ) -> None:
        """Nothing is asked yet. Raises StateError where the options name no brokers."""
        self.name, self._timeout_ms = name, int(timeout_s * 1000)
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        self._jvm = jvm
        given = {key.lower(): value for key, value in options.items()}
        if f"{_PREFIX}bootstrap.servers" not in given:
            raise StateError(
                f"topic {name!r}: the option kafka.bootstrap.servers names no brokers",
                Code.STATE_TOPIC,
            )
        self._settings = {
            key.removeprefix(_PREFIX): value
            for key, value in given.items()
            if key.startswith(_PREFIX)
        }
        self._made: Any = None
        self._making = threading.Lock()

    @property
    def _client(self) -> Any:
        """Raises StateError where the connector's jars are not there."""
        with self._making:
            if self._made is None:
                self._made = self._make()
            return self._made

    def _make(self) -> Any:
        settings = self._jvm.java.util.Properties()
        for key, value in self._settings.items():
            settings.put(key, value)
        settings.put("default.api.timeout.ms", str(self._timeout_ms))
        settings.put("request.timeout.ms", str(self._timeout_ms // 2))
        try:
            return self._jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
        except (Py4JError, TypeError) as error:
            raise StateError(
                f"topic {self.name!r}: no client of its brokers can be made in the driver "
                f"({_reason(error)}); are the jars of spark-sql-kafka-0-10 there (spark.jars.packages)?",
                Code.STATE_TOPIC,
            ) from None

    def ends(self) -> TopicEnds:
        return self._offsets("latest")

    def earliest(self) -> TopicEnds:
        return self._offsets("earliest")

    def close(self) -> None:
        with self._making:
            if self._made is not None:
                self._made.close(self._jvm.java.time.Duration.ofSeconds(0))
                self._made = None

    def _offsets(self, which: str) -> TopicEnds:
        jvm, client = self._jvm, self._client
        spec = getattr(jvm.org.apache.kafka.clients.admin.OffsetSpec, which)()
        try:
            names = jvm.java.util.List.of(self.name)
            described = self._answer(client.describeTopics(names).allTopicNames())
            description = described.get(self.name)
            wanted = jvm.java.util.HashMap()
            for partition in description.partitions():
                at = jvm.org.apache.kafka.common.TopicPartition(self.name, partition.partition())
                wanted.put(at, spec)
            listed = self._answer(client.listOffsets(wanted).all())
            ends = {
                f"{self.name}/{entry.getKey().partition()}": int(entry.getValue().offset())
                for entry in listed.entrySet()
            }
            return TopicEnds(str(description.topicId().toString()), ends)
        except Py4JJavaError as error:
            if _UNKNOWN_TOPIC in str(error.java_exception.toString()):
                raise StateError(
                    f"there is no topic {self.name!r}: create it first", Code.STATE_TOPIC
                ) from None
            raise UnavailableError(
                f"topic {self.name!r}: no broker has answered: {_reason(error)}",
                Code.UNAVAILABLE_BROKER,
            ) from None

    def _answer(self, future: Any) -> Any:
        return future.get(self._timeout_ms, self._jvm.java.util.concurrent.TimeUnit.MILLISECONDS)


def _reason(error: Exception) -> str:
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.toString())[:300]
    return str(error)[:300]
