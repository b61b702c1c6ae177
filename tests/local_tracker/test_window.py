"""When a flush is due, what it holds, and in which order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_tracker.core.window import Flush, FlushWindow, Step, merged_content
from local_tracker.worker.protocol import Promise
from tests.local_tracker.fakes import one_cell
from tracker.core.model import Cells, Heartbeat

MS = 1_000_000


def step(number: int = 1, cells: int = 1, sender: str = "w") -> Step:
    return Step(sender, number, created=Cells.of((0, slot, slot + 1, 1) for slot in range(cells)))


def test_the_first_step_is_due_at_once() -> None:
    window = FlushWindow(5, 100, 1000)
    assert window.due_ns() is None
    window.add(step(), 40 * MS)
    assert window.due_ns() == 40 * MS


def test_steps_after_a_flush_gather_until_the_window_since_it_is_over() -> None:
    window = FlushWindow(5, 100, 1000)
    window.add(step(1), 40 * MS)
    window.take(40 * MS)
    window.add(step(2), 41 * MS)
    window.add(step(3), 44 * MS)
    assert window.due_ns() == 45 * MS
    assert [s.number for s in window.take(45 * MS)] == [2, 3]
    assert window.due_ns() is None


def test_a_step_long_after_the_last_flush_is_due_at_once() -> None:
    window = FlushWindow(5, 100, 1000)
    window.add(step(1), 0)
    window.take(0)
    window.add(step(2), 90 * MS)
    assert window.due_ns() == 90 * MS


def test_a_window_that_waits_begins_with_the_first_step_after_a_flush() -> None:
    window = FlushWindow(5, 100, 1000, Flush.AT_WINDOW_END)
    window.add(step(1), 40 * MS)
    window.add(step(2), 43 * MS)
    assert window.due_ns() == 45 * MS, "the first flush of all waits, too"
    assert [s.number for s in window.take(45 * MS)] == [1, 2]
    window.add(step(3), 90 * MS)
    assert window.due_ns() == 95 * MS, "though the last flush was long ago"


def test_what_is_left_over_has_waited_whichever_way_it_is_flushed() -> None:
    window = FlushWindow(5, 10, 1000, Flush.AT_WINDOW_END)
    for number in range(4):
        window.add(step(number, cells=4), number * MS)
    assert window.due_ns() == 0, "more than a flush has gathered"
    window.take(2 * MS)
    assert window.due_ns() == 0, "of what is left the oldest came no later"
    window.take(2 * MS)
    window.add(step(5), 3 * MS)
    assert window.due_ns() == 8 * MS


def test_a_flush_holds_whole_steps_and_the_rest_is_due_at_once() -> None:
    window = FlushWindow(5, 10, 1000)
    window.add(step(1, cells=6), 0)
    window.take(0)
    for number in (2, 3, 4):
        window.add(step(number, cells=4), 1 * MS)
    assert window.due_ns() == 1 * MS, "more than a flush has gathered"
    assert [s.number for s in window.take(1 * MS)] == [2, 3]
    assert window.due_ns() == 1 * MS
    assert [s.number for s in window.take(1 * MS)] == [4]


def test_a_step_larger_than_a_flush_is_refused_with_the_limit() -> None:
    window = FlushWindow(5, 10, 1000)
    with pytest.raises(ValueError, match="11 cells, the limit max_cells_per_flush is 10"):
        window.add(step(cells=11), 0)
    assert len(window) == 0


def test_what_waits_for_the_end_of_a_window_is_recorded_once_shortly_before() -> None:
    window = FlushWindow(5, 100, 1000)
    window.add(step(1), 40 * MS)
    assert window.ahead_ns(MS) is None, "it is due at once"
    window.take(40 * MS)
    assert window.ahead_ns(MS) is None, "nothing has gathered"
    window.add(step(2), 41 * MS)
    assert window.ahead_ns(MS) == 44 * MS
    assert [s.number for s in window.record_ahead()] == [2]
    window.add(step(3), 44 * MS)
    assert window.ahead_ns(MS) is None, "once a window"
    assert window.due_ns() == 45 * MS
    assert [s.number for s in window.take(45 * MS)] == [2, 3]
    window.add(step(4), 46 * MS)
    assert window.ahead_ns(MS) == 49 * MS


def test_a_slow_disk_and_many_steps_are_recorded_at_the_end_alone() -> None:
    window = FlushWindow(10, 100, 1000)
    window.add(step(1), 0)
    window.take(0)
    window.add(step(2), MS)
    assert window.ahead_ns(2_500_000) == 7_500_000
    assert window.ahead_ns(2_500_001) is None, "a quarter of the window is too long"
    for number in range(3, 7):
        window.add(step(number), 2 * MS)
    assert window.ahead_ns(MS) is None, (
        "five in nine milliseconds: more than half a one in the tenth"
    )
    assert window.ahead_ns(MS // 2) == 9_500_000


def test_a_window_that_is_over_before_its_record_is_written_is_flushed_whole() -> None:
    window = FlushWindow(5, 10, 1000)
    window.add(step(1), 0)
    window.take(0)
    window.add(step(2, cells=6), MS)
    window.record_ahead()
    window.add(step(3, cells=6), MS)
    assert window.due_ns() == MS, "more than a flush has gathered"
    assert window.ahead_ns(MS) is None
    assert [s.number for s in window.take(MS)] == [2]


def test_a_full_window_takes_no_more() -> None:
    window = FlushWindow(5, 10, 20)
    for number in range(3):
        window.add(step(number, cells=9), 0)
    assert window.full
    with pytest.raises(ValueError, match="max_gathered_cells is 20"):
        window.add(step(3), 0)
    window.take(0)
    assert not window.full


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 9)),
            st.tuples(st.just("pass"), st.integers(0, 20)),
        ),
        max_size=60,
    ),
    st.sampled_from(Flush),
    st.integers(1, 2 * MS),
)
def test_no_step_waits_longer_than_the_window_and_none_is_lost(
    events: list[tuple[str, int]], how: Flush, takes: int
) -> None:
    """Whatever comes when, where each flush is taken as soon as it is due."""
    window = FlushWindow(5, 20, 1000, how)
    now, number, flushed, flush_times = 0, 0, [], []
    added: dict[int, int] = {}
    recorded: list[Step] = []

    def record_what_is_due(until: int) -> None:
        ahead = window.ahead_ns(takes)
        if ahead is not None and ahead <= until:
            due = window.due_ns()
            assert due is not None and due - takes <= ahead < due
            recorded.extend(window.record_ahead())
            window.validate()

    def flush_what_is_due(until: int) -> None:
        while (due := window.due_ns()) is not None and due <= until:
            moment = max(now, due)
            flush_times.append(moment)
            record_what_is_due(moment)
            flush = window.take(moment)
            assert [*flush[: len(recorded)]] == recorded, "what is recorded ahead comes first"
            recorded.clear()
            for taken in flush:
                assert moment - added[taken.number] <= 5 * MS
                flushed.append(taken.number)
            window.validate()

    for what, amount in events:
        if what == "add":
            number += 1
            added[number] = now
            window.add(step(number, cells=amount), now)
            window.validate()
            flush_what_is_due(now)
        else:
            flush_what_is_due(now + amount * MS)
            now += amount * MS
            record_what_is_due(now)
    flush_what_is_due(now + 5 * MS)
    assert flushed == list(range(1, number + 1))


def test_a_flush_is_ordered_by_decreasing_time_with_promises_merged_to_the_latest() -> None:
    first = Step(
        "w", 1, created=Cells.of([(1, 4, 10, 1), (0, 9, 11, 1)]), consumed=one_cell(0, 4, 12),
        heartbeats=(Heartbeat("f", 3), Heartbeat("g", 8)),
    )  # fmt: skip
    second = Step(
        "v", 1, created=Cells.of([(0, 9, 1, 1), (0, 12, 5, 2)]),
        heartbeats=(Heartbeat("f", 6), Heartbeat("g", 7)),
    )  # fmt: skip
    content = merged_content((first, second))
    assert content.created.rows() == [(0, 12, 5, 2), (0, 9, 10, 2), (1, 4, 10, 1)]
    assert content.consumed.rows() == [(0, 4, 12, 1)]
    assert content.heartbeats == (Heartbeat("f", 6), Heartbeat("g", 8))


def test_promises_of_two_joinings_of_a_front_are_not_merged() -> None:
    first, second = (Step(f"{n}", 1, heartbeats=(Promise("f", 9 - n, 1, n),)) for n in (1, 2))
    content = merged_content((first, second))
    assert content.heartbeats == (*first.heartbeats, *second.heartbeats)
