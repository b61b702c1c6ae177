"""The files of `lowmark init`, run as a person runs them, and an oracle of what the reader must have taken."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cluster.children import now_slot
from tests.spark_versions.environments import inherited
from tests.waits import HANG_S, until
from tracker.client import Admin, Subscriber
from tracker.client.pipeline_file import load_pipeline
from tracker.dev.starting import FRONT, PIPELINE, PIPELINE_NAME, QUERY, READER


class Written:
    """A directory of files that `lowmark init` has written, and the processes that run them; none outlives it."""

    def __init__(
        self,
        directory: Path,
        target: str,
        spark: Sequence[str] = (sys.executable,),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """spark: what a program with a Spark session is run by; environment: variables beside this process'."""
        self.directory, self.target, self._spark = directory, target, spark
        # As on a machine of a user: Spark is what the program's own environment has.
        self._environment = inherited() | {"LOWMARK_TARGET": target} | dict(environment or {})
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Registers the pipeline, starts the front, and the query when there is something for it."""
        with Admin(self.target) as admin:
            admin.register(load_pipeline((self.directory / PIPELINE).read_text(), PIPELINE))
            self._run([sys.executable, FRONT])

            def something() -> bool:
                return (
                    self._live() and admin.pipeline(PIPELINE_NAME).state.segments[0].open_items > 0
                )

            until(something, self.said)
        self._run([*self._spark, QUERY])

    def reach_now(self) -> None:
        """Waits until all that had come in by now, in this very slot, too, is processed."""
        with Subscriber(self.target, PIPELINE_NAME) as progress:
            moment = now_slot() + 1  # min time is exclusive
            until(
                # expires: asked again while the programs live
                lambda: self._live() and progress.wait_until(moment, timeout_s=1.0),
                self.said,
                HANG_S,
            )

    def read(self) -> str:
        """Runs the reader once; returns what it has printed."""
        done = subprocess.run(
            [*self._spark, READER], cwd=self.directory, env=self._environment, capture_output=True,
            text=True, timeout=HANG_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    def check_taken(self, orders: Sequence[tuple[int, str, int]], amounts: Counter[str]) -> None:
        """That the reader's runs so far hold exactly the orders (slot, shop, pieces) below where they end.
        amounts: what its reports say of each shop."""
        to_slot = json.loads((self.directory / "data/reader.json").read_text())["next"]
        expected: Counter[str] = Counter()
        for slot, shop, pieces in orders:
            if slot < to_slot:
                expected[shop] += 5 * pieces
        assert expected and amounts == expected

    def _run(self, command: Sequence[str]) -> None:
        with open(self.directory / f"{command[-1]}.log", "wb") as log:
            process = subprocess.Popen(
                command, cwd=self.directory, env=self._environment, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True,
            )  # fmt: skip
        self._running.append(process)

    def _live(self) -> bool:
        assert all(process.poll() is None for process in self._running), self.said()
        return True

    def said(self) -> str:
        """The ends of the logs."""
        logs = sorted(self.directory.glob("*.log"))
        return "\n".join(
            f"-- {log.name}\n{log.read_text(errors='replace')[-2000:]}" for log in logs
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        """Ctrl-C ends them, with all that they have started."""
        for process in reversed(self._running):
            os.killpg(process.pid, signal.SIGINT)
        try:
            for process in self._running:
                process.wait(HANG_S)
        finally:
            for process in self._running:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()


def file_orders(directory: Path) -> list[tuple[int, str, int]]:
    """What a file front has published below a directory: slot, shop and pieces of each order."""
    lines = [line for path in directory.glob("*.json") for line in path.read_text().splitlines()]
    rows = [json.loads(line) for line in lines]
    return [(row["global_time"], row["shop"], row["pieces"]) for row in rows]


def reported(directory: Path) -> Counter[str]:
    """What the reports of all runs say of each shop."""
    import pyarrow.parquet as pq

    found: Counter[str] = Counter()
    for path in directory.glob("run=*/*.parquet"):
        for row in pq.read_table(path).to_pylist():
            found[row["shop"]] += row["amount"]
    return found
