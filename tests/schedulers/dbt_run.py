"""dbt with DuckDB by the files of docs/schedulers.md: an hour a batch, one killed in the middle and run again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

from tests.docs.pages import ROOT, blocks
from tests.install.environments import Environment
from tests.schedulers.judged import Reported, faults
from tests.schedulers.outcome import Outcome
from tests.schedulers.running import Programs, RunFailed
from tests.schedulers.shop import BEGIN, ORDERS_AN_HOUR, SPEC, Shop, open_shop

HOURS, KILLED = 4, 2
LAYOUT = "%Y-%m-%dT%H:%M:%S"
RUN_S = 600.0
PROJECT = "name: orders\nversion: '1.0'\nprofile: orders\nmodel-paths: [models]\nflags: {send_anonymous_usage_stats: false}\n"
PROFILE = "orders:\n  target: here\n  outputs:\n    here: {type: duckdb, path: orders.duckdb, threads: 1}\n"
ASKED = """
import duckdb, json
rows = duckdb.connect("orders.duckdb", read_only=True).execute(
    "select strftime(hour, '%Y-%m-%dT%H:%M:%S'), orders from orders_by_hour order by 1").fetchall()
print("asked", json.dumps(rows))
"""


def run(environment: Environment) -> Outcome:
    """Each hour's orders are counted once and whole, though `dbt run` is killed in the middle of one."""
    outcome = Outcome("dbt")
    with open_shop(environment.work) as shop:
        lowmark = shop.directory / "bin" / "lowmark"
        lowmark.write_text(f"#!/bin/sh\nexec '{sys.executable}' -m tracker.cli \"$@\"\n")
        lowmark.chmod(0o755)
        variables = environment.variables | {
            "LOWMARK_TARGET": shop.target, "PYTHONPATH": "", "DBT_PROFILES_DIR": str(environment.work),
            "PATH": os.pathsep.join((str(lowmark.parent), environment.variables["PATH"])),
        }  # fmt: skip
        _write_files(environment.work)
        with Programs(environment.work, variables) as programs:
            _follow(shop, programs, outcome)
            _judge(shop, environment, programs, outcome)
    return outcome


def _write_files(directory: Path) -> None:
    shown = {b.info: b.text for b in blocks(ROOT / "docs" / "schedulers.md")}
    (directory / "models").mkdir()
    (directory / "orders").mkdir()
    (directory / "models" / "orders_by_hour.sql").write_text(shown["sql dbt model"])
    (directory / "models" / "sources.yml").write_text("version: 2\n" + shown["yaml dbt sources"])
    (directory / "orders-by-hour.sh").write_text(shown["sh dbt"])
    (directory / "dbt_project.yml").write_text(PROJECT)
    (directory / "profiles.yml").write_text(PROFILE)


def _follow(shop: Shop, programs: Programs, outcome: Outcome) -> None:
    """Each hour's script is started before the hour is complete, and its rows come in while it waits."""
    for number in range(HOURS):
        script = _Script(shop, programs, number)
        if number == 0 and script.ended:
            raise RunFailed(f"it did not wait: {programs.tail('script')}")
        _orders_come_in(shop, number)
        shop.complete_hour()
        if number == KILLED:
            script.kill_in_dbt()
            outcome.kills += 1
            script = _Script(shop, programs, number)
        script.succeed()


def _orders_come_in(shop: Shop, number: int) -> None:
    """As rows of a file, before they are processed."""
    begin = SPEC.start_slot + 3_600 * number
    rows = [f"{begin + 60 * n}" for n in range(ORDERS_AN_HOUR)]
    moments = "".join(time.strftime("%Y-%m-%d %H:%M:%S\n", time.gmtime(int(row))) for row in rows)
    (shop.directory / "orders" / f"{number}.csv").write_text("ordered_at\n" + moments)


class _Script:
    """The page's script for one hour, which waits at first."""

    def __init__(self, shop: Shop, programs: Programs, number: int) -> None:
        until = (BEGIN + timedelta(hours=number + 1)).strftime(LAYOUT)
        self._log = programs.log("script")
        self._from = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["sh", "orders-by-hour.sh", until], cwd=programs.directory, env=programs.variables,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, process_group=0,
            )  # fmt: skip

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def _said(self) -> str:
        return self._log.read_text()[self._from :]

    def kill_in_dbt(self) -> None:
        """SIGKILL once dbt has begun with the batch."""
        deadline_s = time.monotonic() + RUN_S
        while "START" not in self._said():
            if self.ended or time.monotonic() > deadline_s:
                raise RunFailed(f"dbt did not begin: {self._said()[-1_500:]}")
            time.sleep(0.01)
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def succeed(self) -> None:
        """Waits for its end. Raises RunFailed unless it is a good one."""
        if self._process.wait(RUN_S) != 0:
            raise RunFailed(f"it ended with {self._process.returncode}: {self._said()[-2_000:]}")


def _judge(shop: Shop, environment: Environment, programs: Programs, outcome: Outcome) -> None:
    status, said = programs.call("asked", [str(environment.python), "-c", ASKED], RUN_S)
    if status:
        raise RunFailed(f"DuckDB could not be asked: {said}")
    rows = json.loads(said.splitlines()[-1].removeprefix("asked "))
    expected = shop.expected(LAYOUT)
    outcome.hours, outcome.reports = len(expected), len(rows)
    at_ns = time.time_ns()
    outcome.wrong = faults([Reported(at_ns, hour) for hour, _ in rows], expected)
    outcome.wrong += [f"{hour} has {n} orders" for hour, n in rows if n != ORDERS_AN_HOUR]
