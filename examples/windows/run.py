"""The replay: a tracker and a driver in processes of their own, three fronts, and the report."""

from __future__ import annotations

import os
import queue
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq

from examples.children import Child, Said, tracker_process
from examples.flights.data import AIRPORTS
from examples.windows.flights import (
    BEGIN,
    BURST_HOURS,
    HOUR_NS,
    Count,
    Replayed,
    Window,
    hour_text,
    is_cancelled,
)
from lowmark import FOREVER, Admin, Edge, FileFront, PipelineSpec, Runs, Subscriber
from lowmark.fronts import FrontOptions

NAME = "windows"
SPEC = PipelineSpec(
    NAME, ("flights", "hours"), (Edge("flights", "hours"),), fronts=AIRPORTS, start_slot=BEGIN,
    slack_ns=HOUR_NS,
)  # fmt: skip
WAIT_S = 300.0
POLL_S = 0.02
SETTLE_S = 1.0
"""How long a report waits, after a burst, for hours that may still become complete: it would be right without, but
would read them after the next burst only."""


class ExampleFailed(Exception):
    """The example cannot go on; says why."""


@dataclass
class Report:
    """What the report read, each window once, when min time said that its hour was complete."""

    replayed: Replayed
    found: dict[Window, list[Count]] = field(default_factory=dict)
    upto: int = BEGIN
    """The hours below were read."""
    waits: list[str] = field(default_factory=list)
    """What `lowmark explain` says at the end."""
    seconds: float = 0.0

    @property
    def read(self) -> list[Window]:
        """The windows of the hours that it read."""
        return [window for window in self.replayed.expected if window[0] < self.upto]

    def missed(self) -> list[Window]:
        """Those of them whose count was not there."""
        return [window for window in self.read if not self.found.get(window)]

    def incomplete(self) -> list[Window]:
        """Those whose count was there, and was not that of all flights, or was there twice."""
        wanted = self.replayed.expected
        return [window for window, counts in self.found.items() if counts != [wanted.get(window)]]

    def unread(self) -> list[Window]:
        """Those that min time should have passed, and the report has not read."""
        complete = self.replayed.expected.keys() - {*self.replayed.waiting}
        return sorted(complete - {*self.read})


class Airport:
    """Publishes bursts of its flights, each hour as a file whose slot is the hour."""

    def __init__(self, name: str, target: str, directory: Path) -> None:
        self.name, self.hour = name, BEGIN
        self._front = FileFront(
            target,
            NAME,
            name,
            "flights",
            directory,
            format="json",
            options=FrontOptions(clock=lambda: self.hour * HOUR_NS),
        )
        self._front.start()

    def publish(self, replayed: Replayed, burst: int) -> None:
        """Returns when the tracker has it, and the promise of nothing more from before its end."""
        for hour, flights in replayed.burst_of(self.name, burst).items():
            self.hour = hour
            self._front.write(
                [
                    {
                        "row": flight.row,
                        "at": datetime.fromtimestamp(flight.scheduled_ns / 1e9, UTC).isoformat(),
                        "origin": flight.origin,
                        "cancelled": is_cancelled(flight),
                    }
                    for flight in flights
                ]
            )
        self.hour = BEGIN + (burst + 1) * BURST_HOURS
        if not self._front.wait_durable(WAIT_S):
            raise ExampleFailed(f"the tracker did not take what {self.name} has published")

    def leave(self) -> None:
        self._front.leave()

    def close(self) -> None:
        self._front.close()


