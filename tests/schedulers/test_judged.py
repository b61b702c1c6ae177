"""What the judge of histories finds."""

from __future__ import annotations

import pytest

from tests.schedulers.judged import Reported, faults, read_history

COMPLETE = {"one": 100, "two": 200}
RIGHT = [Reported(150, "one"), Reported(250, "two")]


def test_each_hour_once_is_right_in_any_order() -> None:
    assert faults(RIGHT, COMPLETE) == []
    assert faults(reversed(RIGHT), COMPLETE) == []


@pytest.mark.parametrize(
    ("history", "fault"),
    [
        (RIGHT[:1], "two was left out"),
        ([*RIGHT, Reported(300, "one")], "one was reported 2 times"),
        ([RIGHT[0], Reported(199, "two")], "two was reported before it was complete"),
        ([*RIGHT, Reported(300, "three")], "three was reported and was never complete"),
    ],
)
def test_anything_else_is_a_fault(history: list[Reported], fault: str) -> None:
    assert faults(history, COMPLETE) == [fault]


def test_a_history_is_lines_of_nanoseconds_and_hours() -> None:
    assert read_history("150 one\n250 two\n") == RIGHT
