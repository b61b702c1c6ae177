"""A node's holds against real servers: begun with what they stand for or by a front, moved, let go of, found again."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pytest

import tracker
from tests.client.support import TWO_SEGMENTS, consume, create, done, joined_front, promise
from tests.waits import HANG_S, until
from tracker.client import Admin, LowmarkError, NodeClient, RefusedError
from tracker.client.embedded import EmbeddedTracker
from tracker.core.model import HOLD_FRONT, Cells, HoldMove, PipelineSpec, RefusalCode, TickContent
from tracker.core.model.slots import FOREVER
from tracker.errors import UnavailableError

FED = TWO_SEGMENTS.segments[0]


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddedTracker]:
    with tracker.embedded(shards=3) as embedded:
        yield embedded


@pytest.fixture
def pipeline(running: EmbeddedTracker, request: pytest.FixtureRequest) -> str:
    """A pipeline of its own for each test."""
    name = request.node.name
    spec = TWO_SEGMENTS
    running.register(
        PipelineSpec(name, spec.segments, spec.edges, spec.fronts, horizon_slots=1_000_000)
    )
    return name


def at(running: EmbeddedTracker, pipeline: str, slot: int) -> None:
    """Min time of the fed segment comes to a slot, and no further."""
    subscriber = running.subscriber(pipeline)
    assert subscriber.wait_until(slot, FED, timeout_s=HANG_S)
    assert subscriber.min_time(FED) == slot


@contextmanager
def begun(running: EmbeddedTracker, pipeline: str) -> Iterator[NodeClient]:
    """A front has put an item into slot 10 and promised 100, and a worker has joined, which is given."""
    with (
        NodeClient(running.target, pipeline, "n") as node,
        NodeClient(running.target, pipeline, "worker") as worker,
    ):
        joined_front(node)
        done(node.commit(create(10, 7)))
        done(node.commit(promise(100)))
        worker.join(HANG_S)
        yield worker


def test_a_hold_begins_with_what_is_consumed(running: EmbeddedTracker, pipeline: str) -> None:
    with begun(running, pipeline) as worker:
        hold = worker.hold(FED, 10, "state", content=consume(10, 7))
        at(running, pipeline, 10)
        done(hold.move_to(40))
        at(running, pipeline, 40)
        assert (hold.slot, hold.segment, worker.holds) == (40, FED, {"state": hold})
        done(hold.release())
        at(running, pipeline, 100)
        assert worker.holds == {}


def test_a_hold_whose_beginning_nobody_waits_for_any_more_is_held_and_let_go_of(
    running: EmbeddedTracker, pipeline: str
) -> None:
    """A caller of asyncio that gives up cancels the future: the tick is on its way all the same, and becomes durable."""
    with begun(running, pipeline) as worker:
        begins = HoldMove("state", worker.segment(FED), 10)
        worker.commit(replace(consume(10, 7), holds=(begins,))).cancel()
        worker.flush(HANG_S)
        at(running, pipeline, 10)
        done(worker.holds["state"].release())
        at(running, pipeline, 100)


def test_a_hold_stands_at_the_slot_of_a_moment(running: EmbeddedTracker, pipeline: str) -> None:
    """Slots are 10 ms wide, and number 0 begins with 1970."""
    moment, later = (datetime(1970, 1, 1, 0, 0, 0, us, tzinfo=UTC) for us in (109_999, 400_000))
    with begun(running, pipeline) as worker:
        hold = worker.hold(FED, moment, "state", content=consume(10, 7))
        at(running, pipeline, 10)
        done(hold.move_to(later))
        at(running, pipeline, 40)


def test_a_hold_begins_by_a_front_where_nothing_is_announced(
    running: EmbeddedTracker, pipeline: str
) -> None:
    with NodeClient(running.target, pipeline, "n") as node:
        joined_front(node)
        done(node.commit(promise(50)))
        at(running, pipeline, 50)
        timers = NodeClient(running.target, pipeline, "timers")
        timers.join(HANG_S)
        with pytest.raises(
            RefusedError, match=r"'early' cannot begin at slot 49.*below slot 50"
        ) as low:
            timers.hold(FED, 49, "early")
        assert low.value.refusal.code is RefusalCode.BELOW_MIN_TIME
        hold = timers.hold(FED, 70, "late")
        done(node.commit(promise(200)))
        at(running, pipeline, 70)
        done(hold.release())
        at(running, pipeline, 200)
        timers.leave(HANG_S)


def test_it_only_moves_up(running: EmbeddedTracker, pipeline: str) -> None:
    with NodeClient(running.target, pipeline, "n") as node:
        joined_front(node)
        hold = node.hold(FED, 20, "own")
        with pytest.raises(RefusedError, match=r"'own' stands at slot 20 of segment.*back to 19"):
            hold.move_to(19)
        with pytest.raises(RefusedError, match="stands at slot 20"):
            node.hold(FED, 19, "own")
        assert hold.slot == 20


def test_who_asks_again_gets_it_as_it_stands(running: EmbeddedTracker, pipeline: str) -> None:
    with NodeClient(running.target, pipeline, "n") as node:
        joined_front(node)
        hold = node.hold(FED, 20, "own")
        assert node.hold(FED, 25, "own") is hold and hold.slot == 20
        assert hold.release() is hold.release()
        done(hold.release())
        with pytest.raises(RefusedError, match="was let go of"):
            hold.move_to(30)
        assert node.hold(FED, 30, "own") is not hold


def test_without_a_slot_it_begins_where_it_may(running: EmbeddedTracker, pipeline: str) -> None:
    """And stands there for whoever asks again."""
    with NodeClient(running.target, pipeline, "n") as node:
        joined_front(node)
        done(node.commit(promise(60)))
        at(running, pipeline, 60)
        assert [node.hold(FED, None, "own").slot for _ in range(2)] == [60, 60]
        done(node.commit(promise(80)))
        done(node.holds["own"].release())
        at(running, pipeline, 80)


def test_the_next_process_finds_it_again(running: EmbeddedTracker, pipeline: str) -> None:
    first = NodeClient(running.target, pipeline, "n")
    joined_front(first)
    stale = first.hold(FED, 20, "own")
    done(first.commit(promise(60)))
    second = NodeClient(running.target, pipeline, "n")
    second.join(HANG_S)
    hold = second.holds["own"]
    assert (hold.slot, hold.segment, hold.durable_slot) == (20, FED, 20)
    with pytest.raises(LowmarkError):
        done(stale.move_to(30))
    at(running, pipeline, 20)
    done(hold.release())
    at(running, pipeline, 60)
    first.close()
    second.close()


def test_a_front_that_was_to_begin_one_leaves_with_the_next_joining(
    running: EmbeddedTracker, pipeline: str
) -> None:
    """The process ended between the joining of the front and the tick by which it would have left."""
    with NodeClient(running.target, pipeline, "n") as node:
        joined_front(node)
        timers = NodeClient(running.target, pipeline, "timers")
        timers.join(HANG_S)
        timers.join_front(f"{HOLD_FRONT}own", FED)
        timers.close()
        done(node.commit(promise(60)))
        with NodeClient(running.target, pipeline, "timers") as again:
            again.join(HANG_S)
            at(running, pipeline, 60)


def test_a_hold_that_was_not_granted_in_time_holds_nothing(
    running: EmbeddedTracker, pipeline: str
) -> None:
    """Some shard was away for longer. Who was told so knows of no front that would have to leave."""
    with begun(running, pipeline) as worker:
        with pytest.raises(UnavailableError, match="within 0 s"):
            worker.hold(FED, 200, "own", timeout_s=0.0)
        assert worker.holds == {}
        worker.flush(HANG_S)
        with running.admin() as admin:
            until(lambda: [f.node_id for f in admin.pipeline(pipeline).state.fronts] == ["n"])
        hold = worker.hold(FED, 300, "own")
        assert hold.slot == 300
        done(hold.release())


def test_a_hold_that_is_refused_behind_the_time_for_it_holds_nothing(
    running: EmbeddedTracker, pipeline: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits any more for the tick by which its front would have left."""
    with begun(running, pipeline) as worker:
        leave = NodeClient.leave_front

        def too_late(timeout_s: float) -> int:
            raise TimeoutError

        def leaves_slowly(client: NodeClient, front: str, content: TickContent) -> Future[int]:
            future = leave(client, front, content)
            monkeypatch.setattr(future, "result", too_late)
            return future

        monkeypatch.setattr(NodeClient, "leave_front", leaves_slowly)
        with pytest.raises(UnavailableError, match="not durable within"):
            worker.hold(FED, 200, "own", content=create(2_000_000, 8))
        worker.flush(HANG_S)
        with running.admin() as admin:
            until(lambda: [f.node_id for f in admin.pipeline(pipeline).state.fronts] == ["n"])
        assert worker.holds == {}


