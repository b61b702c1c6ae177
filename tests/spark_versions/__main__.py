"""Runs the rows on each version and prints the table: `python -m tests.spark_versions [--versions 3.5]`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from local_tracker.spark.versions import SUPPORTED_PYSPARK
from scripts.summary import BUILD, ROOT, finish
from tests.spark_versions.environments import EnvironmentFailed, environment, inherited
from tests.waits import PROGRAM_S

ROWS = {
    "1.1": "an ordinary run with acks of user code, into tracked.writer",
    "2.1": "a task that fails once",
    "3.4": "driver killed by SIGKILL between the writer's publishing and commits/N: a replayed batch",
    "3.5": "driver killed by SIGKILL between the file sink's commit and commits/N",
    "4.8": "state rescaled",
    "6.6": "a stateful query with a watermark, and no-data batches",
    "6.15": "by rows",
    "6.16": "lowmark query attach",
    "6.20": "a Spark Connect session",
    "7.1": "a chain of three queries",
    "11.1": "a tumbling window holds what it has not emitted",
    "11.4": "windows of windows hold",
    "11.7": "a left outer join holds",
    "12.1": "periods as a stream: each once, its driver killed",
    "12.2": "progress in SQL",
    "12.3": "progress in SQL in a Spark Connect session",
}
"""What is run of the matrix on each version: its quick half, and what versions differ in."""
PROFILES = "local,rocksdb"


@dataclass
class Result:
    """The rows on one version. wrong: why there are none of them, or fewer than were asked for."""

    version: str
    pyspark: str = ""
    seconds: int = 0
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    wrong: str = ""
    asked: tuple[str, ...] = tuple(ROWS)

    @property
    def failed(self) -> list[str]:
        """The rows that neither held nor were refused by name."""
        ran = {outcome["number"] for outcome in self.outcomes}
        bad = [o["number"] for o in self.outcomes if o["wrong"] or not o["covered"]]
        return [*bad, *(number for number in self.asked if number not in ran)]

    @property
    def refused(self) -> list[dict[str, Any]]:
        return [o for o in self.outcomes if o["refused"] and not o["wrong"]]

    @property
    def ok(self) -> bool:
        return not self.failed and not self.wrong

    def line(self) -> str:
        """One line for people."""
        said = f"{self.version:<4} PySpark {self.pyspark or '?':<6} {self.seconds:>4} s"
        kept = len(self.outcomes) - len(self.refused) - sum(bool(o["wrong"]) for o in self.outcomes)
        said += f"  rows={len(self.outcomes)} ok={kept} refused={len(self.refused)}"
        said += f" failed={len(self.failed)}"
        for outcome in self.refused:
            said += f"; row {outcome['number']} refused: {outcome['refused']}"
        for number in self.failed:
            said += f"; row {number} FAILED"
        return f"{said}; {self.wrong}" if self.wrong else said


def run_version(version: str, rows: tuple[str, ...] = tuple(ROWS)) -> Result:
    """Runs the rows in a version's environment; what they print goes to `build/`."""
    result, name = Result(version, asked=rows), f"spark_versions-{version}"
    started_s = time.monotonic()
    report, log = BUILD / f"{name}.json", BUILD / f"{name}.log"
    report.unlink(missing_ok=True)
    try:
        python = environment(version)
        command = [
            str(python), "-m", "tests.spark_matrix", "--rows", ",".join(rows),
            "--profile", PROFILES, "--name", name,
        ]  # fmt: skip
        status = _run(command, python, log)
        document = json.loads(report.read_text()) if report.exists() else {}
        result.pyspark = document.get("pyspark", "")
        result.outcomes = document.get("outcomes", [])
        if status != 0 or not result.pyspark.startswith(version + "."):
            result.wrong = f"it ended with {status}; see {log.relative_to(ROOT)}"
    except (EnvironmentFailed, subprocess.TimeoutExpired) as error:
        result.wrong = str(error)
    result.seconds = round(time.monotonic() - started_s)
    return result


def _run(command: list[str], python: Path, log: Path) -> int:
    """Runs a command to its end, or ends it with all that it has started; returns its exit code."""
    with log.open("wb") as said:
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            env=environment_of(str(python.parent)), start_new_session=True,
        )  # fmt: skip
    try:
        return process.wait(PROGRAM_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def environment_of(programs: str) -> dict[str, str]:
    """The variables of a version's run: its own programs first, and none of another Spark's."""
    kept = inherited()
    return {**kept, "PATH": f"{programs}{os.pathsep}{kept.get('PATH', '')}"}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark_versions", description=__doc__)
    parser.add_argument("--versions", default=",".join(SUPPORTED_PYSPARK), help="with commas")
    parser.add_argument("--rows", default=",".join(ROWS), help="of those of each, with commas")
    chosen = parser.parse_args(arguments)
    rows = tuple(chosen.rows.split(","))
    if unknown := [row for row in rows if row not in ROWS]:
        parser.error(f"no row {unknown[0]!r}; there are {', '.join(ROWS)}")
    results = []
    for version in chosen.versions.split(","):
        if version not in SUPPORTED_PYSPARK:
            parser.error(f"{version!r} is none of {', '.join(SUPPORTED_PYSPARK)}")
        results.append(run_version(version, rows))
        print(results[-1].line(), flush=True)
    shown = {
        "versions": len(results),
        "rows": sum(len(result.outcomes) for result in results),
        "refused": sum(len(result.refused) for result in results),
        "failed": sum(len(result.failed) or bool(result.wrong) for result in results),
        "seconds": sum(result.seconds for result in results),
    }
    details = {"asked": ROWS, "by_version": [asdict(result) for result in results]}
    return finish("spark-versions", ok=all(r.ok for r in results), shown=shown, details=details)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
