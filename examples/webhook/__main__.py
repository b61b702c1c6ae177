"""Replays, kills, looks; `OK` if every hour was taken once, in order, and none too early."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
from lowmark.periods import signing

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


class Run(Processes):
    """The tracker, the shop that moves min time, the webhook, and who takes what it posts."""

    names = ("tracker", "receiver", "webhook", "shop")

    def __init__(self, directory: Path) -> None:
        self.taken_file = directory / "taken"
        port = free_ports(2)
        self._receiver_port = str(port + 1)
        self._secret_file = str(directory / "hook.secret")
        Path(self._secret_file).write_text(signing.new_secret() + "\n")
        super().__init__(directory, f"127.0.0.1:{port}")

    def waiting(self, name: str) -> Sequence[str]:
        if name == "receiver":
            return [
                "examples.webhook.receiver",
                self._receiver_port, self._secret_file, str(self.taken_file),
            ]  # fmt: skip
        return [
            "tracker.cli", "periods", "follow", "--pipeline", NAME, "--segment", SEGMENT,
            "--webhook", f"http://127.0.0.1:{self._receiver_port}/hours",
            "--set", f"secret_file={self._secret_file}",
            "--record", str(self.directory / "record.json"), "--target", self.target,
        ]  # fmt: skip

    def start(self, name: str) -> None:
        super().start(name)
        if name == "receiver":
            self.hear(name, "listens")

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
            if (status := self.children["webhook"].process.poll()) is not None:
                tail = self.children["webhook"].log_tail()
                raise ExampleFailed(f"the webhook has ended with status {status}: {tail}")
            if self.children["receiver"].process.poll() is not None:
                self.kills += 1
                self.start("receiver")
            time.sleep(LOOK_S)


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
    keys = keys_of_hours(hours)
    told = [each["body"]["data"]["key"] for each in taken]
    if told != keys or len({each["id"] for each in taken}) != hours:
        raise ExampleFailed(f"taken were {told}, expected {keys}")


if __name__ == "__main__":
    sys.exit(run_example("example-webhook", Run, replay, check))
