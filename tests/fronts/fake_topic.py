"""A topic whose brokers say what the test says."""

from __future__ import annotations

from collections.abc import Iterable

from fronts.kafka_times import TimedRecord
from tracker.client.topics import TopicEnds
from tracker.errors import Code, UnavailableError


class FakeTopic:
    """A topic by hand: partitions with the offsets of their first record and of their end."""

    def __init__(self, name: str = "orders", topic_id: str = "id-1") -> None:
        self.name, self.topic_id = name, topic_id
        self.is_away = False
        self.begins: dict[int, int] = {0: 0}
        self.now: dict[int, int] = {0: 0}
        self.asked = 0

    def ends(self) -> TopicEnds:
        return self._named(self.now)

    def earliest(self) -> TopicEnds:
        return self._named(self.begins)

    def _named(self, offsets: dict[int, int]) -> TopicEnds:
        self.asked += 1
        if self.is_away:
            raise UnavailableError(
                f"topic {self.name!r}: no broker has answered: it is away", Code.UNAVAILABLE_BROKER
            )
        return TopicEnds(self.topic_id, {f"{self.name}/{n}": end for n, end in offsets.items()})


class FakeRecords:
    """The records of a fake topic: `put` them, and the front reads them, a few at a time."""

    def __init__(self, topic: FakeTopic) -> None:
        self._topic = topic
        self._times: dict[str, list[int]] = {}
        self._at: dict[str, int] = {}
        self._reached: dict[str, int] = {}
        self.paused: set[str] = set()

    def put(self, partition: int, *times_ns: int) -> None:
        times = self._times.setdefault(f"{self._topic.name}/{partition}", [])
        times += times_ns
        self._topic.now[partition] = len(times)

    def add(self, partition: str, offset: int) -> None:
        self._at[partition] = offset

    def read(self) -> list[TimedRecord]:
        found = []
        for name, at in self._at.items():
            times = self._times.get(name, [])
            if name in self.paused:
                continue
            found += [TimedRecord(name, n, times[n]) for n in range(at, min(at + 2, len(times)))]
            self._at[name] = min(at + 2, len(times))
            if self._at[name] == len(times):
                self._reached[name] = len(times)
        return found

    def reached(self, partition: str) -> int | None:
        return self._reached.get(partition)

    def pause(self, partitions: Iterable[str]) -> None:
        self.paused = set(partitions)

    def close(self) -> None:
        self._at.clear()
