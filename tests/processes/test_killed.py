"""Trackers, fronts and subscribers as processes, killed with SIGKILL and started again in the middle.

Three fronts publish files all the time, a reader consumes them, a subscriber listens. Whoever is
killed, nothing is announced too early, nothing goes back, and in the end all of it is complete.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.reading import Reader
from tests.processes.running import Running, shards
from tracker.client import Admin
from tracker.core.model import Edge, PipelineSpec
from tracker.core.slots import DEFAULT_SLACK_NS, FOREVER, slot_of
from tracker.core.units import LabelledFile

FRONTS = ("a", "b", "c")
PIPELINE = "p"
MORE_FILES = 30


class Everything:
    """A tracker of some shards, and all that talks to it."""

    def __init__(self, shard_count: int, directory: Path) -> None:
        self.shards, self.target = shards(shard_count, directory)
        files = directory / "in"
        files.mkdir()
        self.fronts = [
            Running(
                "tests.processes.front", self.target, PIPELINE, name, str(files),
                errors=directory / f"front-{name}.log",
            )
            for name in FRONTS
        ]  # fmt: skip
        self.listener = Running(
            "tests.processes.listener", self.target, PIPELINE, errors=directory / "listener.log"
        )
        self.reader = Reader(self.target, PIPELINE, files)

    def start(self) -> None:
        for process in self.shards:
            process.start()
        spec = PipelineSpec(
            PIPELINE, ("in", "out"), (Edge("in", "out"),), fronts=FRONTS, start_slot=now()
        )
        with Admin(self.target) as admin:
            admin.register(spec)
        for process in (*self.fronts, self.listener):
            process.start()
        self.reader.start()

    def victims(self, name: str) -> list[Running]:
        return {
            "subscriber": [self.listener],
            "front": self.fronts[:1],
            "shard": self.shards[-1:],
            "everything": [*self.shards, *self.fronts, self.listener],
        }[name]

    def hears_of(self, slot: int) -> None:
        """Waits until the subscriber has heard that all before a slot is complete."""
        self.listener.until(lambda line: is_reached(line, slot))

    def goes_on(self) -> None:
        """Waits until fronts have published, the reader has read and the subscriber has heard."""
        self.reader.until_more(MORE_FILES)
        self.hears_of(now())

    def finish(self) -> None:
        for front in self.fronts:
            front.tell("finish")
        for front in self.fronts:
            assert front.end() == 0, front.errors()
        self.reader.finish()
        self.hears_of(FOREVER)
        assert self.listener.end() == 0

    def discard(self) -> None:
        self.reader.close()
        for process in (*self.fronts, self.listener, *self.shards):
            process.discard()

    # --- what must hold ---------------------------------------------------------------------------

    def check(self) -> None:
        self.check_files()
        self.check_heard()

    def check_files(self) -> None:
        """Each front numbered its files without a gap, in the order of their slots."""
        for name in FRONTS:
            files = sorted((r.file for r in self.reader.read if r.file.front == name), key=by_batch)
            assert [file.batch for file in files] == list(range(len(files)))
            slots = [file.slot for file in files]
            assert slots == sorted(slots) and slots

    def check_heard(self) -> None:
        """Nothing was heard before its time, and nothing went back."""
        before: dict[tuple[int, str | None], int] = {}
        for run, line in self.listener.lines:
            heard = json.loads(line)
            segment, min_time = heard["segment"], heard["min_time"]
            assert min_time > before.get((run, segment), min_time - 1), f"went back: {line}"
            before[run, segment] = min_time
            for read in self.reader.read:
                done_ns = read.file_done_ns if segment == "in" else read.child_done_ns
                if read.file.slot < min_time:
                    assert done_ns <= heard["at_ns"], f"{read.name} was open at {line}"


def by_batch(file: LabelledFile) -> int:
    return file.batch


def is_reached(line: str, slot: int) -> bool:
    heard = json.loads(line)
    return heard["segment"] is None and heard["min_time"] >= slot


def now() -> int:
    return slot_of(time.time_ns(), DEFAULT_SLACK_NS)


@pytest.fixture
def everything(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Everything]:
    everything = Everything(request.param, tmp_path)
    try:
        everything.start()
        yield everything
    finally:
        everything.discard()


@pytest.mark.parametrize("victim", ["subscriber", "front", "shard", "everything"])
@pytest.mark.parametrize(
    "everything", [1, 2, 3], ids=["one shard", "two shards", "three shards"], indirect=True
)
def test_whoever_is_killed_nothing_is_premature_and_nothing_is_stuck(
    everything: Everything, victim: str
) -> None:
    everything.goes_on()
    victims = everything.victims(victim)
    for process in victims:
        process.kill()
    for process in victims:
        process.start()
    everything.goes_on()
    everything.finish()
    everything.check()


@pytest.mark.parametrize("everything", [2], ids=["two shards"], indirect=True)
def test_min_time_stands_still_while_a_shard_or_a_front_is_away(everything: Everything) -> None:
    everything.goes_on()
    for victim in (everything.fronts[1], everything.shards[0]):
        victim.kill()
        killed = now() + 1
        everything.reader.until_more(MORE_FILES)  # others go on meanwhile, for nothing
        assert not any(is_reached(line, killed) for _, line in everything.listener.lines)
        victim.start()
        everything.hears_of(killed)
    everything.finish()
    everything.check()
