"""Until when state holds what it has absorbed: the rules, beside dumb oracles that try every watermark.

An oracle knows rows in microseconds and an operator's condition for letting go of one, as Spark states it;
the watermark is a whole number of milliseconds. Of an event time only its millisecond is known: the bound has
to be right for all thousand of its microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_tracker.spark.state.rules import (
    LONGEST_MS,
    HeldFor,
    Later,
    StateKind,
    StatePlan,
    Wait,
    Watermark,
    WatermarkPolicy,
    Window,
    WindowTime,
    duration_text,
)

TS = Watermark("ts", 5000)
MS = 1000
"""Microseconds."""

times_ms = st.integers(0, 400)


def plan(*waits: Wait, kind: StateKind = StateKind.BOUNDED) -> StatePlan:
    return StatePlan(kind, (TS,), waits=waits)


def first_watermark_ms(event_ms: int, is_out: Callable[[int, int], bool]) -> int:
    """The first watermark by which each row of a millisecond is out, tried one after the other."""
    rows_us = [event_ms * MS, event_ms * MS + 1, event_ms * MS + 500, event_ms * MS + 999]
    watermark_ms = event_ms
    while not all(is_out(row_us, watermark_ms) for row_us in rows_us):
        watermark_ms += 1
    return watermark_ms


def ends_us(row_us: int, window: Window) -> Iterator[int]:
    """The ends of all windows that hold a row, found by trying every window there is."""
    first = -(window.size_us // window.slide_us + 2)
    for number in range(first, row_us // window.slide_us + 2):
        begin_us = window.start_us + number * window.slide_us
        if begin_us <= row_us < begin_us + window.size_us:
            yield begin_us + window.size_us


@st.composite
def windows(draw: st.DrawFn) -> Window:
    slide_ms = draw(st.integers(1, 20))
    size_ms = draw(st.integers(slide_ms, 60))
    return Window(size_ms * MS, slide_ms * MS, draw(st.integers(0, slide_ms - 1)) * MS)


@given(windows(), times_ms)
def test_a_row_waits_for_the_end_of_the_last_window_that_holds_it(
    window: Window, event_ms: int
) -> None:
    def is_out(row_us: int, watermark_ms: int) -> bool:
        return all(end <= watermark_ms * MS for end in ends_us(row_us, window))

    assert plan(Wait((window,))).bound_ms(event_ms) == first_watermark_ms(event_ms, is_out)


@given(windows(), windows(), times_ms)
def test_a_row_in_windows_of_windows_waits_for_the_outer_one(
    inner: Window, outer: Window, event_ms: int
) -> None:
    def is_out(row_us: int, watermark_ms: int) -> bool:
        return all(
            end <= watermark_ms * MS
            and all(o <= watermark_ms * MS for o in ends_us(end - 1, outer))
            for end in ends_us(row_us, inner)
        )

    chained = plan(Wait((inner,)), Wait((inner, WindowTime(), outer)))
    assert chained.bound_ms(event_ms) == first_watermark_ms(event_ms, is_out)


@given(windows(), windows(), times_ms)
def test_what_is_in_windows_that_end_by_a_time_is_out_when_those_of_these_windows_are(
    inner: Window, outer: Window, event_ms: int
) -> None:
    """Of either, since in state one looks like the other."""
    end_us = max(ends_us(event_ms * MS, inner))

    def is_out(_: int, watermark_ms: int) -> bool:
        outers = list(ends_us(end_us - 1, outer))
        return all(end <= watermark_ms * MS for end in (end_us, *outers))

    chained = plan(Wait((inner,)), Wait((inner, WindowTime(), outer)))
    assert chained.window_bound_ms(end_us) == first_watermark_ms(event_ms, is_out)
    alone_ms = plan(Wait((inner,))).window_bound_ms(end_us)
    assert alone_ms is not None and (alone_ms - 1) * MS < end_us <= alone_ms * MS
    assert plan(Wait(())).window_bound_ms(end_us) is None


@given(times_ms)
def test_a_row_that_is_grouped_by_its_time_waits_for_that(event_ms: int) -> None:
    """The last of its microseconds is reached by the next millisecond alone."""
    out = first_watermark_ms(event_ms, lambda row_us, wm_ms: row_us <= wm_ms * MS)
    assert plan(Wait(())).bound_ms(event_ms) == out == event_ms + 1


@given(st.integers(0, 50), times_ms)
def test_a_row_of_a_join_waits_until_no_partner_can_come(interval_ms: int, event_ms: int) -> None:
    """Spark keeps it until its time is at or below watermark less interval less 1 ms."""

    def is_out(row_us: int, watermark_ms: int) -> bool:
        return row_us <= (watermark_ms - interval_ms - 1) * MS

    joined = plan(Wait((), (interval_ms + 1) * MS))
    assert joined.bound_ms(event_ms) == first_watermark_ms(event_ms, is_out)


@given(st.integers(0, 50), windows(), times_ms)
def test_a_window_above_a_join_has_a_watermark_behind_the_query_s(
    interval_ms: int, window: Window, event_ms: int
) -> None:
    def is_out(row_us: int, watermark_ms: int) -> bool:
        behind_us = (watermark_ms - interval_ms - 1) * MS
        return all(end <= behind_us for end in ends_us(row_us, window))

    lag_us = (interval_ms + 1) * MS
    above = plan(Wait((), lag_us), Wait((window,), lag_us))
    assert above.bound_ms(event_ms) == first_watermark_ms(event_ms, is_out)


WINDOW = Window(10_000 * MS, 10_000 * MS)
SLIDING = Window(10_000 * MS, 5000 * MS)
TABLE = [
    ("tumbling", plan(Wait((WINDOW,))), 9999, 10_000),
    ("tumbling, at the edge", plan(Wait((WINDOW,))), 10_000, 20_000),
    ("sliding", plan(Wait((SLIDING,))), 9999, 15_000),
    ("join", plan(Wait((), 10_001 * MS)), 30_000, 40_002),
    ("windows of windows", plan(Wait((WINDOW, WindowTime(), Window(30_000 * MS, 30_000 * MS)))), 29_999, 30_000),
    ("join, then windows", plan(Wait((WINDOW,), 5001 * MS)), 12_000, 25_001),
    ("session", plan(Wait((Later(5000 * MS),)), kind=StateKind.SESSION), 30_000, 35_001),
    ("given", StatePlan.given(HeldFor(5000, 3_600_000)), 30_000, 3_630_001),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "state", "event_ms", "bound_ms"), TABLE, ids=lambda v: str(v)[:20]
)
def test_bounds_of_one_row(name: str, state: StatePlan, event_ms: int, bound_ms: int) -> None:
    assert state.bound_ms(event_ms) == bound_ms, name


@st.composite
def plans(draw: st.DrawFn) -> StatePlan:
    waits = []
    for _ in range(draw(st.integers(1, 4))):
        steps: list[Window | WindowTime | Later] = []
        for _ in range(draw(st.integers(0, 4))):
            step = draw(st.one_of(windows(), st.builds(Later, st.integers(0, 10**6))))
            steps.append(step)
            if isinstance(step, Window) and draw(st.booleans()):
                steps.append(WindowTime())
        waits.append(Wait(tuple(steps), draw(st.integers(0, 10**6))))
    return plan(*waits)


@given(plans(), st.integers(-(10**6), 10**13), st.integers(0, 10**6))
def test_a_later_row_never_waits_for_less_and_none_for_a_time_before_its_own(
    state: StatePlan, event_ms: int, later_ms: int
) -> None:
    assert event_ms <= state.bound_ms(event_ms) <= state.bound_ms(event_ms + later_ms)


@given(plans(), windows())
def test_another_reason_to_wait_never_makes_it_shorter(state: StatePlan, window: Window) -> None:
    longer = plan(*state.waits, Wait((window,)))
    assert all(longer.bound_ms(time_ms) >= state.bound_ms(time_ms) for time_ms in range(50))


def test_one_watermark_tells_the_latest_event_time_that_was_absorbed() -> None:
    state = plan(Wait((WINDOW,)))
    assert state.absorbed_ms(17_000) == 22_000
    assert state.absorbed_ms(0) == 5000


def test_of_several_watermarks_under_policy_max_the_longest_delay_bounds_each_stream() -> None:
    both = (TS, Watermark("rts", 7000))
    state = StatePlan(StateKind.BOUNDED, both, WatermarkPolicy.MAX, waits=(Wait(()),))
    assert state.absorbed_ms(17_000) == 24_000


def test_of_several_watermarks_under_policy_min_nothing_tells_how_far_one_stream_is_ahead() -> None:
    both = (TS, Watermark("rts", 7000))
    state = StatePlan(StateKind.BOUNDED, both, WatermarkPolicy.MIN, waits=(Wait(()),))
    assert not state.one_watermark_tells
    assert state.absorbed_ms(17_000) is None


def test_what_a_user_says_holds_from_the_first_watermark_on() -> None:
    """Before that, a stream may have run ahead of another that has not come yet, by any time."""
    state = StatePlan.given(HeldFor(5000, 1000))
    assert state.absorbed_ms(0) is None
    assert state.absorbed_ms(1) == 5001


@pytest.mark.parametrize("kind", [StateKind.NOTHING, StateKind.USER, StateKind.UNKNOWN])
def test_only_what_waits_for_a_watermark_has_a_bound(kind: StateKind) -> None:
    what = "" if kind is StateKind.NOTHING else "applyInPandasWithState"
    state = StatePlan(kind, what=what)
    assert state.emits_later is (kind is not StateKind.NOTHING)
    with pytest.raises(ValueError, match=f"kind {kind.value}"):
        state.bound_ms(0)


def test_a_plan_says_in_one_line_what_it_waits_for() -> None:
    waits = (
        Wait((WINDOW,), what="windows of 10s"),
        Wait((SLIDING,), what="windows of 10s each 5s"),
    )
    assert str(plan(*waits)) == "windows of 10s; windows of 10s each 5s (watermark: ts 5s)"
    assert str(StatePlan.given(HeldFor(5000, 1000))) == "held as given: delay=5s,span=1s"
    assert str(StatePlan(StateKind.UNKNOWN, what="Intersect")) == "not understood: Intersect"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: StatePlan(StateKind.BOUNDED, (TS,)),
        lambda: StatePlan(StateKind.NOTHING, (TS,), waits=(Wait(()),)),
        lambda: StatePlan(StateKind.BOUNDED, waits=(Wait(()),)),
        lambda: StatePlan(StateKind.UNKNOWN),
        lambda: Window(5, 10),
        lambda: Window(5, 0),
        lambda: Later(-1),
        lambda: Wait((), -1),
        lambda: Wait((WindowTime(),)),
        lambda: Watermark("ts", -1),
        lambda: HeldFor(-1, 0),
        lambda: HeldFor(0, LONGEST_MS + 1),
        lambda: HeldFor(0, True),
    ],
)
def test_what_cannot_be_is_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        wrong()


@given(st.integers(0, LONGEST_MS), st.integers(0, LONGEST_MS))
def test_what_a_user_says_is_written_and_read_back(delay_ms: int, span_ms: int) -> None:
    held_for = HeldFor(delay_ms, span_ms)
    assert HeldFor.parse(str(held_for)) == held_for


@pytest.mark.parametrize(
    ("text", "held_for"),
    [
        ("delay=5s,span=1h", HeldFor(5000, 3_600_000)),
        (" span = 1.5m , delay = 250ms ", HeldFor(250, 90_000)),
        ("delay=1us,span=0s", HeldFor(1, 0)),
    ],
)
def test_durations_have_units_and_are_rounded_up(text: str, held_for: HeldFor) -> None:
    assert HeldFor.parse(text) == held_for


@pytest.mark.parametrize(
    "text", ["", "5s", "delay=5s", "delay=5,span=1h", "delay=5s,delay=5s", "delay=5s,span=1h,x=1s"]
)
def test_what_does_not_say_both_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match=r"write delay=5s,span=1h"):
        HeldFor.parse(text)


def test_a_span_beyond_a_hundred_years_is_refused() -> None:
    with pytest.raises(ValueError, match=f"from 0 to {LONGEST_MS}"):
        HeldFor.parse("delay=5s,span=40000d")


@pytest.mark.parametrize(
    ("duration_ms", "text"), [(0, "0ms"), (1500, "1500ms"), (90_000, "90s"), (86_400_000, "1d")]
)
def test_durations_are_shown_in_the_longest_whole_unit(duration_ms: int, text: str) -> None:
    assert duration_text(duration_ms) == text
