"""The front of a topic: what it labels, what it promises, and what it refuses."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from fronts.journals import JournalFile
from fronts.kafka import KafkaFront, KafkaGroup, KafkaRecords
from fronts.kafka_times import TimedRecord
from local_tracker.spark.formats.kafka import TopicLabels
from local_tracker.spark.formats.ranges import OffsetRanges, RangesError, range_cells, ranges
from tests.files.s3 import s3_bucket
from tests.fronts.fake_node import FakeTracker
from tests.fronts.fake_topic import FakeRecords, FakeTopic
from tests.fronts.support import of_a_front
from tests.waits import HANG_S, until
from tracker.client.topics import TopicPlace
from tracker.core.model.ack_values import range_value
from tracker.core.model.ranges import NotedRanges
from tracker.errors import (
    LowmarkError,
    NotPublishedError,
    StateError,
    TrackingError,
    UnavailableError,
)

NEVER_MS = 3_600_000
"""So rarely a front looks by itself where the test says when."""


class Kafka:
    """A tracker, a topic and a clock, and the runs of a front over them."""

    def __init__(self, directory: Path) -> None:
        self.topic, self.tracker = FakeTopic(), FakeTracker()
        self.topics = str(directory / "topics")
        self.now_ns = 10
        self.fronts: list[KafkaFront] = []

    def start(
        self, front: str = "f", poll_interval_ms: float = NEVER_MS, **more: Any
    ) -> KafkaFront:
        self.fronts.append(
            KafkaFront(
                "unused:1",
                "p",
                front,
                "in",
                self.topic,
                self.topics,
                **of_a_front(
                    more,
                    node=self.tracker.connect(),
                    clock=lambda: self.now_ns,
                    heartbeat_interval_ms=1,
                    poll_interval_ms=poll_interval_ms,
                ),
            )
        )
        return self.fronts[-1].start(HANG_S)

    def reader(self, topic_id: str | None = None) -> OffsetRanges:
        place = TopicPlace(self.topics, "p", "orders")
        return TopicLabels(place, "in", topic_id).ranges()

    def close(self) -> None:
        for front in self.fronts:
            if front.failure is None:
                front.close()


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Kafka]:
    made = Kafka(tmp_path)
    yield made
    made.close()


class Disk:
    """The one that the journals are on: while it is full, no batch is recorded."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.is_full, self.refused = False, 0
        append = JournalFile.append

        def appended(journal: JournalFile, batch: NotedRanges, timeout_s: float) -> None:
            if self.is_full:
                self.refused += 1
                raise NotPublishedError("full") from OSError(errno.ENOSPC, "no space left")
            append(journal, batch, timeout_s)

        patch.setattr(JournalFile, "append", appended)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_what_is_new_is_labelled_with_the_moment_of_the_question(kafka: Kafka) -> None:
    kafka.topic.now = {0: 3}
    front = kafka.start()
    kafka.now_ns = 50
    kafka.topic.now = {0: 3, 1: 4}
    front.look()
    assert front.wait_durable(HANG_S)
    assert kafka.tracker.created == [
        (1, range_value("orders/0", 0, 3), 3), (5, range_value("orders/1", 0, 4), 4)
    ]  # fmt: skip
    assert front.ends == {"orders/0": 3, "orders/1": 4}


def test_it_promises_no_more_than_the_moment_at_which_the_brokers_answered(kafka: Kafka) -> None:
    front = kafka.start()
    kafka.now_ns = 90
    front.look()
    kafka.tracker.wait(lambda: kafka.tracker.heartbeat == 9)
    kafka.topic.is_away = True
    kafka.now_ns = 200
    with pytest.raises(UnavailableError):
        front.look()
    kafka.topic.is_away = False
    kafka.now_ns = 210
    kafka.topic.now = {0: 1}  # it came while nobody answered
    front.look()
    assert front.wait_durable(HANG_S)
    beats = [beat.slot for tick in kafka.tracker.ticks for beat in tick.heartbeats]
    assert [beat for beat in beats if 9 < beat < 21] == []
    assert kafka.tracker.created == [(21, range_value("orders/0", 0, 1), 1)]


