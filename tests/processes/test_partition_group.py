"""Fronts that share a log's partitions: members come, leave and are killed; each offset is labelled
once, and min time is right all along."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import tracker
from tests.cluster.children import Running, now_slot
from tests.waits import HANG_S, until
from tracker import EmbeddedTracker
from tracker.core.model import Cells, PipelineSpec, TickContent
from tracker.core.model.ack_values import range_value
from tracker.core.model.ranges import NotedRanges, parse_note
from tracker.core.model.slots import FOREVER

PARTITIONS = tuple(f"orders/{number}" for number in range(6))


class Topic:
    """A tracker, a log's ends, the journals, the members, and a reader of all that is labelled."""

    def __init__(self, embedded: EmbeddedTracker, path: Path) -> None:
        self.embedded, self.path, self.journals = embedded, path, path / "journals"
        self.ends = dict.fromkeys(PARTITIONS, 0)
        self.members: dict[str, Running] = {}
        self._consumed: set[tuple[str, int]] = set()
        self._reader = embedded.node("p", "reader")
        self._reader.join(HANG_S)
        self.append(0)

    def append(self, count: int) -> None:
        """So many records more at the end of each partition."""
        self.ends = {partition: end + count for partition, end in self.ends.items()}
        self._write_ends()

    def _write_ends(self) -> None:
        hidden = self.path / "ends.tmp"
        hidden.write_text(json.dumps(self.ends))
        os.replace(hidden, self.path / "ends.json")

    def delete_topic(self) -> None:
        self.ends = {}
        self._write_ends()

    def member(self, name: str) -> Running:
        process = Running(
            "tests.processes.partition_member", self.embedded.target, "p", name,
            str(self.journals), str(self.path / "ends.json"), errors=self.path / f"{name}.err",
        )  # fmt: skip
        self.members[name] = process
        process.start()
        process.until(lambda line: line == "started")
        return process

    def noted(self) -> list[NotedRanges]:
        """All batches of all journals, of whole lines."""
        return [
            parse_note(line)
            for journal in sorted(self.journals.glob("*.ranges"))
            for line in journal.read_text().split("\n")[:-1]
        ]

    def labelled(self) -> dict[str, int]:
        """The end of what is labelled, by partition; each begins where the one before ended."""
        ends = dict.fromkeys(PARTITIONS, 0)
        for batch in self.noted():
            for partition, begin, end in batch.ranges:
                assert begin == ends[partition], "each offset is labelled once"
                ends[partition] = end
        return ends

    def until_labelled(self) -> None:
        until(lambda: self.labelled() == self.ends, "all is labelled")

    def consume(self) -> None:
        for batch in self.noted():
            for partition, begin, end in batch.ranges:
                if (partition, begin) not in self._consumed:
                    self._consumed.add((partition, begin))
                    value = range_value(partition, begin, end)
                    cells = Cells.of([(0, batch.slot, value, end - begin)])
                    self._reader.commit(TickContent(consumed=cells)).result(HANG_S)

    def discard(self) -> None:
        for process in self.members.values():
            process.discard()


@pytest.fixture
def topic(tmp_path: Path) -> Iterator[Topic]:
    start = now_slot()
    with tracker.embedded(shards=2) as embedded:
        embedded.register(PipelineSpec("p", ("in",), front_count=len(PARTITIONS), start_slot=start))
        topic = Topic(embedded, tmp_path)
        yield topic
        topic.discard()


def test_members_come_leave_and_are_killed_and_each_offset_is_labelled_once(topic: Topic) -> None:
    topic.member("a").until(lambda line: line == json.dumps(list(PARTITIONS)))
    topic.append(10)
    topic.until_labelled()
    topic.member("b").until(lambda line: line not in ("started", "[]"))
    topic.append(10)
    topic.until_labelled()
    topic.members["a"].kill()
    topic.append(10)
    topic.until_labelled()
    topic.member("c")
    topic.members["b"].tell("finish")
    assert topic.members["b"].end() == 0, topic.members["b"].errors()
    topic.append(10)
    topic.until_labelled()
    subscriber = topic.embedded.subscriber("p")
    first = min(batch.slot for batch in topic.noted())
    assert subscriber.wait_until(first, timeout_s=HANG_S)
    assert subscriber.min_time() == first, "nothing has been read"
    topic.consume()
    later = now_slot() + 1
    assert subscriber.wait_until(later, timeout_s=HANG_S), "every partition promises again"
    topic.delete_topic()
    assert subscriber.wait_until(FOREVER, timeout_s=HANG_S), "what is listed no more takes leave"
    topic.members["c"].tell("finish")
    assert topic.members["c"].end() == 0
    assert list((topic.journals / "members").iterdir()) == []


def test_a_name_that_is_taken_is_refused(topic: Topic) -> None:
    topic.member("a")
    second = Running(
        "tests.processes.partition_member", topic.embedded.target, "p", "a",
        str(topic.journals), str(topic.path / "ends.json"), errors=topic.path / "second.err",
    )  # fmt: skip
    second.start()
    assert second.end() != 0
    assert "runs in another process" in second.errors()
