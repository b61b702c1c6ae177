"""One sink under load: the parts of a real system are killed at random moments, and everything is written down."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from examples.history import Recorder
from scripts.summary import ROOT
from tests.barrier.load import FRONTS, LoadedFront
from tests.barrier.pipeline import (
    BARRIER,
    DELIVER,
    FED,
    NAME,
    SPEC,
    direct_directory,
    heard_path,
    written_directory,
)
from tests.barrier.places import SinkPlace
from tests.cluster.children import Running, now_slot
from tests.cluster.tracker import Tracker
from tests.waits import HANG_S, PROGRAM_S, until

WEIGHTS = {"barrier": 5, "tracker": 4, "driver": 1}
"""How often each is killed, against the others; each at least once."""
BEFORE_SLOTS = 1_000
"""The pipeline begins so far back: further than a front is behind."""


class Driver:
    """A Spark driver with its JVM, in a process group of its own."""

    def __init__(self, target: str, root: Path) -> None:
        self._command = [sys.executable, "-m", "tests.barrier.driver", target, str(root)]
        self._log = root / "driver.log"
        self._begin = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self._log, "ab") as log:
            self._begin = log.seek(0, os.SEEK_END)
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, stdin=subprocess.PIPE, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    @property
    def is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"the driver has ended: {self.said()}"
        with open(self._log, "rb") as log:
            log.seek(self._begin)
            return b"ready" in log.read()

    def said(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]

    def kill(self) -> None:
        """kill -9, of it and its JVM at once."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process = None


@dataclass
class Outcome:
    """What came of a run. history: what `python -m tests.check` judges."""

    history: Path
    kills: Counter[str] = field(default_factory=Counter)
    rows_in: int = 0
    rows_out: int = 0
    trouble: str = ""
    seconds: float = 0.0


class BarrierRun:
    """A tracker, a driver, two fronts and a barrier over one sink."""

    def __init__(self, root: Path, place: SinkPlace, seed: str, fault: str) -> None:
        for directory in (written_directory(root), direct_directory(root), root / "in"):
            directory.mkdir(parents=True)
        self._root, self._place, self._random = root, place, random.Random(seed)
        self._tracker = Tracker(root / "tracker")
        target = self._tracker.target
        self._recorder = Recorder(root / "rows.jsonl")
        self._fronts = [LoadedFront(target, root, front, self._recorder, seed) for front in FRONTS]
        self._driver = Driver(target, root)
        words = [
            "barrier", "run", "-t", target, "-p", NAME, "-s", DELIVER, "--name", BARRIER, "--state", str(root / "state"),
            "--key", "key", "--set", "slot=slot", "--reads", str(written_directory(root)), "--set", f"files={direct_directory(root)}",
            *(["--set", "late=beside"] if fault else []), *place.options,
        ]  # fmt: skip
        self._barrier = Running(
            "tests.barrier.barrier_process", fault, str(heard_path(root)), *words,
            errors=root / "barrier.log",
        )  # fmt: skip
        self.outcome = Outcome(root / "history.jsonl")

    def run(self, seconds: float, kills: int, drain_s: float) -> Outcome:
        """Load for so many seconds, with so many kills; then waits until all is delivered, and judges
        nothing. What went wrong is in the outcome."""
        began_s = time.monotonic()
        with ExitStack() as stack:
            stack.callback(self._recorder.close)
            stack.callback(self._tracker.close)
            stack.callback(self._driver.kill)
            stack.callback(self._barrier.discard)
            try:
                self._start()
                self._kill_at_random(seconds, kills)
                self._finish(drain_s)
            except AssertionError as error:
                self.outcome.trouble = str(error)
            finally:
                for front in self._fronts:
                    front.finish()
        self._write_history()
        self.outcome.seconds = round(time.monotonic() - began_s, 1)
        return self.outcome

    def _start(self) -> None:
        self._tracker.start()
        self._tracker.register(replace(SPEC, start_slot=now_slot() - BEFORE_SLOTS))
        self._driver.start()
        self._barrier.start()
        self._await_driver()
        for front in self._fronts:
            front.start()

    def _await_driver(self) -> None:
        until(lambda: self._driver.is_ready, self._driver.said, HANG_S)

    def _kill_at_random(self, seconds: float, kills: int) -> None:
        """At random moments of equal parts of the time; who is killed is started again at once."""
        victims = list(WEIGHTS)
        victims += self._random.choices(
            victims, list(WEIGHTS.values()), k=max(0, kills - len(victims))
        )
        self._random.shuffle(victims)
        began_s, part_s = time.monotonic(), seconds / max(1, kills)
        for number, victim in enumerate(victims[:kills]):
            at_s = began_s + (number + self._random.random()) * part_s
            self._wait(at_s)
            self._kill(victim)
        self._wait(began_s + seconds)

    def _wait(self, until_s: float) -> None:
        time.sleep(max(0.0, until_s - time.monotonic()))  # paces: the load
        for front in self._fronts:
            assert front.failure is None, f"a front has failed: {front.failure!r}"
        assert not self._barrier.has_ended(), f"the barrier has ended: {self._barrier.errors()}"

    def _kill(self, victim: str) -> None:
        part: Running | Driver = self._barrier
        if victim == "driver":
            self._await_driver()  # one that is starting has nothing to lose
            part = self._driver
        elif victim == "tracker":
            part = self._tracker.shards[0]
        part.kill()
        part.start()
        self.outcome.kills[victim] += 1

    def _finish(self, drain_s: float) -> None:
        """Nothing more is published; the barrier ends when it has written all."""
        for front in self._fronts:
            front.finish()
            assert front.failure is None, f"a front has failed: {front.failure!r}"
        self._barrier.ends_well(drain_s)

    def _write_history(self) -> None:
        """Rows in, what was heard, and the rows out in the sink's order."""
        edges = [[edge.source, edge.target, edge.delay] for edge in SPEC.edges]
        header = {
            "kind": "header", "at_ns": 0, "pipeline": NAME, "segments": list(SPEC.segments),
            "edges": edges, "fronts": FED, "released_by": DELIVER,
        }  # fmt: skip
        ahead_ns = time.time_ns() - time.monotonic_ns()
        rows = self._place.rows()
        with open(self.outcome.history, "w", encoding="utf-8") as file:
            file.write(json.dumps(header) + "\n")
            for path in (self._recorder.path, heard_path(self._root)):
                for line in path.read_text().splitlines(keepends=True) if path.exists() else ():
                    if line.endswith("\n"):  # one that was cut off was not acted on
                        file.write(line)
            for row in rows:
                line_out = {
                    "kind": "row_out", "row": row.name, "slot": row.slot, "key": row.key,
                    "at_ns": row.committed_ns - ahead_ns,
                }  # fmt: skip
                file.write(json.dumps(line_out) + "\n")
        self.outcome.rows_in = sum(front.rows for front in self._fronts)
        self.outcome.rows_out = len(rows)


def judged(history: Path) -> tuple[bool, list[str]]:
    """By a program of its own: whether all is well, and what it says."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.check", str(history)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=PROGRAM_S,
    )  # fmt: skip
    return done.returncode == 0, done.stdout.splitlines()
