"""Tries each source and sink with the real thing: `python -m tests.connectors [--only 1,2] [--rows away]`.

Connectors for another PySpark than this one's run in an environment of that version, after the others. Beside
the rows, a run of all runs the tests for which `make test` has no time; `--only tests` runs them alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pyspark

from scripts.summary import BUILD, ROOT, finish
from scripts.test import LayerResult
from tests.connectors.connector import Connector
from tests.connectors.kinds import CONNECTORS
from tests.connectors.parts.cache import Unavailable
from tests.connectors.parts.jars import jars, spark_jars
from tests.connectors.parts.together import Parts
from tests.connectors.rows import BODIES, Trial
from tests.connectors.suites import run_suites
from tests.spark_matrix.__main__ import Matrix, Outcome, run_rows
from tests.spark_matrix.registry import Profile, Row
from tests.spark_matrix.world import RowFailed, World
from tests.spark_versions.environments import EnvironmentFailed, environment, inherited
from tests.waits import HANG_S

MASTER = "local[2,2]"
"""Two cores; a task may fail once."""
TESTS = "tests"
"""On the command line, beside connectors: the tests that are no rows."""
PATIENCE_S, SABOTAGE_PATIENCE_S = HANG_S, 15.0


class ConnectorMatrix(Matrix):
    """Rows of connectors, each in its place."""

    def __init__(
        self,
        connectors: dict[str, Connector],
        directory: Path,
        histories: Path,
        sabotage: str | None,
    ) -> None:
        super().__init__(directory, histories, sabotage)
        self._connectors = connectors

    def _world(self, row: Row, profile: Profile, name: str) -> World:
        directory, connector = self.directory / name, self._connectors[profile.name]
        if connector.broken:
            raise RowFailed(connector.broken)
        return World(
            row, profile, self._spark(profile), self.tracker, directory,
            self.histories / f"{name}.jsonl", self._recorders,
            SABOTAGE_PATIENCE_S if self.sabotage else PATIENCE_S,
            connector.place(name.replace(" ", "-"), directory),
        )  # fmt: skip


def version() -> str:
    """The minor version of this PySpark."""
    return ".".join(pyspark.__version__.split(".")[:2])


def rows_of(connector: Connector, words: list[str]) -> list[Row]:
    """The rows of a connector; of one that can't be had, with the reason."""
    settings: dict[str, str] = {}
    why = ""
    try:
        for name in connector.jars:
            jars(name)
        settings = connector.settings()
    except Unavailable as error:
        why = str(error)
    except Exception as error:
        connector.broken = f"its parts could not be started: {error}"
    profile, rows = Profile(connector.name, MASTER, settings), []
    for place, (word, (title, body)) in enumerate(BODIES.items(), 1):

        def tried(world: World, body: Any = body) -> None:
            body(Trial(connector, world))

        if word in words:
            number = f"{connector.number}.{place}"
            rows.append(Row(number, title, None if why else tried, (profile,), why=why))
    return rows


def run_here(
    kinds: list[type[Connector]], words: list[str], name: str, sabotage: str | None
) -> list[Outcome]:
    """Rows of connectors for this PySpark; with a planted fault, until one has failed."""
    directory = BUILD / f"{name}.parts"
    shutil.rmtree(directory, ignore_errors=True)
    parts = Parts(directory)
    connectors = {kind.name: kind(parts) for kind in kinds}
    try:
        rows = [row for connector in connectors.values() for row in rows_of(connector, words)]
        # One JVM for all: it takes jars when it is launched.
        had = {profile.name for row in rows if row.body for profile in row.profiles}
        if sets := sorted({name for kind in kinds if kind.name in had for name in kind.jars}):
            os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {spark_jars(*sets)} pyspark-shell"
        return run_rows(rows, name, sabotage, partial(ConnectorMatrix, connectors))
    finally:
        parts.close()


def run_elsewhere(minor: str, arguments: list[str], name: str) -> list[Outcome]:
    """Rows of connectors for another PySpark, by a process in its environment."""
    report = BUILD / f"{name}.json"
    report.unlink(missing_ok=True)
    try:
        python = environment(minor)
    except EnvironmentFailed as error:
        return [Outcome("0.0", f"PySpark {minor}", minor, covered=False, wrong=[str(error)])]
    command = [str(python), "-m", "tests.connectors", "--here", "--name", name, *arguments]
    subprocess.run(command, cwd=ROOT, env=inherited(), stdin=subprocess.DEVNULL, check=False)
    if not report.exists():
        wrong = [f"the run on PySpark {minor} has left no {report.name}"]
        return [Outcome("0.0", f"PySpark {minor}", minor, wrong=wrong)]
    return [Outcome(**outcome) for outcome in json.loads(report.read_text())["outcomes"]]


