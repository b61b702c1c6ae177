"""The flights of some days, and when the record of each came in and was loaded.

Times are minutes since 1970 by UTC. The replay goes in steps: at each step a loader takes what has come in since
the one before, and has loaded it one step later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from examples.flights.data import COLUMNS, all_lines, scheduled_ns

MINUTE_NS = 60 * 10**9
HOUR, DAY = 60, 24 * 60
STEP = 5
NEW_YORK = -5 * HOUR
"""Of New York's clock in January; people are shown its time."""
BEGIN = int(datetime(2013, 1, 1, tzinfo=UTC).timestamp()) // 60 - NEW_YORK
"""The first midnight of the year in New York."""
DAYS = 3
MAX_DAYS = 30
_ORIGIN, _DELAY = COLUMNS.index("origin"), COLUMNS.index("dep_delay")


@dataclass(frozen=True, slots=True)
class Flight:
    """scheduled: the minute by which it is counted; left: in which it left, and its record came in. Of a flight
    that was cancelled the record comes in when it was to leave; the data do not say when that was known."""

    row: int
    airport: str
    scheduled: int
    left: int

    @property
    def loaded(self) -> int:
        """The step at which it is in the table: one after that at which the loader took it."""
        return -(-self.left // STEP) * STEP + STEP


class Frontier:
    """The earliest moment for which something is still to come, as time goes on: the scheduled time of the first
    flight that is not done, or the clock. done: for each flight, when it is."""

    def __init__(self, done: Iterable[tuple[int, int]]) -> None:
        """done: of each flight the minute for which it is scheduled, and that in which it is done."""
        self._flights = sorted(done)
        self._first = 0

    def at(self, now: int) -> int:
        """At `now`, which does not go back."""
        flights = self._flights
        while self._first < len(flights) and flights[self._first][1] <= now:
            self._first += 1
        return min(now, flights[self._first][0]) if self._first < len(flights) else now


@dataclass(frozen=True)
class Replay:
    """The first days, of which the hours are judged, and the day behind them, which goes on as before.
    Raises ValueError unless there are 1 to MAX_DAYS."""

    days: int = DAYS

    def __post_init__(self) -> None:
        if not 1 <= self.days <= MAX_DAYS:
            raise ValueError(f"{self.days} days are asked for; there are 1 to {MAX_DAYS}")

    @cached_property
    def flights(self) -> list[Flight]:
        """In the order in which their records come in."""
        days = tuple(f"2013,1,{day}," for day in range(1, self.days + 2))
        found = []
        for row, line in enumerate(all_lines()):
            if line.startswith(days):
                fields = line.split(",")
                scheduled = scheduled_ns(fields) // MINUTE_NS
                delay = 0 if fields[_DELAY] == "NA" else int(fields[_DELAY])
                found.append(Flight(row, fields[_ORIGIN], scheduled, scheduled + delay))
        return sorted(found, key=lambda flight: (flight.left, flight.row))

    @property
    def steps(self) -> range:
        return range(BEGIN, BEGIN + (self.days + 1) * DAY + 1, STEP)

    @cached_property
    def hours(self) -> dict[int, list[Flight]]:
        """The hours that are judged, each with its flights: those that have any. An hour is named by its number
        since 1970."""
        end = BEGIN + self.days * DAY
        hours: dict[int, list[Flight]] = defaultdict(list)
        for flight in self.flights:
            if flight.scheduled < end:
                hours[flight.scheduled // HOUR].append(flight)
        return dict(sorted(hours.items()))

    def complete_at(self, hour: int) -> int:
        """When all flights of an hour are loaded, and it is over."""
        return max((hour + 1) * HOUR, *(flight.loaded for flight in self.hours[hour]))

    def frontier(self) -> Frontier:
        """Up to where all flights are loaded."""
        return Frontier((flight.scheduled, flight.loaded) for flight in self.flights)


def clock_text(minute: int) -> str:
    """A minute as New York's clock shows it."""
    return datetime.fromtimestamp((minute + NEW_YORK) * 60, UTC).strftime("%H:%M")
