"""Runs layers of tests again and again on a machine that is busy: with processes that compute, or with each other.

    python -m tests.load [--runs N] [--load N] [--layers "processes spark"] [-- PYTEST ARGUMENTS]
    python -m tests.load [--runs N] --beside N [--layers "processes spark"] [-- PYTEST ARGUMENTS]

`--beside`: so many whole runs at the same time are each other's load, each in a copy of the checkout with a `build` of
its own; with Spark one takes 4 GiB of memory. Each run is a line of `build/load-runs.jsonl` with its commit. A search
that was interrupted goes on: what was run with the same arguments on the same commit, without changes, counts, also what
`--keep` has put beside the code. It ends at the first run in which a test fails.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from scripts.check.record import CHANGED, LOADED, commit, note, noted
from scripts.summary import BUILD, ROOT, finish
from scripts.test import LAYERS
from tests.load.copies import copies, python_of

PROGRESS = BUILD / "load-runs.jsonl"
HURRIED = "tests/load/hurried.py"
"""What `--sabotage hurried` runs, too: a test that wants a core for itself."""


LOOK_EVERY_S = 5.0


@dataclass(frozen=True)
class Run:
    """One run of all layers. form: with which arguments; least, mean: the machine's load average over it."""

    commit: str
    form: str
    passed: int
    failed: int
    broken: int
    """Layers that ended otherwise than with all their tests passed."""
    least: float
    mean: float
    seconds: int

    def __str__(self) -> str:
        state = "FAILED" if self.broken else "OK"
        counts = f"passed={self.passed} failed={self.failed}"
        loads = f"load_least={self.least:.1f} load_mean={self.mean:.1f}"
        return f"{state} {counts} {loads} seconds={self.seconds} commit={self.commit}"


class LoadAverage:
    """The machine's load average, looked at while a run goes on: that of the last minute, from its first minute on."""

    def __init__(self) -> None:
        self.seen: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        if not self._over.wait(60):  # paces: before that it is of the time before the run
            self.seen.append(os.getloadavg()[0])
            while not self._over.wait(LOOK_EVERY_S):  # paces: its looks
                self.seen.append(os.getloadavg()[0])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.seen = self.seen or [os.getloadavg()[0]]

    @property
    def least(self) -> float:
        return round(min(self.seen), 1)

    @property
    def mean(self) -> float:
        return round(sum(self.seen) / len(self.seen), 1)


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes that compute, of the same priority as the tests."""
    command = [sys.executable, "-c", "while True: pass"]
    running = [subprocess.Popen(command) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


class OneRun:
    """One run of the layers in a checkout; what it says goes to a log in `build`."""

    def __init__(
        self,
        checkout: Path,
        python: Path,
        layers: Sequence[str],
        arguments: Sequence[str],
        number: int,
    ) -> None:
        self.log = BUILD / f"load-{number}.log"
        self._began_s = time.monotonic()
        self._report = checkout / "build" / "test.json"
        self._report.unlink(missing_ok=True)
        command = [str(python), "-m", "scripts.test", *layers, "--", *arguments]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=checkout,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def end(self) -> tuple[int, int, int, int]:
        """Waits until it has ended: tests that passed and that failed, layers that are broken, seconds."""
        status = self._process.wait()
        seconds = round(time.monotonic() - self._began_s)
        if not self._report.exists():
            return 0, 0, 1, seconds
        told = json.loads(self._report.read_text())
        broken = len(told.get("layers", "").split(",")) if status else 0
        return told["passed"], told["failed"], broken, seconds

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def run(
    checkouts: Sequence[tuple[Path, Path]],
    layers: Sequence[str],
    load: int,
    arguments: Sequence[str],
    form: str,
    first: int,
) -> Iterator[Run]:
    """One run in each of the checkouts, by their interpreters, beside each other; each when it and those before it
    have ended. The load average is that of all of them together."""
    code = commit()
    with busy(load), LoadAverage() as average:
        runs = [
            OneRun(*each, layers, arguments, first + place) for place, each in enumerate(checkouts)
        ]
        try:
            ended = [each.end() for each in runs]
        finally:
            for each in runs:
                each.kill()
    for passed, failed, broken, seconds in ended:
        yield Run(code, form, passed, failed, broken, average.least, average.mean, seconds)


def earlier(path: Path, form: str) -> list[Run]:
    """The runs of this form on this very commit in which nothing failed."""
    runs = [Run(**line) for line in noted((LOADED, path), {commit()})]
    return [run for run in runs if run.form == form and not run.broken]


def keep(runs: Sequence[Run]) -> None:
    """Moves runs beside the code, instead of those that lie there."""
    LOADED.unlink(missing_ok=True)
    for each in runs:
        note(LOADED, asdict(each), each.commit)
    PROGRESS.unlink(missing_ok=True)  # a run that stood in both would count twice


def main(given: Sequence[str]) -> int:
    split = given.index("--") if "--" in given else len(given)
    parser = argparse.ArgumentParser(prog="python -m tests.load", description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--load", type=int, help="busy processes beside the tests; 8, and none with --beside"
    )
    parser.add_argument("--beside", type=int, default=1, help="runs at the same time")
    parser.add_argument("--layers", default="processes spark")
    parser.add_argument("--sabotage", choices=["hurried"])
    parser.add_argument(
        "--keep", action="store_true", help="what has held so far, beside the code; runs nothing"
    )
    options, arguments = parser.parse_args(given[:split]), list(given[split + 1 :])
    layers = options.layers.split()
    if unknown := [layer for layer in layers if layer not in LAYERS]:
        parser.error(f"no layer {unknown[0]!r}; layers are {', '.join(LAYERS)}")
    if options.beside > 1 and commit().endswith(CHANGED):
        parser.error(
            "--beside runs copies of what is committed, and there are changes: commit them first"
        )
    load = options.load if options.load is not None else 8 if options.beside == 1 else 0
    arguments += [HURRIED] if options.sabotage else []
    BUILD.mkdir(exist_ok=True)
    form = json.dumps([load, options.beside, layers, arguments])
    runs = earlier(PROGRESS, form)[: options.runs]
    if options.keep:
        keep(runs)
        return 0
    with checkouts(options.beside) as places:
        while len(runs) < options.runs and not any(each.broken for each in runs):
            now = places[: options.runs - len(runs)]
            for each in run(now, layers, load, arguments, form, len(runs) + 1):
                runs.append(each)
                note(PROGRESS, asdict(each), each.commit)
                print(f"load: run {len(runs)} of {options.runs} {each}", flush=True)
    shown: dict[str, object] = {
        "runs": len(runs),
        "passed": sum(each.passed for each in runs),
        "failed": sum(each.failed for each in runs),
        "beside": options.beside,
        "load_least": min((each.least for each in runs), default=0),
        "seconds": sum(each.seconds for each in runs),
    }
    broken = [each for each in runs if each.broken]
    details = {"each": [asdict(each) for each in runs]}
    return finish("load", ok=not broken and bool(runs), shown=shown, details=details)


@contextmanager
def checkouts(count: int) -> Iterator[list[tuple[Path, Path]]]:
    """Checkouts with their interpreters: this one where one is enough, else so many copies."""
    if count == 1:
        yield [(ROOT, Path(sys.executable))]
        return
    with copies(count) as made:
        yield [(copy, python_of(copy)) for copy in made]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