def test_it_goes_on_by_itself_once_the_brokers_are_back(kafka: Kafka) -> None:
    front = kafka.start(poll_interval_ms=1)
    kafka.topic.is_away = True
    asked = kafka.topic.asked
    until(lambda: kafka.topic.asked > asked + 2)
    kafka.topic.now = {0: 2}
    kafka.topic.is_away = False
    until(lambda: front.ends == {"orders/0": 2})
    assert front.failure is None


def test_the_next_run_labels_what_came_meanwhile_once(kafka: Kafka) -> None:
    kafka.topic.now = {0: 3}
    kafka.start().close()
    kafka.topic.now = {0: 5}
    kafka.now_ns = 70
    front = kafka.start()
    assert front.wait_durable(HANG_S)
    assert kafka.tracker.created == [
        (1, range_value("orders/0", 0, 3), 3), (7, range_value("orders/0", 3, 5), 2)
    ]  # fmt: skip


def test_records_that_were_there_before_it_begins_are_nobodys(kafka: Kafka) -> None:
    kafka.topic.now = {0: 7}
    front = kafka.start(begin="latest")
    assert front.begins == {"orders/0": 7}
    front.close()
    kafka.topic.now = {0: 9}
    front = kafka.start(begin="latest")  # where the first run began counts
    assert front.ends == {"orders/0": 9}
    reader = kafka.reader()
    assert list(reader.slots("orders/0", 5, 8)) == [(5, 7, None), (7, 8, 1)]
    assert list(reader.slots("orders/0", 2, 4)) == [(2, 4, None)]


def test_removed_records_are_not_labelled_and_those_removed_later_count_as_read(
    kafka: Kafka,
) -> None:
    kafka.topic.begins, kafka.topic.now = {0: 4}, {0: 9}
    kafka.start()
    place = TopicPlace(kafka.topics, "p", "orders")
    reader = TopicLabels(place, "in").ranges(from_earliest=True)
    # By the time that the query begins, the records 4 and 5 have been removed too.
    offsets = '{"orders":{"0":6}}', '{"orders":{"0":9}}'
    cells = range_cells(reader, ranges(1, reader, *offsets, "batch 0", is_first=True))
    assert list(cells.rows()) == [(1, 1, range_value("orders/0", 4, 9), 5)]


def test_a_query_that_leaves_labelled_records_out_is_refused(kafka: Kafka) -> None:
    kafka.topic.now = {0: 9, 1: 2}
    kafka.start()
    reader = kafka.reader()
    offsets = '{"orders":{"0":9,"1":0}}', '{"orders":{"0":9,"1":2}}'
    read = ranges(1, reader, *offsets, "batch 0", is_first=True)
    with pytest.raises(RangesError, match=r"'orders/0' is labelled from offset 0 .* read at 9"):
        range_cells(reader, read)


def test_a_partition_that_comes_later_begins_at_its_first_offset(kafka: Kafka) -> None:
    front = kafka.start()
    kafka.topic.now = {0: 1, 1: 5}
    front.look()
    reader = kafka.reader()
    offsets = '{"orders":{"0":1}}', '{"orders":{"0":1,"1":5}}'
    (read,) = ranges(1, reader, *offsets, "batch 3")
    assert (read.partition, read.begin, read.end, read.is_first) == ("orders/1", 0, 5, True)
    assert list(range_cells(reader, [read]).rows()) == [(1, 1, range_value("orders/1", 0, 5), 5)]


def test_a_partition_that_is_gone_from_a_batch_is_an_error(kafka: Kafka) -> None:
    offsets = '{"orders":{"0":1,"1":5}}', '{"orders":{"0":3}}'
    with pytest.raises(RangesError, match="partition 'orders/1' is gone after offset 5"):
        ranges(1, kafka.reader(), *offsets, "batch 3")