def test_what_it_was_granted_is_not_taken_for_the_grant_of_the_next_one(
    running: EmbeddedTracker, pipeline: str
) -> None:
    """Whoever holds by the name again waits until every shard has answered the new joining: what they have announced
    since is above what the old one was granted."""
    front = f"{HOLD_FRONT}h"
    with running.node(pipeline, "n") as node:
        joined_front(node)
        with running.node(pipeline, "w") as before:
            before.join(HANG_S)
            assert before.join_front(front, FED, HANG_S).slot == 0
        done(node.commit(promise(100)))
        with running.node(pipeline, "w") as worker:
            worker.join(HANG_S)
            at(running, pipeline, 100)
            assert worker.join_front(front, FED, HANG_S).slot >= 100
            done(worker.leave_front(front))


def test_a_refused_tick_moves_no_hold_nor_do_those_behind_it(
    running: EmbeddedTracker, pipeline: str
) -> None:
    with NodeClient(running.target, pipeline, "n") as node:
        joined_front(node)
        hold = node.hold(FED, 20, "own")
        refused = hold.move_to(30, create(2_000_000, 8))
        behind = hold.move_to(40)
        for future in (refused, behind):
            with pytest.raises(RefusedError):
                done(future)
        node.flush(HANG_S)
        assert hold.slot == hold.durable_slot == 20
        done(hold.move_to(25))