def report(
    outcomes: list[Outcome],
    name: str,
    started_s: float,
    sabotage: str | None,
    suites: list[LayerResult] | None = None,
) -> int:
    """The summary; the exit code is 0 only if all rows ran and hold, and all tests. suites: the results of
    the tests that are no rows, if they were run."""
    failed = [outcome for outcome in outcomes if outcome.wrong and outcome.covered]
    skipped = [outcome for outcome in outcomes if not outcome.covered]
    shown: dict[str, object] = {
        "rows": len(outcomes) - len(skipped),
        "failed": len(failed),
        "false": sum(outcome.false for outcome in outcomes),
        "lost": sum(outcome.lost for outcome in outcomes),
        **({"skipped": len(skipped)} if skipped else {}),
        **({} if suites is None else {"tests": sum(suite.passed for suite in suites)}),
        "seconds": round(time.monotonic() - started_s),
    }
    details: dict[str, object] = {
        "pyspark": pyspark.__version__,
        "sabotage": sabotage,
        "outcomes": [asdict(outcome) for outcome in outcomes],
        "suites": [asdict(suite) for suite in suites or ()],
    }
    broken = [suite.name for suite in suites or () if not suite.ok]
    if broken:
        shown["broken"] = ",".join(broken)
    ok = bool(outcomes or suites) and not failed and not skipped and not broken
    missing = skipped[0].wrong[0] if skipped and not failed and not broken else ""
    return finish(name, ok=ok, shown=shown, details=details, skipped=missing)


def chosen_rows(arguments: argparse.Namespace) -> tuple[list[type[Connector]], list[str]]:
    """The connectors and the words of their rows that were asked for."""
    wanted = [word for word in arguments.only.split(",") if word]
    kinds = [
        kind for kind in CONNECTORS
        if not wanted or str(kind.number) in wanted or kind.name in wanted
    ]  # fmt: skip
    words = [word for word in arguments.rows.split(",") if word] or list(BODIES)
    return kinds, words


def run_all(
    kinds: list[type[Connector]], words: list[str], arguments: argparse.Namespace
) -> list[Outcome]:
    """The rows of all connectors, those of another PySpark after the others."""
    here = [kind for kind in kinds if kind.pyspark == version()]
    name, sabotage = arguments.name, arguments.sabotage
    outcomes = run_here(here, words, name, sabotage) if here else []
    others = {kind.pyspark: "" for kind in kinds if kind.pyspark != version()}
    for minor in {} if arguments.here else others:
        if sabotage and any(outcome.wrong for outcome in outcomes):
            break
        only = ",".join(str(kind.number) for kind in kinds if kind.pyspark == minor)
        more = ["--only", only, "--rows", ",".join(words)]
        more += ["--sabotage", sabotage] if sabotage else []
        outcomes += run_elsewhere(minor, more, f"{name}-{minor}")
    return outcomes


def main(given: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.connectors", description=__doc__)
    parser.add_argument(
        "--only", default="", help=f"connectors by number or name, or {TESTS}, with commas"
    )
    parser.add_argument("--rows", default="", help=f"of each, with commas: {', '.join(BODIES)}")
    parser.add_argument("--sabotage", choices=("early", "lost", "double"))
    parser.add_argument("--name", default="connectors", help="of the files in build/")
    parser.add_argument("--here", action="store_true", help="those for this PySpark alone")
    arguments = parser.parse_args(given)
    kinds, words = chosen_rows(arguments)
    if unknown := [word for word in words if word not in BODIES]:
        parser.error(f"no row {unknown[0]!r}")
    started_s = time.monotonic()
    only, limited = arguments.only.split(","), arguments.only or arguments.rows
    sabotage = arguments.sabotage
    wants_tests = TESTS in only or not (limited or sabotage or arguments.here)
    with ThreadPoolExecutor(1) as beside:
        running = beside.submit(run_suites, f"{arguments.name}-{TESTS}") if wants_tests else None
        outcomes = run_all(kinds, words, arguments)
        suites = running.result() if running else None
    return report(outcomes, arguments.name, started_s, sabotage, suites)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
