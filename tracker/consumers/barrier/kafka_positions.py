"""How far barriers are in a Kafka topic: records of a compacted topic beside it, in the rows' own transactions.

The newest record of a barrier counts. It is looked for from the end backwards, and only up to where every
transaction is decided: behind one that is open, a newer record of the same barrier could hide. Compaction keeps
the newest record of each key, so no retention lets go of a position; retention of the rows themselves, and
consumer groups' offsets, which expire, are no concern of it.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from tracker.client.brokers import Brokers, KafkaTopic, configuration, confluent
from tracker.consumers.barrier.sink import Position
from tracker.errors import Code, StateError, UnavailableError

ANSWER_S = 30.0
"""How long the brokers have for one answer, or for another producer's transaction to end."""
SEGMENT_BYTES = 16 * 2**20
"""Of a positions topic that is made here: only what is behind the last segment is compacted."""
_ASKED_AGAIN_S = 0.02
_FIRST_STEP = 100
"""Offsets that are read from the end; ten times as many with each further step back."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Who writes a barrier's rows, and how far they are.

    writer: the number of who has opened the sink last; topic_id, partitions: of the topic with the rows, and how
    many of its partitions are used; held: the position, None before the first row.
    """

    writer: int
    topic_id: str
    partitions: int
    held: Position | None

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def of(cls, raw: bytes | None, where: str) -> Claim:
        """Raises StateError if it is no claim."""
        try:
            said = json.loads(raw or b"")
            held = None if said["held"] is None else Position(**said["held"])
            return cls(int(said["writer"]), str(said["topic_id"]), int(said["partitions"]), held)
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(
                f"{where} is not the position of a barrier ({error!r}): nothing else may write that topic",
                Code.STATE_SINK,
            ) from None


class PositionsTopic:
    """A compacted topic with the newest claim of each barrier under its name, in partition 0."""

    def __init__(self, name: str, brokers: Brokers) -> None:
        """Raises LowmarkError where confluent-kafka is not installed."""
        self.name, self._brokers = name, brokers
        self._confluent = confluent(name)
        self._topic = KafkaTopic(name, brokers, ANSWER_S)

    def prepare(self, admin: Any) -> None:
        """Makes the topic if it is not there. Raises StateError unless it is compacted and nothing
        else, UnavailableError, KafkaException."""
        try:
            self._topic.ends()
        except StateError:
            self._make(admin)
        policy = topic_settings(admin, self.name)["cleanup.policy"]
        if policy != "compact":
            raise StateError(
                f"topic {self.name!r} has cleanup.policy={policy}, by which positions could get lost: set it to "
                "compact, or name another positions topic",
                Code.STATE_SINK,
            )

    def newest(self, barrier: str, *, settled: bool) -> Claim | None:
        """The newest claim of a barrier; None if there is none. settled: waits until every transaction is
        decided that was begun before. Raises UnavailableError, KafkaException, StateError."""
        with self._consumer() as consumer:
            low, high = self._bounds(consumer, settled)
            begin, step = high, _FIRST_STEP
            while begin > low:
                begin, end = max(low, high - step), begin
                found = self._last(consumer, begin, end, barrier.encode())
                if found is not None:
                    where = f"offset {found.offset()} of topic {self.name!r}"
                    return Claim.of(found.value(), where)
                step *= 10
        return None

    def _make(self, admin: Any) -> None:
        from confluent_kafka.admin import NewTopic

        config = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES)}
        made = admin.create_topics(
            [NewTopic(self.name, 1, config=config)], request_timeout=ANSWER_S
        )
        self._unless(lambda: made[self.name].result(ANSWER_S), "TOPIC_ALREADY_EXISTS")
        deadline = time.monotonic() + ANSWER_S
        while not self._unless(lambda: topic_settings(admin, self.name), "UNKNOWN_TOPIC_OR_PART"):
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"topic {self.name!r} was created, and is not there", Code.UNAVAILABLE_BROKER
                )
            time.sleep(_ASKED_AGAIN_S)

    def _unless(self, ask: Callable[[], object], unless: str) -> bool:
        """False for that error. Raises KafkaException for any other."""
        try:
            ask()
            return True
        except self._confluent.KafkaException as error:
            if error.args[0].name() != unless:
                raise
            return False

    def _bounds(self, consumer: Any, settled: bool) -> tuple[int, int]:
        """The first offset, and the one behind the last that is decided."""
        at = self._confluent.TopicPartition(self.name, 0)
        end = self._topic.ends().ends[f"{self.name}/0"] if settled else 0
        deadline = time.monotonic() + ANSWER_S
        while True:
            # Of a consumer that reads what is committed, the end is that of what is decided.
            low, high = consumer.get_watermark_offsets(at, timeout=ANSWER_S)
            if high >= end:
                return low, high
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"topic {self.name!r}: a transaction from offset {high} on is not decided after "
                    f"{ANSWER_S:g} s; the producer that began it may be a barrier of another name that stands "
                    "still, and the brokers abort it after its transaction.timeout.ms",
                    Code.UNAVAILABLE_BROKER,
                )
            time.sleep(_ASKED_AGAIN_S)

    def _last(self, consumer: Any, begin: int, end: int, key: bytes) -> Any:
        """The last record of a key with an offset from `begin` to before `end`; None if there is none."""
        consumer.assign([self._confluent.TopicPartition(self.name, 0, begin)])
        deadline, found = time.monotonic() + ANSWER_S, None
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is not None and error.code() != _end_code(self._confluent):
                raise self._confluent.KafkaException(error)
            if error is not None or message.offset() >= end:
                return found
            if message.key() == key:
                found = message
        raise UnavailableError(
            f"topic {self.name!r} could not be read within {ANSWER_S:g} s", Code.UNAVAILABLE_BROKER
        )

    @contextmanager
    def _consumer(self) -> Iterator[Any]:
        config = configuration(self._brokers) | {
            "group.id": "lowmark-barrier",  # it joins no group, and commits nothing
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
        }
        consumer = self._confluent.Consumer(config, logger=logging.getLogger("lowmark.kafka"))
        try:
            yield consumer
        finally:
            consumer.close()


def topic_settings(admin: Any, topic: str) -> Mapping[str, str]:
    """How a topic is configured. Raises KafkaException."""
    from confluent_kafka.admin import ConfigResource

    asked = ConfigResource(ConfigResource.Type.TOPIC, topic)
    told = admin.describe_configs([asked], request_timeout=ANSWER_S)[asked].result(ANSWER_S)
    return {name: entry.value for name, entry in told.items()}


def _end_code(library: Any) -> int:
    """Of the event that a partition has been read to its end."""
    return int(library.KafkaError._PARTITION_EOF)  # noqa: SLF001 - its public name