def test_one_tick_moves_several(running: EmbeddedTracker, pipeline: str) -> None:
    with NodeClient(running.target, pipeline, "n") as node:
        joined_front(node)
        one, two = node.hold(FED, 20, "one"), node.hold(FED, 30, "two")
        done(node.commit(replace(promise(100), holds=(one.at(FOREVER), two.at(50)))))
        assert (one.slot, two.slot) == (FOREVER, 50) and set(node.holds) == {"two"}
        at(running, pipeline, 50)


def test_a_node_that_holds_cannot_leave(running: EmbeddedTracker, pipeline: str) -> None:
    node = NodeClient(running.target, pipeline, "n")
    joined_front(node)
    with NodeClient(running.target, pipeline, "timers") as timers:
        timers.join(HANG_S)
        hold = timers.hold(FED, 20, "own")
        with pytest.raises(RefusedError, match="has 1 holds, among them"):
            timers.leave(HANG_S)
        done(hold.release())
        timers.leave(HANG_S)
    node.close()


def test_one_that_min_time_has_passed_begins_anew_by_a_front(
    running: EmbeddedTracker, pipeline: str
) -> None:
    """An operator has written it off; the node that comes back is told of it still."""
    with begun(running, pipeline) as worker:
        worker.hold(FED, 20, "own", content=consume(10, 7))
        at(running, pipeline, 20)
        with Admin(running.target) as admin:
            cells = admin.explain(pipeline, FED).parts
            open_cells = [cell for part in cells for cell in part.cells]
            admin.retire(
                pipeline, "worker", Cells.of((0, c.slot, c.checksum, c.items) for c in open_cells)
            )
        at(running, pipeline, 100)
    with NodeClient(running.target, pipeline, "worker") as again:
        again.join(HANG_S)
        hold = again.holds["own"]
        with pytest.raises(RefusedError, match=r"hold 'own'.*stands at slot 20.*holds nothing"):
            done(hold.move_to(150))
        assert hold.is_late and hold.slot == 20
        with pytest.raises(RefusedError, match="below slot 100"):
            again.hold(FED, 99, "own")
        anew = again.hold(FED, 120, "own")
        assert (anew.slot, anew.is_late) == (120, False)
        done(anew.release())
