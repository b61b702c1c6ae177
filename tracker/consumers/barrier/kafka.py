"""Rows in order in a Kafka topic, for readers of what is committed (`isolation.level=read_committed`).

Each write is one transaction over the topic and its positions topic, so both have it or neither. The producer's
`transactional.id` is the topic's and the barrier's name: whoever opens the sink fences whoever had it before, by
Kafka's epoch, and ends what that had begun. After any failure the producer is given up, and the next `open` asks
the brokers what became of its transaction: nothing is sent again before that is known.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Sequence
from typing import Any

from tracker.client.brokers import Brokers, KafkaTopic, configuration, confluent
from tracker.consumers.barrier.kafka_positions import (
    ANSWER_S,
    Claim,
    PositionsTopic,
    topic_settings,
)
from tracker.consumers.barrier.sink import OrderedSink, Position, away, refused
from tracker.consumers.reorder import Released
from tracker.errors import Code, FencedError, LowmarkError, StateError, UnavailableError

TRANSACTION_TIMEOUT_S = 60.0
"""How long one write may take, after which the brokers abort it."""
_LARGEST_BYTES = 1_000, 1_000_000_000
"""What librdkafka takes for `message.max.bytes`."""
_FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
_REFUSED = (
    "MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD", "_INVALID_ARG", "TOPIC_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED", "INVALID_TRANSACTION_TIMEOUT",
)  # fmt: skip
"""What the same rows would be told again."""


class KafkaSink(OrderedSink):
    """Rows in a topic, their keys and payloads as the records' keys and values; headers `lowmark.barrier`,
    `lowmark.position` and `lowmark.slot`, in ASCII.

    Order in Kafka is that of a partition. All rows go to partition 0, in one order; or to several, each row to
    that of its key, where those of each partition are in order, and so those of each key.
    """

    def __init__(
        self,
        topic: str,
        brokers: Brokers,
        *,
        partitions: int = 1,
        positions: str | None = None,
        transaction_timeout_s: float = TRANSACTION_TIMEOUT_S,
    ) -> None:
        """topic: it must be there. partitions: the first so many are used, by CRC32 of the key; for good, since
        a key that moved would be in no order. positions: a topic for positions, `<topic>.positions` unless it is
        named; it is made if it is not there. Raises LowmarkError where confluent-kafka is not installed."""
        if partitions < 1:
            raise ValueError(f"partitions is {partitions}: at least 1")
        if positions == topic:
            raise ValueError(f"positions is {topic!r}, the topic of the rows: name another")
        self.topic, self._config, self._partitions = topic, configuration(brokers), partitions
        super().__init__(f"Kafka topic {topic!r} at {self._config.get('bootstrap.servers')}")
        self._confluent = confluent(topic)
        self._asked = KafkaTopic(topic, brokers, ANSWER_S)
        self._positions = PositionsTopic(positions or f"{topic}.positions", brokers)
        self._timeout_s = transaction_timeout_s
        self._topic_id, self._largest_bytes = "", 0
        self._producer: Any = None

    def take(self, buffer: str) -> Position | None:
        self._look()
        # Before anybody is fenced, which a second look is behind.
        self._check(self._positions.newest(self.barrier, settled=False), buffer)
        self._producer = producer = self._confluent.Producer(
            self._producer_config(), logger=logging.getLogger("lowmark.kafka")
        )
        producer.init_transactions(ANSWER_S)
        claim = self._positions.newest(self.barrier, settled=True)
        self._check(claim, buffer)
        held = None if claim is None else claim.held
        producer.begin_transaction()
        self._commit(producer, held)
        return held

    def append(self, rows: Sequence[Released], position: Position) -> None:
        self._producer.begin_transaction()
        for row in rows:
            self._send_row(self._producer, row)
        self._commit(self._producer, position)

    def let_go(self) -> None:
        if self._producer is not None:
            # What it has in flight is in a transaction that is not committed, and never will be.
            self._producer.purge()
            self._producer = None

    def failed(self, error: Exception) -> LowmarkError | None:
        if isinstance(error, self._confluent.KafkaException):
            return self._meant(error.args[0])
        code = error.code if isinstance(error, LowmarkError) else None
        if isinstance(error, TimeoutError) or code == Code.UNAVAILABLE_BROKER:
            return away(f"{self.name}: {error}")
        return refused(f"{self.name}: {error}") if code == Code.STATE_TOPIC else None

    # --- inside -----------------------------------------------------------------------------------

    def _look(self) -> None:
        """What the topics are. Raises StateError, UnavailableError, KafkaException."""
        from confluent_kafka.admin import AdminClient

        found = self._asked.ends()
        if len(found.ends) < self._partitions:
            raise refused(
                f"{self.name} has {len(found.ends)} partitions, and {self._partitions} are to be written: add "
                "some, or write fewer"
            )
        self._topic_id = found.topic_id
        admin = AdminClient(self._config, logger=logging.getLogger("lowmark.kafka"))
        self._positions.prepare(admin)
        largest = int(topic_settings(admin, self.topic)["max.message.bytes"])
        self._largest_bytes = sorted((largest, *_LARGEST_BYTES))[1]

    def _producer_config(self) -> dict[str, Any]:
        return {
            "message.max.bytes": self._largest_bytes,
            **self._config,
            "transactional.id": f"lowmark:{self.topic}:{self.barrier}",
            "transaction.timeout.ms": int(self._timeout_s * 1000),
            # What is not taken makes the commit fail. No callback: one that comes with a fatal error breaks
            # the client's call.
            "delivery.report.only.error": True,
        }

    def _check(self, claim: Claim | None, buffer: str) -> None:
        """Raises FencedError, StateError if what the sink holds is not for this writer to go on."""
        if claim is None:
            return
        self.check_writer(claim.writer)
        self.check_buffer(claim.held, buffer)
        if claim.held is None:
            return
        if claim.topic_id != self._topic_id:
            raise refused(
                f"{self.name} has id {self._topic_id}, and the {claim.held.next} rows of barrier "
                f"{self.barrier!r} are in the one with id {claim.topic_id}: it was deleted and made anew; "
                "begin with a new buffer and another barrier's name"
            )
        if claim.partitions != self._partitions:
            raise refused(
                f"{self.name}: barrier {self.barrier!r} writes {claim.partitions} partitions, and "
                f"{self._partitions} would put keys elsewhere, in no order; keep partitions={claim.partitions}"
            )

    def _send_row(self, producer: Any, row: Released) -> None:
        key = row.key.encode()
        headers = [
            ("lowmark.barrier", self.barrier.encode()),
            ("lowmark.position", str(row.position).encode()),
            ("lowmark.slot", str(row.slot).encode()),
        ]
        partition = zlib.crc32(key) % self._partitions
        try:
            self._send(producer, self.topic, partition, key, row.payload, headers)
        except self._confluent.KafkaException as error:
            if error.args[0].name() == "MSG_SIZE_TOO_LARGE":
                raise refused(
                    f"{self.name}: row {row.key!r} at position {row.position} has {len(row.payload)} bytes of "
                    f"payload, and a record may have {self._largest_bytes} in all: raise max.message.bytes of "
                    "the topic, or keep such payloads elsewhere"
                ) from None
            raise

    def _send(self, producer: Any, topic: str, partition: int, key: bytes, value: bytes, headers: Any = None) -> None:  # fmt: skip
        """Raises KafkaException; UnavailableError while there is no room for what waits to be sent."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                producer.produce(topic, value, key, partition, headers=headers)
                return
            except BufferError:
                producer.poll(0.1)
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"no broker has taken rows for {self._timeout_s:g} s", Code.UNAVAILABLE_BROKER
                )

    def _commit(self, producer: Any, position: Position | None) -> None:
        """Ends the transaction with a claim at a position. Raises KafkaException, UnavailableError."""
        claim = Claim(self.writer, self._topic_id, self._partitions, position)
        self._send(producer, self._positions.name, 0, self.barrier.encode(), claim.to_bytes())
        producer.commit_transaction(self._timeout_s)

    def _meant(self, error: Any) -> LowmarkError:
        """What an error of the client means to the barrier."""
        if error.name() in _REFUSED:
            return refused(f"{self.name} takes nothing of this: {error.str()} ({error.name()})")
        if error.name() in _FENCED:
            # By another writer, or by the brokers after the transaction's timeout: the claims tell.
            try:
                newest = self._positions.newest(self.barrier, settled=False)
                if newest is not None:
                    self.check_writer(newest.writer)
            except FencedError as fenced:
                return fenced
            except (self._confluent.KafkaException, UnavailableError, StateError):
                pass
            return away(
                f"{self.name}: the transaction took more than {self._timeout_s:g} s, or another writer of "
                f"barrier {self.barrier!r} is about to open it"
            )
        return away(f"{self.name}: {error.str()} ({error.name()})")
