"""What the examples of complete hours share: a shop that moves min time, a tracker, and whoever waits for
hours, each a process that is killed and started again."""

from __future__ import annotations

import itertools
import queue
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from examples.children import Child, Said
from lowmark import Admin, PipelineSpec
from scripts.summary import BUILD, finish

NAME, SEGMENT = "orders", "load"
HOUR = 3_600
"""Slots of an hour: the pipeline's are as wide as a second."""
MIDNIGHT = int(datetime(2026, 3, 2, tzinfo=UTC).timestamp())
SPEC = PipelineSpec(NAME, (SEGMENT,), fronts=("shop",), start_slot=MIDNIGHT, slack_ns=10**9)
WAIT_S = 300.0
LOOK_S = 0.02


class ExampleFailed(Exception):
    """Something does not hold; says what."""


def keys_of_hours(hours: int) -> list[str]:
    """The keys of the day's first hours."""
    slots = [MIDNIGHT + hour * HOUR for hour in range(hours + 1)]
    return [f"{NAME}/{SEGMENT}/{a}..{b}" for a, b in itertools.pairwise(slots)]


class Processes(ABC):
    """The processes by name; the first is the tracker."""

    names: tuple[str, ...]
    """In the order in which they are started; they are ended the other way round."""

    def __init__(self, directory: Path, target: str) -> None:
        """target: where the tracker is to listen."""
        self.directory, self.target = directory, target
        self._said: queue.Queue[Said] = queue.Queue()
        self._starts = 0
        self.kills = 0
        self.children: dict[str, Child] = {}
        try:
            self._begin()
        except BaseException:
            self.stop()
            raise

    def _begin(self) -> None:
        first, *others = self.names
        self.start(first)
        with Admin(self.target, WAIT_S) as admin:
            admin.register(SPEC)
        for name in others:
            self.start(name)

    def command(self, name: str) -> Sequence[str]:
        """The module of a process and its arguments."""
        if name == "tracker":
            store = f"sqlite:{self.directory / 'store'}"
            return ["tracker.cli", "serve", "--listen", self.target, "--store", store]
        if name == "shop":
            return ["examples.periods.shop", self.target, NAME, SEGMENT]
        return self.waiting(name)

    @abstractmethod
    def waiting(self, name: str) -> Sequence[str]:
        """The command of one that waits for hours."""

    def start(self, name: str) -> None:
        self._starts += 1
        self.children[name] = Child(
            f"{name}-{self._starts}", self.command(name), self.directory / "logs", self._said
        )

    def kill(self, names: tuple[str, ...]) -> None:
        """Kills processes, and starts them again the other way round."""
        for name in names:
            self.children[name].process.kill()
            self.children[name].process.wait()
            self.kills += 1
        for name in reversed(names):
            self.start(name)

    def tell(self, name: str, line: str) -> None:
        """A process does something; returns when it is done. Raises ExampleFailed."""
        self.children[name].tell(line)
        self.hear(name, "done")

    def hear(self, name: str, event: str) -> None:
        """Waits until a process says something. Raises ExampleFailed if it does not."""
        child = self.children[name]
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

    def stop(self) -> None:
        for name in reversed(self.names):
            if name in self.children:
                self.children[name].stop()


Run = TypeVar("Run", bound=Processes)


def run_example(
    name: str,
    begin: Callable[[Path], Run],
    replay: Callable[[Run], int],
    check: Callable[[Run, int], None],
) -> int:
    """Runs an example in a directory of its own and says how it ended; returns the exit status.
    replay: returns how many hours there were; either raises ExampleFailed."""
    directory = BUILD / name
    shutil.rmtree(directory, ignore_errors=True)
    (directory / "logs").mkdir(parents=True)
    run = begin(directory)
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
