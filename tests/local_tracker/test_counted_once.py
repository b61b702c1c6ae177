"""What a machine that loses power at the end of a local tracker, or two that open one spool at once, make of what was flushed."""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from local_tracker.agent.flushing import Flusher
from local_tracker.agent.main import Agent, Options
from local_tracker.agent.server import Listener, Server
from local_tracker.agent.spool import Spool
from local_tracker.agent.staging import Stager
from local_tracker.agent.uplink import MinTimes, TrackerUplink
from local_tracker.core.window import Flush, Step
from local_tracker.worker.protocol import Deadline
from tests.local_tracker.fakes import FakeUplink, one_cell
from tests.waits import HANG_S, until
from tracker.client import Admin, NodeClient
from tracker.client.embedded import EmbeddedTracker
from tracker.core.model import Cells, Heartbeat, TickContent
from tracker.errors import HandOverError, LowmarkError


class Disk:
    """What of files a machine has that lost power: how long each was when it was synced last."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._synced: dict[int, int] = {}
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._noting(getattr(os, name)))

    def _noting(self, sync: Callable[[int], None]) -> Callable[[int], None]:
        def noted(descriptor: int) -> None:
            sync(descriptor)
            found = os.fstat(descriptor)
            self._synced[found.st_ino] = found.st_size

        return noted

    def loses_power(self, path: Path) -> None:
        os.truncate(path, self._synced[path.stat().st_ino])


@pytest.mark.parametrize("creates", [True, False], ids=["created", "consumed"])
def test_a_flush_of_a_node_that_left_is_not_counted_again_after_a_power_failure(
    running: EmbeddedTracker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, creates: bool
) -> None:
    """That it is done was written down, and not synced, when the node left for good; and the tracker had forgotten by then
    which flushes it has of that. What it created twice was not there, and what it consumed twice stood for good."""
    disk, path = Disk(monkeypatch), tmp_path / "spool"
    front = running.node("p", "front")
    front.join()
    front.join_front("f", "a")
    if not creates:
        front.commit(TickContent(created=one_cell(0, 5, 1))).result(HANG_S)

    def run(*steps: Step) -> None:
        spool = Spool(str(path))
        uplink = TrackerUplink(running.target, "p", "host-1", f"{path}.known")
        flusher = Flusher(uplink, spool, 1)
        for step in steps:
            flusher.submit(step, False, Deadline(HANG_S)).result(HANG_S)
        drained = flusher.close(HANG_S)
        assert drained
        uplink.close(leave=drained)
        spool.close()

    one, none = one_cell(0, 5, 1), Cells.empty()
    run(Step("w", 1, *((one, none) if creates else (none, one))))
    disk.loses_power(path)
    run()
    front.commit(TickContent(heartbeats=(Heartbeat("f", 20),))).result(HANG_S)
    subscriber = running.subscriber("p")
    if creates:  # nobody has consumed it
        assert subscriber.wait_until(5, timeout_s=HANG_S)
        assert not subscriber.wait_until(6, timeout_s=0.5)  # expires: nobody consumes it
    else:
        assert subscriber.wait_until(20, timeout_s=HANG_S)


def test_a_spool_that_is_written_anew_while_another_process_opens_it_is_still_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file that the other one had opened was replaced before it was locked: a lock on it keeps nobody out."""
    first, lock, has_begun = Spool(f"{tmp_path}/spool"), fcntl.flock, False

    def late(descriptor: int, operation: int) -> None:
        nonlocal has_begun
        if not has_begun:
            has_begun = True
            first.begin_generation(1)
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(HandOverError, match="another local tracker uses the spool"):
        Spool(f"{tmp_path}/spool")
    first.close()
    Spool(f"{tmp_path}/spool").close()


def test_a_step_that_is_told_to_be_refused_since_another_has_the_node_is_not_counted_later(
    running: EmbeddedTracker, tmp_path: Path
) -> None:
    """Of two with one node id, the first ends with the step in its spool, and the next with that spool commits it. Whoever is
    told that it was refused does it again."""

    @contextmanager
    def flusher(name: str) -> Iterator[Flusher]:
        spool = Spool(f"{tmp_path}/{name}")
        uplink = TrackerUplink(running.target, "p", "host-1", f"{tmp_path}/{name}.known")
        started = Flusher(uplink, spool, 1)
        try:
            yield started
        finally:
            uplink.close(leave=started.close(HANG_S))
            spool.close()

    front = running.node("p", "front")
    front.join()
    front.join_front("f", "a")
    with flusher("one") as first, flusher("two"):
        step = Step("w", 1, one_cell(0, 5, 1))
        with pytest.raises(HandOverError) as told:
            first.submit(step, False, Deadline(HANG_S)).result(HANG_S)
    with flusher("one") as next_of_first:
        if told.value.code.startswith("refused."):
            again = Step("w", 2, one_cell(0, 5, 1))
            next_of_first.submit(again, False, Deadline(HANG_S)).result(HANG_S)
    front.commit(TickContent(heartbeats=(Heartbeat("f", 20),))).result(HANG_S)
    subscriber = running.subscriber("p")
    assert subscriber.wait_until(5, timeout_s=HANG_S)
    assert not subscriber.wait_until(6, timeout_s=0.5)  # expires: nobody has consumed it


class Life:
    """Of a local tracker in this process, which no signal ends."""

    def changed(self) -> None: ...
    def take_signals(self) -> None: ...


@contextmanager
def upper(above: FakeUplink, path: Path) -> Iterator[None]:
    """A local tracker for others below."""
    listener, spool = Listener(f"unix:{path}/upper"), Spool(f"{path}/upper.spool")
    flusher = Flusher(above, spool, 1)
    server = Server(listener, above, Stager(above), flusher, "upper")
    yield
    server.stop(1)
    flusher.close(HANG_S)
    spool.close()
    listener.close()


