"""Whether the state of a query is held when it starts, or why it is not started."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from local_tracker.spark.state.chosen import chosen_plan
from local_tracker.spark.state.rules import HeldFor, Later, StateKind, StatePlan, Wait, Watermark
from tracker.core.log import Joined
from tracker.core.model import Edge, HeldSlot, NodeKey, PipelineSpec
from tracker.errors import TrackingError
from tracker.view.state import state_waits_text

WINDOWS = StatePlan(
    StateKind.BOUNDED, (Watermark("ts", 5_000),), waits=(Wait((Later(1),), what="a join"),)
)
NOTHING = StatePlan(StateKind.NOTHING)
OF_USER = StatePlan(StateKind.USER, what="applyInPandasWithState", has_timers=True)
WITHOUT_TIMERS = StatePlan(StateKind.USER, what="applyInPandasWithState")
STRANGE = StatePlan(StateKind.UNKNOWN, what="a join without bounds")


def joined(*holds: str) -> Joined:
    spec = PipelineSpec("p", ("in", "out"))
    held = tuple(HeldSlot(name, 1, 5, 1, 1) for name in holds)
    return Joined(NodeKey("q", 1), spec, (), 0, (), holds=held)


def chosen(found: StatePlan | None, state: Any = None, **more: Any) -> StatePlan | None:
    given = {"mode": "Append", "creates": ["out"], "emits": None, "asked": joined(), **more}
    return chosen_plan("q", state, found, **given)


@pytest.mark.parametrize("state", [None, "hold"])
def test_what_the_plan_says_is_held(state: Any) -> None:
    assert chosen(WINDOWS, state) is WINDOWS
    assert chosen(NOTHING, state) is None


def test_what_the_user_says_goes_before_the_plan() -> None:
    for found in (None, WINDOWS, OF_USER, STRANGE):
        plan = chosen(found, HeldFor(1, 2))
        assert plan is not None and plan.held_for == HeldFor(1, 2)
        assert chosen(found, "free") is None


@pytest.mark.parametrize("kind", [StateKind.USER, StateKind.UNKNOWN])
def test_what_the_user_says_of_a_watermark_holds_nothing_that_a_clock_lets_go_of(
    kind: StateKind,
) -> None:
    found = StatePlan(kind, what="transformWithState", has_timers=True, by_clock=True)
    with pytest.raises(TrackingError, match=r"'q': transformWithState lets go .* by the clock"):
        chosen(found, HeldFor(1_000, 1_000))
    assert chosen(found, "free") is None


def test_where_nothing_is_created_or_a_front_promises_nothing_is_held() -> None:
    assert chosen(WINDOWS, creates=[]) is None
    assert chosen(STRANGE, creates=[]) is None
    assert chosen(WINDOWS, emits="front") is None
    with pytest.raises(TrackingError, match="leave out state, or emits"):
        chosen(WINDOWS, "hold", emits="front")


def test_a_plan_that_is_not_understood_is_refused() -> None:
    with pytest.raises(TrackingError, match=r"a join without bounds; give state=HeldFor"):
        chosen(STRANGE)


@pytest.mark.parametrize("state", [None, "hold"])
def test_state_with_timers_is_held_until_it_is_empty(
    caplog: pytest.LogCaptureFixture, state: Any
) -> None:
    assert chosen(OF_USER, state) is OF_USER
    assert "held until its state is empty" in caplog.text and "state=HeldFor" in caplog.text


def test_state_without_timers_is_held_where_that_is_asked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert chosen(WITHOUT_TIMERS) is None
    assert "is not held" in caplog.text and "state='hold'" in caplog.text
    assert chosen(WITHOUT_TIMERS, "hold") is WITHOUT_TIMERS


def test_a_plan_that_cannot_be_seen_is_said_not_to_be_held(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert chosen(None) is None
    assert "its plan cannot be seen here" in caplog.text
    with pytest.raises(TrackingError, match="its plan cannot be seen here"):
        chosen(None, "hold")


def test_nobody_is_left_who_would_let_go_of_what_was_held() -> None:
    for state, found in (("free", WINDOWS), (None, NOTHING), (None, WITHOUT_TIMERS)):
        with pytest.raises(TrackingError, match=r"1 holds stand for rows in its state"):
            chosen(found, state, asked=joined("state:1:5"))
    assert chosen(WINDOWS, "hold", asked=joined("state:1:5")) is WINDOWS


def test_what_cannot_be_held_is_refused_by_name() -> None:
    with pytest.raises(TrackingError, match=r"creates in 43 segments, .* can hold in 42"):
        chosen(WINDOWS, creates=[f"s{number}" for number in range(43)])


def test_state_is_not_held_within_a_loop_of_rounds() -> None:
    """What was emitted of it later would be of a round that is over, or of the next time."""
    loop = (Edge("in", "out"), Edge("out", "in", 1), Edge("out", "end"))
    for rounds, segments in ((8, ("in", "out", "end")), (1, ("in", "out", "end"))):
        spec = PipelineSpec("p", segments, loop, rounds=rounds)
        asked = replace(joined(), spec=spec)
        assert chosen(WINDOWS, creates=["end"], asked=asked) is WINDOWS
        if rounds == 1:
            assert chosen(WINDOWS, creates=["out"], asked=asked) is WINDOWS
            continue
        with pytest.raises(
            TrackingError, match=r"creates in 'out', which lies on a loop of 8 rounds"
        ):
            chosen(WINDOWS, creates=["end", "out"], asked=asked)
        assert chosen(WINDOWS, "free", creates=["out"], asked=asked) is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("state:1:1792000000000", "event time 2026-10-14T17:46:40.000Z"),
        ("state:1:1792000000000:2", "event time 2026-10-14T17:46:40.000Z"),
        ("state:1:9999999999999999", "event time 9999999999999999 ms"),
        ("state:1:rows0", "sessions to end that begin by event time 1970-01-01T00:00:00.000Z"),
        ("state:1:unknown", "a later batch, whose watermark or state says until when"),
        ("hold", ""),
    ],
)
def test_a_name_is_told_as_what_its_rows_wait_for(name: str, text: str) -> None:
    assert state_waits_text(name) == text
    assert "Spark did not evaluate" in state_waits_text("state:1:unseen")
