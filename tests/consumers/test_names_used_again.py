"""A pipeline is deleted, and another one has its name: what a consumer has recorded of the one before counts for nothing."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.client.support import done, joined_front, promise, use_again
from tests.waits import HANG_S
from tracker.client import NodeClient, RefusedError
from tracker.client.embedded import EmbeddedTracker
from tracker.client.history import history
from tracker.consumers.periods import made
from tracker.consumers.periods.due import Plan
from tracker.consumers.periods.follow import Periods
from tracker.consumers.periods.runs import Runs
from tracker.core.model import RefusalCode
from tracker.core.model.slots import FOREVER

REACHED = 20


def next_period(running: EmbeddedTracker, record: Path, *, note: bool) -> int | None:
    """Where the next period begins; None if none is complete. note: it is done."""
    with Periods(running.target, "two", "second", "100ms", record) as periods:
        for period in periods.completed(1):
            if note:
                periods.done(period)
            return period.from_slot
    return None


def next_run(running: EmbeddedTracker, record: Path, *, note: bool) -> int | None:
    """The same of runs."""
    with Runs(running.target, "two", "second", record) as runs:
        run = runs.begin()
        if run is None:
            return None
        if note:
            runs.done(run)
        return run.from_slot


ways = pytest.mark.parametrize("take", [next_period, next_run])
Take = Callable[..., int | None]


def reach(running: EmbeddedTracker, node: NodeClient, slot: int) -> None:
    done(node.commit(promise(slot)))
    assert running.subscriber("two").wait_until(slot, timeout_s=HANG_S)


@ways
@pytest.mark.parametrize(
    "note", [True, False], ids=["behind_what_was_done", "before_what_was_begun"]
)
def test_a_record_of_the_one_before_is_refused(
    running: EmbeddedTracker, node: NodeClient, tmp_path: Path, take: Take, note: bool
) -> None:
    """Else what was done for the one before counts as done for the other, or what was begun for it is given out as
    complete."""
    reach(running, node, REACHED)
    assert take(running, tmp_path / "record", note=note) == 0
    use_again(running)
    other = joined_front(running.node("two", "n"))
    for slot in (1, REACHED, 2 * REACHED):
        reach(running, other, slot)
        with pytest.raises(RefusedError, match="another one has its name") as refused:
            take(running, tmp_path / "record", note=True)
        assert refused.value.refusal.code is RefusalCode.UNKNOWN_PIPELINE
    assert take(running, tmp_path / "another record", note=True) == 0


@ways
def test_a_record_goes_on_after_restarts(
    running: EmbeddedTracker, node: NodeClient, tmp_path: Path, take: Take
) -> None:
    reach(running, node, REACHED // 2)
    assert take(running, tmp_path / "record", note=True) == 0
    for generation in range(2):
        running.admin().restart("two", generation)
    reach(running, joined_front(running.node("two", "n")), REACHED)
    assert take(running, tmp_path / "record", note=True) == REACHED // 2


@ways
def test_what_was_done_to_the_end_is_not_the_end_of_the_other(
    running: EmbeddedTracker, node: NodeClient, tmp_path: Path, take: Take
) -> None:
    done(node.leave_front("front"))
    assert running.subscriber("two").wait_until(FOREVER, timeout_s=HANG_S)
    assert take(running, tmp_path / "record", note=True) == 0
    assert take(running, tmp_path / "record", note=True) is None
    use_again(running)
    with pytest.raises(RefusedError, match="another one has its name"):
        take(running, tmp_path / "record", note=True)


def test_the_last_period_is_not_cut_by_the_history_of_the_other(
    running: EmbeddedTracker, node: NodeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pipeline is deleted when it was heard to be complete, and before it is asked where its data ended."""
    done(node.leave_front("front"))
    passed, asked = Plan.passed, list[Any]()

    def late(*given: Any) -> bool:
        if not asked:
            use_again(running)
            reach(running, joined_front(running.node("two", "n")), REACHED)
        asked.append(given)
        return passed(*given)

    monkeypatch.setattr(Plan, "passed", late)
    with (
        Periods(running.target, "two", "second", "100ms", tmp_path / "record") as periods,
        pytest.raises(RefusedError, match="another one has its name"),
    ):
        next(periods.completed())
    assert asked


def first_of_watcher(running: EmbeddedTracker, path: Path, patch: pytest.MonkeyPatch) -> Any:
    """What Airflow's watcher reports first, without Airflow: it cannot be installed beside the rest."""
    base = SimpleNamespace(BaseEventTrigger=object, BaseTrigger=object, TriggerEvent=dict)
    modules = {
        "airflow": SimpleNamespace(), "airflow.triggers": SimpleNamespace(),
        "airflow.triggers.base": base, "airflow.sdk": SimpleNamespace(BaseHook=object),
    }  # fmt: skip
    for name, module in modules.items():
        patch.setitem(sys.modules, name, module)
    for name in ("lowmark.airflow.hooks", "lowmark.airflow.triggers"):
        patch.delitem(sys.modules, name, raising=False)
    triggers = importlib.import_module("lowmark.airflow.triggers")
    hook = SimpleNamespace(atarget=partial(asyncio.sleep, 0, running.target))
    patch.setattr(triggers, "LowmarkHook", lambda _: hook)

    async def first() -> Any:
        return await anext(triggers.PeriodTrigger("two", "second", "100ms", None, "c").run())

    return asyncio.run(first())


def first_look(running: EmbeddedTracker, path: Path, patch: pytest.MonkeyPatch) -> Any:
    return Plan.of(running.target, "two", "second", "100ms").look(running.target, None, 1)


def first_period(running: EmbeddedTracker, path: Path, patch: pytest.MonkeyPatch) -> Any:
    with Periods(running.target, "two", "second", "100ms", path / "record") as periods:
        return next(periods.completed(HANG_S))


@pytest.mark.parametrize("first", [first_of_watcher, first_look, first_period])
def test_the_periods_of_the_other_are_not_cut_by_the_settings_of_the_one_before(
    running: EmbeddedTracker, node: NodeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    first: Callable[[EmbeddedTracker, Path, pytest.MonkeyPatch], Any],
) -> None:  # fmt: skip
    """The tracker is away behind the first question, say, and answers the next one when the name was used again: of slots that
    are wider there, min time seems to be where it is not."""
    of = Plan.of

    def late(*given: Any) -> Plan:
        plan = of(*given)
        use_again(running)
        reach(running, joined_front(running.node("two", "n")), REACHED)
        return plan

    monkeypatch.setattr(Plan, "of", late)
    with pytest.raises(RefusedError, match="another one has its name"):
        first(running, tmp_path, monkeypatch)


def test_partitions_are_not_judged_by_the_history_of_the_other(
    running: EmbeddedTracker, node: NodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*given: Any, **named: Any) -> Any:
        use_again(running)
        return history(*given, **named)

    monkeypatch.setattr(made, "history", late)
    with pytest.raises(RefusedError, match="another one has its name"):
        made.judge(
            running.target, "two", "second", [made.Made("k", datetime.fromtimestamp(1, UTC), 2.0)]
        )
