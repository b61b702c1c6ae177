"""Whether a history of reports is right: each hour once, none before it was complete, none left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reported:
    """Somebody has made the report of an hour. at_ns: when, in nanoseconds since 1970."""

    at_ns: int
    hour: str


def read_history(text: str) -> list[Reported]:
    """A line for each report, as `report-hour` writes it: nanoseconds, and the hour as it was named to it."""
    return [Reported(int(at), hour) for at, hour in (line.split() for line in text.splitlines())]


def faults(history: Iterable[Reported], completed_ns: Mapping[str, int]) -> list[str]:
    """What is wrong; nothing where all is right. completed_ns: of each hour that is complete, just before the
    tracker could know."""
    reports = list(history)
    times = Counter(each.hour for each in reports)
    found = [f"{hour} was left out" for hour in completed_ns if hour not in times]
    found += [f"{hour} was reported {n} times" for hour, n in times.items() if n > 1]
    for each in reports:
        if each.hour not in completed_ns:
            found.append(f"{each.hour} was reported and was never complete")
        elif each.at_ns < completed_ns[each.hour]:
            found.append(f"{each.hour} was reported before it was complete")
    return found
