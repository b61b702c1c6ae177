"""Steps become durable, each once, whatever fails on the way."""

from __future__ import annotations

import queue
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from local_tracker.agent import flushing, spool
from local_tracker.agent.flushing import Flusher
from local_tracker.agent.spool import Spool
from local_tracker.agent.uplink import ClosedError
from local_tracker.core.window import FlushWindow, Step
from local_tracker.worker.protocol import Deadline
from tests.local_tracker.fakes import FakeUplink, one_cell, refusing
from tests.waits import HANG_S
from tracker.core.model import Cells, Heartbeat, TickContent
from tracker.errors import Code, HandOverError

Start = Callable[..., Flusher]


@pytest.fixture
def uplink() -> FakeUplink:
    return FakeUplink()


@pytest.fixture
def start(tmp_path: Path, uplink: FakeUplink) -> Iterator[Start]:
    """Starts a flusher on the one spool; a second one stands for a process that was restarted."""
    running: list[tuple[Flusher, Spool]] = []

    def run(window_ms: float = 1) -> Flusher:
        end()
        own = Spool(f"{tmp_path}/spool")
        flusher = Flusher(uplink, own, window_ms)
        running.append((flusher, own))
        return flusher

    def end() -> None:
        for flusher, own in running:
            flusher.close(0)
            flusher._thread.join(HANG_S)
            own.close()
        running.clear()

    yield run
    end()


def made(sender: str, number: int, item: int, **more: object) -> Step:
    return Step(sender, number, created=one_cell(0, 5, item), **more)  # type: ignore[arg-type]


def outcome(flusher: Flusher, step: Step, again: bool = False) -> None:
    flusher.submit(step, again, Deadline(HANG_S)).result(HANG_S)


