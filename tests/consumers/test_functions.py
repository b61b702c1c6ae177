"""Functions run at their times, in the order of times."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.client.support import SECOND, consume, create, done, promise
from tests.waits import HANG_S
from tracker.client import LowmarkError, NodeClient
from tracker.client.embedded import EmbeddedTracker
from tracker.consumers.periods import functions as callbacks
from tracker.consumers.periods.functions import Notificator
from tracker.core.model import TickContent
from tracker.core.model.slots import FOREVER
from tracker.errors import RefusedError, UnavailableError


def test_functions_run_in_the_order_of_times(running: EmbeddedTracker, node: NodeClient) -> None:
    called: list[tuple[str, int]] = []

    def note(name: str) -> callbacks.Callback:
        return lambda slot: called.append((name, slot))

    with Notificator(running.target, "two", "first") as times:
        times.at(30, note("c"))
        times.at(10, note("a"))
        times.at(20, note("b"))
        times.at(10, note("a again"))
        times.at(datetime(1970, 1, 1, tzinfo=UTC), note("at once"))
        done(node.commit(create(15, 1)))
        done(node.commit(promise(100)))
        assert times.run(1.5) == 3 and times.waiting == 2, "an item is open at 15"
        assert called == [("at once", 0), ("a", 10), ("a again", 10)]
        # One function asks for another time, which lies before what waits.
        times.at(12, lambda slot: times.at(14, note("asked for in between")))
        done(node.commit(consume(15, 1)))
        assert times.run() == 4
        assert called[3:] == [("asked for in between", 14), ("b", 20), ("c", 30)]


def test_what_fails_stays_the_first(running: EmbeddedTracker, node: NodeClient) -> None:
    done(node.commit(promise(100)))
    called: list[int] = []
    broken = [True]

    def fails(slot: int) -> None:
        if broken[0]:
            raise OSError("disk full")
        called.append(slot)

    with Notificator(running.target, "two") as times:
        times.at(10, fails)
        times.at(20, called.append)
        with pytest.raises(OSError, match="disk full"):
            times.run(HANG_S)
        assert (called, times.waiting) == ([], 2)
        broken[0] = False
        assert times.run(HANG_S) == 2 and called == [10, 20]


def test_it_runs_by_itself_and_is_bounded(
    running: EmbeddedTracker, node: NodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    came = threading.Event()
    monkeypatch.setattr(callbacks, "MAX_CALLBACKS", 1)
    with Notificator(running.target, "two") as times:
        times.start()
        times.at(10, lambda slot: came.set())
        with pytest.raises(LowmarkError, match="the limit is 1"):
            times.at(20, print)
        assert not came.is_set()
        done(node.commit(promise(10)))
        assert came.wait(HANG_S)
    assert times.failure is None


# --- holding times --------------------------------------------------------------------------------


@pytest.fixture
def timers(running: EmbeddedTracker, node: NodeClient) -> Iterator[NodeClient]:
    """A node that holds times for functions."""
    with NodeClient(running.target, "two", "timers") as timers:
        timers.join(HANG_S)
        yield timers


def test_a_function_may_emit_at_its_time(
    running: EmbeddedTracker, node: NodeClient, timers: NodeClient
) -> None:
    """Min time of what it emits into waits for it, though nothing is open there."""
    subscriber, seen = running.subscriber("two"), []

    def emit(slot: int) -> TickContent:
        seen.append(subscriber.min_time("second"))
        return create(slot, 7, SECOND)

    with Notificator(running.target, "two", "first", node=timers, holds=["second"]) as times:
        times.at(30, emit)
        times.at(30, lambda slot: create(slot, 8, SECOND))
        done(node.commit(promise(100)))
        assert times.run(HANG_S) == 2 and seen == [30]
        assert timers.holds == {} and times.unfinished == []
        done(node.commit(consume(30, 7, SECOND)))
        assert subscriber.min_time("second") == 30, "the other one's item is open"
        done(node.commit(consume(30, 8, SECOND)))
        assert subscriber.wait_until(100, "second", HANG_S)


def test_what_it_emits_and_the_end_of_its_hold_are_one_tick(
    running: EmbeddedTracker, node: NodeClient, timers: NodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two of them min time might pass what is to be emitted."""
    committed: list[TickContent] = []
    commit = timers.commit

    def record(content: TickContent, *more: Any, **options: Any) -> Future[int]:
        committed.append(content)
        return commit(content, *more, **options)

    monkeypatch.setattr(timers, "commit", record)
    with Notificator(running.target, "two", "first", node=timers, holds=["second"]) as times:
        times.at(30, lambda slot: create(slot, 7, SECOND))
        done(node.commit(promise(100)))
        assert times.run(HANG_S) == 1
    ends = [content for content in committed if any(m.slot == FOREVER for m in content.holds)]
    assert [len(content.created) for content in ends] == [1]


def test_what_fails_holds_its_time_on_and_so_does_what_a_dead_process_waited_for(
    running: EmbeddedTracker, node: NodeClient, timers: NodeClient
) -> None:
    subscriber = running.subscriber("two")

    def fails(slot: int) -> None:
        raise OSError("disk full")

    with Notificator(running.target, "two", "first", node=timers, holds=["second"]) as times:
        times.at(20, fails)
        times.at(40, print)
        done(node.commit(promise(100)))
        with pytest.raises(OSError, match="disk full"):
            times.run(HANG_S)
    with NodeClient(running.target, "two", "timers") as again:
        again.join(HANG_S)
        with Notificator(running.target, "two", "first", node=again, holds=["second"]) as times:
            assert times.unfinished == [20, 40]
            assert subscriber.min_time("second") == 20
            for slot in times.unfinished:
                times.at(slot, lambda slot: None)
            assert times.run(HANG_S) == 2
    assert subscriber.wait_until(100, "second", HANG_S)


