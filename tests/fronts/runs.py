"""Runs of one front over a fake tracker, with a clock by hand; its record is here or in a store, and outlives them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from fronts.durable import DurableFront
from fronts.files import FileFront
from fronts.ranges import RangeFront
from local_tracker.spark.formats.ranges import PublishedRanges
from tests.fronts.fake_node import FakeTracker
from tests.fronts.support import of_a_front
from tests.waits import HANG_S
from tracker.core.model.units import unit_name
from tracker.files import STORES, child

Front = TypeVar("Front", bound=DurableFront)


@dataclass
class Runs(Generic[Front]):
    """where: the location of the record."""

    where: str
    tracker: FakeTracker = field(default_factory=FakeTracker)
    now_ns: int = 0
    runs: list[Front] = field(default_factory=list)

    def run(self, front: Front, timeout_s: float) -> Front:
        self.runs.append(front)
        return front.start(timeout_s)

    def given(self, options: dict[str, Any]) -> dict[str, Any]:
        return of_a_front(
            options,
            clock=lambda: self.now_ns,
            heartbeat_interval_ms=1,
            node=self.tracker.connect(),
        )

    def kill(self, arrived: bool = False) -> None:
        """The last run ends as its process would: no commit, and the lock is gone."""
        assert self.tracker.node is not None
        self.tracker.node.crash(arrived)
        self.runs[-1]._release()  # noqa: SLF001 - as the end of its process does
        self.tracker.holding = False

    def close(self) -> None:
        self.tracker.release()
        for front in self.runs:
            front.front.close(timeout_s=0)
            front.close()


class FileRuns(Runs[FileFront]):
    """Of a file front."""

    def start(self, timeout_s: float = HANG_S, **options: Any) -> FileFront:
        front = FileFront("unused:1", "p", "f", "in", self.where, **self.given(options))
        return self.run(front, timeout_s)

    def visible(self) -> list[str]:
        """The units that readers list."""
        names = STORES.files(self.where).names(self.where)
        return sorted(unit_name(child(self.where, name)) for name in names if name[0] not in "._")

    def created(self) -> list[str]:
        return sorted(unit.name for unit in self.tracker.units)


@dataclass
class RangeRuns(Runs[RangeFront]):
    """Of a range front. min_time: as the front hears it."""

    min_time: int = 0

    def start(self, timeout_s: float = HANG_S, **options: Any) -> RangeFront:
        front = RangeFront(
            "unused:1", "p", "f", "in", self.where, min_time=lambda: self.min_time, **self.given(options)
        )  # fmt: skip
        return self.run(front, timeout_s)

    def reader(self) -> PublishedRanges:
        return PublishedRanges(self.where)


Made = TypeVar("Made", bound=Runs[Any])


@contextmanager
def making(kind: Callable[[str], Made], root: str) -> Iterator[Callable[[], Made]]:
    """Makes runs, each in a place of its own below a location, and ends them."""
    made: list[Made] = []

    def one() -> Made:
        made.append(kind(f"{root}/{len(made)}"))
        return made[-1]

    try:
        yield one
    finally:
        for runs in made:
            runs.close()
