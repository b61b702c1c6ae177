"""Tests for which `make test` has no time: `make connectors` runs them after its rows."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.summary import BUILD, ROOT
from scripts.test import LayerResult, counted
from tests.connectors.lake.__main__ import NAMES
from tests.connectors.lake.__main__ import run as run_lake
from tests.spark_versions.environments import EnvironmentFailed


@dataclass(frozen=True)
class Suite:
    """run: given where pytest's report goes, returns pytest's exit code."""

    name: str
    run: Callable[[Path], int]


def run_long(report: Path) -> int:
    command = [sys.executable, "-m", "pytest", "-m", "long", f"--junitxml={report}"]
    directory = str(Path(__file__).parent.relative_to(ROOT))
    return subprocess.run([*command, directory], cwd=ROOT, check=False).returncode


def run_tables(report: Path) -> int:
    try:
        return run_lake(NAMES, report=report)
    except EnvironmentFailed as error:
        print(f"connectors: {error}", flush=True)
        return 1


SUITES = (
    Suite("long tests of brokers and stores", run_long),
    Suite("queries over tables", run_tables),
)


def run_suites(name: str, suites: Sequence[Suite] = SUITES) -> list[LayerResult]:
    """Runs them one after the other; their reports are in `build/<name>-<number>.xml`. One whose tests are
    all skipped, or fail, is not `ok`."""
    results = []
    for number, suite in enumerate(suites):
        report, started_s = BUILD / f"{name}-{number}.xml", time.monotonic()
        report.unlink(missing_ok=True)
        print(f"== {suite.name}", flush=True)
        exit_code = suite.run(report)
        result = counted(suite.name, exit_code, time.monotonic() - started_s, report)
        said = f"{result.passed} passed, {result.failed} failed, {result.skipped} skipped"
        print(f"== {suite.name}: {result.seconds:.0f} s, {said}", flush=True)
        results.append(result)
    return results
