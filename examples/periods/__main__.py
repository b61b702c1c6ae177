"""Replays, kills, looks; `OK` if every hour has been marked, once, and none too early."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from examples.children import free_ports
from examples.hours import (
    HOUR,
    LOOK_S,
    MIDNIGHT,
    NAME,
    SEGMENT,
    WAIT_S,
    ExampleFailed,
    Processes,
    keys_of_hours,
    run_example,
)
from lowmark import history

STEPS = (1, 3, 1, 2, 1)
"""Hours by which min time moves at once; between two of them something is killed."""
VICTIMS = (("follower",), ("tracker",), ("shop",), ("follower", "shop", "tracker"))
"""In the order in which they are killed; they are started again the other way round."""


class Run(Processes):
    """The tracker, the shop that moves min time, and the follower."""

    names = ("tracker", "follower", "shop")

    def __init__(self, directory: Path) -> None:
        self.table = directory / "table"
        super().__init__(directory, f"127.0.0.1:{free_ports(1)}")

    def waiting(self, name: str) -> Sequence[str]:
        return [
            "tracker.cli", "periods", "follow", "--pipeline", NAME, "--segment", SEGMENT,
            "--every", "1h", "--record", str(self.directory / "record.json"),
            "--mark", f"partition:{self.table}/date={{start:%Y-%m-%d}}/hour={{start:%H}}",
            "--target", self.target,
        ]  # fmt: skip

    def marked(self) -> dict[int, dict[str, object]]:
        """The markers that are there, by their hour of the day."""
        found = {}
        for marker in self.table.glob("date=2026-03-02/hour=*/_SUCCESS"):
            found[int(marker.parent.name.removeprefix("hour="))] = json.loads(marker.read_text())
        return found

    def wait_for(self, hours: int) -> None:
        """Waits until that many hours are marked."""
        deadline_s = time.monotonic() + WAIT_S
        while len(self.marked()) < hours:
            if time.monotonic() > deadline_s:
                raise ExampleFailed(f"of {hours} complete hours {sorted(self.marked())} are marked")
            if (status := self.children["follower"].process.poll()) not in (None, 0):
                raise ExampleFailed(f"the follower has ended with status {status}")
            time.sleep(LOOK_S)


def replay(run: Run) -> int:
    """Moves min time on, hour by hour; returns how many hours there were. Raises ExampleFailed."""
    hour = 0
    for step, hours in enumerate(STEPS):
        # One item of the next hours is held back: they must not be marked while it is open.
        held_back = MIDNIGHT + hour * HOUR + 7
        run.tell("shop", f"open {held_back}")
        run.tell("shop", f"promise {MIDNIGHT + (hour + hours) * HOUR}")
        victims = VICTIMS[step % len(VICTIMS)]
        run.kill(victims)
        if len(run.marked()) != hour:
            raise ExampleFailed(f"hour {hour} is open, and {sorted(run.marked())} are marked")
        run.tell("shop", f"close {held_back}")
        hour += hours
        run.wait_for(hour)
        print(f"{hour:2d} hours are complete and marked; killed before: {', '.join(victims)}")
    # The last hour has data, and no end: the front leaves in the middle of it.
    (run.table / f"date=2026-03-02/hour={hour:02d}").mkdir(parents=True)
    run.tell("shop", "leave")
    run.wait_for(hour + 1)
    return hour + 1


def check(run: Run, hours: int) -> None:
    """Each hour has its marker with its key, and the tracker knows when each was complete."""
    marked = [marker["key"] for _, marker in sorted(run.marked().items())]
    if marked != keys_of_hours(hours):
        raise ExampleFailed(f"marked are {marked}, expected {keys_of_hours(hours)}")
    ends = [MIDNIGHT + (hour + 1) * HOUR for hour in range(hours)]
    moments = [reached.at_ms for reached in history(run.target, NAME, ends, SEGMENT)]
    known = [each for each in moments if each is not None]
    if len(known) != hours or known != sorted(known):
        raise ExampleFailed(f"the history tells {moments}")


if __name__ == "__main__":
    sys.exit(run_example("example-periods", Run, replay, check))
