"""The install matrix: the wheel beside the versions that others ask for, and once the sdist, a line a row.

    python -m tests.install [--rows 1,3]

Each row is a fresh environment in a temporary directory: the wheel, the row's versions, the client's tests, and an
item in and out against a tracker that runs with the newest versions. A Python that is not on this machine is skipped.
The last row is `uvx`, which installs nothing, as the README has it; uv itself is of PyPI.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import lowmark
from scripts.artifacts import Built, StepFailed
from scripts.summary import finish
from tests.install.environments import (
    Environment,
    build,
    fresh,
    interpreter,
    locked,
)

TESTS_S, ROUND_TRIP_S = 900.0, 120.0
TOOLS = ("pytest", "pytest-timeout", "hypothesis")
VARIED = ("grpcio", "protobuf", "numpy")
SERVED = (
    "grpcio-health-checking",
    "grpcio-reflection",
    "grpcio-status",
    "googleapis-common-protos",
)
"""Packages of gRPC's that go with its version, of a process that serves."""
CLIENT_TESTS = (
    *("client/test_ports.py", "client/test_redirects.py", "service/test_wire.py"),
    *(f"core/test_{name}.py" for name in ("ack_values", "cells", "durable", "ranges", "routing", "slots")),
    *(f"fronts/test_{name}.py" for name in ("client", "core", "kafka_times", "ranges", "units")),
    *(f"local_tracker/test_{name}.py" for name in ("acks", "bundle", "collector", "flushing", "merge")),
    *(f"local_tracker/test_{name}.py" for name in ("protocol", "settings", "spool", "staging", "window")),
    *("files/test_locations.py", "files/test_patience.py"),
)  # fmt: skip
"""Tests of what a client installs that need no server in their process."""


@dataclass(frozen=True)
class Row:
    """Versions that live together. server: a tracker of these versions, too, instead of the client's tests. sdist: pip builds
    the wheel, with what it fetches for that."""

    python: str
    grpcio: str
    protobuf: str
    numpy: str
    server: bool = False
    sdist: bool = False

    @property
    def pins(self) -> list[str]:
        return [f"{name}=={getattr(self, name)}" for name in VARIED]

    def __str__(self) -> str:
        what = "server" if self.server else "client"
        of = " of the sdist," if self.sdist else ""
        return f"{what}{of} python {self.python} {' '.join(self.pins)}"


FLOORS = Row("3.11", "1.66.2", "5.27.2", "1.26.0")
"""The oldest of everything that pyproject.toml allows."""
ROWS = (
    FLOORS,
    Row("3.12", "1.66.2", "5.29.5", "1.26.4"),
    Row("3.12", "1.76.0", "6.33.0", "2.0.2"),
    Row("3.13", "1.66.2", "6.33.0", "2.1.3"),
    Row("3.13", "1.85.1", "7.36.2", "2.4.6"),
    Row("3.11", "1.85.1", "7.36.2", "2.4.6"),
    Row("3.11", "1.66.2", "5.29.5", "1.26.4", server=True),
    Row("3.13", "1.76.0", "6.33.0", "2.1.3", server=True),
    Row("3.11", "1.85.1", "7.36.2", "2.4.6", server=True, sdist=True),
)
WANTED = "lowmark[server]"
UVX = f"uvx --from '{WANTED}' lowmark dev"
"""As pages say it, of what is on PyPI."""

Run = Callable[[Built, Path], int]
"""Tries a wheel in a directory; returns how many of the client's tests have passed."""


@dataclass
class Outcome:
    """What became of a row. wrong: why it failed; skipped: why it could not be tried."""

    row: str
    tests: int = 0
    seconds: int = 0
    wrong: str = ""
    skipped: str = ""

    def __str__(self) -> str:
        if self.skipped:
            return f"{self.row}: skipped, {self.skipped}"
        if self.wrong:
            return f"{self.row}: FAILED, {self.wrong}"
        tests = f"{self.tests} tests and " if self.tests else ""
        return f"{self.row}: OK, {tests}a round trip, {self.seconds} s"


class NoPythonError(Exception):
    """This machine has no Python of a row's version."""


def tried(name: str, run: Run, built: Built, directory: Path) -> Outcome:
    outcome, began_s = Outcome(name), time.monotonic()
    try:
        outcome.tests = run(built, directory)
    except NoPythonError as missing:
        outcome.skipped = str(missing)
    except (StepFailed, subprocess.TimeoutExpired) as error:
        outcome.wrong = str(error)
    outcome.seconds = round(time.monotonic() - began_s)
    return outcome


def run_row(row: Row, built: Built, directory: Path) -> int:
    """Returns how many tests have passed. Raises NoPythonError, StepFailed, TimeoutExpired."""
    python = interpreter(row.python)
    if python is None:
        raise NoPythonError(f"no Python {row.python} on the PATH or in pyenv")
    environment = _made(row, built.sdist if row.sdist else built.wheel, directory, python)
    here = [str(environment.python)]
    if row.server:
        dev = [str(environment.home / "bin" / "lowmark"), "dev"]
        _serve(environment, dev, lambda target: _round_trip(environment, here, target, row.pins))
        return 0
    passed = _run_tests(environment, built.source)
    with lowmark.embedded() as tracker:
        _round_trip(environment, here, tracker.target, row.pins)
    return passed


