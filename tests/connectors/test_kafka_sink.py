"""The sink in a Kafka topic, with a real broker."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.connectors.ordered_topic import OrderedTopic, committed_end
from tests.connectors.parts.kafka import KafkaBroker
from tests.consumers.barrier.conformance import (
    BARRIER,
    BUFFER,
    ROWS_A_BATCH,
    OrderedSinkSuite,
    Place,
    batch,
    kill_writers,
    rows_up_to,
    sink_at,
)
from tests.consumers.barrier.killed import STEPS
from tests.consumers.barrier.shown import KEYS, run_shown
from tests.waits import HANG_S, until
from tracker.consumers.barrier.kafka import KafkaSink
from tracker.consumers.barrier.sink import Position
from tracker.consumers.reorder import Released
from tracker.errors import StateError, UnavailableError


class Rows(list[Released]):
    """Rows between the first two of which something happens, once they are sent and not only looked at."""

    def __init__(self, rows: list[Released], between: Callable[[], object]) -> None:
        super().__init__(rows)
        self._between, self._times = between, 0

    def __iter__(self) -> Iterator[Released]:
        self._times += 1
        for number, row in enumerate(super().__iter__()):
            if self._times == 2 and number == 1:
                self._between()
            yield row


class TestKafkaSink(OrderedSinkSuite):
    @pytest.fixture
    def place(self, broker: KafkaBroker) -> Place:
        return OrderedTopic(broker)

    @pytest.mark.long
    def test_writers_that_die_behind_any_step_leave_each_row_once(self, place: Place) -> None:
        kill_writers(place, "steps", len(STEPS["kafka"].ends))


@pytest.fixture
def place(broker: KafkaBroker) -> OrderedTopic:
    return OrderedTopic(broker)


def written(place: OrderedTopic) -> tuple[KafkaSink, Position]:
    """A sink that is open with a batch in it, and where it is."""
    sink = KafkaSink(place.topic, place.broker.bootstrap)
    sink.open(BARRIER, BUFFER)
    rows, position = batch(0)
    sink.write(rows, position)
    return sink, position


def test_rows_of_a_key_are_in_order_in_the_partition_of_the_key(broker: KafkaBroker) -> None:
    place = OrderedTopic(broker, partitions=3)
    sink = sink_at(place)
    sink.open(BARRIER, BUFFER)
    sink.write(*batch(0, 50))
    place.add_partitions(5)
    assert sink.open(BARRIER, BUFFER) == batch(0, 50)[1]
    sink.write(*batch(50, 50))
    sink.close()
    found, rows = place.by_partition(), rows_up_to(100)
    assert found[:3] == [
        [row for row in rows if zlib.crc32(row.key.encode()) % 3 == number] for number in range(3)
    ]
    assert all(found[:3]) and not any(found[3:]), "partitions that are added are not used"
    with pytest.raises(StateError, match="writes 3 partitions, and 5 would put keys elsewhere"):
        KafkaSink(place.topic, broker.bootstrap, partitions=5).open(BARRIER, BUFFER)
    with pytest.raises(StateError, match="has 5 partitions, and 6 are to be written"):
        KafkaSink(place.topic, broker.bootstrap, partitions=6).open(BARRIER, BUFFER)


def test_a_position_outlives_the_rows(place: OrderedTopic) -> None:
    sink, position = written(place)
    sink.close()
    place.delete_rows()
    assert place.rows() == []
    again = sink_at(place)
    assert again.open(BARRIER, BUFFER) == position
    again.write(*batch(position.next))
    assert place.rows() == batch(position.next)[0]


def test_a_topic_that_was_made_anew_is_refused(place: OrderedTopic) -> None:
    written(place)[0].close()
    place.make_anew()
    with pytest.raises(StateError, match="the 7 rows of barrier 'orders' are in the one with id"):
        sink_at(place).open(BARRIER, BUFFER)


def test_a_topic_that_is_not_there_is_refused(broker: KafkaBroker) -> None:
    with pytest.raises(StateError, match="there is no topic 'nowhere': create it first"):
        KafkaSink("nowhere", broker.bootstrap).open(BARRIER, BUFFER)


def test_positions_that_could_get_lost_are_refused(place: OrderedTopic) -> None:
    """A topic that lets go of what is old, or that holds something else."""
    positions = OrderedTopic(place.broker)
    sink = KafkaSink(place.topic, place.broker.bootstrap, positions=positions.topic)
    with pytest.raises(StateError, match=r"has cleanup\.policy=delete"):
        sink.open(BARRIER, BUFFER)
    positions.configure("cleanup.policy", "compact")
    producer = Producer({"bootstrap.servers": place.broker.bootstrap})
    producer.produce(positions.topic, b"something else", BARRIER.encode(), 0)
    producer.flush(HANG_S)
    with pytest.raises(StateError, match=r"offset 0 of topic .* is not the position of a barrier"):
        sink.open(BARRIER, BUFFER)
    with pytest.raises(ValueError, match="the topic of the rows: name another"):
        KafkaSink(place.topic, place.broker.bootstrap, positions=place.topic)


def test_a_position_behind_the_open_transaction_of_another_is_waited_for(
    place: OrderedTopic,
) -> None:
    """A reader of what is committed sees nothing behind it: not the newest position."""
    other = Producer({"bootstrap.servers": place.broker.bootstrap, "transactional.id": place.topic})
    sink, _ = written(place)
    other.init_transactions(HANG_S)
    other.begin_transaction()
    other.produce(f"{place.topic}.positions", b"", b"another", 0)
    assert other.flush(HANG_S) == 0
    sink.write(*batch(ROWS_A_BATCH))
    found: list[Position | None] = []
    again = sink_at(place)
    opening = threading.Thread(target=lambda: found.append(again.open(BARRIER, BUFFER)))
    opening.start()
    with pytest.raises(UnavailableError):  # it is fenced by what waits
        while True:
            at = len(place.rows())
            sink.write(*batch(at))
    count = len(place.rows())
    other.abort_transaction(HANG_S)
    opening.join(HANG_S)
    assert found == [batch(count - ROWS_A_BATCH)[1]]
    again.write(*batch(count))
    assert place.rows() == rows_up_to(count + ROWS_A_BATCH)


def test_a_row_that_is_too_large_is_refused_by_name_and_nothing_is_written(
    place: OrderedTopic,
) -> None:
    place.configure("max.message.bytes", "2000")
    sink, position = written(place)
    rows, after = batch(position.next)
    large = Released(rows[3].position, rows[3].slot, rows[3].key, b"x" * 3_000)
    with pytest.raises(StateError, match=r"'k0005' at position 10 has 3000 bytes .* 2000 in all"):
        sink.write([*rows[:3], large, *rows[4:]], after)
    assert place.rows() == rows_up_to(position.next)
    assert sink.open(BARRIER, BUFFER) == position
    sink.write(*batch(position.next, 200))
    assert place.rows() == rows_up_to(position.next + 200), "in as many batches as it takes"


def test_a_write_that_takes_too_long_is_not_written_and_may_be_done_again(
    place: OrderedTopic,
) -> None:
    """The brokers abort it, as they do to a process that stood still."""
    # expires: the rows come when it is over
    sink = KafkaSink(place.topic, place.broker.bootstrap, transaction_timeout_s=1.0)
    sink.open(BARRIER, BUFFER)
    rows, position = batch(0)

    def until_aborted() -> None:
        until(lambda: len(place.rows()) == 0 and committed_end(place) > 0, "not aborted")

    with pytest.raises(UnavailableError, match="took more than 1 s"):
        sink.write(Rows(rows, until_aborted), position)
    assert place.rows() == []
    assert sink.open(BARRIER, BUFFER) is None
    sink.write(rows, position)
    assert place.rows() == rows


def test_the_program_of_the_page_runs(broker: KafkaBroker, tmp_path: Path) -> None:
    place = OrderedTopic(broker, name="ordered")
    run_shown("kafka.md", "python barrier in kafka", tmp_path, brokers=broker.bootstrap)
    assert [row.key for row in place.rows("orders-to-topic")] == KEYS
