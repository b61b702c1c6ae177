"""The front of a Kafka topic: it labels what others write there, by ranges of offsets.

    with KafkaFront("127.0.0.1:7070", "orders", "orders-topic", "parse", "orders",
                    topics="/data/topics", brokers="127.0.0.1:9092"):
        ...  # for as long as the topic is written

It asks the brokers how far the topic has come, again and again, and labels what is new with the moment at
which it asked. Its promise is that moment too: when min time is beyond t, every record that the front had
found by t is completely processed; it finds one a poll interval after it was written, at the latest. While no
broker answers, min time is held. Offsets without a record (of transactions, compaction, retention) are
labelled as if they held one, and consumed with their range.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self
from urllib.parse import quote

from fronts.clock import NO_READING_NS
from fronts.front import DEFAULTS, DRAIN_TIMEOUT_S, JOIN_TIMEOUT_S, Clock, FrontOptions
from fronts.groups import PartitionGroup
from fronts.kafka_times import Records, TimedEnds, TimedRecord, TimedTopic
from fronts.once import Starting
from fronts.ranges import RangeFront
from fronts.rounds import Rounds
from tracker.client.brokers import Brokers, KafkaTopic, configuration, confluent
from tracker.client.topics import Topic, TopicClaim, TopicEnds, TopicPlace, check_ends
from tracker.core.model.slots import LOWEST_SLOT, slot_of, slot_start_ns
from tracker.errors import (
    Code,
    InvalidError,
    LowmarkError,
    StateError,
    UnavailableError,
)
from tracker.files import child, text_of

POLL_INTERVAL_MS = 100
"""How often the brokers are asked: two requests each time."""

_RECORDS_PER_READ, _READ_TIMEOUT_S = 10_000, 0.05

log = logging.getLogger("lowmark.front")


class KafkaRecords:
    """The records of a topic, read by `confluent-kafka`: their values are fetched, and dropped."""

    def __init__(self, name: str, brokers: Brokers) -> None:
        """Raises LowmarkError where confluent-kafka is not installed."""
        consumer = confluent(name).Consumer
        config: dict[str, Any] = {
            "group.id": "lowmark-front",  # it joins no group, and commits nothing
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",  # where retention has taken what was to be read
            "isolation.level": "read_uncommitted",
        }
        self._name, self._config, self._paused = name, configuration(brokers) | config, set[str]()
        self._consumer = consumer(self._config, logger=logging.getLogger("lowmark.kafka"))
        self._reached: dict[str, int] = {}
        self._error: UnavailableError | None = None
        """What came behind records, and is raised by the next `read`."""

    def add(self, partition: str, offset: int) -> None:
        self._consumer.incremental_assign([self._at(partition, offset)])

    def read(self) -> list[TimedRecord]:
        """Raises UnavailableError, and StateError for a record without a timestamp."""
        if self._error is not None:
            away, self._error = self._error, None
            raise away
        library = confluent(self._name)
        found = []
        for message in self._consumer.consume(_RECORDS_PER_READ, _READ_TIMEOUT_S):
            partition = f"{self._name}/{message.partition()}"
            error = message.error()
            if error is None:
                kind, time_ms = message.timestamp()
                if kind == library.TIMESTAMP_NOT_AVAILABLE:
                    raise StateError(
                        f"offset {message.offset()} of {partition!r} has no timestamp",
                        Code.STATE_TOPIC,
                    )
                found.append(TimedRecord(partition, message.offset(), time_ms * 1_000_000))
                self._reached.pop(partition, None)
            elif error.code() == library.KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                self._reached[partition] = message.offset()
            else:
                self._error = UnavailableError(
                    f"topic {self._name!r} cannot be read: {error}", Code.UNAVAILABLE_BROKER
                )
        return found

    def reached(self, partition: str) -> int | None:
        return self._reached.get(partition)

    def pause(self, partitions: Iterable[str]) -> None:
        wanted = set(partitions)
        if wanted != self._paused:
            self._consumer.pause([self._at(name) for name in wanted - self._paused])
            self._consumer.resume([self._at(name) for name in self._paused - wanted])
            self._paused = wanted

    def close(self) -> None:
        self._consumer.close()

    def _at(self, partition: str, *offset: int) -> Any:
        return confluent(self._name).TopicPartition(
            self._name, int(partition.rsplit("/", 1)[1]), *offset
        )


class KafkaFront(Starting):
    """A front of one topic for one segment. Thread-safe; one at a time may label a topic for a segment,
    until it is left for good."""

    def __init__(
        self,
        target: str | Sequence[str],
        pipeline: str,
        front: str,
        segment: str,
        topic: str | Topic,
        topics: str | os.PathLike[str],
        *,
        brokers: Brokers | None = None,
        options: FrontOptions = DEFAULTS,
    ) -> None:
        """topics: a directory, local, mounted or in a store, which the readers see too; the front's journal is
        in it.
        brokers: of the topic; an own `Topic` instead needs none. Later runs go on where the last one was. Raises
        LowmarkError."""
        self.topic = _topic(topic, brokers)
        self._records: Records | None = None
        if not isinstance(options.timestamps, bool):
            self._records = options.timestamps
        elif options.timestamps:
            if brokers is None:
                raise InvalidError(f"topic {self.topic.name!r} is to be read, and needs brokers=")
            self._records = KafkaRecords(self.topic.name, brokers)
        self._idle_s = options.idle_s
        self._times: TimedTopic | None = None
        self._place = TopicPlace(os.fspath(topics), pipeline, self.topic.name)
        self._directory = self._place.front(segment)
        self._owner, self._segment, self._begin = f"front {front}", segment, options.begin
        self._clock: Clock = options.clock
        self._looked_ns = NO_READING_NS
        self._found: deque[tuple[int, Mapping[str, int]]] = deque()
        """Ends that are not labelled yet, in order, each with the moment of its label."""
        labelling = replace(options, clock=lambda: self._looked_ns)
        self._make_front: Callable[[TopicClaim], RangeFront] = lambda claim: RangeFront(
            target, pipeline, front, segment,
            text_of(child(self._directory, f"{quote(front, safe='')}.ranges")),
            options=replace(labelling, first=claim.begins),
        )  # fmt: skip
        self._rounds = Rounds(
            f"lowmark-kafka-{self.topic.name}",
            (options.poll_interval_ms or POLL_INTERVAL_MS) / 1000,
            self._try,
            f"{self._owner} labels topic {self.topic.name!r} no more, and min time is held",
        )  # fmt: skip
        self._front: RangeFront | None = None
        self._claim: TopicClaim | None = None
        self._looking = threading.Lock()
        self._is_away = False

    @property
    def ends(self) -> dict[str, int]:
        """By partition (`topic/0`), up to which offset it is labelled."""
        return self._running.ends

    @property
    def begins(self) -> dict[str, int]:
        """By partition, from which offset on it is labelled; 0 where it is not named."""
        assert self._claim is not None, "the front has not been started"
        return dict(self._claim.begins)

    @property
    def late(self) -> int:
        """By timestamps: how many records have got a later slot than that of their own."""
        return 0 if self._times is None else self._times.merge.late

    @property
    def failure(self) -> LowmarkError | None:
        """Why the front labels nothing more, if so: min time is held then."""
        return self._rounds.failure

    def start(self, timeout_s: float = JOIN_TIMEOUT_S) -> Self:
        """Claims the topic, joins, and begins to label. Raises StateError where the topic belongs to
        another front, was made anew, or lost records that had been labelled; UnavailableError, and as
        `RangeFront.start`."""
        with self._once():
            self._start(timeout_s)
        return self

    def _start(self, timeout_s: float) -> None:
        self._looked_ns = NO_READING_NS if self._records is not None else self._clock()
        found = self.topic.ends()
        begins = self.topic.earliest().ends if self._begin == "earliest" else found.ends
        wanted = TopicClaim(self._owner, found.topic_id, begins, (self._segment,))
        self._claim = self._place.claim(self._directory, wanted)
        self._front = self._make_front(self._claim).start(timeout_s)
        if self._records is not None:
            slack_ns, horizon = self._front.front.slack_ns, self._front.front.horizon_slots
            self._times = TimedTopic(
                self._records, slack_ns, self._idle_s,
                lambda: slot_of(self._clock(), slack_ns) + horizon,
            )  # fmt: skip
        try:
            self.look()  # who had the front until now may have labelled beyond what was found before it ended
        except BaseException:
            self._front.close()
            raise
        self._rounds.start()

    def look(self) -> None:
        """Asks the brokers now, and labels what is new. Raises UnavailableError, StateError, and as
        `Front.publish`."""
        with self._looking:
            self._publish_found()  # before anything later is promised
            asked_ns = self._clock()
            self._label(asked_ns, self.topic.ends())

    def wait_durable(self, timeout_s: float | None = None) -> bool:
        """As `Front.wait_durable`."""
        return self._running.wait_durable(timeout_s)

    def leave(self) -> None:
        """Labels what is there by now, and ends the front for good: min time waits for it no longer.
        Raises as `look`, and what made the front fail."""
        self._rounds.stop()
        if self.failure is None:
            self.look()
            if self._times is not None:
                ends = self.topic.ends().ends
                self._take(self._times.rest(ends, self._begin_of, DRAIN_TIMEOUT_S))
                self._publish_found()
            self._running.leave()
        self.close()

    def close(self) -> None:
        """Ends this run: min time waits for the front to be started again. Raises what made it fail."""
        self._rounds.stop()
        if self._front is not None:
            self._front.close()
        if self._records is not None:
            self._records.close()
        if self.failure is not None:
            raise self.failure

    # --- inside -----------------------------------------------------------------------------------

    @property
    def _running(self) -> RangeFront:
        if self._front is None:
            raise StateError(
                f"{self._owner} has not been started; call start() first", Code.STATE_ORDER
            )
        return self._front

    def _label(self, asked_ns: int, found: TopicEnds) -> None:
        assert self._claim is not None and self._front is not None
        self._place.check_id(self._claim, found.topic_id)
        check_ends(self.topic.name, {**self._claim.begins, **self._front.ends}, found.ends)
        if self._times is None:
            self._found.append((asked_ns, found.ends))
        else:
            self._take(self._times.ready(found.ends, self._begin_of))
        self._publish_found()

    def _begin_of(self, partition: str) -> int:
        assert self._claim is not None
        return self._running.ends.get(partition, self._claim.begin(partition))

    def _take(self, ready: list[TimedEnds]) -> None:
        """Each slot is a batch of its own; then the promise is where the records have come to."""
        assert self._times is not None
        slack_ns, floor = self._running.front.slack_ns, self._times.merge.floor
        self._found += [(slot_start_ns(each.slot, slack_ns), each.ends) for each in ready]
        if floor > LOWEST_SLOT:
            self._found.append((slot_start_ns(floor, slack_ns), {}))

    def _publish_found(self) -> None:
        """What cannot be published is the first again: until it is, nothing beyond its moment is promised."""
        while self._found:
            moment_ns, ends = self._found[0]
            self._looked_ns = max(self._looked_ns, moment_ns)
            self._running.publish(ends)
            self._found.popleft()

    def _try(self) -> None:
        """One look; what passes is said once, and tried again."""
        try:
            self.look()
        except (UnavailableError, OSError) as error:
            if not self._is_away:
                log.warning("%s: min time is held, and it looks again: %s", self._owner, error)
            self._is_away = True
            return
        if self._is_away:
            log.warning("%s: goes on", self._owner)
        self._is_away = False


class KafkaGroup(PartitionGroup):
    """One member of a group that shares the partitions of a topic: each is labelled by one at a time."""

    def __init__(
        self,
        target: str | Sequence[str],
        pipeline: str,
        group: str,
        segment: str,
        topic: str | Topic,
        topics: str | os.PathLike[str],
        *,
        brokers: Brokers | None = None,
        options: FrontOptions = DEFAULTS,
    ) -> None:
        """topics: a directory whose locks hold between all members, and which the readers see. The rest
        as for `KafkaFront` and `PartitionGroup`. Asks the brokers, and claims the topic; raises
        UnavailableError, StateError."""
        self._topic, self._clock = _topic(topic, brokers), options.clock
        self._place = TopicPlace(os.fspath(topics), pipeline, self._topic.name)
        self._looked_ns: dict[str, int] = {}
        self._is_away = False
        found = self._topic.ends()
        begins = self._topic.earliest().ends if options.begin == "earliest" else found.ends
        wanted = TopicClaim(f"group {group}", found.topic_id, begins, (segment,))
        self._claim = self._place.claim(self._place.front(segment), wanted)
        super().__init__(
            target, pipeline, group, segment, self._place.front(segment),
            partitions=lambda: self._ask().ends, ends=self._ends_of,
            options=replace(options, first=self._claim.begins),
        )  # fmt: skip

    def _options_of(self, partition: str) -> FrontOptions:
        """Its front promises the moment of the last look whose records it has labelled."""
        return replace(self._options, clock=lambda: self._looked_ns.get(partition, NO_READING_NS))

    def _ask(self) -> TopicEnds:
        """How far the topic has come. Raises StateError where it was made anew or has lost partitions, whose fronts do not
        leave for that: topics only grow."""
        found = self._topic.ends()
        self._place.check_id(self._claim, found.topic_id)
        check_ends(self._topic.name, self._claim.begins, found.ends)
        return found

    def _ends_of(self, partitions: Sequence[str]) -> dict[str, int]:
        asked_ns = self._clock()
        found = self._ask()
        # Before anything is promised: records that were lost and written anew would count as labelled, and as read.
        labelled = (self._fronts[name].ends for name in partitions)
        check_ends(
            self._topic.name, {p: end for ends in labelled for p, end in ends.items()}, found.ends
        )
        for name in partitions:
            if name not in self._troubles:
                self._looked_ns[name] = max(self._looked_ns.get(name, asked_ns), asked_ns)
        return {name: found.ends[name] for name in partitions if name in found.ends}

    def _work(self) -> None:
        """As of any group; while no broker answers, min time is held."""
        try:
            super()._work()
        except UnavailableError as error:
            if not self._is_away:
                log.warning("group %r: min time is held, and it looks again: %s", self.group, error)
            self._is_away = True
        else:
            self._is_away = False


def _topic(topic: str | Topic, brokers: Brokers | None) -> Topic:
    if not isinstance(topic, str):
        return topic
    if brokers is None:
        raise InvalidError(f"topic {topic!r} needs brokers=, as host:port")
    return KafkaTopic(topic, brokers)
