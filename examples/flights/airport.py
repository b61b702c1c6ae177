"""One airport: a front that replays its flights by the replay's clock, as files.

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
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

from examples.children import tell
from examples.flights.data import DAY_NS, YEAR_BEGIN_NS, YEAR_END_NS, Flight, flights_of
from examples.flights.pipeline import NAME, Places
from examples.flights.replay import ReplayClock
from examples.history import Recorder, recording_ticks
from lowmark import FileFront
from lowmark.fronts import FrontOptions
from lowmark.nodes import unit_name

FIRST_DAY = YEAR_BEGIN_NS // DAY_NS


class DayClock:
    """A front's clock that reads the beginning of the day that is due."""

    def __init__(self, day: int) -> None:
        self.day = day

    def __call__(self) -> int:
        return self.day * DAY_NS


class Airport:
    """Publishes the flights of an airport, day by day."""

    def __init__(
        self, name: str, days: DayClock, publish: Callable[[Sequence[Flight]], None]
    ) -> None:
        """days: the day that is due; publish: is given its flights, in the order in which they come in."""
        self._days, self._publish = days, publish
        days_of = groupby(flights_of(name), lambda flight: flight.scheduled_ns // DAY_NS)
        self._by_day = {day: list(group) for day, group in days_of}
        self._published = 0

    def run(self) -> None:
        """Publishes the first day, and the others when the parent has said when the year begins."""
        self._publish_day()
        tell("ready")
        start = json.loads(sys.stdin.readline())
        clock = ReplayClock(start["start_ns"], start["seconds"])
        while self._days.day < YEAR_END_NS // DAY_NS:
            clock.wait_until((self._days.day + 1) * DAY_NS)
            self._publish_day()

    def _publish_day(self) -> None:
        """Publishes the flights of the day that is due; then the next one is."""
        flights = self._by_day.get(self._days.day, ())
        self._publish(flights)
        self._published += len(flights)
        tell("progress", rows=self._published)
        self._days.day += 1


def main(target: str, root: str, airport: str) -> int:
    """Replays the year once."""
    places = Places(Path(root))
    recorder = Recorder(places.histories / f"{airport}.jsonl")
    days = DayClock(FIRST_DAY)
    with (
        recording_ticks(recorder),
        FileFront(
            target, NAME, airport, "parse", places.raw, options=FrontOptions(clock=days)
        ) as front,
    ):

        def publish(flights: Sequence[Flight]) -> None:
            before_ns = time.monotonic_ns()
            file = front.write([{"row": flight.row, "line": flight.line} for flight in flights])
            if file is not None:
                recorder.created("parse", file.slot, unit_name(str(file.path)), before_ns)

        Airport(airport, days, publish).run()
        front.leave()
    recorder.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
