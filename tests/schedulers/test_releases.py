"""Reports that come twice, late or out of order are released once, in order, without a gap."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.consumers.periods import releases
from tracker.consumers.periods.cut import Cut
from tracker.consumers.periods.due import Plan
from tracker.consumers.periods.position import to_record
from tracker.consumers.periods.releases import RECORD, Release, Report, reported
from tracker.core.model.slots import FOREVER
from tracker.errors import StateError

HOUR = 3_600
BEGIN = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp())
PLAN = Plan("orders", "load", Cut(HOUR, 0, 10**9), BEGIN)


@dataclass(frozen=True, slots=True)
class Asked(Plan):
    """Of a pipeline whose min time was at `seen` before it became complete."""

    seen: int

    def passed(self, target: object, slot: int, generation: int | None = None) -> bool:
        return slot <= self.seen


def report(hour: int, *, last: bool = False) -> Report:
    begin = BEGIN + hour * HOUR
    return Report(PLAN, PLAN.period(begin, FOREVER if last else None))


def to_release(extras: list[dict[str, Any]], newest: Report | None) -> Release:
    """As without a tracker: nobody is asked whether it is the same pipeline."""

    def never(plan: Plan, generation: int) -> None:
        raise AssertionError((plan, generation))

    return releases.to_release(extras, newest, never)


def key(hour: int) -> str:
    return f"2026-03-01T{hour:02}:00:00"


def event(of: Report) -> dict[str, Any]:
    """As Airflow keeps it of a watcher."""
    return {"from_trigger": True, "payload": of.payload()}


def test_a_report_is_read_back_as_it_was() -> None:
    for of in (report(3), report(3, last=True), replace(report(3), generation=7)):
        back = reported([event(of)])
        assert back is not None and back.payload() == of.payload()


@pytest.mark.parametrize("extras", [[], [{}], [{"payload": "by hand"}], [{"payload": {"a": 1}}]])
def test_what_is_no_report_is_none(extras: list[dict[str, Any]]) -> None:
    assert reported(extras) is None


def test_what_is_no_report_is_passed_over() -> None:
    back = reported([{}, {"payload": {"outcome": "reached"}}, event(report(3)), event(report(4))])
    assert back is not None and back.period == report(3).period


def test_the_first_release_begins_with_the_plan() -> None:
    due = to_release([], report(2))
    assert due.keys == [key(0), key(1), key(2)]
    assert due.extra == {RECORD: to_record(PLAN.name, BEGIN + 3 * HOUR, None)}


def test_nothing_is_released_twice_and_nothing_without_a_report() -> None:
    first = to_release([], report(1))
    assert to_release([first.extra], report(1)).keys == []
    assert to_release([first.extra], report(0)).keys == []
    assert to_release([], None).keys == []


def test_what_a_failed_release_has_left_the_next_one_makes_up_for() -> None:
    first = to_release([], report(0))
    assert to_release([first.extra], report(3)).keys == [key(1), key(2), key(3)]


def test_events_made_by_hand_in_between_are_passed_over() -> None:
    first = to_release([], report(0))
    assert to_release([{}, {"note": 1}, first.extra], report(1)).keys == [key(1)]


def test_a_record_behind_more_events_than_are_looked_at_is_missed_and_nothing_is_released() -> None:
    """It may be there, and then all since the plan's beginning would be released a second time."""
    with pytest.raises(StateError, match="none of the newest 100 events"):
        to_release([{"note": 1}] * releases.LOOKED_AT, report(1))
    assert to_release([{"note": 1}] * (releases.LOOKED_AT - 1), report(1)).keys == [key(0), key(1)]


def test_the_last_period_goes_on_to_forever_and_nothing_follows() -> None:
    due = to_release([], report(1, last=True))
    assert due.keys == [key(0), key(1)] and due.extra[RECORD]["next"] == FOREVER
    assert to_release([due.extra], report(1, last=True)).keys == []


def test_many_are_released_in_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "MOST_RELEASED", 2)
    first = to_release([], report(2))
    assert first.keys == [key(0), key(1)]
    assert to_release([first.extra], report(2)).keys == [key(2)]


def test_behind_the_last_report_no_other_comes_so_all_is_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The watcher of a complete pipeline has reported all that it ever will: what one release left to the next, none
    would give out."""
    monkeypatch.setattr(releases, "MOST_RELEASED", 2)
    due = to_release([], report(4, last=True))
    assert due.keys == [key(hour) for hour in range(5)] and due.extra[RECORD]["next"] == FOREVER


def test_periods_that_do_not_follow_are_refused() -> None:
    first = to_release([], report(0)).extra
    two = replace(PLAN, cut=Cut(2 * HOUR, 0, 10**9))
    with pytest.raises(StateError, match="record of orders/load by 3600 slots"):
        to_release([first], Report(two, two.period(BEGIN + 2 * HOUR)))
    returns = to_record(replace(PLAN, pipeline="returns").name, BEGIN + HOUR, None)
    with pytest.raises(StateError, match="record of returns/load"):
        to_release([{RECORD: returns}], report(1))


def test_it_is_asked_whether_it_is_the_same_pipeline_where_a_report_is_of_another_generation() -> (
    None
):
    """It was restarted, and its periods go on; or deleted, and those of another one of its name have the same keys."""
    asked: list[int] = []

    def same(plan: Plan, generation: int) -> None:
        asked.append(generation)

    first = releases.to_release([], replace(report(0), generation=4), same).extra
    releases.to_release([first], replace(report(0), generation=4), same)
    assert asked == []
    due = releases.to_release([first], replace(report(1), generation=5), same)
    assert (asked, due.keys, due.extra[RECORD]["generation"]) == ([4], [key(1)], 5)

    def other(plan: Plan, generation: int) -> None:
        raise StateError("another one")

    with pytest.raises(StateError, match="another one"):
        releases.to_release([due.extra], replace(report(2), generation=9), other)


@given(st.integers(-9, 30), st.integers(0, 30), st.sampled_from([0, 4]))
def test_the_newest_report_is_of_the_last_period_that_is_due(
    begin: int, moved: int, lateness: int
) -> None:
    plan = Asked("orders", None, Cut(7, lateness), begin, begin + moved)
    known = plan.due(begin, plan.seen, lambda slot: slot <= plan.seen, most=100).periods
    if known:
        assert plan.newest("", plan.seen) == known[-1]
    known = plan.due(begin, FOREVER, lambda slot: slot <= plan.seen, most=100).periods
    assert plan.newest("", FOREVER) == known[-1] and known[-1].to_slot == FOREVER


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=20))
def test_each_hour_is_released_once_whatever_is_reported_again_or_fails(
    steps: list[tuple[int, bool]],
) -> None:
    """A watcher that goes back by some hours after each step, and releases of which some fail whole."""
    kept: list[dict[str, Any]] = []
    given_out: list[str] = []
    newest = 0
    for back, works in steps:
        for hour in range(max(0, newest - back), newest + 1):
            due = to_release(kept[::-1], report(hour))
            if works and due.keys:
                given_out += due.keys
                kept.append(due.extra)
        newest += 1
    assert given_out == [key(hour) for hour in range(len(given_out))]
    assert not steps[-1][1] or len(given_out) == newest
