"""Kafka consumer lag as a measure of completeness: what it says, and when it is wrong; beside min time.

Items come through a topic to a first group, which works on them and passes them on through another topic to a
second one, which finishes them. A group's lag is the end of its topic less its committed offset; zero is read
as "all is done". Groups commit a batch either as they read it, or when it has been worked on and what it was
passed on as is in the next topic. Counted are the items that were not finished when a measure said first, after the
last item had been published, that all is complete: of the first group's lag, as a dashboard shows it; of the
sum of both groups' lags, read in the order of the dataflow, which is its best case; of Lowmark's min time, in
whose ticks the same batches are told. The count is taken after the answer has come, so that it is too low, if
anything.

While input goes on, lag says nothing of what is complete: counted are the slots that were known to be complete
before the last one was published.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition
from numpy.typing import NDArray

from benchmarks.acker import MESSAGE
from benchmarks.figures import Figure, Finding, Skipped
from benchmarks.pairs import take_turns
from local_tracker.core.merge import merge_acks
from tests.cluster.tracker import Tracker
from tests.connectors.parts.cache import Unavailable
from tests.connectors.parts.kafka import KafkaBroker
from tracker.client import NodeClient, Subscriber
from tracker.core.model import Cells, Edge, Heartbeat, PipelineSpec, TickContent

PER_SLOT, SLOT_EVERY_S = 1000, 0.05
BATCH, WORK_S = 500, 0.02
"""Items that a group takes at a time, and how long it works on them."""
LOOK_EVERY_S = 0.002
TIMEOUT_S = 60.0
SEGMENTS = ("first", "second")
WHEN_READ, WHEN_DONE = "committed as they are read", "committed when they are done"


@dataclass(frozen=True)
class Told:
    """When a measure said that all is complete. unfinished: items that were not; late_s: seconds after the
    last item was finished (negative: before)."""

    unfinished: int
    late_s: float


@dataclass(frozen=True)
class Outcome:
    """Of a run, by measure; and of how many slots before the last was published min time had said that they are
    complete, of all."""

    told: dict[str, Told]
    known_early: int
    slots: int


class Group(threading.Thread):
    """A consumer group of one consumer, which tells its batches to the tracker as well."""

    def __init__(
        self, bootstrap: str, run: str, segment: int, when: str, items: int, node: NodeClient
    ) -> None:
        super().__init__(daemon=True)
        self.topic = f"{run}-{SEGMENTS[segment]}"
        self._passes_to = f"{run}-{SEGMENTS[1]}" if segment == 0 else ""
        self._segment, self._when, self._items, self._node = segment, when, items, node
        self._consumer = consumer(bootstrap, self.topic)
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self.done = 0
        self.done_at_s = 0.0

    def run(self) -> None:
        self._consumer.assign([TopicPartition(self.topic, 0, 0)])
        while self.done < self._items:
            batch = [record.value() for record in self._consumer.consume(BATCH, 0.05)]
            if not batch:
                continue
            if self._when == WHEN_READ:
                self._consumer.commit(asynchronous=False)
            time.sleep(WORK_S)
            self._pass_on(batch)
            self.done_at_s = time.monotonic()
            self.done += len(batch)
            if self._when == WHEN_DONE:
                self._consumer.commit(asynchronous=False)
        self._consumer.close()

    def _pass_on(self, batch: Sequence[bytes]) -> None:
        """To the next topic, and then the tick."""
        content = TickContent(consumed=_cells(self._segment, batch))
        if self._passes_to:
            for item in batch:
                self._producer.produce(self._passes_to, item, partition=0)
            self._producer.flush(TIMEOUT_S)
            content.created = _cells(1, batch)
        self._node.commit(content)


def _cells(segment: int, batch: Sequence[bytes]) -> Cells:
    items = np.array([MESSAGE.unpack(item) for item in batch], dtype=[("s", "i8"), ("v", "u8")])
    return merge_acks(segment, items["s"], items["v"])


def consumer(bootstrap: str, group: str) -> Consumer:
    """Of a group by that name, which commits when it is told to."""
    return Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    )


class Lag:
    """How far a group's committed offset is behind the end of its topic."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = consumer(bootstrap, topic)
        self._partition = TopicPartition(topic, 0)

    def read(self) -> int:
        (committed,) = self._consumer.committed([self._partition], TIMEOUT_S)
        _, end = self._consumer.get_watermark_offsets(self._partition, TIMEOUT_S, cached=False)
        return int(end - max(0, committed.offset))

    def close(self) -> None:
        self._consumer.close()


class Watch(threading.Thread):
    """Asks a measure, from a moment on, until it says that all is complete."""

    def __init__(self, is_complete: Callable[[], bool], last: Group, items: int) -> None:
        super().__init__(daemon=True)
        self._is_complete, self._last, self._items = is_complete, last, items
        self.unfinished, self.told_at_s = 0, 0.0

    def run(self) -> None:
        while not self._is_complete():
            time.sleep(LOOK_EVERY_S)
        self.unfinished, self.told_at_s = self._items - self._last.done, time.monotonic()

    def told(self) -> Told:
        return Told(self.unfinished, self.told_at_s - self._last.done_at_s)


