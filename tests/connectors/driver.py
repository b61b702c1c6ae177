"""A driver of its own, to be killed: `python -m tests.connectors.driver JSON`, by `Started`.

It runs the query of a connector over all that there is, and ends; or kills itself and its JVM at the tick
of one batch, when `commits/N` is there and nothing has been handed over.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from examples.history import Recorder
from local_tracker.spark.session.tracked import Tracked
from scripts.summary import ROOT
from tests.connectors.connector import How, Site
from tests.connectors.kinds import CONNECTORS
from tests.spark_matrix.recording import recording
from tests.spark_matrix.registry import Profile
from tests.spark_matrix.sessions import make_session
from tests.waits import PROGRAM_S
from tracker.testing.killing import Killer
from tracker.testing.moments import Moment


@dataclass(frozen=True)
class Run:
    """What a driver is told. dies_at: the batch before whose tick it ends; -1 for none."""

    connector: str
    target: str
    pipeline: str
    directory: str
    site: dict[str, Any]
    settings: Mapping[str, str] = field(default_factory=dict)
    dies_at: int = -1


class Started:
    """A driver with its JVM, in a process group of its own."""

    def __init__(self, run: Run) -> None:
        self._log = Path(run.directory) / "driver.log"
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.connectors.driver", json.dumps(asdict(run))],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def kill(self) -> None:
        """kill -9, of it and its JVM at once."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def end(self) -> int:
        """Waits until it has ended; returns its exit status."""
        return self._process.wait(PROGRAM_S)

    def said(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.kill()


def run_query(spark: SparkSession, run: Run, recorder: Recorder) -> None:
    """The query, until it has taken all that there is."""
    connector = next(kind for kind in CONNECTORS if kind.name == run.connector)
    if run.dies_at >= 0:
        Killer.here(run.dies_at).plant(Moment.TICK)
    with recording(lambda _: recorder):
        site = Site(**run.site)
        tracked = Tracked(spark, run.target, run.pipeline, **connector.options(site))
        query = connector.start(spark, tracked, site, How())
        query.processAllAvailable()
        query.stop()


def main(text: str) -> None:
    run = Run(**json.loads(text))
    directory = Path(run.directory)
    profile = Profile("driver", "local[2]", run.settings)
    spark = make_session(profile, directory / f"spark-{os.getpid()}")
    recorder = Recorder(directory / "history" / f"driver-{os.getpid()}.jsonl")
    run_query(spark, run, recorder)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
