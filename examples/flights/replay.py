"""The replay's clock: the year 2013 in about a minute."""

from __future__ import annotations

import time
from dataclasses import dataclass

from examples.flights.data import YEAR_BEGIN_NS, YEAR_END_NS


@dataclass(frozen=True, slots=True)
class ReplayClock:
    """A clock that all processes of a replay share.

    start_ns: the moment of CLOCK_MONOTONIC at which the year begins; duration_s: how long it lasts.
    """

    start_ns: int
    duration_s: float

    @property
    def speed(self) -> float:
        """Replayed seconds a second."""
        return (YEAR_END_NS - YEAR_BEGIN_NS) / (self.duration_s * 1e9)

    def now_ns(self) -> int:
        """The replayed moment, nanoseconds since 1970; stands still before and after the year."""
        passed_ns = (time.monotonic_ns() - self.start_ns) * self.speed
        return min(max(YEAR_BEGIN_NS, YEAR_BEGIN_NS + int(passed_ns)), YEAR_END_NS)

    def wait_until(self, moment_ns: int) -> None:
        """Sleeps until the replayed moment (at the latest the year's end) is reached."""
        due_ns = self.start_ns + (min(moment_ns, YEAR_END_NS) - YEAR_BEGIN_NS) / self.speed
        while (left_s := (due_ns - time.monotonic_ns()) / 1e9) > 0:
            time.sleep(left_s)
