"""Runs the queries over tables: `python -m tests.connectors.lake [delta] [iceberg] [mark] [writer]
[-k WORDS]`."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from scripts.summary import ROOT
from tests.spark_versions.environments import TABLES_PYSPARK, environment, inherited
from tests.waits import PROGRAM_S

FORMATS = ("delta", "iceberg")
NAMES = (*FORMATS, "mark", "writer")
"""Of files of queries."""


def run(
    names: Sequence[str],
    chosen: str = "",
    report: Path | None = None,
    log: IO[bytes] | None = None,
) -> int:
    """Runs the queries of these names in the environment of their PySpark; returns the exit status. With one
    format among the names, the queries of all formats leave out the other. report: where pytest's goes; log:
    where its output does. Raises EnvironmentFailed."""
    command = [
        str(environment(TABLES_PYSPARK)), "-m", "pytest", "-q", "-p", "no:cacheprovider",
        "-o", f"timeout={PROGRAM_S}",
    ]  # fmt: skip
    formats = [name for name in names if name in FORMATS]
    wanted = [f"({chosen})"] if chosen else []
    if len(formats) == 1:  # the ids of tests name it
        wanted += [f"not {name}" for name in FORMATS if name not in formats]
    command += ["-k", " and ".join(wanted)] if wanted else []
    command += [f"--junitxml={report}"] if report else []
    files = [
        f"tests/connectors/lake/{name}_queries.py"
        for name in (*(["table"] if formats else ()), *names)
    ]
    errors = None if log is None else subprocess.STDOUT
    run = subprocess.run(
        [*command, *files], cwd=ROOT, env=inherited(), stdout=log, stderr=errors, check=False
    )
    return run.returncode


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.connectors.lake", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(NAMES)}; else all")
    parser.add_argument(
        "-k", dest="chosen", default="", help="those whose names match, as for pytest"
    )
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in NAMES]:
        parser.error(f"no queries {unknown[0]!r}")
    sys.exit(run(arguments.names or NAMES, arguments.chosen))
