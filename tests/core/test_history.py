"""The history of announcements: exact for full steps, wherever min time jumps, and bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tracker.core.cut.history import (
    FINE_STEP_NS,
    MAX_COARSE_ENTRIES,
    MAX_FINE_ENTRIES,
    History,
    Reached,
)
from tracker.core.model.slots import FOREVER

SECOND_NS = 10**9
MINUTE, HOUR = 60, 3_600  # in slots of a second


def test_what_is_not_reached_has_no_moment() -> None:
    history = History(0, SECOND_NS)
    assert history.when(1) == Reached(1, False, None, 1)
    history.record(MINUTE, 5)
    assert history.when(MINUTE) == Reached(MINUTE, True, 5, MINUTE, exact=True)
    assert history.when(MINUTE + 1) == Reached(MINUTE + 1, False, None, MINUTE + 1)
    assert history.when(0) == Reached(0, True, None, 0), "before it began nothing is remembered"


def test_all_that_is_remembered_can_be_listed() -> None:
    history = History(0, SECOND_NS)
    said = [10, 5 * MINUTE + 3, 5 * MINUTE + 4, HOUR + MINUTE, FOREVER]
    for at_ms, slot in enumerate(said, 1):
        history.record(slot, at_ms)
    # 10 lies in the step in which the history began, 5:04 in that of 5:03.
    assert history.remembered == {*said} - {10, 5 * MINUTE + 4}
    assert [history.when(slot).at_ms for slot in sorted(history.remembered)] == [2, 4, 5]


def test_a_jump_over_several_steps_is_the_moment_of_each() -> None:
    history = History(0, SECOND_NS)
    history.record(10, 1)
    history.record(5 * MINUTE + 3, 2)
    history.record(6 * MINUTE, 3)
    for minute in range(1, 6):
        assert history.when(minute * MINUTE).at_ms == 2
    assert history.when(6 * MINUTE).at_ms == 3
    history.record(FOREVER, 4)
    assert history.when(7 * MINUTE) == Reached(7 * MINUTE, True, 4, FOREVER, exact=True)
    assert history.when(FOREVER).at_ms == 4


def test_a_moment_that_nobody_knows_is_none() -> None:
    """What a shard that left had announced has reached a slot, and nobody has said when."""
    history = History(0, SECOND_NS)
    history.record(MINUTE, 0)
    history.record(2 * MINUTE, 7)
    assert history.when(MINUTE) == Reached(MINUTE, True, None, MINUTE)
    assert history.when(2 * MINUTE).at_ms == 7


@given(st.lists(st.integers(1, 400), min_size=1, max_size=60), st.sampled_from([1, 7, 60]))
def test_each_full_step_has_the_first_announcement_beyond_it(
    jumps: list[int], slack_s: int
) -> None:
    history = History(-1_000, slack_s * SECOND_NS)
    step = max(1, FINE_STEP_NS // (slack_s * SECOND_NS))
    slot, said = -1_000, []
    for at_ms, jump in enumerate(jumps, 1):
        slot += jump
        said.append((slot, at_ms))
        history.record(slot, at_ms)
    for asked in range((-1_000 // step + 1) * step, slot + 1, step):
        first = next((s, at) for s, at in said if s >= asked)
        assert (history.when(asked).min_time, history.when(asked).at_ms) == first
    for asked in range(-999, slot + 1):
        told = history.when(asked)
        first_ms = next(at for s, at in said if s >= asked)
        assert told.reached and (told.at_ms is None or told.at_ms >= first_ms)
        # It is called exact only where it is, and always where nothing was passed over that is forgotten.
        assert told.at_ms == first_ms or not told.exact
        if asked % step == 0:
            assert told.exact


@given(st.lists(st.integers(1, 400), min_size=1, max_size=60))
def test_up_to_where_min_time_had_come_when_all_was_complete_is_known(jumps: list[int]) -> None:
    history, newest = History(0, SECOND_NS), 0
    for at_ms, jump in enumerate(jumps, 1):
        newest += jump
        history.record(newest, at_ms)
    history.record(FOREVER, 1_000)
    for asked in range(1, newest + 2):
        told = history.when(asked)
        assert told.reached and (told.min_time == FOREVER) == (asked > newest)
    # Since when is known of what was kept; of the last one that it was by then.
    last = history.when(newest)
    assert last.at_ms in (len(jumps), 1_000) and last.exact == (last.at_ms != 1_000)


def test_a_moment_between_two_steps_is_exact_where_nothing_can_lie_before_it() -> None:
    history = History(0, SECOND_NS)
    for at_ms, slot in enumerate((10, 70, 90, 300), 1):
        history.record(slot, at_ms)
    assert history.when(70) == Reached(70, True, 2, 70, exact=True)
    assert history.when(60) == Reached(60, True, 2, 70, exact=True)
    assert history.when(5) == Reached(5, True, 2, 70), (
        "10 was announced before, and is not remembered"
    )
    assert history.when(80) == Reached(80, True, 4, 300), "so was 90"
    assert history.when(130) == Reached(130, True, 4, 300, exact=True), (
        "and nothing from 120 to 300"
    )


def test_it_is_bounded_and_hours_outlive_minutes() -> None:
    history = History(0, SECOND_NS)
    hours = MAX_COARSE_ENTRIES + 100
    for hour in range(1, hours + 1):
        history.record(hour * HOUR, hour)
        history.record(hour * HOUR + MINUTE, hour)
    fine, coarse = history.tiers
    assert len(fine.slots) <= MAX_FINE_ENTRIES and len(coarse.slots) <= MAX_COARSE_ENTRIES
    assert history.when(hours * HOUR).at_ms == hours
    old = (hours - MAX_COARSE_ENTRIES // 2) * HOUR
    assert old < fine.since and history.when(old).at_ms == old // HOUR
    assert history.when(HOUR) == Reached(HOUR, True, None, HOUR), "forgotten, not untrue"
