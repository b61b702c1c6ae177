"""Min time: a real tracker in a process of its own, with a front for each airport and the loader as a node."""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

from examples.children import tracker_process
from examples.completeness.answers import Answer, Answers
from examples.completeness.flights import (
    BEGIN,
    HOUR,
    MINUTE_NS,
    STEP,
    Flight,
    Frontier,
    Replay,
)
from examples.flights.data import AIRPORTS
from lowmark import Admin, PipelineSpec, Subscriber
from lowmark.admin import TimeKind
from lowmark.nodes import Cells, Heartbeat, NodeClient, TickContent, root_values

NAME, SEGMENT = "departures", "load"
SPEC = PipelineSpec(
    NAME, (SEGMENT,), fronts=AIRPORTS, start_slot=BEGIN, slack_ns=MINUTE_NS, time=TimeKind.EVENT
)
"""A slot is a minute, of the time for which a flight is scheduled."""
WAIT_S = 300.0


class ExampleFailed(Exception):
    """The example cannot go on; says why."""


class Airport:
    """Labels each flight by its scheduled time when it leaves, and promises by its own timetable: nothing from before
    the first flight that is still to leave."""

    def __init__(self, name: str, node: NodeClient, flights: Iterable[Flight]) -> None:
        self.name, self._node = name, node
        self._frontier = Frontier((flight.scheduled, flight.left) for flight in flights)
        self._promised = BEGIN

    def publish(self, now: int, flights: Iterable[Flight]) -> None:
        """What has left since it did so last."""
        if left := list(flights):
            self._node.commit(TickContent(created=cells(left)))
        if (promise := self._frontier.at(now)) > self._promised:
            self._promised = promise
            self._node.commit(TickContent(heartbeats=(Heartbeat(self.name, promise),)))


def cells(flights: Iterable[Flight]) -> Cells:
    """An item for each flight. Its ack value follows from its row, so that whoever loads it knows it too."""
    listed = list(flights)
    values = root_values("flights", 0, [flight.row for flight in listed])
    return Cells.of(
        (0, flight.scheduled, int(value), 1) for flight, value in zip(listed, values, strict=True)
    )


class Run:
    """One replay against a tracker."""

    def __init__(self, replay: Replay, target: str, stack: ExitStack) -> None:
        self._replay = replay
        self.answers = Answers("min time")
        self.answers_ms: list[float] = []
        """From the last commit of a step until min time is where it must be, in milliseconds."""
        self.beyond = 0
        """Steps at which min time was beyond what is loaded, if only by a minute."""
        self._loaded: Counter[int] = Counter()
        self._left = _by_step(replay, lambda flight: flight.left)
        self._done = _by_step(replay, lambda flight: flight.loaded)
        nodes = {
            name: stack.enter_context(NodeClient(target, NAME, name, kind))
            for name, kind in (*((name, "front") for name in AIRPORTS), ("loader", "other"))
        }
        for node in nodes.values():
            node.join(WAIT_S)
        for name in AIRPORTS:
            nodes[name].join_front(name, SEGMENT, WAIT_S)
        self._loader = nodes["loader"]
        self._airports = [
            Airport(name, nodes[name], [f for f in replay.flights if f.airport == name])
            for name in AIRPORTS
        ]
        self._subscriber = stack.enter_context(Subscriber(target, NAME))

    def go(self) -> None:
        """Until the hours that are judged are complete. Raises ExampleFailed if min time does not come to what is
        loaded within WAIT_S."""
        frontier, end = self._replay.frontier(), (max(self._replay.hours) + 1) * HOUR
        for now in self._replay.steps:
            for airport in self._airports:
                left = [f for f in self._left[now] if f.airport == airport.name]
                airport.publish(now, left)
            if loaded := self._done[now]:
                self._loader.commit(TickContent(consumed=cells(loaded)))
            self._loaded.update(flight.scheduled // HOUR for flight in loaded)
            self._hear(now, reached := frontier.at(now))
            if reached >= end:
                return

    def _hear(self, now: int, expected: int) -> None:
        committed_s = time.monotonic()
        if not self._subscriber.wait_until(expected, SEGMENT, WAIT_S):
            raise ExampleFailed(f"min time did not come to minute {expected} within {WAIT_S:g} s")
        told = self._subscriber.min_time(SEGMENT)
        self.beyond += told > expected
        line = self.answers.line
        if not line or told > line[-1][1]:
            self.answers_ms.append(1000 * (time.monotonic() - committed_s))
            before = line[-1][1] if line else BEGIN
            line.append((now, told))
            for hour in range(before // HOUR, told // HOUR):
                self.answers.told[hour] = Answer(now, self._loaded[hour])

    @property
    def median_ms(self) -> float:
        return round(statistics.median(self.answers_ms), 1)


def _by_step(replay: Replay, minute: Callable[[Flight], int]) -> dict[int, list[Flight]]:
    """Flights by the first step at which a minute of theirs has come."""
    found: dict[int, list[Flight]] = defaultdict(list)
    for flight in replay.flights:
        found[-(-minute(flight) // STEP) * STEP].append(flight)
    return found


def track(replay: Replay, directory: Path, sabotage: str | None) -> Run:
    """Replays the flights with a tracker whose files are in `directory`; sabotage: a fault of `tests.sabotage` in
    it. Raises ExampleFailed and LowmarkError."""
    with tracker_process(directory, sabotage) as target, ExitStack() as stack:
        with Admin(target, WAIT_S) as admin:
            admin.register(SPEC)
        run = Run(replay, target, stack)
        run.go()
        return run
