"""One airport: a front that replays its flights by the replay's clock.

    python -m examples.flights.airport TARGET ROOT AIRPORT

Publishes the year's first day at once, so that everything behind it gets going, says `ready` on
standard output and waits for `{"start_ns": ..., "seconds": ...}` on standard input. Then it publishes
each day's flights when the day is over: unparsed lines, as a file whose slot is the day. Its clock
reads the day whose flights are due; it never promises a day whose flights are not out.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import groupby
from pathlib import Path

from examples.children import tell
from examples.flights.data import DAY_NS, YEAR_BEGIN_NS, YEAR_END_NS, Flight, flights_of
from examples.flights.pipeline import NAME, Places
from examples.flights.replay import ReplayClock
from examples.history import Recorder, recording_ticks
from lowmark import FileFront, unit_name


class DayClock:
    """A front's clock that reads the beginning of the day that is due."""

    def __init__(self, day: int) -> None:
        self.day = day

    def __call__(self) -> int:
        return self.day * DAY_NS


class Airport:
    """Publishes the flights (in the order in which they come in), day by day."""

    def __init__(
        self, front: FileFront, days: DayClock, flights: list[Flight], recorder: Recorder
    ) -> None:
        self._front, self._days, self._recorder = front, days, recorder
        days_of = groupby(flights, lambda flight: flight.scheduled_ns // DAY_NS)
        self._by_day = {day: list(group) for day, group in days_of}
        self._published = 0

    def publish_day(self) -> None:
        """Publishes the flights of the day that is due; then the next one is."""
        flights = self._by_day.get(self._days.day, ())
        before_ns = time.monotonic_ns()
        file = self._front.write([{"row": flight.row, "line": flight.line} for flight in flights])
        if file is not None:
            self._recorder.created("parse", file.slot, unit_name(str(file.path)), before_ns)
            self._published += len(flights)
            tell("progress", rows=self._published)
        self._days.day += 1

    def replay(self, clock: ReplayClock) -> None:
        """Publishes the days that are left, each when it is over."""
        while self._days.day < YEAR_END_NS // DAY_NS:
            clock.wait_until((self._days.day + 1) * DAY_NS)
            self.publish_day()


def main(target: str, root: str, airport: str) -> int:
    """Replays the year once."""
    places = Places(Path(root))
    flights = flights_of(airport)
    recorder = Recorder(places.histories / f"{airport}.jsonl")
    days = DayClock(YEAR_BEGIN_NS // DAY_NS)
    with (
        recording_ticks(recorder),
        FileFront(target, NAME, airport, "parse", places.raw, clock=days) as front,
    ):
        flying = Airport(front, days, flights, recorder)
        flying.publish_day()
        tell("ready")
        start = json.loads(sys.stdin.readline())
        flying.replay(ReplayClock(start["start_ns"], start["seconds"]))
        front.leave()
    recorder.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
