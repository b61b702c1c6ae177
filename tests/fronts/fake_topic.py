"""A topic whose brokers say what the test says."""

from __future__ import annotations

from tracker.client.topics import BrokerAwayError, TopicEnds


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
            raise BrokerAwayError(f"topic {self.name!r}: no broker has answered: it is away")
        return TopicEnds(self.topic_id, {f"{self.name}/{n}": end for n, end in offsets.items()})