def test_an_end_that_moves_back_ends_the_front(kafka: Kafka) -> None:
    kafka.topic.now = {0: 5}
    front = kafka.start(poll_interval_ms=1)
    kafka.topic.now = {0: 4}
    until(lambda: front.failure)
    with pytest.raises(LowmarkError, match=r"'orders/0' ends at offset 4, and ended at 5 before"):
        front.close()


@pytest.mark.parametrize("now", [{0: 5}, {0: 9}], ids=["empty", "outgrown"])
def test_a_topic_that_was_made_anew_is_refused(kafka: Kafka, now: dict[int, int]) -> None:
    kafka.topic.now = {0: 5}
    kafka.start().close()
    kafka.topic.topic_id, kafka.topic.now = "id-2", now
    with pytest.raises(
        StateError, match="has id id-2, and front f has labelled the one with id id-1"
    ):
        kafka.start()
    with pytest.raises(RangesError, match="has id id-2"):
        kafka.reader("id-2").slots("orders/0", 0, 1)


def test_one_front_labels_a_topic_for_a_segment(kafka: Kafka) -> None:
    kafka.start("f").close()
    with pytest.raises(StateError, match="belongs to front f, so front g cannot label it too"):
        kafka.start("g")


def test_a_reader_waits_for_the_front(kafka: Kafka) -> None:
    reader = kafka.reader()
    with pytest.raises(UnavailableError, match="nobody labels for segment 'in'"):
        reader.slots("orders/0", 0, 1)
    front = kafka.start()
    kafka.topic.now = {0: 2}
    front.look()

    def slots() -> list[tuple[int, int, int | None]] | None:
        try:
            return list(reader.slots("orders/0", 0, 2))
        except UnavailableError:
            return None

    assert until(slots) == [(0, 2, 1)]


def test_a_front_that_leaves_labels_what_is_there(kafka: Kafka) -> None:
    front = kafka.start()
    kafka.topic.now = {0: 2}
    front.leave()
    assert kafka.tracker.left
    assert kafka.tracker.created == [(1, range_value("orders/0", 0, 2), 2)]


def test_records_are_labelled_by_their_own_timestamps(kafka: Kafka) -> None:
    records = FakeRecords(kafka.topic)
    kafka.topic.begins = {0: 0, 1: 0}
    records.put(0, 10, 12, 35, 60)
    records.put(1, 20, 70)
    front = kafka.start(timestamps=records)
    front.look()
    assert front.ends == {"orders/0": 3, "orders/1": 1}
    kafka.tracker.wait(lambda: kafka.tracker.heartbeat == 6)  # partition 0 has come to 60 alone
    records.put(0, 80)
    front.leave()
    reader = kafka.reader()
    assert list(reader.slots("orders/0", 0, 5)) == [
        (0, 2, 1), (2, 3, 3), (3, 4, 6), (4, 5, 8)
    ]  # fmt: skip
    assert list(reader.slots("orders/1", 0, 2)) == [(0, 1, 2), (1, 2, 7)]
    assert front.late == 0


def test_a_timestamp_of_the_far_future_is_refused_before_it_is_recorded(kafka: Kafka) -> None:
    """Microseconds taken for milliseconds: its tick would be refused for ever, and so would those of all later records."""
    records = FakeRecords(kafka.topic)
    far_ms = 1_700_000_000_000_000
    records.put(0, 10, 20, far_ms * 1_000_000, 30)
    front = kafka.start(timestamps=records)
    told = rf"offset 2 of 'orders/0' has the timestamp {far_ms} ms.*limit is.*start the front again"
    with pytest.raises(StateError, match=told):
        front.look()
    front.close()
    assert front.ends == {"orders/0": 1}


