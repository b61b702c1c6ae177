"""Fuzzes everything that decodes input for longer than the test suite does.

    python -m tests.fuzz [--examples N] [--seed S] [PYTEST ARGUMENTS]

A property with a share of 1 gets N examples. Ends with one line `fuzz: OK properties=... examples=...`,
and with exit code 1 if any property failed; hypothesis prints the smallest example that it found.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).parent
DEFAULT_EXAMPLES = 2_000


class Outcomes:
    """What became of the tests, as pytest tells its plugins."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)
        elif report.when == "call":
            self.passed += 1


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--examples", type=int, default=DEFAULT_EXAMPLES)
    parser.add_argument("--seed", type=int, default=0)
    given, rest = parser.parse_known_args(arguments)
    # Imported with the variable set: properties are made when their modules are imported.
    from tests.fuzz import examples

    os.environ[examples.EXAMPLES_VARIABLE] = str(given.examples)
    outcomes = Outcomes()
    begun = time.monotonic()
    pytest.main(
        [str(HERE), "-q", "--timeout=0", f"--hypothesis-seed={given.seed}", *rest], [outcomes]
    )
    ok = outcomes.passed > 0 and not outcomes.failed
    print(
        f"fuzz: {'OK' if ok else 'FAILED'} properties={len(examples.run)} "
        f"examples={examples.run.total()} seed={given.seed} failed={len(outcomes.failed)} "
        f"seconds={time.monotonic() - begun:.0f}"
    )
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
