"""Rounds take turns, their interval is that of coins, and what spans a bar is not told."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Callable

import pytest

from benchmarks.bars import BARS
from benchmarks.pairs import (
    FEWEST_ROUNDS,
    MOST_LOOKS,
    WRONG_AT_MOST,
    Bar,
    Verdict,
    interval,
    take_turns,
)

NEVER: Callable[[object], bool] = lambda _: False  # noqa: E731


def left_out_by_enumeration(number: int) -> int:
    """The dumb oracle. Each value lies above or below the median of what it is taken from, as a coin
    falls. An interval without the k lowest and k highest misses where at most k values lie on one side:
    counts all the ways in which coins can fall."""
    falls = [sum(coins) for coins in itertools.product((0, 1), repeat=number)]

    def missed(left_out: int) -> float:
        return sum(min(heads, number - heads) <= left_out for heads in falls) / len(falls)

    allowed = WRONG_AT_MOST / MOST_LOOKS
    return max((k for k in range(number // 2) if missed(k) <= allowed), default=-1)


@pytest.mark.parametrize("number", range(1, 17))
def test_an_interval_leaves_out_as_many_values_as_coins_would(number: int) -> None:
    left_out = left_out_by_enumeration(number)
    values = [float(n) for n in range(number)]
    random.Random(number).shuffle(values)
    if left_out < 0:
        assert interval(values) == (-math.inf, math.inf)
        assert number < FEWEST_ROUNDS
    else:
        assert interval(values) == (left_out, number - 1 - left_out)
        assert number >= FEWEST_ROUNDS


def test_an_interval_misses_the_median_no_oftener_than_it_says_whatever_is_drawn_from() -> None:
    """Values with a long tail, whose median is 1: as ratios of a busy machine are."""
    drawn, runs = random.Random(7), 4_000
    missed = 0
    for _ in range(runs):
        values = [math.exp(drawn.gauss(0, 0.3) ** 3) for _ in range(11)]
        low, high = interval(values)
        assert low <= statistics.median(values) <= high
        missed += not low <= 1 <= high
    assert missed / runs <= WRONG_AT_MOST / MOST_LOOKS * 1.3


def test_a_few_wild_values_do_not_move_an_interval() -> None:
    quiet = [1.0 + n / 100 for n in range(14)]
    wild = [*quiet[:-2], 50.0, 1000.0]
    assert interval(wild) == interval(quiet)


@pytest.mark.parametrize(
    "between, verdict",
    [
        ((0.9, 1.02), Verdict.MET),
        ((0.9, 1.021), Verdict.CANNOT_TELL),
        ((1.021, 1.2), Verdict.NOT_MET),
        ((-math.inf, math.inf), Verdict.CANNOT_TELL),
    ],
)
def test_a_bar_is_judged_by_both_ends(between: tuple[float, float], verdict: Verdict) -> None:
    assert Bar(1.02).verdict(*between) is verdict
    low, high = between
    assert Bar(-1.02, at_most=False).verdict(-high, -low) is verdict


def counted(log: list[str], name: str) -> Callable[[], int]:
    def way() -> int:
        log.append(name)
        return len(log)

    return way


def test_ways_take_turns_in_another_order_each_round() -> None:
    log: list[str] = []
    found = take_turns({"a": counted(log, "a"), "b": counted(log, "b")}, 3)
    assert "".join(log) == "ab" + "ab" + "ba" + "ab"
    assert found == {"a": [3, 6, 7], "b": [4, 5, 8]}, "without the first, which warms up"


def test_rounds_are_doubled_until_they_tell() -> None:
    looked: list[int] = []

    def told(found: dict[str, list[int]]) -> bool:
        looked.append(len(found["a"]))
        return len(found["a"]) >= 10

    found = take_turns({"a": lambda: 1}, 5, told)
    assert len(found["a"]) == 10 and looked == [5, 10]


def test_rounds_that_never_tell_come_to_an_end() -> None:
    assert len(take_turns({"a": lambda: 1}, 5, NEVER)["a"]) == 5 * 2 ** (MOST_LOOKS - 1)
    assert len(take_turns({"a": lambda: 1}, 5, NEVER, looks=1)["a"]) == 5


def test_without_time_there_are_the_first_rounds_and_no_half_round() -> None:
    left = iter([True, True, False])
    ways = {"a": lambda: 1, "b": lambda: 2}
    found = take_turns(ways, 5, NEVER, has_time=lambda: next(left))
    assert [len(each) for each in found.values()] == [7, 7]


def test_more_looks_than_an_interval_knows_of_are_refused() -> None:
    with pytest.raises(ValueError, match=f"{MOST_LOOKS + 1} looks .* 1 to {MOST_LOOKS}"):
        take_turns({"a": lambda: 1}, 5, looks=MOST_LOOKS + 1)


def test_a_bar_is_known_by_its_name() -> None:
    assert all(bar.name == name for name, bar in BARS.items())
