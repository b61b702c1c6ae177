"""Dagster by the file of docs/schedulers.md: `dagster dev`, killed in the middle; the code server lives on."""

from __future__ import annotations

import json
import os
from typing import Any

import lowmark
from tests.docs.pages import ROOT, blocks
from tests.install.environments import Environment
from tests.schedulers.judged import faults
from tests.schedulers.outcome import Outcome
from tests.schedulers.running import Programs, RunFailed
from tests.schedulers.shop import Shop, open_shop

HOURS, KILLED_AFTER = 6, (2, 4)
LAYOUT = "%Y-%m-%d-%H:%M"
START_S, REPORT_S, ASK_S = 600.0, 600.0, 300.0
QUIET = "telemetry:\n  enabled: false\n"
ASKED = """
import json
import dagster as dg
from dagster import DagsterInstance, DagsterRunStatus
with DagsterInstance.get() as instance:
    runs = instance.get_runs()
    key = dg.AssetCheckKey(dg.AssetKey("orders_by_hour"), "made_when_complete")
    checks = instance.event_log_storage.get_asset_check_execution_history(key, limit=100)
    print("asked", json.dumps({
        "runs": {run.tags["dagster/run_key"]: run.status.value for run in runs},
        "count": len(runs),
        "checks": [check.status.value for check in checks],
    }))
"""
"""What Dagster itself knows of its runs and checks, as one line."""


def run(environment: Environment) -> Outcome:
    """Each hour is one run, though everything but the code server is killed twice."""
    outcome = Outcome("dagster")
    with open_shop(environment.work) as shop:
        variables = environment.variables | {
            "DAGSTER_HOME": str(environment.work), "LOWMARK_TARGET": shop.target,
            "PATH": f"{shop.directory / 'bin'}{os.pathsep}{environment.variables['PATH']}",
        }  # fmt: skip
        _write_files(environment)
        with Programs(environment.work, variables) as programs:
            _follow(shop, environment, programs, outcome)
            _judge(shop, environment, programs, outcome)
    return outcome


def _write_files(environment: Environment) -> None:
    (file,) = [
        b.text for b in blocks(ROOT / "docs" / "schedulers.md") if b.info == "python dagster"
    ]
    often = file.replace(
        "default_status=started", "default_status=started, minimum_interval_seconds=2"
    )
    assert often != file
    (environment.work / "orders.py").write_text(often)
    (environment.work / "dagster.yaml").write_text(QUIET)


def _follow(shop: Shop, environment: Environment, programs: Programs, outcome: Outcome) -> None:
    """Hours become complete, one, then three at once, and so on; `dagster dev` dies behind some of them."""
    code_port, page_port = lowmark.free_ports(2)
    (environment.work / "workspace.yaml").write_text(
        f"load_from:\n  - grpc_server: {{host: 127.0.0.1, port: {code_port}, location_name: orders}}\n"
    )
    bin_directory = environment.home / "bin"
    serve = [str(bin_directory / "dagster"), "api", "grpc", "-f", "orders.py", "-p", str(code_port)]
    dev = [str(bin_directory / "dagster"), "dev", "-w", "workspace.yaml", "-p", str(page_port)]
    programs.start("code", serve)
    programs.wait_for(
        "code server", lambda: "Started Dagster code server" in programs.tail("code"), START_S
    )
    programs.start("dev", dev)
    for hour in range(HOURS):
        shop.complete_hour()
        if hour in KILLED_AFTER:
            programs.wait_for("the first of them", lambda: len(shop.history()) >= 1, START_S)
            programs.kill("dev")
            outcome.kills += 1
            shop.complete_hour()
            programs.start("dev", dev)
        done = len(shop.completed)
        if hour in KILLED_AFTER or hour == 0:
            programs.wait_for(f"{done} hours", lambda: len(shop.history()) >= done, REPORT_S)  # noqa: B023
    programs.wait_for("all hours", lambda: len(shop.history()) >= len(shop.completed), REPORT_S)


def _judge(shop: Shop, environment: Environment, programs: Programs, outcome: Outcome) -> None:
    program = [str(environment.python), "-c", ASKED]
    expected = shop.expected(LAYOUT)

    def ended() -> bool:
        known = _asked(programs, program)
        return all(
            status in ("SUCCESS", "FAILURE", "CANCELED") for status in known["runs"].values()
        )

    programs.wait_for("every run to end", ended, ASK_S)
    known = _asked(programs, program)
    outcome.hours, outcome.reports = len(expected), len(shop.history())
    outcome.wrong = faults(shop.history(), expected)
    if known["count"] != len(expected) or set(known["runs"].values()) != {"SUCCESS"}:
        outcome.wrong.append(f"Dagster knows {known['count']} runs: {known['runs']}")
    if known["checks"] != ["SUCCEEDED"] * len(expected):
        outcome.wrong.append(f"the check of partitions said {known['checks']}")
    outcome.numbers["checks"] = len(known["checks"])


def _asked(programs: Programs, program: list[str]) -> dict[str, Any]:
    status, said = programs.call("asked", program, ASK_S)
    lines = [line for line in said.splitlines() if line.startswith("asked ")]
    if status or not lines:
        raise RunFailed(f"Dagster's instance could not be asked: {said[-1_500:]}")
    found: dict[str, Any] = json.loads(lines[-1].removeprefix("asked "))
    return found
