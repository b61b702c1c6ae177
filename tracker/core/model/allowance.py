"""How often something may be done: a few times in a row at once, and in the long run once a period."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Allowance:
    """What is done less often than once a period never waits; a row of more than `burst` goes at the period's
    pace. What is done before it is free counts all the same, so many times beyond a burst: while others do it at
    the pace, nothing is free. Moments and periods are nanoseconds of any one clock; both may differ from call to
    call."""

    burst: int
    beyond: int = 0
    _spent_until_ns: int = 0
    """When all that was done would be over at the period's pace."""

    def free_ns(self, period_ns: int) -> int:
        """The moment from which it may be done once more."""
        return self._spent_until_ns - (self.burst - 1) * period_ns

    def spend(self, now_ns: int, period_ns: int) -> None:
        """It is done."""
        most_ns = now_ns + (self.burst + self.beyond) * period_ns
        self._spent_until_ns = min(most_ns, max(self._spent_until_ns, now_ns) + period_ns)
