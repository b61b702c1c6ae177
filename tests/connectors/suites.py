"""Tests for which `make test` has no time: `make connectors` runs them beside its rows, which wait a lot."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from scripts.summary import BUILD, ROOT
from scripts.test import LayerResult, counted
from tests.connectors.lake.__main__ import NAMES
from tests.connectors.lake.__main__ import run as run_lake
from tests.spark_versions.environments import EnvironmentFailed, inherited

SHOWN_LINES = 60
"""Of what a suite that is not ok has printed, the last."""


@dataclass(frozen=True)
class Suite:
    """run: given where pytest's report goes, and what it prints, returns pytest's exit code."""

    name: str
    run: Callable[[Path, IO[bytes]], int]


def run_long(report: Path, log: IO[bytes]) -> int:
    command = [sys.executable, "-m", "pytest", "-m", "long", f"--junitxml={report}"]
    directory = str(Path(__file__).parent.relative_to(ROOT))
    run = subprocess.run(
        [*command, directory],
        cwd=ROOT, env=inherited(), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    return run.returncode


def run_tables(report: Path, log: IO[bytes]) -> int:
    try:
        return run_lake(NAMES, report=report, log=log)
    except EnvironmentFailed as error:
        print(f"connectors: {error}", flush=True)
        return 1


SUITES = (
    Suite("long tests of brokers and stores", run_long),
    Suite("queries over tables", run_tables),
)


def run_suites(name: str, suites: Sequence[Suite] = SUITES) -> list[LayerResult]:
    """Runs them one after the other; their reports are in `build/<name>-<number>.xml`, and what they print
    beside those, of which the end is shown where they are not `ok`: where all are skipped, or one fails."""
    results = []
    BUILD.mkdir(exist_ok=True)
    for number, suite in enumerate(suites):
        report, started_s = BUILD / f"{name}-{number}.xml", time.monotonic()
        report.unlink(missing_ok=True)
        printed = report.with_suffix(".log")
        print(f"== {suite.name}: begins; it prints to {printed.name}", flush=True)
        with printed.open("wb") as log:
            exit_code = suite.run(report, log)
        result = counted(suite.name, exit_code, time.monotonic() - started_s, report)
        said = f"{result.passed} passed, {result.failed} failed, {result.skipped} skipped"
        print(f"== {suite.name}: {result.seconds:.0f} s, {said}", flush=True)
        if not result.ok:
            with printed.open(errors="replace") as lines:
                print("".join(deque(lines, SHOWN_LINES)), flush=True)
        results.append(result)
    return results
