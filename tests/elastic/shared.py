"""A shared directory: its members come, leave, and are killed, while files appear all along."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from examples.history import Recorder, read
from tests.check.judging import Judged, judge
from tests.cluster.children import now_slot
from tests.elastic.fleet import Fleet
from tests.processes.shared import SharedDirectory
from tests.spark_matrix.recording import recording
from tests.waits import HANG_S, until
from tracker.core.model import PipelineSpec

PIPELINE = "shared"
ANYONE_AFTER_MS = 3_000
FILE_EVERY_S = 0.01  # paces: the load
POLL_S = 0.02  # paces: its looks
WAYS_TO_GO = ("kill", "leave", "kill")
"""By turns, and each time another member comes."""


@dataclass
class Shared:
    """What came of it."""

    files: int = 0
    joins: int = 0
    leaves: int = 0
    kills: int = 0
    wrong: list[str] = field(default_factory=list)
    judged: Judged | None = None
    history: str = ""


class Directory:
    """The directory of a run, whoever puts files there, and the one who reads them."""

    def __init__(self, fleet: Fleet, directory: Path) -> None:
        self.fleet, self.directory = fleet, directory
        self.parts = directory / "parts"
        self.parts.mkdir(parents=True)
        self.spec = PipelineSpec(PIPELINE, ("in",), front_count=1, start_slot=now_slot())
        fleet.register(self.spec)
        self.found = Shared()
        self.recorder = Recorder(self.parts / "run.jsonl")
        self.recorder.header(self.spec, {})
        self.listener = fleet.listening(self.parts, PIPELINE)
        self.shared = SharedDirectory(
            fleet.target, PIPELINE, directory, anyone_after_ms=ANYONE_AFTER_MS,
            histories=self.parts, reading=self._reading,
        )  # fmt: skip
        self._no_more, self._all_read = threading.Event(), threading.Event()
        self._failure: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,))
            for work in (self._put_files, self._consume)
        ]

    def _come(self, name: str) -> None:
        self.shared.come(name)
        self.found.joins += 1

    def _go(self, name: str, way: str) -> None:
        if way == "kill":
            self.shared.kill(name)
            self.found.kills += 1
        else:
            self.shared.leave(name)
        self.found.leaves += 1

    def run(self, seconds: float) -> None:
        """Members come and go for so long."""
        for thread in self._threads:
            thread.start()
        shared, names = self.shared, iter(f"member{n}" for n in range(10_000))
        for _ in range(2):
            self._come(next(names))
        end_s, turn = time.monotonic() + seconds, 0
        while time.monotonic() < end_s or turn < len(WAYS_TO_GO):
            self._go(next(iter(shared.members)), WAYS_TO_GO[turn % len(WAYS_TO_GO)])
            self._come(next(names))
            turn += 1
            self._raise_failure()
        self._no_more.set()
        self._threads[0].join(HANG_S)
        self._until(lambda: not shared.waiting(), "all files are taken")
        for name in list(shared.members):
            self._go(name, "leave")
        self._until(lambda: len(shared.read) == shared.put, "all files are read")
        self._all_read.set()
        self._threads[1].join(HANG_S)
        self.listener.ends_well()

    def judge(self) -> Shared:
        """Compares what was read with what was put there, and lets the checker judge the history."""
        self.found.files = self.shared.put
        read_times = Counter(self.shared.read.values())
        for number in range(self.found.files):
            if read_times[number] != 1:
                self.found.wrong.append(f"file {number} was published {read_times[number]} times")
        # A tick's result can be had a little before it is written down.
        self._until(lambda: self._written() == self.found.files, "all ticks are written down")
        path = self.fleet.completed(self.recorder, self.spec)
        self.found.history, self.found.judged = str(path), judge(path)
        self.found.wrong += [
            line for line in self.found.judged.said if not line.startswith("check")
        ]
        return self.found

    def close(self) -> None:
        self._no_more.set()
        self._all_read.set()
        self.listener.discard()
        self.shared.close()

    # --- inside -----------------------------------------------------------------------------------

    def _guarded(self, work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except BaseException as failure:
            self._failure = failure

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _put_files(self) -> None:
        while not self._no_more.wait(FILE_EVERY_S):
            self.shared.put_files(1)

    def _reading(self, unit: str, slot: int) -> None:
        self.recorder.created("in", slot, unit)
        self.recorder.consumed("in", unit)

    def _consume(self) -> None:
        while not self._all_read.wait(POLL_S):
            self.shared.consume()
        self.shared.flush()

    def _written(self) -> int:
        """The reader's ticks: one for each file."""
        return sum(line["kind"] == "tick" for line in read(self.recorder.path))

    def _until(self, done: Callable[[], bool], what: str) -> None:
        def is_done() -> bool:
            self._raise_failure()
            return done()

        until(is_done, f"{what}: waited in vain", HANG_S)


def share(fleet: Fleet, directory: Path, seconds: float) -> Shared:
    """Members of a group come and go at a running tracker."""
    shared = Directory(fleet, directory)
    try:
        with recording(lambda pipeline: shared.recorder if pipeline == PIPELINE else None):
            shared.run(seconds)
        return shared.judge()
    finally:
        shared.close()
