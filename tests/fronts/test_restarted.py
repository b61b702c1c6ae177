"""Fronts of a pipeline that was restarted: what they published from its first slot on is committed anew,
what lies below is complete and may be gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tracker
from fronts.files import FileFront, PublishedFile
from fronts.front import FrontOptions
from fronts.ranges import RangeFront
from tests.fronts.support import consume, consume_cells, file_front, new_reader, reached
from tests.waits import HANG_S
from tracker.client import NodeClient
from tracker.client.embedded import EmbeddedTracker
from tracker.core.model import Cells, Edge, PipelineSpec, TickContent
from tracker.core.model.ack_values import range_value
from tracker.core.model.units import unit_name
from tracker.errors import TrackingError

SPEC = PipelineSpec("p", ("in",), fronts=("a",), slack_ns=1_000)
START_SLOT = 1_000


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.slot = START_SLOT

    def __call__(self) -> int:
        return self.slot * SPEC.slack_ns


@pytest.fixture
def embedded() -> Iterator[EmbeddedTracker]:
    with tracker.embedded(shards=2) as embedded:
        embedded.register(SPEC)
        yield embedded


@pytest.fixture
def clock() -> Clock:
    return Clock()


def published(front: FileFront, clock: Clock, slot: int) -> PublishedFile:
    clock.slot = slot
    file = front.write([{"slot": slot}])
    assert file is not None and file.slot == slot and front.wait_durable(HANG_S)
    return file


def ended(front: FileFront) -> None:
    with pytest.raises(TrackingError, match="generation 1 begins at slot"):
        while True:
            front.write([{}])
            front.wait_durable(HANG_S)
    front.close()


def test_files_from_the_first_slot_on_are_committed_anew(
    embedded: EmbeddedTracker, tmp_path: Path, clock: Clock
) -> None:
    front = file_front(embedded, tmp_path, clock=clock).start(HANG_S)
    first, second, third = (published(front, clock, slot) for slot in (1_010, 1_020, 1_030))
    consume(new_reader(embedded), first)
    reached(embedded, second.slot)
    with embedded.admin() as admin:
        assert admin.restart("p", 0, second.slot) == (1, second.slot)
    ended(front)
    first.path.unlink()

    front = file_front(embedded, tmp_path, clock=clock).start(HANG_S)
    assert front.front.replay_from == second.slot
    assert front.wait_durable(HANG_S)
    again = new_reader(embedded)
    names = [unit_name(str(file.path)) for file in (second, third)]
    assert again.resolve_units("in", names, 1_000) == dict(
        zip(names, (second.slot, third.slot), strict=True)
    )
    for file in front.published():
        consume(again, file)
    fourth = published(front, clock, 1_040)
    assert fourth.batch == front.published()[-2].batch + 1
    reached(embedded, fourth.slot)
    with embedded.admin() as admin:
        assert admin.pipeline("p").state.late_items == 0
    front.close()

    front = file_front(embedded, tmp_path, clock=clock).start(HANG_S)  # as after any other kill
    consume(again, fourth)
    clock.slot = 1_050
    reached(embedded, 1_050)
    front.close()


def test_a_front_whose_files_are_all_complete_goes_on_with_its_numbers(
    embedded: EmbeddedTracker, tmp_path: Path, clock: Clock
) -> None:
    front = file_front(embedded, tmp_path, clock=clock).start(HANG_S)
    node = new_reader(embedded)
    for slot in (1_010, 1_020):
        consume(node, published(front, clock, slot))
    clock.slot = 1_100
    reached(embedded, 1_100)
    front.close()
    with embedded.admin() as admin:
        assert admin.restart("p", 0, 1_100) == (1, 1_100)
    front = file_front(embedded, tmp_path, clock=clock).start(HANG_S)
    assert published(front, clock, 1_110).batch == 2
    reached(embedded, 1_110)
    front.close()


def test_ranges_from_the_first_slot_on_are_committed_anew(
    embedded: EmbeddedTracker, tmp_path: Path, clock: Clock
) -> None:
    def started() -> RangeFront:
        return RangeFront(
            embedded.target,
            "p",
            "a",
            "in",
            tmp_path / "journal",
            options=FrontOptions(clock=clock, heartbeat_interval_ms=2),
        ).start(HANG_S)

    def consume_range(node: NodeClient, slot: int, begin: int, end: int) -> None:
        consume_cells(node, (slot, range_value("t/0", begin, end), end - begin))

    front = started()
    for slot, end in ((1_010, 5), (1_020, 9)):
        clock.slot = slot
        front.publish({"t/0": end})
        assert front.wait_durable(HANG_S)
    consume_range(new_reader(embedded), 1_010, 0, 5)
    reached(embedded, 1_020)
    front.close()
    with embedded.admin() as admin:
        assert admin.restart("p", 0, 1_020) == (1, 1_020)
    front = started()
    assert front.wait_durable(HANG_S)
    clock.slot = 1_030
    assert front.publish({"t/0": 11}) == 2, "its ends and numbers go on"
    assert front.wait_durable(HANG_S)
    node = new_reader(embedded)
    consume_range(node, 1_020, 5, 9)
    reached(embedded, 1_030)
    consume_range(node, 1_030, 9, 11)
    clock.slot = 1_040
    reached(embedded, 1_040)
    front.close()


def test_what_a_front_left_behind_is_told_once_a_generation(tmp_path: Path, clock: Clock) -> None:
    with tracker.embedded() as embedded:
        embedded.register(PipelineSpec("p", ("in",), open=True, slack_ns=1_000))
        front = file_front(embedded, tmp_path, clock=clock).start(HANG_S)
        file = published(front, clock, 1_010)
        front.leave()
        with embedded.admin() as admin:
            assert admin.restart("p", 0, file.slot) == (1, file.slot)
        for number in range(2):
            front = file_front(embedded, tmp_path, clock=clock).start(HANG_S)
            assert front.wait_durable(HANG_S)
            if number == 0:
                consume(new_reader(embedded), file)
            clock.slot = 1_020 + number
            reached(embedded, clock.slot)  # created again, it would be open
            front.leave()


def test_a_journal_keeps_what_is_complete_where_it_was_read_and_not_in_the_whole_pipeline(
    tmp_path: Path, clock: Clock
) -> None:
    """A restart begins at min time of the whole pipeline, and all from there on is committed anew: also what its own
    segment was through with, and what had come of it is dropped."""
    spec = PipelineSpec("p", ("in", "out"), (Edge("in", "out"),), fronts=("a",), slack_ns=1_000)
    options = FrontOptions(clock=clock, heartbeat_interval_ms=2, prune_above_bytes=1)
    with tracker.embedded() as embedded:
        embedded.register(spec)

        def started() -> RangeFront:
            front = RangeFront(embedded.target, "p", "a", "in", tmp_path / "j", options=options)
            return front.start(HANG_S)

        front, node, subscriber = started(), new_reader(embedded), embedded.subscriber("p")
        for slot, begin, end in ((1_010, 0, 5), (1_020, 5, 9)):
            clock.slot = slot
            front.publish({"t/0": end})
            value = range_value("t/0", begin, end)
            read = TickContent(
                consumed=Cells.of([(0, slot, value, end - begin)]),
                created=Cells.of([(1, slot, begin + 1, 1)]),
            )
            node.commit(read).result(HANG_S)
        clock.slot = 1_030
        assert subscriber.wait_until(1_030, "in", HANG_S)
        front.publish({"t/0": 11})
        assert front.wait_durable(HANG_S) and subscriber.min_time() == 1_010
        with embedded.admin() as admin:
            assert admin.restart("p", 0) == (1, 1_010)
        front.close()

        front = started()
        assert front.wait_durable(HANG_S)
        again = new_reader(embedded)
        for slot, begin, end in ((1_010, 0, 5), (1_020, 5, 9), (1_030, 9, 11)):
            consume_cells(again, (slot, range_value("t/0", begin, end), end - begin))
        clock.slot = 1_040
        reached(embedded, 1_040)
        with embedded.admin() as admin:
            assert admin.pipeline("p").state.late_items == 0, "min time has passed them before"
        front.close()


def test_a_front_of_which_all_was_complete_leaves_and_comes_again(
    tmp_path: Path, clock: Clock
) -> None:
    """What lies below the first slot counts as known when it leaves: it has published nothing since."""
    with tracker.embedded() as embedded:
        embedded.register(PipelineSpec("p", ("in",), open=True, slack_ns=1_000))
        front = file_front(embedded, tmp_path, clock=clock).start(HANG_S)
        consume(new_reader(embedded), published(front, clock, 1_010))
        clock.slot = 1_100
        reached(embedded, 1_100)
        front.close()
        with embedded.admin() as admin:
            assert admin.restart("p", 0, 1_100) == (1, 1_100)
        for _ in range(2):
            front = file_front(embedded, tmp_path, clock=clock).start(HANG_S)
            clock.slot += 1
            reached(embedded, clock.slot)
            front.leave()