def test_the_next_run_by_timestamps_reads_on_where_the_last_one_was(kafka: Kafka) -> None:
    records = FakeRecords(kafka.topic)
    records.put(0, 10, 20, 30)
    front = kafka.start(timestamps=records)
    front.look()
    front.close()
    assert front.ends == {"orders/0": 2}
    front = kafka.start(timestamps=records)
    records.put(0, 15)  # behind what was labelled
    front.leave()
    reader = kafka.reader()
    assert list(reader.slots("orders/0", 0, 4)) == [(0, 1, 1), (1, 2, 2), (2, 4, 3)]
    assert front.late == 1


def test_the_labels_of_a_topic_may_be_in_a_store(kafka: Kafka) -> None:
    with s3_bucket() as bucket:
        kafka.topics = f"{bucket}/topics"
        front = kafka.start("a/front")
        kafka.topic.now = {0: 3}
        front.look()
        assert [piece[:2] for piece in kafka.reader().slots("orders/0", 0, 3)] == [(0, 3)]
        front.close()
        kafka.topic.now = {0: 5}
        kafka.start("a/front")
        read = kafka.reader().slots("orders/0", 0, 5)
        assert [piece[:2] for piece in read] == [(0, 3), (3, 5)]
        kafka.close()
        kafka.fronts.clear()


# --- what is complete, and let go of ---------------------------------------------------------------


