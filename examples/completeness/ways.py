"""Ways that need a clock and a table, or a log: look-backs, markers by cron, consumer lag."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from examples.completeness.answers import Answer, Answers
from examples.completeness.flights import BEGIN, HOUR, Flight, Replay


@dataclass
class Seen:
    """What can be seen of the pipeline at a step: the table that is loaded, as flights by their hours, and how far
    the loader's group is behind the end of the log."""

    loaded: Counter[int] = field(default_factory=Counter)
    end: int = 0
    committed: int = 0

    @property
    def lag(self) -> int:
        return self.end - self.committed


class Way(Protocol):
    """Looks at each step, and tells which hours are complete."""

    answers: Answers

    def look(self, now: int, seen: Seen) -> None: ...


class LookBack:
    """A job on the hour, which reads the last so many hours again and replaces what it had of them. An hour's
    last word is the last run that reads it."""

    def __init__(self, hours: int) -> None:
        self._hours, self._read = hours, 0
        self.answers = Answers(f"look back {hours} hours, every hour")

    def look(self, now: int, seen: Seen) -> None:
        if now % HOUR:
            return
        for hour in range(now // HOUR - self._hours, now // HOUR):
            self._read += seen.loaded[hour]
            if seen.loaded[hour] or hour in self.answers.told:
                self.answers.told[hour] = Answer(now, seen.loaded[hour])
        self.answers.reads = self._read / max(1, seen.loaded.total())


class Cron:
    """A job some minutes past each hour, which writes the marker of the hour before. What reads an hour that has a
    marker reads what is in the table then."""

    def __init__(self, minutes: int) -> None:
        self._minutes = minutes
        self.answers = Answers(f"`_SUCCESS` by cron, {minutes} minutes past")

    def look(self, now: int, seen: Seen) -> None:
        if now % HOUR == self._minutes:
            hour = now // HOUR - 1
            self.answers.told[hour] = Answer(now, seen.loaded[hour])


class Lag:
    """Reads a lag of zero as "all is done": an hour that is over is complete at the first look that finds it."""

    def __init__(self, when: str) -> None:
        self._next = BEGIN // HOUR
        self.answers = Answers(f"no consumer lag, offsets committed {when}")

    def look(self, now: int, seen: Seen) -> None:
        while seen.lag == 0 and (self._next + 1) * HOUR <= now:
            self.answers.told[self._next] = Answer(now, seen.loaded[self._next])
            self._next += 1


WHEN_READ, WHEN_DONE = "as they are read", "when they are done"


def replayed(replay: Replay) -> list[Answers]:
    """What each of them says of the flights."""
    plain: list[Way] = [LookBack(3), LookBack(24), Cron(5), Cron(15)]
    by_when: dict[str, list[Way]] = {
        WHEN_READ: [*plain, Lag(WHEN_READ)],
        WHEN_DONE: [Lag(WHEN_DONE)],
    }
    for when, ways in by_when.items():
        _replay(replay, ways, when)
    return [way.answers for ways in by_when.values() for way in ways]


def _replay(replay: Replay, ways: Sequence[Way], when: str) -> None:
    """The loader's steps, each with a look at what it has come to. Whoever looks does so when the loader has begun
    with what has come in."""
    seen = Seen()
    flights = iter(replay.flights)
    coming: Flight | None = next(flights, None)
    taken: list[Flight] = []
    for now in replay.steps:
        seen.loaded.update(flight.scheduled // HOUR for flight in taken)
        if when == WHEN_DONE:
            seen.committed += len(taken)
        taken = []
        while coming is not None and coming.left <= now:
            taken.append(coming)
            coming = next(flights, None)
        seen.end += len(taken)
        if when == WHEN_READ:
            seen.committed += len(taken)
        for way in ways:
            way.look(now, seen)
