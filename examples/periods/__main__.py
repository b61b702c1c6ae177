"""Replays, kills, looks; `OK` if every hour has been marked, once, and none too early."""

from __future__ import annotations

import itertools
import json
import queue
import shutil
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from examples.children import Child, Said, free_ports
from scripts.summary import BUILD, finish
from tracker.client import Admin
from tracker.client.history import history
from tracker.core.model import PipelineSpec

NAME, SEGMENT = "orders", "load"
HOUR = 3_600
"""Slots of an hour: the pipeline's are as wide as a second."""
MIDNIGHT = int(datetime(2026, 3, 2, tzinfo=UTC).timestamp())
STEPS = (1, 3, 1, 2, 1)
"""Hours by which min time moves at once; between two of them something is killed."""
VICTIMS = (("follower",), ("tracker",), ("shop",), ("follower", "shop", "tracker"))
"""In the order in which they are killed; they are started again the other way round."""
WAIT_S = 120.0
LOOK_S = 0.02


class ExampleFailed(Exception):
    """Something does not hold; says what."""


class Run:
    """The processes: the tracker, the shop that moves min time, and the follower."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.table = directory, directory / "table"
        self.target = f"127.0.0.1:{free_ports(1)}"
        self._said: queue.Queue[Said] = queue.Queue()
        self._starts = 0
        self.kills = 0
        self._children: dict[str, Child] = {}
        self.start("tracker")
        with Admin(self.target, WAIT_S) as admin:
            admin.register(
                PipelineSpec(
                    NAME, (SEGMENT,), fronts=("shop",), start_slot=MIDNIGHT, slack_ns=10**9
                )
            )
        self.start("shop")
        self.start("follower")

    def start(self, name: str) -> None:
        self._starts += 1
        store, record = f"sqlite:{self.directory / 'store'}", str(self.directory / "record.json")
        commands = {
            "tracker": ["tracker.cli", "serve", "--listen", self.target, "--store", store],
            "shop": ["examples.periods.shop", self.target, NAME, SEGMENT],
            "follower": [
                "tracker.cli", "periods", "follow", "--pipeline", NAME, "--segment", SEGMENT,
                "--every", "1h", "--record", record, "--table", str(self.table),
                "--target", self.target,
            ],
        }  # fmt: skip
        self._children[name] = Child(
            f"{name}-{self._starts}", commands[name], self.directory / "logs", self._said
        )

    def kill(self, names: tuple[str, ...]) -> None:
        """Kills processes, and starts them again."""
        for name in names:
            self._children[name].process.kill()
            self._children[name].process.wait()
            self.kills += 1
        for name in reversed(names):
            self.start(name)

    def shop(self, what: str, slot: int | None = None) -> None:
        """The shop does something; returns when it is durable. Raises ExampleFailed."""
        shop = self._children["shop"]
        shop.tell(what if slot is None else f"{what} {slot}")
        while True:
            try:
                said = self._said.get(timeout=WAIT_S)
            except queue.Empty:
                raise ExampleFailed(f"{shop.name} has not answered to {what!r}") from None
            if said.child == shop.name:
                if said.event is None:
                    raise ExampleFailed(f"{shop.name} has ended: {shop.log_tail()}")
                return

    def marked(self) -> dict[int, dict[str, object]]:
        """The markers that are there, by their hour of the day."""
        found = {}
        for marker in self.table.glob("date=2026-03-02/hour=*/_COMPLETE"):
            found[int(marker.parent.name.removeprefix("hour="))] = json.loads(marker.read_text())
        return found

    def wait_for(self, hours: int) -> None:
        """Waits until that many hours are marked."""
        deadline_s = time.monotonic() + WAIT_S
        while len(self.marked()) < hours:
            if time.monotonic() > deadline_s:
                raise ExampleFailed(f"of {hours} complete hours {sorted(self.marked())} are marked")
            if (status := self._children["follower"].process.poll()) not in (None, 0):
                raise ExampleFailed(f"the follower has ended with status {status}")
            time.sleep(LOOK_S)

    def stop(self) -> None:
        for name in ("shop", "follower", "tracker"):
            if name in self._children:
                self._children[name].stop()


def replay(run: Run) -> int:
    """Moves min time on, hour by hour; returns how many hours there were. Raises ExampleFailed."""
    hour = 0
    for step, hours in enumerate(STEPS):
        # One item of the next hours is held back: they must not be marked while it is open.
        held_back = MIDNIGHT + hour * HOUR + 7
        run.shop("open", held_back)
        run.shop("promise", MIDNIGHT + (hour + hours) * HOUR)
        victims = VICTIMS[step % len(VICTIMS)]
        run.kill(victims)
        if len(run.marked()) != hour:
            raise ExampleFailed(f"hour {hour} is open, and {sorted(run.marked())} are marked")
        run.shop("close", held_back)
        hour += hours
        run.wait_for(hour)
        print(f"{hour:2d} hours are complete and marked; killed before: {', '.join(victims)}")
    # The last hour has data, and no end: the front leaves in the middle of it.
    (run.table / f"date=2026-03-02/hour={hour:02d}").mkdir(parents=True)
    run.shop("leave")
    run.wait_for(hour + 1)
    return hour + 1


def check(run: Run, hours: int) -> None:
    """Each hour has its marker with its key, and the tracker knows when each was complete."""
    slots = [MIDNIGHT + hour * HOUR for hour in range(hours + 1)]
    keys = [f"{NAME}/{SEGMENT}/{a}..{b}" for a, b in itertools.pairwise(slots)]
    marked = [marker["key"] for _, marker in sorted(run.marked().items())]
    if marked != keys:
        raise ExampleFailed(f"marked are {marked}, expected {keys}")
    moments = [reached.at_ms for reached in history(run.target, NAME, slots[1:], SEGMENT)]
    known = [each for each in moments if each is not None]
    if len(known) != hours or known != sorted(known):
        raise ExampleFailed(f"the history tells {moments}")


def main() -> int:
    name = "example-periods"
    directory = BUILD / name
    shutil.rmtree(directory, ignore_errors=True)
    (directory / "logs").mkdir(parents=True)
    run = Run(directory)
    shown: dict[str, object] = {}
    try:
        hours = replay(run)
        check(run, hours)
        shown = {"hours": hours, "kills": run.kills}
    except ExampleFailed as error:
        shown = {"problem": repr(str(error))}
    finally:
        run.stop()
    return finish(name, ok="problem" not in shown, shown=shown, details={})


if __name__ == "__main__":
    sys.exit(main())