class Gate:
    """Holds flushes back until it is opened."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self, number: int, content: TickContent) -> None:
        self.reached.set()
        assert self.opened.wait(HANG_S)


def submit(flusher: Flusher, *steps: Step) -> list[Future[None]]:
    return [flusher.submit(step, False, Deadline(HANG_S)) for step in steps]


def nothing(number: int, content: TickContent) -> None:
    """Flushes go through."""


def behind_a_gate(uplink: FakeUplink, flusher: Flusher) -> tuple[Future[None], Gate]:
    """A flush with item 1 of v is on its way, and gets no further before the gate is opened."""
    gate = uplink.before_flush = Gate()
    (first,) = submit(flusher, made("v", 1, 1))
    assert gate.reached.wait(HANG_S)
    return first, gate


def test_a_step_is_durable_whole_and_promises_follow(uplink: FakeUplink, start: Start) -> None:
    step = Step("w", 1, one_cell(1, 9, 3), one_cell(0, 5, 4), (Heartbeat("f", 8),))
    outcome(start(), step)
    (content, _) = uplink.flushes[1]
    assert content.created.rows() == [(1, 9, 3, 1)]
    assert content.consumed.rows() == [(0, 5, 4, 1)]
    assert content.heartbeats == (Heartbeat("f", 8),)


def test_what_comes_while_a_flush_is_on_its_way_shares_the_next(
    uplink: FakeUplink, start: Start
) -> None:
    flusher = start()
    first, gate = behind_a_gate(uplink, flusher)
    rest = submit(flusher, *(made(f"w{item}", 1, item) for item in (2, 4, 8)))
    gate.opened.set()
    for future in (first, *rest):
        future.result(HANG_S)
    assert [c.created.rows() for c, _ in uplink.flushes.values()] == [
        [(0, 5, 1, 1)], [(0, 5, 14, 3)],
    ]  # fmt: skip


def test_only_the_step_that_deserves_it_is_refused(uplink: FakeUplink, start: Start) -> None:
    flusher = start()
    _, gate = behind_a_gate(uplink, flusher)
    good, bad, other = submit(flusher, *(made(f"w{item}", 1, item) for item in (2, 4, 8)))
    uplink.before_flush = refusing(4)
    gate.opened.set()
    good.result(HANG_S)
    other.result(HANG_S)
    with pytest.raises(HandOverError, match="item 4 was created below min time"):
        bad.result(HANG_S)
    assert uplink.sums() == {(0, 5): 1 ^ 2 ^ 8}
    outcome(flusher, made("w4", 2, 16))
    assert uplink.sums() == {(0, 5): 1 ^ 2 ^ 8 ^ 16}


def test_a_step_that_is_handed_over_again_counts_once(uplink: FakeUplink, start: Start) -> None:
    flusher = start()
    outcome(flusher, made("w", 1, 3))
    outcome(flusher, made("w", 1, 3), again=True)
    assert uplink.sums() == {(0, 5): 3}
    outcome(flusher, made("w", 2, 4))
    with pytest.raises(HandOverError, match="step 1 of w comes after its step 2"):
        outcome(flusher, made("w", 1, 3), again=True)


def test_a_restarted_process_knows_the_steps_of_the_one_before(
    uplink: FakeUplink, start: Start
) -> None:
    outcome(start(), made("w", 1, 3))
    outcome(start(), made("w", 1, 3), again=True)
    assert uplink.sums() == {(0, 5): 3}


def test_a_restarted_process_remembers_refusals(uplink: FakeUplink, start: Start) -> None:
    uplink.before_flush = refusing(4)
    with pytest.raises(HandOverError, match="below min time"):
        outcome(start(), made("w", 1, 4))
    uplink.before_flush = nothing
    with pytest.raises(HandOverError, match="below min time"):
        outcome(start(), made("w", 1, 4), again=True)
    assert uplink.sums() == {}


@pytest.mark.parametrize("taken", [True, False])
def test_a_flush_whose_answer_was_lost_is_sent_again_and_counts_once(
    uplink: FakeUplink, start: Start, taken: bool
) -> None:
    """Whether the tracker had taken it or not, and also over a restart of this process."""
    lost = threading.Event()

    def lose(*_: object) -> None:
        lost.set()
        raise TimeoutError("nothing answers")

    if taken:
        uplink.after_flush = lose
    else:
        uplink.before_flush = lose
    flusher = start()
    (future,) = submit(flusher, made("w", 1, 3))
    assert lost.wait(HANG_S)
    assert not future.done()
    again = start()
    uplink.before_flush = lambda *_: None
    uplink.after_flush = lambda *_: None
    outcome(again, made("w", 1, 3), again=True)
    outcome(again, made("w", 2, 4))
    assert uplink.sums() == {(0, 5): 7}
    assert uplink.order == [1, 2]
    assert uplink.attempts[0] == (1, False)
    assert set(uplink.attempts[1:-1]) == {(1, True)}


def test_a_tracker_that_is_away_is_waited_for(uplink: FakeUplink, start: Start) -> None:
    tries = []

    def away(number: int, content: TickContent) -> None:
        tries.append(number)
        if len(tries) < 3:
            raise HandOverError("no route", Code.HAND_OVER_UNREACHABLE)

    uplink.before_flush = away
    outcome(start(), made("w", 1, 3))
    assert tries == [1, 1, 1]


def test_flushes_are_numbered_on_from_what_the_tracker_knows(
    uplink: FakeUplink, start: Start
) -> None:
    uplink.last_known = 41
    outcome(start(), made("w", 1, 3))
    assert uplink.order == [42]


def test_without_its_spool_it_does_not_guess(uplink: FakeUplink, start: Start) -> None:
    with pytest.raises(HandOverError, match="spool is gone") as refused:
        outcome(start(), made("w", 7, 3), again=True)
    assert refused.value.code == "hand_over.unknown_outcome"
    assert uplink.sums() == {}


def test_a_step_of_a_spool_that_is_gone_is_not_taken_by_a_later_process_either(
    uplink: FakeUplink, start: Start, tmp_path: Path
) -> None:
    """The first process behind the loss was killed when it had made the new spool: the second finds one
    that is whole, and that has never heard of the step."""
    first = start()
    lost = first.spool_identity
    outcome(first, made("w", 1, 3))
    uplink.last_known = 1
    (tmp_path / "spool").unlink()
    assert start().spool_identity != lost
    second = start()
    with pytest.raises(HandOverError, match="spool is gone") as refused:
        second.submit(made("w", 1, 3), True, Deadline(HANG_S), lost)
    assert refused.value.code == "hand_over.unknown_outcome"
    here = second.spool_identity
    second.submit(made("v", 1, 4), True, Deadline(HANG_S), here).result(HANG_S)


def test_an_older_copy_of_a_spool_takes_no_step_that_the_newer_one_has_taken(
    uplink: FakeUplink, start: Start, tmp_path: Path
) -> None:
    """It does not know of that, and took it twice: what it created was not there."""
    first = start()
    outcome(first, made("w", 1, 3))
    shutil.copy(tmp_path / "spool", tmp_path / "older")
    outcome(first, made("w", 2, 4))
    first.close(HANG_S)
    uplink.last_known = 2
    shutil.copy(tmp_path / "older", tmp_path / "spool")
    with pytest.raises(HandOverError, match="ends at flush 1, and flush 2 of this node") as refused:
        outcome(start(), made("w", 2, 4), again=True)
    assert refused.value.code == "refused.rolled_back"
    assert uplink.sums() == {(0, 5): 3 ^ 4}
    (tmp_path / "spool").unlink()
    start()
    outcome(start(), made("w", 3, 5))
    assert uplink.order == [1, 2, 3]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_step_of_a_sender_that_is_forgotten_is_not_taken_twice(
    uplink: FakeUplink, start: Start, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    """As of a local tracker below that was cut off while others came and went: taken again, it would take itself out."""
    for module in (flushing, spool):
        monkeypatch.setattr(module, "MAX_SENDERS", 2)
    flusher = start()
    outcome(flusher, made("below", 1, 3))
    for number, sender in enumerate(("v", "w", "x"), 4):
        outcome(flusher, made(sender, 1, number))
    if restarted:
        start()
        flusher = start()
    with pytest.raises(HandOverError) as raised:
        step = made("below", 1, 3)
        first_to = flusher.spool_identity
        flusher.submit(step, True, Deadline(HANG_S), first_to).result(HANG_S)
    assert raised.value.code == Code.HAND_OVER_UNKNOWN
    outcome(flusher, made("x", 1, 6), again=True)
    outcome(flusher, made("y", 1, 7))


def test_a_flush_is_sent_again_to_the_record_that_it_went_to_first(
    uplink: FakeUplink, start: Start
) -> None:
    """Another local tracker above knows it by its own spool; one that has lost that must not take it."""

    tried = threading.Event()

    def unreachable(number: int, content: TickContent) -> None:
        tried.set()
        raise HandOverError("the local tracker above is gone", Code.HAND_OVER_UNREACHABLE)

    uplink.above, uplink.before_flush = "first", unreachable
    submit(start(), made("w", 1, 3))
    assert tried.wait(HANG_S)
    uplink.above, uplink.before_flush = "second", nothing
    outcome(start(), made("w", 2, 4))
    assert uplink.sent_first_to == {1: "first", 2: "second"}


def test_a_flush_that_nobody_can_tell_of_is_not_taken_apart(
    uplink: FakeUplink, start: Start
) -> None:
    """Its steps would get new numbers, and might count twice."""

    def unknown(number: int, content: TickContent) -> None:
        raise HandOverError("the spool above is gone", Code.HAND_OVER_UNKNOWN)

    flusher = start()
    _, gate = behind_a_gate(uplink, flusher)
    futures = submit(flusher, *(made(f"w{item}", 1, item) for item in (2, 4)))
    uplink.before_flush = unknown
    gate.opened.set()
    for future in futures:
        with pytest.raises(HandOverError, match="the spool above is gone"):
            future.result(HANG_S)
    assert uplink.order == [1]
    assert {number for number, _ in uplink.attempts} == {1, 2}


def test_a_fenced_local_tracker_fails_all_who_wait_and_all_who_come(
    uplink: FakeUplink, start: Start
) -> None:
    def fenced(number: int, content: TickContent) -> None:
        raise ClosedError("node 'n' runs elsewhere")

    uplink.before_flush = fenced
    flusher = start()
    for number in (1, 2):
        with pytest.raises(ClosedError, match="runs elsewhere"):
            outcome(flusher, made("w", number, number))
    assert flusher.failure is not None


def test_closing_flushes_what_was_taken(uplink: FakeUplink, start: Start) -> None:
    flusher = start(window_ms=60_000)
    _, gate = behind_a_gate(uplink, flusher)
    (last,) = submit(flusher, made("w", 1, 2))
    gate.opened.set()
    assert flusher.close(HANG_S)
    last.result(0)
    assert uplink.sums() == {(0, 5): 3}
    with pytest.raises(HandOverError, match="ending"):
        outcome(flusher, made("w", 2, 4))


def test_closing_gives_up_on_a_tracker_that_is_away_and_keeps_the_spool(
    uplink: FakeUplink, start: Start
) -> None:
    away = threading.Event()

    def unreachable(number: int, content: TickContent) -> None:
        away.set()
        raise TimeoutError("nothing answers")

    uplink.before_flush = unreachable
    flusher = start()
    (future,) = submit(flusher, made("w", 1, 3))
    assert away.wait(HANG_S)
    assert not flusher.close(0)
    with pytest.raises(HandOverError, match="ended before"):
        future.result(HANG_S)
    uplink.before_flush = nothing
    outcome(start(), made("w", 1, 3), again=True)
    assert uplink.sums() == {(0, 5): 3}


class Ahead:
    """Records what has gathered as soon as it has, long before the end of its window."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records: queue.Queue[tuple[int, list[str]]] = queue.Queue()
        """Each flush with the senders of the steps that are recorded of it, as it is recorded."""
        record = Spool.flush

        def flush(spool: Spool, number: int, steps: tuple[Step, ...], above: str = "") -> None:
            record(spool, number, steps, above)
            self.records.put((number, [step.sender for step in steps]))

        def at_once(window: FlushWindow, takes_ns: int) -> int | None:
            return None if window._ahead or not len(window) else 0

        monkeypatch.setattr(Spool, "flush", flush)
        monkeypatch.setattr(FlushWindow, "ahead_ns", at_once)

    def next(self) -> tuple[int, list[str]]:
        return self.records.get(timeout=HANG_S)


