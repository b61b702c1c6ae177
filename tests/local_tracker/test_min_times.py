"""What a local tracker has heard of min times, for the workers of its host."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import tracker
from local_tracker.agent import server, uplink
from local_tracker.agent.flushing import Flusher
from local_tracker.agent.server import Listener, Server
from local_tracker.agent.spool import Spool
from local_tracker.agent.staging import Stager
from local_tracker.agent.uplink import LocalTrackerUplink, MinTimes, TrackerUplink
from local_tracker.worker import handle
from local_tracker.worker.handle import Handle, Relayed
from tests.local_tracker.fakes import FakeUplink
from tests.waits import HANG_S, until
from tracker.client import LowmarkError, Subscriber, Update
from tracker.core.model import PipelineSpec
from tracker.core.model.slots import FOREVER
from tracker.errors import Code, HandOverError


def test_min_times_are_whole_when_those_of_the_beginning_are_whatever_has_come_since() -> None:
    heard = MinTimes(2)
    for segment, slot in ((0, 5), (2, 7), (3, 7)):
        heard.put(segment, slot)
    with pytest.raises(HandOverError, match="has not been heard"):
        heard.get(0, 0, 0)
    heard.put(None, 5)
    heard.put(1, 6)
    assert heard.get(0, 0, 0) == Relayed(5, (5, 6, 7, 7), 5)


@contextmanager
def one_above(directory: Path, generation: int, slot: int) -> Iterator[MinTimes]:
    """A local tracker at a socket of the directory, which has heard this slot of everything in this generation."""
    fake = FakeUplink()
    fake.generation = generation
    flusher = Flusher(fake, Spool(f"{directory}/spool"), 5)
    listener = Listener(f"unix:{directory}/s")
    server = Server(listener, fake, Stager(fake), flusher, "host")
    heard = server._heard()
    for segment in (0, 1, None):
        heard.put(segment, slot, generation)
    try:
        yield heard
    finally:
        assert server.stop(10), "half of what the one below waits for a next version"
        listener.close()
        flusher.close(HANG_S)
        flusher._spool.close()


@contextmanager
def one_below(directory: Path) -> Iterator[MinTimes]:
    """What one hears that is below it."""
    lower = LocalTrackerUplink(f"unix:{directory}/s", "p", lambda: "sender", "below")
    heard = MinTimes(2)
    threading.Thread(target=lower.watch, args=(heard,), daemon=True).start()
    yield heard
    lower.close(leave=False)


def why_no_more(heard: MinTimes) -> str:
    """The code by which it tells nothing more; empty where it goes on to tell."""
    try:
        heard.get(-1, 0, 0)
    except HandOverError as error:
        return error.code
    return ""


def test_min_times_that_are_relayed_end_with_the_pipeline_that_they_are_of(tmp_path: Path) -> None:
    """The pipeline is complete, is deleted, and its name is given again: in a generation of its own, as ever. The local
    tracker above is started anew for that one, and the one below runs on."""
    above = ExitStack()
    above.enter_context(one_above(tmp_path, 0, FOREVER))
    with one_below(tmp_path) as heard:
        assert heard.get(-1, HANG_S, 0).pipeline == FOREVER
        above.close()
        with one_above(tmp_path, 2, 5):
            until(lambda: why_no_more(heard) == Code.HAND_OVER_RESTARTED)


def test_min_times_that_are_relayed_go_on_when_the_one_above_is_started_anew(
    tmp_path: Path,
) -> None:
    above = ExitStack()
    above.enter_context(one_above(tmp_path, 0, 5))
    with one_below(tmp_path) as heard:
        assert heard.get(-1, HANG_S, 0).pipeline == 5
        above.close()
        with one_above(tmp_path, 0, 8) as told:
            told.put(None, 9)
            until(lambda: heard.get(-1, 0, 0).pipeline == 9)


@pytest.mark.parametrize("is_there", [True, False])
def test_who_closes_does_not_wait_for_the_next_min_time(
    tmp_path: Path, is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A local tracker that ends on a signal waits for whoever watches the one above, which is asked for long, or is gone."""
    monkeypatch.setattr(uplink, "_MIN_TIMES_WAIT_S", 2 * HANG_S)
    monkeypatch.setattr(handle, "_MAX_WAIT_MS", int(2_000 * HANG_S))
    monkeypatch.setattr(server, "MAX_WAIT_MS", int(2_000 * HANG_S))
    above = ExitStack()
    above.enter_context(one_above(tmp_path, 0, 5))
    lower, heard = LocalTrackerUplink(f"unix:{tmp_path}/s", "p", lambda: "s", "below"), MinTimes(2)
    watching = threading.Thread(target=lower.watch, args=(heard,), daemon=True)
    watching.start()
    assert heard.get(-1, HANG_S, 0).pipeline == 5
    if not is_there:
        above.close()
    until(lower._watching._lock.locked)
    lower.close(leave=False)
    watching.join(HANG_S)
    assert not watching.is_alive()
    above.close()


def test_a_worker_hears_no_earlier_min_time_from_a_local_tracker_that_begins_where_less_is_announced(
    tmp_path: Path,
) -> None:
    """A local tracker is started anew, and its first process of the tracker is one that lags behind. Another pipeline that
    has got the name since is another matter."""
    worker, said = Handle(f"unix:{tmp_path}/s", "p", HANG_S), []
    for generation, slot in ((0, 8), (0, 5), (2, 6)):
        with one_above(tmp_path, generation, slot) as heard:
            heard.put(1, slot + 4, generation)
            said.append((worker.min_time(), worker.min_times().segments))
    worker.close()
    assert said == [(8, (8, 12)), (8, (8, 12)), (6, (6, 10))]


def test_what_ends_min_times_above_ends_those_that_are_relayed(tmp_path: Path) -> None:
    """The one above is still there when it hears that its pipeline was deleted."""
    with one_above(tmp_path, 0, FOREVER) as told, one_below(tmp_path) as heard:
        assert heard.get(-1, HANG_S, 0).pipeline == FOREVER
        told.fail(HandOverError("it was deleted", Code.REFUSED_UNKNOWN_PIPELINE))
        until(lambda: why_no_more(heard) == Code.REFUSED_UNKNOWN_PIPELINE)


def test_min_times_are_heard_again_when_the_tracker_lets_its_local_tracker_in_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A token was renewed, and the tracker had not read its file of tokens yet: that ends a stream, as one that is revoked does."""
    monkeypatch.setattr("local_tracker.agent.uplink._RECONNECT_S", 0.01)
    heard, listened = MinTimes(1), Subscriber.updates
    refused, let_in = threading.Event(), threading.Event()

    def updates(subscriber: Subscriber) -> Iterator[Update]:
        if not let_in.is_set():
            refused.set()
            raise LowmarkError("the call's token is not known here, or not any more")
        return listened(subscriber)

    monkeypatch.setattr(Subscriber, "updates", updates)
    with tracker.embedded() as running, ExitStack() as stack:
        running.register(PipelineSpec("p", ("a",), fronts=("f",), start_slot=7))
        uplink = TrackerUplink(running.target, "p", "host")
        stack.callback(uplink.close, leave=False)
        threading.Thread(target=uplink.watch, args=(heard,), daemon=True).start()
        assert refused.wait(HANG_S)
        let_in.set()
        until(lambda: not why_no_more(heard))
        assert heard.get(-1, 0, 0).pipeline == 7