def test_what_several_functions_emit_at_one_time_counts_once_whoever_dies_between_them(
    running: EmbeddedTracker, node: NodeClient, timers: NodeClient
) -> None:
    """The next process finds the time held, and asks for all of its functions again. Had the first one's item been
    committed, it would be created twice, and so be none: min time would pass it."""

    def fails(slot: int) -> None:
        raise OSError("disk full")

    with Notificator(running.target, "two", "first", node=timers, holds=["second"]) as times:
        times.at(20, lambda slot: create(slot, 7, SECOND))
        times.at(20, fails)
        done(node.commit(promise(100)))
        with pytest.raises(OSError, match="disk full"):
            times.run(HANG_S)
    with NodeClient(running.target, "two", "timers") as again:
        again.join(HANG_S)
        with Notificator(running.target, "two", "first", node=again, holds=["second"]) as times:
            assert times.unfinished == [20]
            times.at(20, lambda slot: create(slot, 7, SECOND))
            times.at(20, lambda slot: create(slot, 8, SECOND))
            assert times.run(HANG_S) == 2 and times.unfinished == []
    subscriber = running.subscriber("two")
    done(node.commit(consume(20, 8, SECOND)))
    done(node.commit(promise(101)))
    assert subscriber.wait_until(101, "first", HANG_S)
    assert subscriber.min_time("second") == 20, "what the first one emitted is open"
    done(node.commit(consume(20, 7, SECOND)))
    assert subscriber.wait_until(101, "second", HANG_S)


def test_what_is_not_durable_in_time_is_not_emitted_again(
    running: EmbeddedTracker, node: NodeClient, timers: NodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tick is under way, and becomes durable when the tracker is back. A second one with the same item would take
    it back: min time would pass it."""
    subscriber, commit = running.subscriber("two"), timers.commit
    answered, called = list[tuple[Future[int], Future[int]]](), list[int]()

    def unanswered(content: TickContent, *more: Any, **options: Any) -> Future[int]:
        future = commit(content, *more, **options)
        if not len(content.created):
            return future
        answered.append((Future(), future))
        return answered[-1][0]

    def emit(slot: int) -> TickContent:
        called.append(slot)
        return create(slot, 7, SECOND)

    monkeypatch.setattr(timers, "commit", unanswered)
    monkeypatch.setattr(callbacks, "_DURABLE_S", 0.01)
    with Notificator(running.target, "two", "first", node=timers, holds=["second"]) as times:
        times.at(20, emit)
        done(node.commit(promise(100)))
        for _ in range(2):
            with pytest.raises((UnavailableError, TimeoutError)):
                times.run(HANG_S)
        for future, durable in answered:  # the tracker is back
            future.set_result(done(durable))
        assert times.run(HANG_S) == 1
    assert called == [20]
    done(node.commit(promise(101)))
    assert subscriber.wait_until(101, "first", HANG_S) and subscriber.min_time("second") == 20


def test_a_function_may_ask_for_a_later_time_where_its_own_is_held(
    running: EmbeddedTracker, node: NodeClient, timers: NodeClient
) -> None:
    with Notificator(running.target, "two", "first", node=timers, holds=["second"]) as times:
        times.at(20, lambda slot: times.at(25, lambda later: create(later, 9, SECOND)))
        done(node.commit(promise(100)))
        assert times.run(HANG_S) == 2
    done(node.commit(consume(25, 9, SECOND)))
    assert running.subscriber("two").wait_until(100, "second", HANG_S)


def test_a_time_that_is_over_can_be_held_no_more(
    running: EmbeddedTracker, node: NodeClient, timers: NodeClient
) -> None:
    done(node.commit(promise(100)))
    assert running.subscriber("two").wait_until(100, "second", HANG_S)
    with Notificator(running.target, "two", "first", node=timers, holds=["second"]) as times:
        with pytest.raises(RefusedError, match=r"cannot begin at slot 20.*below slot 100"):
            times.at(20, print)
        assert times.waiting == 0


def test_a_time_that_a_dead_process_held_in_one_of_its_segments_alone_is_let_go_of_where_it_is_over(
    running: EmbeddedTracker, node: NodeClient, timers: NodeClient
) -> None:
    """It died between two holds of one time, and min time of the other segment has passed that: nobody could ask for a
    function there, and nobody else would let go of what is held."""
    subscriber, holds = running.subscriber("two"), ["second", "first"]
    timers.hold("second", 20, "at/20/second")
    done(node.commit(promise(100)))
    assert subscriber.wait_until(100, "first", HANG_S)
    with NodeClient(running.target, "two", "timers") as again:
        again.join(HANG_S)
        with Notificator(running.target, "two", "first", node=again, holds=holds) as times:
            assert times.unfinished == [20]
            with pytest.raises(RefusedError, match=r"cannot begin at slot 20.*below slot 100"):
                times.at(20, print)
            again.flush(HANG_S)
            assert times.unfinished == []
    assert subscriber.wait_until(100, "second", HANG_S)


def test_node_and_holds_go_together(running: EmbeddedTracker) -> None:
    with pytest.raises(ValueError, match="go together"):
        Notificator(running.target, "two", holds=["second"])
