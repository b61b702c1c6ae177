"""What a way has said of each hour, held against the flights themselves."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from examples.completeness.flights import HOUR, Replay


@dataclass(frozen=True, slots=True)
class Answer:
    """At `minute` an hour was said to be complete, with so many flights."""

    minute: int
    flights: int


@dataclass
class Answers:
    """Of one way: its last word on each hour, by the hour. reads: how often it has read a flight, in the mean."""

    way: str
    told: dict[int, Answer] = field(default_factory=dict)
    reads: float = 1.0
    line: list[tuple[int, int]] = field(default_factory=list)
    """Up to which minute all was said to be complete, from when on; where it is not by hours alone."""

    def progress(self) -> list[tuple[int, int]]:
        """`line`, or the same by whole hours."""
        told = sorted((answer.minute, (hour + 1) * HOUR) for hour, answer in self.told.items())
        return self.line or told


@dataclass(frozen=True, slots=True)
class Verdict:
    """early: hours that were said to be complete, and were not; missed: flights that were not in them then, and
    in_flight: those of them that had left; unsaid: hours of which nothing was said. For each hour that was right, late:
    minutes from its being complete to the answer; behind: from its and all earlier hours' being so."""

    way: str
    hours: int
    early: tuple[int, ...]
    missed: int
    in_flight: int
    unsaid: int
    late: tuple[int, ...]
    behind: tuple[int, ...]
    reads: float

    @property
    def is_exact(self) -> bool:
        """Each hour was told, whole, in the step in which it was complete, and all before it."""
        return not self.early and not self.unsaid and not any(self.behind)

    def details(self) -> dict[str, Any]:
        return {
            "early": len(self.early),
            "missed": self.missed,
            "in_flight": self.in_flight,
            "unsaid": self.unsaid,
            "late_median_min": statistics.median(self.late) if self.late else None,
            "late_most_min": max(self.late, default=None),
            "waited_for_earlier_hours": sum(
                late > behind for late, behind in zip(self.late, self.behind, strict=True)
            ),
            "reads": round(self.reads, 1),
        }


def judge(replay: Replay, answers: Answers) -> Verdict:
    """Compares each answer with the hour's flights."""
    early, late, behind, missed, in_flight = [], [], [], 0, 0
    passed = 0
    for hour, flights in replay.hours.items():
        passed = max(passed, replay.complete_at(hour))
        answer = answers.told.get(hour)
        if answer is None:
            continue
        if lacking := len(flights) - answer.flights:
            early.append(hour)
            missed += lacking
            in_flight += sum(each.left <= answer.minute < each.loaded for each in flights)
        else:
            late.append(answer.minute - replay.complete_at(hour))
            behind.append(answer.minute - passed)
    unsaid = len(replay.hours.keys() - answers.told.keys())
    return Verdict(
        answers.way, len(replay.hours), tuple(early), missed, in_flight, unsaid, tuple(late),
        tuple(behind), answers.reads,
    )  # fmt: skip


HEADING = (
    "| the way | hours said too early | flights missed in them | how long after an hour is complete the right answers come |\n"
    "|---|---|---|---|"
)


def table_row(verdict: Verdict) -> str:
    """A row of the table, as the page has it."""
    late = "no hour was right"
    if verdict.late:
        median, most = statistics.median(verdict.late), max(verdict.late)
        late = f"{minutes_text(median)} in the median, {minutes_text(most)} at most"
    return (
        f"| {verdict.way} | {len(verdict.early)} of {verdict.hours} | {verdict.missed:,} | {late} |"
    )


def minutes_text(minutes: float) -> str:
    """`25 min`, `3 h 10 min`."""
    hours, rest = divmod(round(minutes), HOUR)
    parts = [f"{hours} h"] * bool(hours) + [f"{rest} min"] * bool(rest or not hours)
    return " ".join(parts)


def table(verdicts: Sequence[Verdict]) -> str:
    return "\n".join([HEADING, *map(table_row, verdicts)])
