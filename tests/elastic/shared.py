"""A shared directory: its members come, leave, and are killed, while files appear all along."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from examples.history import Recorder, read
from tests.cluster.children import Running, discard
from tests.elastic.fleet import Fleet
from tests.elastic.load import now_slot
from tests.elastic.member import PIPELINE, WAIT_S
from tests.elastic.system import Judged, judge
from tests.spark_matrix.recording import recording, settled
from tracker.client import NodeClient
from tracker.core.model import Cells, PipelineSpec, TickContent, Unit
from tracker.core.model.ack_values import unit_value
from tracker.core.model.slots import FOREVER
from tracker.core.model.units import parse_file_name, unit_name

FILE_EVERY_S = 0.01
POLL_S = 0.02
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
    """The two directories, the members, whoever puts files there, and the one who reads them."""

    def __init__(self, fleet: Fleet, directory: Path) -> None:
        self.fleet, self.directory = fleet, directory
        self.source, self.labelled = directory / "source", directory / "labelled"
        self.parts = directory / "parts"
        for path in (self.source, self.labelled, self.parts):
            path.mkdir(parents=True)
        self.spec = PipelineSpec(PIPELINE, ("in",), front_count=1, start_slot=now_slot())
        fleet.register(self.spec)
        self.members: dict[str, Running] = {}
        self.found = Shared()
        self.read: dict[str, int] = {}
        """What each labelled file held, by its name."""
        self.recorder = Recorder(self.parts / "run.jsonl")
        self.recorder.header(self.spec, {})
        self.listener = Running(
            "tests.cluster.recording_listener", str(self.parts), PIPELINE, fleet.target,
            errors=directory / "listener.log",
        )  # fmt: skip
        self.listener.start()
        self.listener.until_says("heard")
        self._reader = NodeClient(fleet.target, PIPELINE, "reader")
        self._reader.join(WAIT_S)
        self._no_more, self._all_read = threading.Event(), threading.Event()
        self._failure: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,))
            for work in (self._put_files, self._consume)
        ]

    def come(self, name: str) -> None:
        self.members[name] = process = Running(
            "tests.elastic.member", self.fleet.target, name, str(self.source), str(self.labelled),
            str(self.parts / f"{name}.jsonl"), errors=self.directory / f"{name}.log",
        )  # fmt: skip
        process.start()
        process.until_says("started")
        self.found.joins += 1

    def go(self, name: str, way: str) -> None:
        process = self.members.pop(name)
        if way == "kill":
            process.kill()
            self.found.kills += 1
        else:
            process.tell("finish")
            process.ends_well()
        self.found.leaves += 1

    def run(self, seconds: float) -> None:
        """Members come and go for so long."""
        for thread in self._threads:
            thread.start()
        names = iter(f"member{n}" for n in range(10_000))
        for _ in range(2):
            self.come(next(names))
        end_s, turn = time.monotonic() + seconds, 0
        while time.monotonic() < end_s or turn < len(WAYS_TO_GO):
            self.go(next(iter(self.members)), WAYS_TO_GO[turn % len(WAYS_TO_GO)])
            self.come(next(names))
            turn += 1
            self._raise_failure()
        self._no_more.set()
        self._threads[0].join(WAIT_S)
        self._until(lambda: not self._waiting(), "all files are taken")
        for name in list(self.members):
            self.go(name, "leave")
        self._until(lambda: len(self.read) == self.found.files, "all files are read")
        self._all_read.set()
        self._threads[1].join(WAIT_S)
        self.listener.ends_well()

    def judge(self) -> Shared:
        """Compares what was read with what was put there, and lets the checker judge the history."""
        read_times = Counter(self.read.values())
        for number in range(self.found.files):
            if read_times[number] != 1:
                self.found.wrong.append(f"file {number} was published {read_times[number]} times")
        # A tick's result can be had a little before it is written down.
        self._until(lambda: self._written() == self.found.files, "all ticks are written down")
        self.fleet.record_final(self.recorder, PIPELINE)
        self.recorder.expected({"in": FOREVER})
        self.recorder.close()
        lines = [line for part in sorted(self.parts.glob("*.jsonl")) for line in read(part)]
        path = self.directory / "history.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in settled(lines)))
        self.found.history, self.found.judged = str(path), judge(path)
        self.found.wrong += [
            line for line in self.found.judged.said if not line.startswith("check")
        ]
        return self.found

    def close(self) -> None:
        self._no_more.set()
        self._all_read.set()
        discard([*self.members.values(), self.listener])
        self._reader.close()

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
            number = self.found.files
            hidden = self.source / f".{number}.json"
            hidden.write_text(str(number))
            os.rename(hidden, self.source / f"{number}.json")
            self.found.files += 1

    def _consume(self) -> None:
        while not self._all_read.wait(POLL_S):
            for name in sorted(os.listdir(self.labelled)):
                labels = parse_file_name(name)
                if labels is None or name in self.read:
                    continue
                path = self.labelled / name
                unit = unit_name(str(path))
                self.recorder.created("in", labels.slot, unit)
                self.recorder.consumed("in", unit)
                content = TickContent(
                    consumed=Cells.of([(0, labels.slot, unit_value(unit), 1)]),
                    units_consumed=(Unit(0, unit, labels.slot),),
                )
                self._reader.commit(content, WAIT_S)
                self.read[name] = int(path.read_text())
        self._reader.flush(WAIT_S)

    def _written(self) -> int:
        """The reader's ticks: one for each file."""
        return sum(line["kind"] == "tick" for line in read(self.recorder.path))

    def _waiting(self) -> list[str]:
        return [name for name in os.listdir(self.source) if name[0] != "."]

    def _until(self, done: object, what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not done():  # type: ignore[operator]
            self._raise_failure()
            assert time.monotonic() < deadline, f"{what}: waited in vain"
            time.sleep(POLL_S)


def share(fleet: Fleet, directory: Path, seconds: float) -> Shared:
    """Members of a group come and go at a running tracker."""
    shared = Directory(fleet, directory)
    try:
        with recording(lambda pipeline: shared.recorder if pipeline == PIPELINE else None):
            shared.run(seconds)
        return shared.judge()
    finally:
        shared.close()
