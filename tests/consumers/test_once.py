"""What is done for a period is done once wherever somebody dies, and looked for before it is done again."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.client.support import done, promise
from tests.consumers.exactly import run_exactly
from tests.waits import HANG_S
from tracker.client import NodeClient
from tracker.client.embedded import EmbeddedTracker
from tracker.consumers import commits
from tracker.consumers.durable import StateFile
from tracker.consumers.periods.cut import Cut, Period
from tracker.consumers.periods.follow import Periods
from tracker.consumers.periods.once import Call, ConflictError, do_once
from tracker.errors import Code, UnavailableError

PERIODS = 3
SLOTS = 10
AT = datetime(2026, 3, 2, 1, tzinfo=UTC)
PERIOD = Cut(SLOTS).period("two", "first", 0)


class Died(Exception):
    """Stands for a kill: whoever catches it begins with what is durable alone."""


class Ledger:
    """An action that leaves a line behind, and looks for it. lines: what is durable."""

    name = "the ledger"

    def __init__(self, lines: list[str], die: Callable[[str], None] = lambda step: None) -> None:
        self.lines, self._die = lines, die

    def is_done(self, period: Period) -> bool:
        self._die("asked")
        return period.key in self.lines

    def do(self, period: Period, at: datetime | None) -> None:
        self.lines.append(period.key)
        self._die("done")


def deaths(step: str, nth: int) -> Callable[[str], None]:
    """Dies at the nth time of a step."""
    count = 0

    def die(at: str) -> None:
        nonlocal count
        count += at == step
        if at == step and count == nth:
            raise Died

    return die


@pytest.mark.parametrize("nth", range(1, PERIODS + 1))
@pytest.mark.parametrize("step", ["asked", "done", "recording", "recorded"])
def test_each_period_is_done_once_wherever_its_doer_dies(
    running: EmbeddedTracker, node: NodeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    step: str, nth: int,
) -> None:  # fmt: skip
    """Of two actions the second one as well; a function is called again for the period that it died behind."""
    done(node.commit(promise(PERIODS * SLOTS)))
    die, write = deaths(step, nth), StateFile.write
    first: list[str] = []
    second: list[str] = []
    called: list[str] = []

    def write_and_die(state: StateFile, value: dict[str, Any]) -> None:
        begins = value["next"] == 0
        if not begins:
            die("recording")
        write(state, value)
        if not begins:
            die("recorded")

    def following() -> Periods:
        return Periods(running.target, "two", "first", "100ms", tmp_path / "record.json")

    actions = Ledger(first, die), Ledger(second), Call(lambda period: called.append(period.key))

    with monkeypatch.context() as dying:
        dying.setattr(StateFile, "write", write_and_die)
        with following() as periods, pytest.raises(Died):
            periods.run(*actions, timeout_s=HANG_S)
    recorded = json.loads((tmp_path / "record.json").read_text())["next"]
    assert recorded == SLOTS * (nth if step == "recorded" else nth - 1)
    assert len(first) >= recorded // SLOTS, "the record is behind what was done"
    with following() as periods:
        run_exactly(PERIODS - recorded // SLOTS, periods, *actions)
    keys = [f"two/first/{n * SLOTS}..{(n + 1) * SLOTS}" for n in range(PERIODS)]
    assert first == second == keys
    again = {"recording": [keys[nth - 1]]}.get(step, [])
    assert called == [*keys[: nth - 1], *again, *keys[nth - 1 :]]


def test_what_fails_leaves_its_period_the_next_and_what_comes_behind_it_undone(
    running: EmbeddedTracker, node: NodeClient, tmp_path: Path
) -> None:
    done(node.commit(promise(PERIODS * SLOTS)))
    before: list[str] = []
    after: list[str] = []

    def fail(period: Period) -> None:
        raise OSError("disk full")

    with Periods(running.target, "two", "first", "100ms", tmp_path / "record.json") as periods:
        with pytest.raises(OSError, match="disk full"):
            periods.run(Ledger(before), Call(fail), Ledger(after), timeout_s=HANG_S)
        assert (len(before), after) == (1, [])
        run_exactly(PERIODS, periods, Ledger(before), Ledger(after))
    assert before == after


# --- others in between ----------------------------------------------------------------------------


class Contended(Ledger):
    """Others come in between so many times; the last of them does the same."""

    def __init__(self, conflicts: int, *, by_others: bool) -> None:
        super().__init__([])
        self.conflicts, self.by_others = conflicts, by_others
        self.asked = 0

    def is_done(self, period: Period) -> bool:
        self.asked += 1
        return super().is_done(period)

    def do(self, period: Period, at: datetime | None) -> None:
        if self.conflicts == 0:
            super().do(period, at)
            return
        self.conflicts -= 1
        if self.by_others and self.conflicts == 0:
            self.lines.append(period.key)
        raise ConflictError("somebody came in between")


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits between two attempts."""
    monkeypatch.setattr(commits, "MAX_PAUSE_S", 0.0)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("by_others", [False, True])
@pytest.mark.parametrize("conflicts", [0, 1, commits.MAX_ATTEMPTS - 1])
def test_after_a_conflict_it_is_looked_for_again(conflicts: int, by_others: bool) -> None:
    action = Contended(conflicts, by_others=by_others)
    do_once(action, PERIOD, AT)
    assert action.lines == [PERIOD.key], "once, by whoever it was"
    assert action.asked == conflicts + 1


@pytest.mark.usefixtures("at_once")
def test_one_that_others_always_come_before_gives_up() -> None:
    action = Contended(commits.MAX_ATTEMPTS, by_others=False)
    with pytest.raises(
        UnavailableError, match=r"the ledger: others came before each of 20"
    ) as gave_up:
        do_once(action, PERIOD, AT)
    assert gave_up.value.code == Code.UNAVAILABLE_RECEIVER and action.lines == []
