"""A position is written when what lies before it is kept by whom it was handed to, and never before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tracker.consumers.periods.position import MOST_OPEN, Confirmed


def test_it_moves_when_a_message_is_confirmed_and_not_before() -> None:
    way = Confirmed(10)
    way.moved(1, 20)
    way.moved(3, 30)
    assert (way.position, way.ahead) == (10, 30)
    assert not way.confirmed(0)
    assert way.confirmed(2) and way.position == 20
    assert not way.confirmed(2)
    assert way.confirmed(9) and way.position == 30


def test_a_message_that_makes_nothing_complete_leaves_nothing_to_confirm() -> None:
    way = Confirmed(10)
    for number in range(3 * MOST_OPEN):
        way.moved(number, 10)
    assert not way.full and not way.confirmed(3 * MOST_OPEN)


def test_it_is_full_at_its_limit_until_something_is_confirmed() -> None:
    way = Confirmed(0)
    for number in range(MOST_OPEN):
        assert not way.full
        way.moved(number, number + 1)
    assert way.full
    way.confirmed(0)
    assert not way.full


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=40))
def test_it_is_where_the_last_confirmed_message_led(steps: list[tuple[int, int]]) -> None:
    """Against a list of all messages."""
    way, led, safe, position = Confirmed(0), [0], 0, 0
    for number, (width, back) in enumerate(steps, start=1):
        position += width
        way.moved(number, position)
        led.append(position)
        safe = max(safe, number - back)
        way.confirmed(safe)
        assert way.position == led[safe] and way.ahead == position
