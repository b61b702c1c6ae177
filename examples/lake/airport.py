"""One airport: it writes its flights into its partition of the topic, by the replay's clock.

    python -m examples.lake.airport TARGET ROOT AIRPORT

As `examples.flights.airport`, but that it is no front: it knows of a broker and of nothing else. A record's key
is the flight's row, its value the unparsed line, and its timestamp the scheduled moment.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from examples.flights.airport import FIRST_DAY, Airport, DayClock
from examples.flights.data import DAY_NS, Flight
from examples.flights.pipeline import Places
from examples.history import Recorder
from examples.lake.records import partition_of, record_name
from examples.lake.site import TOPIC, Site

FLUSH_TIMEOUT_S = 30.0


class Writer:
    """Writes flights into one partition, which nobody else writes."""

    def __init__(self, brokers: str, partition: int) -> None:
        config = {"bootstrap.servers": brokers, "acks": "all", "enable.idempotence": True}
        self._producer, self._partition = Producer(config), partition
        self._end = 0
        self._failure: KafkaError | None = None

    def write(self, flights: Sequence[Flight]) -> None:
        """Returns when all are written. Raises RuntimeError where that fails."""
        for flight in flights:
            self._producer.produce(
                TOPIC, flight.line.encode(), str(flight.row).encode(), partition=self._partition,
                timestamp=flight.scheduled_ns // 10**6, on_delivery=self._written,
            )  # fmt: skip
        left = self._producer.flush(FLUSH_TIMEOUT_S)
        if left or self._failure is not None:
            raise RuntimeError(f"{left} flights could not be written: {self._failure}")

    def _written(self, error: KafkaError | None, message: Message) -> None:
        self._failure = self._failure or error
        if error is None:
            offset = message.offset()
            assert offset == self._end, f"offset {offset} came after {self._end - 1}"
            self._end += 1


def main(_target: str, root: str, airport: str) -> int:
    """Replays the year once."""
    places, partition = Places(Path(root)), partition_of(airport)
    recorder = Recorder(places.histories / f"{airport}.jsonl")
    writer = Writer(Site.read(places.root).brokers, partition)
    offsets = count()

    def publish(flights: Sequence[Flight]) -> None:
        before_ns = time.monotonic_ns()
        writer.write(flights)
        for flight in flights:
            slot, name = flight.scheduled_ns // DAY_NS, record_name(partition, next(offsets))
            recorder.created("parse", slot, name, before_ns)

    Airport(airport, DayClock(FIRST_DAY), publish).run()
    recorder.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