@pytest.mark.parametrize("in_store", [False, True], ids=["file", "store"])
def test_a_reader_passes_what_nobody_waited_for_and_is_let_go_of(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, in_store: bool
) -> None:
    """What the front had labelled before it was evicted held nothing, so min time has passed it before its reader came
    there: it is not to be counted, nor may the reader stand before it for good."""
    monkeypatch.setattr("fronts.ranges._min_time", lambda target, pipeline: kafka.now_ns // 10)
    monkeypatch.setattr("fronts.journals.PRUNE_ABOVE_RECORDS", 5)
    with s3_bucket() if in_store else nullcontext(kafka.topics) as place:
        kafka.topics = f"{place}/topics"
        kafka.topic.now = {0: 0, 1: 3}
        front = kafka.start(prune_above_bytes=100)
        for number in range(1, 20):
            kafka.now_ns, kafka.topic.now = number * 10, {0: number, 1: 3}
            front.look()
        reader = kafka.reader()
        pieces = list(reader.slots("orders/0", 0, 19))
        assert pieces[0][0] == 0 and pieces[0][2] is None
        assert all(slot == end for _, end, slot in pieces[1:])
        assert len(pieces) < 15
        # Of a partition that was quiet the last may be kept.
        assert {(piece[1], piece[2]) for piece in reader.slots("orders/1", 0, 3)} <= {
            (3, None),
            (3, 1),
        }
        kafka.topic.now = {0: 20, 1: 4}
        front.look()
        assert list(kafka.reader().slots("orders/1", 2, 4))[-1] == (3, 4, 19)
        kafka.close()
        kafka.fronts.clear()


# --- what was found and cannot be recorded --------------------------------------------------------


def test_what_it_has_found_and_cannot_record_holds_min_time(kafka: Kafka, disk: Disk) -> None:
    """It had found the records by 50, so its promise stays there until they are labelled, however often it has looked
    since; a later promise would say that they are processed."""
    front = kafka.start()
    kafka.topic.now, disk.is_full = {0: 3}, True
    for moment in (50, 90):
        kafka.now_ns = moment
        with pytest.raises(OSError, match="no space left"):
            front.look()
    kafka.topic.now, disk.is_full, kafka.now_ns = {0: 7}, False, 200
    front.look()
    assert front.wait_durable(HANG_S)
    assert list(kafka.reader().slots("orders/0", 0, 7)) == [(0, 3, 5), (3, 7, 20)]


def test_timestamps_that_cannot_be_recorded_are_not_forgotten(kafka: Kafka, disk: Disk) -> None:
    """Each record has the slot of its timestamp, whatever came in between."""
    records = FakeRecords(kafka.topic)
    records.put(0, 10, 20, 30, 40)
    front = kafka.start(timestamps=records)
    disk.is_full = True
    with pytest.raises(OSError, match="no space left"):
        front.look()
    disk.is_full = False
    front.leave()
    found = list(kafka.reader().slots("orders/0", 0, 4))
    assert found == [(0, 1, 1), (1, 2, 2), (2, 3, 3), (3, 4, 4)]


def group_of(kafka: Kafka) -> KafkaGroup:
    return KafkaGroup(
        "unused:1", "p", "g", "in", kafka.topic, kafka.topics,
        **of_a_front(
            {}, node=kafka.tracker.connect(), clock=lambda: kafka.now_ns, heartbeat_interval_ms=1,
            poll_interval_ms=1, member="m",
        ),
    )  # fmt: skip


def test_of_a_topic_that_was_made_anew_a_group_holds_min_time(kafka: Kafka) -> None:
    """The new one has fewer partitions: whoever labelled the others does not leave for that."""
    group = group_of(kafka).start(HANG_S)
    kafka.tracker.wait(lambda: kafka.tracker.heartbeat == 1)
    kafka.topic.topic_id, kafka.topic.now = "id-2", {}
    until(lambda: group.failure is not None)
    with pytest.raises(TrackingError, match="was deleted and made anew"):
        group.close()
    assert not kafka.tracker.left


def test_a_group_holds_min_time_of_a_partition_that_it_cannot_record(
    kafka: Kafka, disk: Disk
) -> None:
    with closing(group_of(kafka).start(HANG_S)):
        kafka.tracker.wait(lambda: kafka.tracker.heartbeat == 1)
        disk.is_full, kafka.now_ns = True, 50
        kafka.topic.now = {0: 3}
        for moment in (90, 130):
            refused = disk.refused
            until(lambda before=refused: disk.refused > before + 2)  # type: ignore[misc]
            kafka.now_ns = moment
        disk.is_full = False
        kafka.tracker.wait(lambda: kafka.tracker.created)
    ((slot, *_),) = kafka.tracker.created
    assert slot == 5


class Message:
    """A record of partition 0, or an error that came in its place."""

    def __init__(self, offset: int, time_ms: int, code: int | None = None) -> None:
        self._offset, self._time_ms, self._code = offset, time_ms, code

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, self._time_ms

    def error(self) -> Any:
        return None if self._code is None else KafkaError(self._code)


def test_records_that_came_with_an_error_are_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client is beyond them, and gives them out no more: they would get a later slot than their own."""
    answers = [
        [Message(0, 10), Message(1, 20), Message(2, 0, KafkaError.UNKNOWN_TOPIC_OR_PART)],
        [],
    ]
    records = KafkaRecords("orders", "unused:1")
    records.close()
    monkeypatch.setattr(
        records, "_consumer", SimpleNamespace(consume=lambda *_: answers.pop(0), close=print)
    )
    found, failed = list[TimedRecord](), 0
    while answers:
        try:
            found += records.read()
        except UnavailableError:
            failed += 1
    assert [record.offset for record in found] == [0, 1] and failed == 1


def test_who_takes_a_topic_over_asks_again_when_it_has_it(kafka: Kafka) -> None:
    """The run before labelled on until it ended: what had been found before that was taken for a topic that had lost records."""
    kafka.topic.now = {0: 3}
    first = kafka.start()
    asked = kafka.topic.asked
    with ThreadPoolExecutor() as pool:
        second = pool.submit(kafka.start)
        until(lambda: kafka.topic.asked >= asked + 2)
        kafka.topic.now = {0: 7}
        first.look()
        assert first.wait_durable(HANG_S)
        first.close()
        assert second.result(HANG_S).ends == {"orders/0": 7}
