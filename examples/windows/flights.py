"""Two days of flights, in bursts, and what a report of them must say."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import TypeAlias

from examples.flights.data import COLUMNS, Flight, all_lines, scheduled_ns

HOUR_NS = 60 * 60 * 10**9
BEGIN = int(datetime(2013, 1, 1, 6, tzinfo=UTC).timestamp() * 10**9) // HOUR_NS
"""The first hour that is replayed, in hours since 1970 by UTC. A slot is as wide as an hour, so it is a slot too."""
BURST_HOURS = 6
BURSTS = 8
DELAY_HOURS = BURST_HOURS
"""How late a row may be: the airports publish one after the other, each a whole burst."""
_CANCELLED, _ORIGIN = COLUMNS.index("dep_time"), COLUMNS.index("origin")
_FIRST_DAYS = ("2013,1,1,", "2013,1,2,", "2013,1,3,")

Window: TypeAlias = tuple[int, str]
"""An hour, and an airport."""


@dataclass(frozen=True, slots=True)
class Count:
    """What the report says of a window."""

    flights: int
    cancelled: int


def is_cancelled(flight: Flight) -> bool:
    return flight.line.split(",")[_CANCELLED] == "NA"


@cache
def _first_days() -> list[Flight]:
    """The flights of the first days in New York, in the order in which they come in."""
    found = []
    for row, line in enumerate(all_lines()):
        if line.startswith(_FIRST_DAYS):
            fields = line.split(",")
            found.append(Flight(row, fields[_ORIGIN], scheduled_ns(fields), line))
    return sorted(found, key=lambda flight: (flight.scheduled_ns, flight.row))


@dataclass(frozen=True)
class Replayed:
    """The flights of the first bursts."""

    bursts: int = BURSTS

    @property
    def hours(self) -> range:
        return range(BEGIN, BEGIN + self.bursts * BURST_HOURS)

    @cached_property
    def flights(self) -> list[Flight]:
        """Of all airports, in the order in which they come in."""
        return [f for f in _first_days() if f.scheduled_ns // HOUR_NS in self.hours]

    def burst_of(self, airport: str, burst: int) -> dict[int, list[Flight]]:
        """The flights of a burst of an airport by their hours, all hours in order."""
        first = BEGIN + burst * BURST_HOURS
        hours: dict[int, list[Flight]] = {first + hour: [] for hour in range(BURST_HOURS)}
        for flight in self.flights:
            hour = flight.scheduled_ns // HOUR_NS
            if flight.origin == airport and hour in hours:
                hours[hour].append(flight)
        return hours

    @cached_property
    def expected(self) -> dict[Window, Count]:
        """Each window that has flights, counted from the flights themselves."""
        every = [(f.scheduled_ns // HOUR_NS, f.origin, is_cancelled(f)) for f in self.flights]
        flights = Counter((hour, origin) for hour, origin, _ in every)
        cancelled = Counter((hour, origin) for hour, origin, gone in every if gone)
        return {window: Count(count, cancelled[window]) for window, count in flights.items()}

    @cached_property
    def waiting(self) -> list[Window]:
        """The windows that wait for later flights at the end. A batch takes a burst, and what it has taken is held
        until the watermark, as far behind the last flight as rows may be late, has passed all of it."""
        watermark_ns = max(f.scheduled_ns for f in self.flights) - DELAY_HOURS * HOUR_NS
        open_hours = [hour for hour, _ in self.expected if (hour + 1) * HOUR_NS > watermark_ns]
        burst = (min(open_hours) - BEGIN) // BURST_HOURS
        return [w for w in self.expected if w[0] >= BEGIN + burst * BURST_HOURS]


def hour_text(hour: int) -> str:
    return datetime.fromtimestamp(hour * HOUR_NS / 1e9, UTC).strftime("%d %b %H:00")