@contextmanager
def lower(path: Path) -> Iterator[Flusher]:
    """One that flushes into it."""
    options = Options(
        f"unix:{path}/upper", "p", "lower", f"unix:{path}/lower", "eager", 1, Flush.WHEN_IDLE,
        f"{path}/lower.spool", 0, 0, -1,
    )  # fmt: skip
    with ExitStack() as stack:
        agent = Agent(options, Life(), stack)  # type: ignore[arg-type]
        assert agent.flusher is not None
        yield agent.flusher
        agent.server.stop(1)
        agent.flusher.close(HANG_S)
        agent.uplink.close(leave=False)


def hands_over(flusher: Flusher, number: int, item: int) -> None:
    step = Step("w", number, one_cell(0, 5, item))
    flusher.submit(step, False, Deadline(HANG_S)).result(HANG_S)


def test_an_older_copy_of_a_spool_below_takes_no_step_that_the_newer_one_has_taken(
    tmp_path: Path,
) -> None:
    """It took it once more, and its flushes were taken for those that the newer one had numbered so: their items were gone
    without a word."""
    above = FakeUplink()
    with upper(above, tmp_path):
        with lower(tmp_path) as flusher:
            hands_over(flusher, 1, 1)
            shutil.copy(tmp_path / "lower.spool", tmp_path / "older")
            hands_over(flusher, 2, 2)
        shutil.copy(tmp_path / "older", tmp_path / "lower.spool")
        older = pytest.raises(HandOverError, match="ends at flush 1, and flush 2 of")
        with older as refused, lower(tmp_path) as flusher:
            hands_over(flusher, 3, 4)
        assert refused.value.code == "refused.rolled_back"
        assert above.sums() == {(0, 5): 1 ^ 2}
        (tmp_path / "lower.spool").unlink()
        with lower(tmp_path) as flusher:
            hands_over(flusher, 3, 4)
    assert above.sums() == {(0, 5): 1 ^ 2 ^ 4}


def test_a_flush_from_below_is_known_again_after_the_pipeline_was_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lower one's record has another name in the new generation, and so have the flushes that are in it: they are handed
    over under that from the beginning, and once more by the next process."""
    above = FakeUplink()
    with upper(above, tmp_path), lower(tmp_path) as flusher:
        hands_over(flusher, 1, 1)
    above.generation = 1
    with upper(above, tmp_path):
        with monkeypatch.context() as killed, lower(tmp_path) as flusher:
            # It is killed before it has written down that the flush is done.
            killed.setattr(Spool, "done", lambda *_: None)
            hands_over(flusher, 2, 2)
        with lower(tmp_path) as flusher:
            hands_over(flusher, 3, 4)
    assert above.sums() == {(0, 5): 1 ^ 2 ^ 4}


def test_the_last_that_is_announced_of_a_new_segment_is_heard_though_who_is_asked_is_behind(
    running: EmbeddedTracker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nothing more would be heard of it, ever; and what was known of others before is not forgotten by that."""
    uplink = TrackerUplink(running.target, "p", "host-1")
    heard, behind, look = MinTimes(1), running.admin().pipeline("p"), Admin.pipeline
    asked: list[str] = []

    def looks(self: Admin, name: str) -> Any:
        asked.append(name)
        return behind if len(asked) == 1 else look(self, name)

    watching = threading.Thread(target=uplink.watch, args=(heard,))
    watching.start()
    heard.get(-1, HANG_S, 0)
    with running.admin() as admin:
        monkeypatch.setattr(Admin, "pipeline", looks)
        admin.apply(replace(behind.spec, segments=("a", "b")))
        asked.clear()
        until(lambda: len(heard.get(-1, HANG_S, 0).segments) == 2)
        assert uplink.segments == ("a", "b")
        asked.clear()
        uplink.look_again("c")
        assert asked and uplink.segments == ("a", "b")
    uplink.close(leave=False)
    watching.join(HANG_S)


def test_a_flush_waits_in_the_node_once_however_long_the_tracker_is_away(
    running: EmbeddedTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else another copy of it waited there for each minute, up to what a node may have unacknowledged, and all went at its return."""
    uplink = TrackerUplink(running.target, "p", "host-1")
    uplink.open()
    sent: list[Future[int]] = []

    def commits(*_: object) -> Future[int]:
        sent.append(Future())
        return sent[-1]

    flush = partial(uplink.flush, 1, TickContent(), b"1", above="")
    with monkeypatch.context() as away:
        away.setattr(NodeClient, "commit", commits)
        away.setattr("local_tracker.agent.uplink._COMMIT_TIMEOUT_S", 0.01)
        for again in (False, True, True):
            with pytest.raises(TimeoutError):
                flush(again=again)  # expires: nothing answers
        sent[0].set_result(1)
        flush(again=True)
        assert len(sent) == 1
    uplink.flush(2, TickContent(), b"2", again=False, above="")
    uplink.close(leave=True)


def test_a_flush_that_its_node_has_let_go_of_is_handed_to_it_again(
    running: EmbeddedTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the node has joined anew before it was durable."""
    uplink = TrackerUplink(running.target, "p", "host-2")
    uplink.open()
    dropped: Future[int] = Future()
    dropped.set_exception(LowmarkError("the node joined anew"))
    with monkeypatch.context() as once:
        once.setattr(NodeClient, "commit", lambda *_: dropped)
        with pytest.raises(HandOverError, match="joined anew"):
            uplink.flush(1, TickContent(), b"1", again=False, above="")
    uplink.flush(1, TickContent(), b"1", again=True, above="")
    uplink.close(leave=True)
