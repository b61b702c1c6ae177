"""Fetches what the tests of every change use: `python -m tests.connectors.parts [--all]`.

A part that can't be had is said with the reason, and the exit code is 1: its tests are then skipped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from tests.connectors.parts import jars, s3
from tests.connectors.parts.cache import Unavailable, cache
from tests.spark_versions.environments import TABLES_PYSPARK, EnvironmentFailed, environment


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.connectors.parts", description=__doc__)
    parser.add_argument("--all", action="store_true", help="those of `make connectors`, too")
    all_of_them = parser.parse_args(arguments).all
    sets = jars.names() if all_of_them else jars.OFTEN
    parts: dict[str, Callable[[], object]] = {
        **{f"jars of {name}": lambda name=name: jars.jars(name) for name in sets},  # type: ignore[misc]
        "S3 server": s3.server_program,
    }
    if all_of_them:
        parts[f"PySpark {TABLES_PYSPARK}"] = lambda: environment(TABLES_PYSPARK)
    missing = 0
    for part, fetch in parts.items():
        try:
            fetch()
        except (Unavailable, EnvironmentFailed) as error:
            missing += 1
            print(f"parts: not on this machine: {part}: {error}", flush=True)
    print(f"parts: {len(parts) - missing} of {len(parts)} in {cache()}", flush=True)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