def run_uvx(built: Built, directory: Path) -> int:
    """`uvx` of PyPI's uv with nothing cached, and the wheel where PyPI's will be. Raises StepFailed, TimeoutExpired."""
    constraints = directory / "constraints.txt"
    constraints.write_text(locked(without=()))
    environment = replace(
        fresh(directory, sys.executable),
        more={"UV_CACHE_DIR": str(directory / "uv"), "UV_CONSTRAINT": str(constraints)},
    )
    environment.install("uv")
    wheel = f"{WANTED} @ {built.wheel.as_uri()}"
    uvx, *words = [wheel if word == WANTED else word for word in shlex.split(UVX)]
    uvx = str(environment.home / "bin" / uvx)
    dev = [uvx, "--quiet", *words]
    python = [uvx, "--quiet", "--from", wheel, "python"]
    _serve(environment, dev, lambda target: _round_trip(environment, python, target, ()))
    return 0


def _made(row: Row, package: Path, directory: Path, python: str) -> Environment:
    environment = fresh(directory, python)
    constraints = directory / "constraints.txt"
    constraints.write_text(locked(without=(*VARIED, *SERVED)))
    extra = "[server]" if row.server else ""
    tools = () if row.server else TOOLS
    environment.install(f"{package}{extra}", *row.pins, *tools, constraints=constraints)
    environment.run([str(environment.python), "-m", "pip", "check"], ROUND_TRIP_S)
    return environment


def _run_tests(environment: Environment, source: Path) -> int:
    """The client's tests out of the sdist, over a copy that has nothing of the product beside it; returns how many passed."""
    for name in ("tests", "scripts", "examples"):
        shutil.copytree(source / name, environment.work / name)
    shutil.copy(source / "pyproject.toml", environment.work)
    said = environment.run(
        [str(environment.python), "-m", "pytest", "-q", "-p", "no:cacheprovider",
         *(f"tests/{name}" for name in CLIENT_TESTS)], TESTS_S,
    )  # fmt: skip
    passed = re.search(r"(\d+) passed", said)
    if passed is None:
        raise StepFailed(f"no test has passed: {said[-500:]}")
    return int(passed[1])


def _round_trip(
    environment: Environment, python: Sequence[str], target: str, pins: Sequence[str]
) -> None:
    """python: what runs a program with Lowmark."""
    program = shutil.copy(Path(__file__).with_name("round_trip.py"), environment.work)
    environment.run([*python, str(program), target, *pins], ROUND_TRIP_S)


def _serve(environment: Environment, dev: Sequence[str], round_trip: Callable[[str], None]) -> None:
    """A tracker of the environment's own, by `lowmark dev`, that an item goes through; it ends cleanly and has
    nothing to complain of."""
    command = [*dev, "--port", "0", "--dashboard-port", "0", "--json"]
    log = environment.work / "dev.log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command, cwd=environment.work, env=environment.variables, stdout=subprocess.PIPE,
            stderr=errors, text=True,
        ) as process,
    ):  # fmt: skip
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            if not said:
                raise StepFailed(f"lowmark dev did not start: {log.read_text()[-2000:]}")
            round_trip(json.loads(said)["tracker"])
        finally:
            process.terminate()
    if process.returncode != 0 or log.read_text():
        raise StepFailed(f"lowmark dev ended with {process.returncode}: {log.read_text()[-2000:]}")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.install", description=__doc__)
    parser.add_argument("--rows", default="", help="numbers from 1, with commas; all if not given")
    chosen = parser.parse_args(arguments).rows
    runs: list[tuple[str, Run]] = [(str(row), partial(run_row, row)) for row in ROWS]
    runs.append((UVX, run_uvx))
    numbers = [int(number) for number in chosen.split(",")] if chosen else range(1, len(runs) + 1)
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="lowmark-install-") as directory:
        built = build(Path(directory) / "dist")
        for number in numbers:
            place = Path(directory) / f"row-{number}"
            place.mkdir()
            outcome = tried(*runs[number - 1], built, place)
            print(f"{number}. {outcome}", flush=True)
            outcomes.append(outcome)
            shutil.rmtree(place)
    failed = [outcome for outcome in outcomes if outcome.wrong]
    skipped = [outcome for outcome in outcomes if outcome.skipped]
    shown = {"rows": len(outcomes), "failed": len(failed), "skipped": len(skipped)}
    details = {"table": [asdict(outcome) for outcome in outcomes]}
    ok = not failed and len(skipped) < len(outcomes)
    missing = "" if ok or failed else skipped[0].skipped
    return finish("install-matrix", ok=ok, shown=shown, details=details, skipped=missing)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