class Replay:
    """One run, with its files in `directory`. state: of the query, as `tracked.start` takes it; killed_in: the burst
    in which the driver is killed, if it is."""

    def __init__(
        self, replayed: Replayed, directory: Path, target: str, state: str, killed_in: int | None
    ) -> None:
        self.replayed, self._killed_in = replayed, killed_in
        self.directory, self.target, self.state = directory, target, state
        self.report = Report(replayed)
        self._said: queue.Queue[Said] = queue.Queue()
        self._driver: Child | None = None

    def run(self) -> Report:
        """Replays the flights. Raises ExampleFailed and what the parts raise."""
        airports = [Airport(name, self.target, self.directory / "raw") for name in AIRPORTS]
        try:
            self._start_driver()
            with Subscriber(self.target, NAME) as subscriber:
                for burst in range(self.replayed.bursts):
                    for airport in airports:
                        airport.publish(self.replayed, burst)
                    if burst == self._killed_in:
                        self._kill_driver()
                        self._start_driver()
                    self._settle(subscriber, BEGIN + (burst + 1) * BURST_HOURS)
                    self._take(f"burst {burst + 1} of {self.replayed.bursts}")
                for airport in airports:
                    airport.leave()
                # With holds min time comes as far as to the hours that wait; the report says so if it does not.
                waiting = min(hour for hour, _ in self.replayed.waiting)
                end = FOREVER if self.state == "free" else waiting
                subscriber.wait_until(end, "hours", timeout_s=WAIT_S)
                self._take("the end")
            self._explain()
            return self.report
        finally:
            if self._driver is not None:
                self._driver.stop(terminate=False)
            for airport in airports:
                airport.close()

    # --- the driver -------------------------------------------------------------------------------

    def _start_driver(self) -> None:
        module = ["examples.windows.driver", self.target, str(self.directory), self.state]
        self._driver = Child("driver", module, self.directory / "logs", self._said)
        self._hear()

    def _hear(self) -> None:
        """Waits until the driver is ready."""
        assert self._driver is not None
        try:
            said = self._said.get(timeout=WAIT_S)
        except queue.Empty:
            raise ExampleFailed(f"the driver was not ready within {WAIT_S:g} s") from None
        if said.event is None or said.event["event"] != "ready":
            raise ExampleFailed(f"the driver says {said.event}:\n{self._driver.log_tail()}")

    def _kill_driver(self) -> None:
        """Ends driver and JVM by SIGKILL, as a machine that fails would."""
        assert self._driver is not None
        os.killpg(self._driver.process.pid, signal.SIGKILL)
        while self._said.get(timeout=WAIT_S).event is not None:
            pass  # what it has said before its end
        self._driver.stop()
        print(f"{self.state}: the driver is killed", flush=True)

    # --- the report -------------------------------------------------------------------------------

    def _settle(self, subscriber: Subscriber, promised: int) -> None:
        """Waits until all flights so far are in the query, and min time of what it emits has come to rest."""
        if not subscriber.wait_until(promised, "flights", timeout_s=WAIT_S):
            raise ExampleFailed(f"min time of flights did not reach slot {promised}")
        deadline_s, stands = time.monotonic() + SETTLE_S, subscriber.min_time("hours")
        while time.monotonic() < deadline_s and stands < FOREVER:
            if (now := subscriber.min_time("hours")) > stands:
                deadline_s, stands = time.monotonic() + SETTLE_S, now
            time.sleep(POLL_S)

    def _take(self, when: str) -> None:
        """Reads the hours that have become complete since it did so last, each once."""
        record = self.directory / "report.json"
        with Runs(self.target, NAME, "hours", record) as runs:
            run = runs.begin()
            if run is None:
                return
            loaded = self._loaded()
            hours = range(run.from_slot, min(run.to_slot, self.replayed.hours.stop))
            for window, counts in loaded.items():
                if window[0] in hours:
                    self.report.found[window] = counts
            self.report.upto = max(self.report.upto, hours.stop)
            runs.done(run)
        print(
            f"{self.state}: {when}: the report has read up to {hour_text(self.report.upto)}",
            flush=True,
        )

    def _loaded(self) -> dict[Window, list[Count]]:
        """What is loaded by now."""
        found: dict[Window, list[Count]] = {}
        for path in sorted((self.directory / "loaded").glob("b*")):
            for row in pq.ParquetFile(path).read().to_pylist():
                count = Count(row["flights"], row["cancelled"])
                found.setdefault((row["hour"], row["origin"]), []).append(count)
        return found

    def _explain(self) -> None:
        """What a person is told of why min time goes no further."""
        asked = ["explain", "--target", self.target, "--pipeline", NAME, "--segment", "hours"]
        told = subprocess.run(
            [sys.executable, "-m", "tracker.cli", *asked],
            check=False, capture_output=True, text=True, timeout=WAIT_S,
        )  # fmt: skip
        self.report.waits = told.stdout.splitlines()


def run_example(replayed: Replayed, directory: Path, state: str, sabotage: str | None) -> Report:
    """Runs it with its files in `directory`, which is emptied; `sabotage`: a fault of `tests.sabotage` in
    the tracker. Raises ExampleFailed and what the parts raise."""
    started_s = time.monotonic()
    shutil.rmtree(directory, ignore_errors=True)
    for folder in ("logs", "raw", "hours"):
        (directory / folder).mkdir(parents=True)
    with tracker_process(directory, sabotage) as target:
        with Admin(target, WAIT_S) as admin:
            admin.register(SPEC)
        killed_in = replayed.bursts // 2 if state == "hold" else None
        report = Replay(replayed, directory, target, state, killed_in).run()
        report.seconds = round(time.monotonic() - started_s, 1)
        return report
