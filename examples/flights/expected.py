"""What the three queries must come to, computed plainly over the same data, in one process."""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import dataclass, field

from examples.flights.data import all_lines, data_file, parse_line

RouteKey = tuple[str, str, str]
"""(carrier, origin, destination)."""


@dataclass
class RouteTotals:
    """Of the flights of one carrier on one route. Delays are in minutes, early ones negative."""

    flights: int = 0
    dep_delay_min: int = 0
    arrived: int = 0
    arr_delay_min: int = 0
    seats: int = 0


@dataclass
class Expected:
    """`routes`: totals of the well-formed flights; `malformed`: rows of the others."""

    routes: dict[RouteKey, RouteTotals] = field(default_factory=lambda: defaultdict(RouteTotals))
    malformed: set[int] = field(default_factory=set)

    @property
    def flights(self) -> int:
        """All flights, well-formed or not."""
        return sum(route.flights for route in self.routes.values()) + len(self.malformed)


def seats_by_tailnum() -> dict[str, int]:
    """Seats of each plane."""
    with open(data_file("planes.csv"), newline="") as text:
        return {plane["tailnum"]: int(plane["seats"]) for plane in csv.DictReader(text)}


def expected() -> Expected:
    """The whole year's result."""
    seats = seats_by_tailnum()
    result = Expected()
    for row, line in enumerate(all_lines()):
        try:
            flight = parse_line(line)
        except ValueError:
            result.malformed.add(row)
            continue
        key = (str(flight["carrier"]), str(flight["origin"]), str(flight["dest"]))
        totals = result.routes[key]
        totals.flights += 1
        totals.dep_delay_min += int(str(flight["dep_delay_min"]))
        if flight["arr_delay_min"] is not None:
            totals.arrived += 1
            totals.arr_delay_min += int(str(flight["arr_delay_min"]))
        totals.seats += seats.get(str(flight["tailnum"]), 0)
    return result