def recorded_ahead(flusher: Flusher, ahead: Ahead) -> Future[None]:
    """A step of v, which waits for the end of a window and is in the spool already."""
    outcome(flusher, made("u", 1, 1))
    assert ahead.next() == (1, ["u"])
    (future,) = submit(flusher, made("v", 1, 2))
    assert ahead.next() == (2, ["v"])
    return future


def test_what_is_recorded_ahead_is_flushed_with_what_came_after(
    uplink: FakeUplink, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = Ahead(monkeypatch)
    flusher = start(window_ms=60_000)
    first = recorded_ahead(flusher, ahead)
    (late,) = submit(flusher, made("w", 1, 4))
    assert not first.done()
    assert flusher.close(HANG_S)
    assert ahead.next() == (2, ["w"]), "only the late one is recorded then"
    first.result(0)
    late.result(0)
    assert [c.created.rows() for c, _ in uplink.flushes.values()] == [
        [(0, 5, 1, 1)], [(0, 5, 6, 2)],
    ]  # fmt: skip


def test_what_is_recorded_ahead_is_not_recorded_again(
    uplink: FakeUplink, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = Ahead(monkeypatch)
    flusher = start(window_ms=60_000)
    recorded_ahead(flusher, ahead)
    assert flusher.close(HANG_S)
    assert ahead.records.empty()
    assert uplink.order == [1, 2]


def test_another_record_above_is_noted_before_a_flush_goes_there(
    uplink: FakeUplink, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = Ahead(monkeypatch)
    uplink.above = "first"
    flusher = start(window_ms=60_000)
    recorded_ahead(flusher, ahead)
    uplink.above = "second"
    assert flusher.close(HANG_S)
    assert ahead.next() == (2, [])
    assert uplink.sent_first_to == {1: "first", 2: "second"}


def test_a_process_killed_before_the_flush_leaves_what_it_recorded_ahead_to_the_next(
    uplink: FakeUplink, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flusher = start(window_ms=60_000)
    recorded_ahead(flusher, Ahead(monkeypatch))
    shutil.copy(tmp_path / "spool", tmp_path / "left")
    above = FakeUplink()
    above.last_known = 1
    spool = Spool(f"{tmp_path}/left")
    after = Flusher(above, spool, 1)
    again = after.submit(made("v", 1, 2), True, Deadline(HANG_S), flusher.spool_identity)
    again.result(HANG_S)
    outcome(after, made("w", 1, 4))
    assert after.close(HANG_S)
    spool.close()
    assert above.order == [2, 3]
    assert above.sums() == {(0, 5): 2 ^ 4}


@pytest.mark.parametrize(
    ("kind", "late"), [("more", "refused.full"), ("done", "hand_over.unreachable")]
)
def test_a_full_disk_is_not_said_of_a_step_that_is_in_the_spool(
    uplink: FakeUplink, start: Start, monkeypatch: pytest.MonkeyPatch, kind: str, late: str
) -> None:
    """The next process commits it: whoever handed it over must not take it for one that was not taken."""
    flusher = start(window_ms=60_000)
    ahead = recorded_ahead(flusher, Ahead(monkeypatch))
    append = Spool._append

    def full(spool: Spool, header: dict[str, object], *rest: object, **more: object) -> None:
        if header["kind"] == kind:
            raise HandOverError("no space left", Code.REFUSED_FULL)
        append(spool, header, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Spool, "_append", full)
    (other,) = submit(flusher, made("w", 1, 4))
    assert not flusher.close(HANG_S)
    codes = []
    for future in (ahead, other):
        with pytest.raises(HandOverError, match="no space left") as failed:
            future.result(0)
        codes.append(failed.value.code)
    assert codes == ["hand_over.unreachable", late]
    monkeypatch.undo()
    outcome(start(), made("x", 1, 8))
    assert uplink.sums() == {(0, 5): 1 ^ 2 ^ 8 ^ (0 if late == "refused.full" else 4)}


def test_a_step_larger_than_a_flush_is_refused(uplink: FakeUplink, start: Start) -> None:
    large = Cells.of((0, slot, 1, 1) for slot in range(65_537))
    with pytest.raises(HandOverError, match="65537 cells"):
        outcome(start(), Step("w", 1, created=large))
    assert uplink.sums() == {}


def test_what_is_of_an_older_generation_is_not_committed_in_a_newer(
    uplink: FakeUplink, start: Start
) -> None:
    flusher = start()
    outcome(flusher, made("w", 1, 3))
    uplink.before_flush = closed
    with pytest.raises(HandOverError, match="was restarted"):
        outcome(flusher, made("w", 2, 4))
    before = flusher.spool_identity

    uplink.generation, uplink.before_flush = 1, nothing
    flusher = start()
    assert flusher.generation == 1
    with pytest.raises(HandOverError, match="a local tracker whose spool is gone"):
        flusher.submit(made("w", 2, 4), True, Deadline(HANG_S), before)
    outcome(flusher, made("v", 1, 8))
    assert uplink.order == [1, 3], "numbers go on, and flush 2 was of the older generation"

    flusher = start()
    outcome(flusher, made("v", 1, 8), again=True)
    assert uplink.order == [1, 3], "within a generation a step is known as ever"


def closed(number: int, content: TickContent) -> None:
    raise ClosedError("pipeline 'p' was restarted")
