"""Replays, kills, looks; `OK` if every hour was taken once, in order, and none too early."""

from __future__ import annotations

import itertools
import json
import queue
import shutil
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from examples.children import Child, Said, free_ports
from scripts.summary import BUILD, finish
from tracker.client import Admin
from tracker.consumers.signing import new_secret
from tracker.core.model import PipelineSpec

NAME, SEGMENT = "orders", "load"
HOUR = 3_600
"""Slots of an hour: the pipeline's are as wide as a second."""
MIDNIGHT = int(datetime(2026, 3, 2, tzinfo=UTC).timestamp())
STEPS = (1, 2, 1, 3, 1)
"""Hours by which min time moves at once; before they are complete, something happens."""
VICTIMS = (
    ("webhook",),
    ("tracker",),
    ("receiver",),
    ("webhook", "receiver", "shop", "tracker"),
    (),
)
"""In the order in which they are killed; they are started again the other way round."""
MOODS = ("busy", "die", "", "busy", "die")
"""What the receiver does with the next message."""
WAIT_S = 120.0
LOOK_S = 0.02


class ExampleFailed(Exception):
    """Something does not hold; says what."""


class Run:
    """The processes."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.taken_file = directory, directory / "taken"
        port = free_ports(2)
        self.target, self._receiver_port = f"127.0.0.1:{port}", str(port + 1)
        self._secret_file = str(directory / "hook.secret")
        Path(self._secret_file).write_text(new_secret() + "\n")
        self._said: queue.Queue[Said] = queue.Queue()
        self._starts, self.kills = 0, 0
        self._children: dict[str, Child] = {}
        self.start("tracker")
        with Admin(self.target, WAIT_S) as admin:
            admin.register(
                PipelineSpec(
                    NAME, (SEGMENT,), fronts=("shop",), start_slot=MIDNIGHT, slack_ns=10**9
                )
            )
        for name in ("shop", "receiver", "webhook"):
            self.start(name)

    def start(self, name: str) -> None:
        self._starts += 1
        store, record = f"sqlite:{self.directory / 'store'}", str(self.directory / "record.json")
        commands = {
            "tracker": ["tracker.cli", "serve", "--listen", self.target, "--store", store],
            "shop": ["examples.periods.shop", self.target, NAME, SEGMENT],
            "receiver": [
                "examples.webhook.receiver",
                self._receiver_port, self._secret_file, str(self.taken_file),
            ],
            "webhook": [
                "tracker.cli", "webhook", "follow", "--pipeline", NAME, "--segment", SEGMENT,
                "--url", f"http://127.0.0.1:{self._receiver_port}/hours",
                "--secret-file", self._secret_file, "--record", record, "--target", self.target,
            ],
        }  # fmt: skip
        self._children[name] = Child(
            f"{name}-{self._starts}", commands[name], self.directory / "logs", self._said
        )
        if name == "receiver":
            self._heard(self._children[name], "listens")

    def kill(self, names: tuple[str, ...]) -> None:
        """Kills processes, and starts them again."""
        for name in names:
            self._children[name].process.kill()
            self._children[name].process.wait()
            self.kills += 1
        for name in reversed(names):
            self.start(name)

    def tell(self, name: str, line: str) -> None:
        """A process does something; returns when it is done. Raises ExampleFailed."""
        self._children[name].tell(line)
        self._heard(self._children[name], "done")

    def _heard(self, child: Child, event: str) -> None:
        while True:
            try:
                said = self._said.get(timeout=WAIT_S)
            except queue.Empty:
                raise ExampleFailed(f"{child.name} does not say {event!r}") from None
            if said.child == child.name:
                if said.event is None:
                    raise ExampleFailed(f"{child.name} has ended: {child.log_tail()}")
                if said.event["event"] == event:
                    return

    def taken(self) -> list[dict[str, Any]]:
        """What the receiver has taken, in order."""
        text = self.taken_file.read_text() if self.taken_file.exists() else ""
        return [json.loads(line) for line in text.split("\n")[:-1]]

    def wait_for(self, hours: int) -> None:
        """Waits until that many hours are taken; a receiver that has ended is started again."""
        deadline_s = time.monotonic() + WAIT_S
        while len(self.taken()) < hours:
            if time.monotonic() > deadline_s:
                raise ExampleFailed(f"of {hours} complete hours {len(self.taken())} were taken")
            if (status := self._children["webhook"].process.poll()) is not None:
                tail = self._children["webhook"].log_tail()
                raise ExampleFailed(f"the webhook has ended with status {status}: {tail}")
            if self._children["receiver"].process.poll() is not None:
                self.kills += 1
                self.start("receiver")
            time.sleep(LOOK_S)

    def stop(self) -> None:
        for name in ("shop", "webhook", "receiver", "tracker"):
            if name in self._children:
                self._children[name].stop()


def replay(run: Run) -> int:
    """Moves min time on, hour by hour; returns how many hours there were. Raises ExampleFailed."""
    hour = 0
    for hours, victims, mood in zip(STEPS, VICTIMS, MOODS, strict=True):
        # One item of the next hours is held back: they must not be told while it is open.
        held_back = MIDNIGHT + hour * HOUR + 7
        run.tell("shop", f"open {held_back}")
        run.tell("shop", f"promise {MIDNIGHT + (hour + hours) * HOUR}")
        run.kill(victims)
        if mood:
            run.tell("receiver", mood)
        if len(run.taken()) != hour:
            raise ExampleFailed(f"hour {hour} is open, and {len(run.taken())} hours were taken")
        run.tell("shop", f"close {held_back}")
        hour += hours
        run.wait_for(hour)
        print(f"{hour} hours are complete and taken; killed before: {', '.join(victims) or 'none'}")
    return hour


def check(run: Run, hours: int) -> None:
    """Each hour was taken once, in order, under an id of its own."""
    taken = run.taken()
    slots = [MIDNIGHT + hour * HOUR for hour in range(hours + 1)]
    keys = [f"{NAME}/{SEGMENT}/{a}..{b}" for a, b in itertools.pairwise(slots)]
    told = [each["body"]["data"]["key"] for each in taken]
    if told != keys or len({each["id"] for each in taken}) != hours:
        raise ExampleFailed(f"taken were {told}, expected {keys}")


def main() -> int:
    name = "example-webhook"
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
