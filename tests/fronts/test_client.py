"""The front library around its core: publishing, promising in the background, failing, restarting."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from fronts import front as front_module
from fronts.batches import PublishedBatch
from fronts.clock import ClockFault
from fronts.front import Front, OpenBatch
from tests.fronts.fake_node import SPEC, FakeTracker, refusal
from tests.fronts.support import of_a_front
from tests.waits import HANG_S
from tracker.client import LowmarkError, UnavailableError
from tracker.core.model import RefusalCode
from tracker.core.model.ack_values import root_value, root_values, unit_value
from tracker.errors import NotPublishedError, StateError, TrackingError


@dataclass
class World:
    """A tracker, a clock, and what the front has published: its durable record."""

    tracker: FakeTracker = field(default_factory=FakeTracker)
    now_ns: int = 0
    record: dict[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    fronts: list[Front] = field(default_factory=list)

    def front(self, **options: Any) -> Front:
        front = Front(
            "unused:1",
            "p",
            "f",
            "in",
            **of_a_front(
                options,
                clock=lambda: self.now_ns,
                heartbeat_interval_ms=1,
                node=self.tracker.connect(),
            ),
        )
        self.fronts.append(front)
        return front

    def start(self, **options: Any) -> Front:
        front = self.front(**options)

        def batches(segment: int, last: object) -> Sequence[PublishedBatch]:
            return [
                front.batch_of(number, *labels, segment=segment)
                for number, labels in sorted(self.record.items())
            ]

        return front.start(batches)

    def send(self, batch: OpenBatch) -> None:
        assert batch.number not in self.record
        self.record[batch.number] = (batch.slots, batch.values)

    def kill(self, arrived: bool = False) -> None:
        """The front ends as its process would: what it knew is gone, nothing more is committed."""
        assert self.tracker.node is not None
        self.tracker.node.crash(arrived)
        self.tracker.holding = False


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    for front in world.fronts:
        front.close(timeout_s=0)
    assert not [t for t in threading.enumerate() if t.name == "lowmark-front-f"]


def test_labels_are_slots_and_values_that_can_be_told_again(world: World) -> None:
    front = world.start()
    world.now_ns = 45
    one = front.label()
    many = front.label_many(2)
    at = front.label_at([46, 77])
    assert (one.slot, one.value) == (4, root_value("f", 0, 0))
    assert many.slots.tolist() == [4, 4] and at.slots.tolist() == [4, 7]
    assert front.publish(world.send) == 0
    values = np.concatenate([[one.value], many.values, at.values]).astype(np.uint64)
    assert world.record[0][1].tolist() == values.tolist() == root_values("f", 0, range(5)).tolist()
    assert front.label().value == root_value("f", 1, 0)


def test_an_item_is_created_before_anything_beyond_it_is_promised(world: World) -> None:
    tracker = world.tracker
    front = world.start()
    world.now_ns = 50
    tracker.wait(lambda: tracker.heartbeat == 5)
    front.label()
    world.now_ns = 90
    tracker.holding = True
    front.publish(world.send)
    tracker.wait(lambda: tracker.node and tracker.node.held)
    assert not front.wait_durable(0)
    assert tracker.heartbeat == 5 and tracker.created == []
    tracker.release()
    assert front.wait_durable(HANG_S)
    tracker.wait(lambda: tracker.heartbeat == 9)
    assert tracker.created == [(5, root_value("f", 0, 0), 1)]
    assert front.last_durable == 0


def test_nothing_to_publish_is_no_batch(world: World) -> None:
    front = world.start()
    assert front.publish(world.send) is None and front.wait_durable(HANG_S)
    assert world.record == {} and world.tracker.created == []


def test_units_are_the_items_when_publishing_names_them(world: World) -> None:
    front = world.start()
    front.publish_now(3, lambda batch: ["file:///a", "file:///b"])
    assert front.wait_durable(HANG_S)
    both = unit_value("file:///a") ^ unit_value("file:///b")
    assert world.tracker.created == [(0, both, 2)]
    assert [(u.segment, u.name, u.slot) for u in world.tracker.units] == [
        (1, "file:///a", 0),
        (1, "file:///b", 0),
    ]


def test_two_fronts_of_one_name_in_two_nodes_have_different_values(world: World) -> None:
    assert world.start(node_id="n").label().value == root_value("n/f", 0, 0)


def test_a_batch_whose_sending_failed_is_sent_again_unchanged_before_the_next(world: World) -> None:
    front = world.start()
    front.label()

    def fail(batch: OpenBatch) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        front.publish(fail)
    world.now_ns = 30
    front.label()
    with pytest.raises(StateError, match="2 items are labelled and not published"):
        front.publish_now(1, world.send)
    assert front.publish(world.send) == 1
    assert [slots.tolist() for slots, _ in world.record.values()] == [[0], [3]]
    assert front.wait_durable(HANG_S)
    assert [row[0] for row in world.tracker.created] == [0, 3]


def test_a_batch_that_never_got_out_is_withdrawn_and_does_not_hold_the_promise(
    world: World,
) -> None:
    front = world.start()

    def fail(batch: OpenBatch) -> None:
        raise NotPublishedError("no such table")

    with pytest.raises(NotPublishedError):
        front.publish_now(1, fail)
    world.now_ns = 80
    world.tracker.wait(lambda: world.tracker.heartbeat == 8)
    assert front.publish_now(1, world.send) == 0


@pytest.mark.parametrize(
    "code", [RefusalCode.BEYOND_HORIZON, RefusalCode.FULL, RefusalCode.NOT_READY]
)
def test_a_refusal_that_passes_is_said_and_waited_out(
    world: World,
    code: RefusalCode,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(front_module._PASSES, code, 0.0)
    front = world.start()
    front.label()
    world.now_ns = 70
    world.tracker.refusals = [refusal(code)]
    front.publish(world.send)
    assert front.wait_durable(HANG_S)
    world.tracker.wait(lambda: world.tracker.heartbeat == 7)
    assert world.tracker.created == [(0, root_value("f", 0, 0), 1)]
    assert f"commits again until it is taken: refused as {code.value}" in caplog.text


def test_a_refusal_that_passes_soon_alarms_nobody(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    front = world.start()
    world.tracker.refusals = [refusal(RefusalCode.BEYOND_HORIZON), refusal(RefusalCode.NOT_READY)]
    front.publish_now(1, world.send)
    assert front.wait_durable(HANG_S) and world.tracker.refusals == []
    assert caplog.text == ""


def test_a_front_that_is_refused_for_space_says_so_to_who_publishes(world: World) -> None:
    front = world.start(max_waiting_batches=1)
    world.tracker.refusals = [refusal(RefusalCode.FULL)] * 1_000
    front.publish_now(1, world.send)
    world.tracker.wait(lambda: len(world.tracker.refusals) < 1_000)
    said = "commits again until it is taken: refused as full"
    with pytest.raises(UnavailableError, match=said):
        # The refusal is known to the front a moment after it was given.
        front.publish_now(1, world.send, timeout_s=0.2)  # expires: there is no room
    world.tracker.refusals = []
    assert front.wait_durable(HANG_S), "it has not died of it"


@pytest.mark.parametrize("code", [RefusalCode.BELOW_MIN_TIME, RefusalCode.ROLLED_BACK])
def test_a_refusal_that_stays_ends_the_front_which_promises_no_more(
    world: World, code: RefusalCode
) -> None:
    front = world.start()
    front.label()
    world.now_ns = 70
    world.tracker.refusals = [refusal(code)]
    front.publish(world.send)
    with pytest.raises(TrackingError, match=f"can go on no more .* refused as {code.value}"):
        front.wait_durable(HANG_S)
    for use in (front.label, lambda: front.publish(world.send), front.leave):
        with pytest.raises(TrackingError):
            use()
    assert world.tracker.heartbeat <= 0 and isinstance(front.failure, TrackingError)


def test_publishing_waits_for_the_tracker_and_fails_in_the_end(world: World) -> None:
    world.tracker.holding = True
    front = world.start(max_waiting_batches=2)
    for _ in range(2):
        front.publish_now(1, world.send)
    with pytest.raises(
        UnavailableError, match=r"2 published batches are not durable .* limit is 2"
    ):
        front.publish_now(1, world.send, timeout_s=0.01)  # expires: there is no room
    assert len(world.record) == 2
    done = threading.Thread(target=lambda: front.publish_now(1, world.send))
    done.start()
    world.tracker.release()
    done.join(HANG_S)
    assert sorted(world.record) == [0, 1, 2] and front.wait_durable(HANG_S)


def test_leaving_commits_everything_first_and_closes_the_node(world: World) -> None:
    front = world.start()
    world.tracker.holding = True
    front.publish_now(2, world.send)
    leaving = threading.Thread(target=front.leave)
    leaving.start()
    world.tracker.wait(lambda: world.tracker.node and world.tracker.node.held)
    assert not world.tracker.left
    world.tracker.release()
    leaving.join(HANG_S)
    assert world.tracker.left and sum(count for _, _, count in world.tracker.created) == 2
    assert world.tracker.node is not None and world.tracker.node.gone
    with pytest.raises(LowmarkError, match="is closed"):
        front.label()


def test_leaving_with_unpublished_items_or_without_a_tracker_says_so(world: World) -> None:
    front = world.start()
    front.label()
    with pytest.raises(StateError, match="1 labelled items that are not published"):
        front.leave()
    world.tracker.holding = True
    front.publish(world.send)
    with pytest.raises(UnavailableError, match=r"has not left after 0\.01 s"):
        front.leave(timeout_s=0.01)  # expires: nobody answers


def test_a_front_must_be_started(world: World) -> None:
    with pytest.raises(LowmarkError, match=r"call start\(\) first"):
        world.front().label()


def test_a_clock_that_steps_back_is_reported_and_labels_stay(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    front = world.start()
    world.now_ns = 500
    assert front.label().slot == 50
    with caplog.at_level(logging.WARNING, "lowmark.front"):
        world.now_ns = 480
        assert front.label().slot == 50
    (record,) = [r for r in caplog.records if r.name == "lowmark.front"]
    assert "front 'f': the clock stepped back by 2e-05 ms" in record.getMessage()
    assert front.clock_faults_ns[ClockFault.STEPPED_BACK] == 20


def test_a_clock_that_fails_ends_the_front(world: World) -> None:
    front = world.start()

    def broken() -> int:
        raise RuntimeError("no clock")

    front._clock = broken
    assert front._thread is not None
    front._thread.join(HANG_S)
    with pytest.raises(TrackingError, match="no clock"):
        front.label()


# --- starting again -------------------------------------------------------------------------------


@pytest.mark.parametrize("arrived", [False, True])
def test_killed_between_publishing_and_committing(world: World, arrived: bool) -> None:
    """Whether or not the tick arrived, each item is created once and labels go on."""
    tracker = world.tracker
    front = world.start()
    world.now_ns = 60
    tracker.wait(lambda: tracker.heartbeat == 6)
    tracker.holding = True
    front.publish_now(1, world.send)
    tracker.wait(lambda: tracker.node and tracker.node.held)
    world.kill(arrived)
    assert len(tracker.created) == int(arrived)

    world.now_ns = 20
    again = world.start()
    assert again.wait_durable(HANG_S)
    assert again.label().slot == 6
    assert again.publish(world.send) == 1 and again.wait_durable(HANG_S)
    assert tracker.created == [(6, root_value("f", 0, 0), 1), (6, root_value("f", 1, 0), 1)]


def test_a_rewritten_record_is_refused_and_the_node_closed(world: World) -> None:
    front = world.start()
    front.publish_now(1, world.send)
    assert front.wait_durable(HANG_S)
    world.kill()
    world.record[0] = (np.array([3]), np.array([9], np.uint64))
    with pytest.raises(StateError, match="was rolled back or rewritten"):
        world.start()
    assert world.tracker.node is not None and world.tracker.node.closed


def test_closing_waits_for_what_was_published(world: World) -> None:
    with world.start() as front:
        world.tracker.holding = True
        front.publish_now(1, world.send)
        world.tracker.wait(lambda: world.tracker.node and world.tracker.node.held)
        threading.Thread(target=world.tracker.release).start()
    assert len(world.tracker.created) == 1 and not world.tracker.left
    assert SPEC.slack_ns == 10