def figures(items: int, rounds: int) -> Iterator[Finding]:
    """Of so many items, in slots of a thousand."""
    what = "Kafka consumer lag as a measure of completeness"
    try:
        with broker_and_tracker() as (broker, tracker):
            numbers = iter(range(10**6))
            ways = {
                when: partial(_run, broker, tracker, numbers, items, when)
                for when in (WHEN_READ, WHEN_DONE)
            }
            found = take_turns(ways, rounds)
    except Unavailable as error:
        yield Skipped(what, str(error))
        return
    for when, outcomes in found.items():
        yield from _figures(items, when, outcomes)
    known = [outcome for outcomes in found.values() for outcome in outcomes]
    yield Figure(
        "slots known to be complete while input goes on, by min time",
        tuple(float(outcome.known_early) for outcome in known),
        "",
        f"of {known[0].slots}, one every {1000 * SLOT_EVERY_S:.0f} ms; lag is not of a time, and says none",
    )


def _figures(items: int, when: str, outcomes: Sequence[Outcome]) -> Iterator[Figure]:
    for measure in outcomes[0].told:
        told = [outcome.told[measure] for outcome in outcomes]
        late_ms = 1000 * statistics.median(each.late_s for each in told)
        yield Figure(
            f"items unfinished when {measure} said that all is complete, offsets {when}",
            tuple(float(each.unfinished) for each in told),
            "",
            f"{items:,} items; said {abs(late_ms):.0f} ms {'after' if late_ms > 0 else 'before'} the last "
            "was finished",
        )


@contextmanager
def broker_and_tracker() -> Iterator[tuple[KafkaBroker, Tracker]]:
    """Raises Unavailable where the broker can't be had."""
    with tempfile.TemporaryDirectory(prefix="lowmark-bench-") as directory, ExitStack() as stack:
        broker = stack.enter_context(KafkaBroker(Path(directory) / "kafka"))
        yield broker, stack.enter_context(Tracker(Path(directory)))


def _run(
    broker: KafkaBroker, tracker: Tracker, numbers: Iterator[int], items: int, when: str
) -> Outcome:
    run, slots = f"run{next(numbers)}", items // PER_SLOT
    for segment in SEGMENTS:
        broker.create_topic(f"{run}-{segment}", 1)
    tracker.register(PipelineSpec(run, SEGMENTS, (Edge(*SEGMENTS),), front_count=1))
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(NodeClient(tracker.target, run, name, kind))
            for name, kind in (("front", "front"), *((name, "other") for name in SEGMENTS))
        ]
        for node in nodes:
            node.join(TIMEOUT_S)
        nodes[0].join_front("front", SEGMENTS[0], TIMEOUT_S)
        groups = [Group(broker.bootstrap, run, n, when, items, nodes[n + 1]) for n in (0, 1)]
        lags = [Lag(broker.bootstrap, group.topic) for group in groups]
        subscriber = stack.enter_context(Subscriber(tracker.target, run))
        for lag in lags:
            stack.callback(lag.close)
        for group in groups:
            group.start()
        _publish(broker, f"{run}-{SEGMENTS[0]}", slots, nodes[0])
        known_early = max(0, subscriber.min_time())
        return Outcome(_watched(lags, subscriber, slots, groups, items), known_early, slots)


def _watched(
    lags: Sequence[Lag], subscriber: Subscriber, slots: int, groups: Sequence[Group], items: int
) -> dict[str, Told]:
    measures: dict[str, Callable[[], bool]] = {
        "the first group's lag": lambda: lags[0].read() == 0,
        "the sum of both groups' lags": lambda: lags[0].read() + lags[1].read() == 0,
        "Lowmark's min time": lambda: subscriber.min_time() >= slots,
    }
    watches = {name: Watch(measure, groups[-1], items) for name, measure in measures.items()}
    threads: list[threading.Thread] = [*watches.values(), *groups]
    for watch in watches.values():
        watch.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
        assert not thread.is_alive(), f"{thread} has not come to its end within {TIMEOUT_S:g} s"
    return {name: watch.told() for name, watch in watches.items()}


def _publish(broker: KafkaBroker, topic: str, slots: int, front: NodeClient) -> None:
    """A slot's items every while, then the tick that creates them; the next one goes beyond them."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    values: NDArray[Any] = (
        np.random.default_rng(7).integers(1, 2**63, (slots, PER_SLOT)).astype(np.uint64)
    )
    for slot in range(slots):
        due_s = time.monotonic() + SLOT_EVERY_S
        for value in values[slot].tolist():
            producer.produce(topic, MESSAGE.pack(slot, value), partition=0)
        producer.flush(TIMEOUT_S)
        created = merge_acks(0, np.full(PER_SLOT, slot), values[slot])
        front.commit(TickContent(created=created, heartbeats=(Heartbeat("front", slot),)))
        time.sleep(max(0.0, due_s - time.monotonic()))
    front.commit(TickContent(heartbeats=(Heartbeat("front", slots),)))


def seconds_by_offsets(broker: KafkaBroker, values: NDArray[np.uint64], topic: str) -> float:
    """Until a group has read all items of a topic and committed so, a slot's items at a time."""
    broker.create_topic(topic, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    reading = consumer(broker.bootstrap, topic)
    reading.assign([TopicPartition(topic, 0, 0)])
    began = time.perf_counter()
    for slot in range(len(values) // PER_SLOT):
        for value in values[slot * PER_SLOT : (slot + 1) * PER_SLOT].tolist():
            producer.produce(topic, MESSAGE.pack(slot, value), partition=0)
        producer.flush(TIMEOUT_S)
        taken = 0
        while taken < PER_SLOT:
            taken += len(reading.consume(PER_SLOT - taken, 1.0))
        reading.commit(asynchronous=False)
    took_s = time.perf_counter() - began
    reading.close()
    return took_s
