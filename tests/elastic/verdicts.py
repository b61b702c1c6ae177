"""Whether notifications are slower while shards come and go, and whether a round could tell.

A round has its controls, trackers in which nothing changes, before and after the run in which shards come and
go. Their steady p99 is the middle one of the p99s of their seconds; where the halves differ the machine has
changed, and the truth lies between. So a round knows two bounds of the ratio of its worst second: at most
that over the lower half; at least that over the higher half, less what the worst second of the controls came
to by itself. Where the controls' own worst second is beyond the bar, or the load took more of the machine
than it was to take, slowness says nothing of shards: there is no lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.pairs import Bar, Verdict

ROUNDS, MOST_ROUNDS = 2, 4
"""How many rounds that can be judged are wanted, and how many are made for them."""
MOST_LOAD = 0.5
"""Half load, as a share of the machine's processors."""


@dataclass(frozen=True)
class Bounds:
    """Of a round. worst_ratio: the worst second while shards come and go over the lower half of its
    controls; lower_ratio: over the higher one; worst_steady_ratio: the controls' own worst second over
    their steady p99; load: of the controls, as a share of the machine."""

    worst_ratio: float
    lower_ratio: float
    worst_steady_ratio: float
    load: float

    def verdict(self, bar: Bar) -> Verdict:
        if self.load > MOST_LOAD:
            return Verdict.CANNOT_TELL
        steady = bar.holds(self.worst_steady_ratio)
        at_least = self.lower_ratio / max(1.0, self.worst_steady_ratio) if steady else -math.inf
        return bar.verdict(at_least, self.worst_ratio)

    def why_untold(self, bar: Bar) -> str:
        """Why a round cannot tell; empty where it can."""
        if self.verdict(bar) is not Verdict.CANNOT_TELL:
            return ""
        if self.load > MOST_LOAD:
            return f"the load took {self.load:.2f} of the machine, at most {MOST_LOAD:g} is meant"
        if not bar.holds(self.worst_steady_ratio):
            return (
                f"a second of the controls themselves was {self.worst_steady_ratio:.2f} times their steady "
                f"p99, at most {bar.limit:g} times is steady"
            )
        return (
            f"the worst second is {self.worst_ratio:.2f} times the steady p99, and one of the controls "
            f"{self.worst_steady_ratio:.2f} times"
        )


def verdict(rounds: Sequence[Bounds], bar: Bar) -> Verdict:
    """Met or not met where so many rounds as are wanted could tell, and agree."""
    told = [each for each in (r.verdict(bar) for r in rounds) if each is not Verdict.CANNOT_TELL]
    if len(told) < ROUNDS or len(set(told)) > 1:
        return Verdict.CANNOT_TELL
    return told[0]


def is_over(rounds: Sequence[Bounds], bar: Bar) -> bool:
    """Whether more rounds would change nothing, or are too many."""
    told = {each for each in (r.verdict(bar) for r in rounds) if each is not Verdict.CANNOT_TELL}
    enough = verdict(rounds, bar) is not Verdict.CANNOT_TELL
    return enough or len(told) > 1 or len(rounds) >= MOST_ROUNDS
