"""How every bar is judged: by rounds that take turns, an interval, and a verdict that may be "cannot tell".

Where two things are compared they run in one round, one after the other and in another order each round, so
that whatever else the machine does falls on both, and a round is worth one ratio. An absolute figure is worth
one value a round. What is judged is the median of what the rounds are taken from. Its interval leaves out as
many of the lowest and of the highest values as coins would, all falling on one side: that holds whatever the
values are spread like (their logarithms have the same interval), and a few wild ones do not move it. Where
the interval spans the bar there are more rounds, twice as many each time, up to `MOST_LOOKS` times; so that
looking again does not make a wrong verdict likelier, each look has its share of `WRONG_AT_MOST`.

Nothing here measures: what is run, and how long there is time, comes from outside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

WRONG_AT_MOST = 0.05
"""The share of runs in which the interval of some look may miss the median."""
MOST_LOOKS = 3
"""How often a run judges a bar: after the first rounds, after twice and after four times as many."""
FEWEST_ROUNDS = 7
"""With fewer rounds no interval is sure enough: every verdict is "cannot tell"."""

T = TypeVar("T")


class Verdict(Enum):
    MET = "met"
    NOT_MET = "not met"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True)
class Bar:
    """What a figure must reach: at most, or at least, `limit`. name: its row in `benchmarks/bars.py`."""

    limit: float
    at_most: bool = True
    name: str = ""

    def holds(self, value: float) -> bool:
        return value <= self.limit if self.at_most else value >= self.limit

    def verdict(self, low: float, high: float) -> Verdict:
        """Of a figure that lies between two values; a limit that is reached exactly is met."""
        if self.holds(low) != self.holds(high):
            return Verdict.CANNOT_TELL
        return Verdict.MET if self.holds(low) else Verdict.NOT_MET


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Where the median of what the values are taken from lies, but for a share of
    `WRONG_AT_MOST / MOST_LOOKS` of all cases; from minus to plus infinity where they are too few."""
    ordered, number = sorted(values), len(values)
    ways_allowed = WRONG_AT_MOST / MOST_LOOKS / 2 * 2**number
    ways, left_out = 0, -1
    while (ways := ways + math.comb(number, left_out + 1)) <= ways_allowed:
        left_out += 1
    if left_out < 0:
        return -math.inf, math.inf
    return ordered[left_out], ordered[number - 1 - left_out]


def ratios(over: Sequence[float], under: Sequence[float]) -> tuple[float, ...]:
    """One for each round."""
    return tuple(a / b for a, b in zip(over, under, strict=True))


def take_turns(
    ways: Mapping[str, Callable[[], T]],
    rounds: int,
    told: Callable[[dict[str, list[T]]], bool] = lambda _: True,
    *,
    looks: int = MOST_LOOKS,
    has_time: Callable[[], bool] = lambda: True,
) -> dict[str, list[T]]:
    """What each way gave in each round, in the order of the rounds, after a round that does not count.

    There are `rounds` of them, and while `told` says that they do not tell and there is time, as many again,
    so that there are at most `rounds * 2 ** (looks - 1)`. Raises ValueError for more than `MOST_LOOKS` looks,
    of which an interval does not know."""
    if not 1 <= looks <= MOST_LOOKS:
        raise ValueError(f"{looks} looks at the rounds; an interval is made for 1 to {MOST_LOOKS}")
    order = list(ways)
    found: dict[str, list[T]] = {name: [] for name in order}
    for way in ways.values():
        way()
    made = 0
    for look in range(looks):
        if look and told(found):
            break
        for _ in range(made or rounds):
            if look and not has_time():
                return found
            first = made % len(order)
            for name in order[first:] + order[:first]:
                found[name].append(ways[name]())
            made += 1
    return found
