"""Running the tests that are to find a mutation of the shells, on a copy of the code with it in.

Each mutation has a copy of its own, so that no working file changes and every process that a test starts has the
mutation too. A mutation is found when a test fails, or waits in vain for what would come without it; one that cannot
be imported is none.
"""

from __future__ import annotations

import compileall
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from scripts.summary import ROOT
from tests.mutations.mutation import MutationError
from tests.mutations.shells import ShellMutation, missing_tests

_PACKAGES = ("fronts", "local_tracker", "lowmark", "proto", "tracker")
_COPIED = (*_PACKAGES, "benchmarks", "examples", "scripts", "tests")
_MOST_S = 600
"""For the tests of one mutation; the control has it for each."""
_HANG_S = 60
"""So long the tests wait for what never comes; and twice as long one may take that does not wait, but runs for ever."""
_FAILED = re.compile(r"^(?:FAILED|ERROR) tests/.*", re.MULTILINE)
_ENDLESS = re.compile(r"^\++ Timeout \++$", re.MULTILINE)
_NO_CODE = re.compile(
    r" - (?:NameError|UnboundLocalError|ImportError|ModuleNotFoundError|SyntaxError)"
)


@dataclass(frozen=True, slots=True)
class ShellOutcome:
    """What came of one mutation (name "": of the code as it is). message: the first test that failed; error: why
    there is no answer."""

    name: str
    found: bool = False
    message: str = ""
    error: str = ""
    seconds: float = 0.0


def run_shells(
    mutations: Sequence[ShellMutation],
    workers: int,
    report: Callable[[ShellOutcome], None],
    known: Mapping[str, ShellOutcome] = MappingProxyType({}),
) -> tuple[ShellOutcome, list[ShellOutcome]]:
    """The outcome of the code as it is, which all tests that are named must pass, and those of the mutations;
    each is reported when it is known. known: what came of those that were tried before, by name."""
    if missing := missing_tests(mutations, ROOT):
        raise MutationError(f"there is no {missing[0]}")
    with tempfile.TemporaryDirectory(prefix="shells-") as directory:
        base = Path(directory) / "code"
        _copy_code(base)

        def run(number: int, mutation: ShellMutation | None) -> ShellOutcome:
            if mutation is not None and mutation.name in known:
                return known[mutation.name]
            copy = Path(directory) / str(number)
            shutil.copytree(base, copy, copy_function=os.link)
            outcome = _run(copy, mutation, mutations)
            shutil.rmtree(copy, ignore_errors=True)
            report(outcome)
            return outcome

        with ThreadPoolExecutor(workers) as pool:
            control, *outcomes = pool.map(run, range(len(mutations) + 1), [None, *mutations])
    return control, outcomes


def _copy_code(target: Path) -> None:
    leave_out = shutil.ignore_patterns("__pycache__", "*.pyc")
    for place in _COPIED:
        shutil.copytree(ROOT / place, target / place, ignore=leave_out)
    shutil.copy(ROOT / "pyproject.toml", target)
    for package in _PACKAGES:
        compileall.compile_dir(target / package, quiet=2)


def _run(
    copy: Path, mutation: ShellMutation | None, mutations: Iterable[ShellMutation]
) -> ShellOutcome:
    began = time.monotonic()
    name = "" if mutation is None else mutation.name
    if mutation is not None:
        try:
            text = mutation.changed(copy)
        except MutationError as unfit:
            return ShellOutcome(name, error=str(unfit))
        # The file is a link to the one of all copies.
        (copy / mutation.file).unlink()
        (copy / mutation.file).write_text(text)
    chosen = list(mutations) if mutation is None else [mutation]
    tests = dict.fromkeys(test for each in chosen for test in each.tests)
    found, message, error = _pytest(copy, tests, _MOST_S * len(chosen))
    return ShellOutcome(name, found, message, error, round(time.monotonic() - began, 1))


def _pytest(copy: Path, tests: Iterable[str], most_s: int) -> tuple[bool, str, str]:
    """Whether one of the tests fails, the first that does, and why there is no answer."""
    path = os.pathsep.join([str(copy), str(copy / "proto")])
    # pytest cuts its lines at the width of a terminal.
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "COLUMNS": "500",
        "LOWMARK_HANG_S": str(_HANG_S),
    }
    options = [
        "-x",
        "-q",
        "--no-header",
        "--tb=line",
        "-p",
        "no:cacheprovider",
        f"--timeout={2 * _HANG_S}",
    ]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests], check=False, cwd=copy, text=True,
            capture_output=True, timeout=most_s, env=environment,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False, "", f"its tests took more than {most_s} s"
    failed = _FAILED.search(done.stdout)
    if done.returncode == 0:
        skipped = " skipped" in done.stdout.strip().splitlines()[-1]
        return False, "", "a test was skipped" if skipped else ""
    if done.returncode == 1 and failed and not _NO_CODE.search(failed[0]):
        return True, failed[0], ""
    if _ENDLESS.search(done.stdout + done.stderr):
        return True, f"ERROR it ran for {2 * _HANG_S} s, and was ended", ""
    said = failed[0] if failed else (done.stdout + done.stderr).strip()[-500:]
    return False, "", f"pytest ended with {done.returncode}: {said}"
