"""Functions run at their times, in the order of times."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pytest

from tests.client.support import WAIT_S, consume, create, done, promise
from tracker.client import LowmarkError, NodeClient
from tracker.client.embedded import EmbeddedTracker
from tracker.consumers import callbacks
from tracker.consumers.callbacks import Notificator


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
            times.run(WAIT_S)
        assert (called, times.waiting) == ([], 2)
        broken[0] = False
        assert times.run(WAIT_S) == 2 and called == [10, 20]


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
        assert came.wait(WAIT_S)
    assert times.failure is None
