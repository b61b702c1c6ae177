"""Runs layers of tests again and again while busy processes take the cores: `python -m tests.load --runs 10 --load 8`.

    python -m tests.load [--runs N] [--load N] [--layers "processes spark"] [-- PYTEST ARGUMENTS]

Each run is a line of `build/load-progress.jsonl` with its commit. A search that was interrupted goes on: what was run
with the same arguments on the same commit, without changes, counts. It ends at the first run in which a test fails.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from scripts.check.record import CHANGED, commit
from scripts.summary import BUILD, finish
from scripts.test import LAYERS, run_layer

PROGRESS = BUILD / "load-progress.jsonl"
HURRIED = "tests/load/hurried.py"
"""What `--sabotage hurried` runs, too: a test that wants a core for itself."""


@dataclass(frozen=True)
class Run:
    """One run of all layers. form: with which arguments; load: the machine's load average over the last minute of it."""

    commit: str
    form: str
    passed: int
    failed: int
    broken: int
    """Layers that ended otherwise than with all their tests passed."""
    load: float
    seconds: int

    def __str__(self) -> str:
        state = "FAILED" if self.broken else "OK"
        counts = f"passed={self.passed} failed={self.failed}"
        return f"{state} {counts} load={self.load:.1f} seconds={self.seconds} commit={self.commit}"


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


def run(layers: Sequence[str], load: int, arguments: Sequence[str], form: str) -> Run:
    began, code = time.monotonic(), commit()
    with busy(load):
        results = [run_layer(layer, arguments) for layer in layers]
        average = os.getloadavg()[0]
    return Run(
        code, form,
        sum(result.passed for result in results), sum(result.failed for result in results),
        sum(not result.ok for result in results), round(average, 1), round(time.monotonic() - began),
    )  # fmt: skip


def earlier(path: Path, form: str) -> list[Run]:
    """The runs of this form on this very commit in which nothing failed."""
    code = commit()
    if code.endswith(CHANGED) or not path.exists():
        return []
    runs = [Run(**json.loads(line)) for line in path.read_text().splitlines()]
    return [each for each in runs if (each.commit, each.form) == (code, form) and not each.broken]


def main(given: Sequence[str]) -> int:
    split = given.index("--") if "--" in given else len(given)
    parser = argparse.ArgumentParser(prog="python -m tests.load", description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--load", type=int, default=8, help="busy processes beside the tests")
    parser.add_argument("--layers", default="processes spark")
    parser.add_argument("--sabotage", choices=["hurried"])
    options, arguments = parser.parse_args(given[:split]), list(given[split + 1 :])
    layers = options.layers.split()
    if unknown := [layer for layer in layers if layer not in LAYERS]:
        parser.error(f"no layer {unknown[0]!r}; layers are {', '.join(LAYERS)}")
    arguments += [HURRIED] if options.sabotage else []
    BUILD.mkdir(exist_ok=True)
    form = json.dumps([options.load, layers, arguments])
    runs = earlier(PROGRESS, form)[: options.runs]
    while len(runs) < options.runs and not any(each.broken for each in runs):
        runs.append(run(layers, options.load, arguments, form))
        with PROGRESS.open("a") as file:
            file.write(json.dumps(asdict(runs[-1])) + "\n")
        print(f"load: run {len(runs)} of {options.runs} {runs[-1]}", flush=True)
    shown: dict[str, object] = {
        "runs": len(runs),
        "passed": sum(each.passed for each in runs),
        "failed": sum(each.failed for each in runs),
        "load": options.load,
        "seconds": sum(each.seconds for each in runs),
    }
    broken = [each for each in runs if each.broken]
    details = {"each": [asdict(each) for each in runs]}
    return finish("load", ok=not broken and bool(runs), shown=shown, details=details)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
