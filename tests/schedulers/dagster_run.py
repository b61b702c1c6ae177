"""Dagster by the file of docs/schedulers.md: `dagster dev`, its code server and the tracker, killed; `dev` between a run and its cursor too."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lowmark.testing import free_ports
from tests.docs.pages import ROOT, blocks
from tests.install.environments import Environment
from tests.schedulers.environments import variables
from tests.schedulers.judged import faults
from tests.schedulers.outcome import Outcome
from tests.schedulers.running import Programs, RunFailed
from tests.schedulers.shop import Shop
from tests.waits import HANG_S

KILLS = 2
LAYOUT = "%Y-%m-%d-%H:%M"
CLOSE_LOOK_S = 0.01  # paces: its looks
QUIET = "telemetry:\n  enabled: false\n"
ASKED = """
import json
import dagster as dg
from dagster import DagsterInstance
with DagsterInstance.get() as instance:
    runs = instance.get_runs()
    key = dg.AssetCheckKey(dg.AssetKey("orders_by_hour"), "made_when_complete")
    checks = instance.event_log_storage.get_asset_check_execution_history(key, limit=100)
    said = [
        check.event.dagster_event.asset_check_evaluation_data.metadata["not complete"].value
        if check.status.value in ("SUCCEEDED", "FAILED") else "not yet said" for check in checks
    ]
    print("asked", json.dumps({
        "runs": {run.tags.get("dagster/run_key", "by hand"): run.status.value for run in runs},
        "count": len(runs),
        "checks": [[check.status.value, named] for check, named in zip(checks, said)],
    }))
"""
"""What Dagster itself knows of its runs and checks, the newest first, as one line."""

KEYS = """
import json
from datetime import UTC, datetime
import dagster as dg
from lowmark.dagster import _runs
from tracker.consumers.periods.cut import Cut
begin, hour = datetime(2026, 10, 24, 23, tzinfo=UTC), Cut(3_600, 0, 10**9)
hours = [hour.period("orders", "load", int(begin.timestamp()) + n * 3_600) for n in range(4)]
berlin = dg.HourlyPartitionsDefinition("2026-10-25-00:00", timezone="Europe/Berlin")
there = berlin.get_partition_keys(datetime(2026, 10, 25, 12, tzinfo=UTC))
days = dg.DailyPartitionsDefinition("2026-10-24")
print("asked", json.dumps({
    "keys": [run.partition_key for each in hours for run in _runs(each, berlin, None)], "there": there[1:5],
    "days": [[run.partition_key for run in _runs(each, days, None)] for each in hours],
}))
"""
"""The hours of a night in which one comes twice, and where partitions are days: the first of them is the last of a day."""


def run(environment: Environment, shop: Shop, outcome: Outcome) -> None:
    """Each hour is one run, though `dagster dev`, its code server and the tracker are killed; what is made by hand too early
    does not pass the check."""
    of_programs = variables(environment, shop.directory / "bin") | {
        "DAGSTER_HOME": str(environment.work), "LOWMARK_TARGET": shop.target,
    }  # fmt: skip
    _write_files(environment)
    with Programs(environment.work, of_programs) as programs:
        _name_partitions(environment, programs, outcome)
        _follow(shop, environment, programs, outcome)
        _judge(shop, environment, programs, outcome)
        _make_too_early(shop, environment, programs, outcome)


def _name_partitions(environment: Environment, programs: Programs, outcome: Outcome) -> None:
    """A run gets the partition that is its period, also of an hour that comes twice; one that is not complete yet gets
    none, and a day is asked for with its last hour."""
    said = _asked(programs, [str(environment.python), "-c", KEYS])
    if said["keys"] != said["there"]:
        outcome.wrong.append(f"runs for the partitions {said['there']} are for {said['keys']}")
    if said["days"] != [["2026-10-24"], [], [], []]:
        outcome.wrong.append(
            f"an hour is the partition of a day that it does not end: {said['days']}"
        )


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
    """One hour; then two at once, behind whose first run `dagster dev` dies, and one while it is dead; and so on.
    The last comes by itself: whatever were still to be repeated would be before it."""
    code_port, page_port = free_ports(2)
    (environment.work / "workspace.yaml").write_text(
        f"load_from:\n  - grpc_server: {{host: 127.0.0.1, port: {code_port}, location_name: orders}}\n"
    )
    dagster = str(environment.home / "bin" / "dagster")
    dev = [dagster, "dev", "-w", "workspace.yaml", "-p", str(page_port)]
    code = [dagster, "api", "grpc", "-f", "orders.py", "-p", str(code_port)]
    _start_code(programs, code)
    programs.start("dev", dev)
    _complete_hours(1, shop, programs)
    behind = 0
    for moment in ("an hour is complete", *["the first run of two"] * KILLS):
        runs = _runs(environment.work)
        shop.complete_hour()
        if moment == "the first run of two":
            shop.complete_hour()
            programs.wait_for(
                moment, lambda: _runs(environment.work) > runs, HANG_S, CLOSE_LOOK_S  # noqa: B023
            )  # fmt: skip
        programs.kill("dev")
        outcome.kills += 1
        behind += _runs(environment.work) > runs and _cursor(environment.work) < int(
            shop.end.timestamp()
        )
        shop.complete_hour()
        programs.start("dev", dev)
        _complete_hours(0, shop, programs)
    _without_code_server(shop, environment, programs, code)
    shop.restart_tracker()
    outcome.kills += 2
    _complete_hours(1, shop, programs)
    outcome.numbers["kills between a run and its cursor"] = behind
    if not behind:
        outcome.wrong.append("no kill came between a run and its cursor: nothing was shown")


def _start_code(programs: Programs, code: Sequence[str]) -> None:
    begun = programs.started("code", code)
    programs.wait_for(
        "its start", lambda: "Started Dagster code server" in programs.said("code", begun), HANG_S
    )


def _without_code_server(
    shop: Shop, environment: Environment, programs: Programs, code: Sequence[str]
) -> None:
    """It dies between two runs, which are its own processes; an hour is complete before it is back, and `dev` has
    found it gone."""
    programs.wait_for("the end of every run", lambda: not _unfinished(environment.work), HANG_S)
    programs.kill("code")
    begun = programs.log("dev").stat().st_size
    shop.complete_hour()
    programs.wait_for(
        "a failed look for it", lambda: "Error loading" in programs.said("dev", begun), HANG_S
    )
    _start_code(programs, code)
    _complete_hours(0, shop, programs)


def _complete_hours(more: int, shop: Shop, programs: Programs) -> None:
    """And waits for all reports."""
    for _ in range(more):
        shop.complete_hour()
    hours = len(shop.completed)
    programs.wait_for(f"{hours} hours", lambda: len(shop.history()) >= hours, HANG_S)


def _rows(database: Path, statement: str) -> list[tuple[Any, ...]]:
    """What one of Dagster's files says."""
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=HANG_S)
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()


def _runs(home: Path) -> int:
    ((count,),) = _rows(home / "history" / "runs.db", "SELECT count(*) FROM runs")
    return int(count)


def _unfinished(home: Path) -> int:
    found = _rows(
        home / "history" / "runs.db",
        "SELECT count(*) FROM runs WHERE status NOT IN ('SUCCESS', 'FAILURE', 'CANCELED')",
    )
    return int(found[0][0])


def _cursor(home: Path) -> int:
    """Where the next period of the sensor begins, as Dagster has kept it."""
    ((body,),) = _rows(
        home / "schedules" / "schedules.db", "SELECT instigator_body FROM instigators"
    )
    found = re.search(r'"cursor": ("(?:[^"\\]|\\.)*")', body)
    if found is None:
        raise RunFailed(f"the sensor has no cursor: {body}")
    return int(json.loads(json.loads(found[1]))["next"])


def _judge(shop: Shop, environment: Environment, programs: Programs, outcome: Outcome) -> None:
    program = [str(environment.python), "-c", ASKED]
    expected = shop.expected(LAYOUT)

    def ended() -> bool:
        known = _asked(programs, program)
        return all(
            status in ("SUCCESS", "FAILURE", "CANCELED") for status in known["runs"].values()
        )

    programs.wait_for("the end of every run", ended, HANG_S)
    known = _asked(programs, program)
    outcome.hours, outcome.reports = len(expected), len(shop.history())
    outcome.wrong += faults(shop.history(), expected)
    if known["count"] != len(expected) or set(known["runs"].values()) != {"SUCCESS"}:
        outcome.wrong.append(f"Dagster knows {known['count']} runs: {known['runs']}")
    if known["checks"] != [["SUCCEEDED", []]] * len(expected):
        outcome.wrong.append(f"the check of partitions said {known['checks']}")
    outcome.numbers["checks"] = len(known["checks"])


def _make_too_early(
    shop: Shop, environment: Environment, programs: Programs, outcome: Outcome
) -> None:
    """Somebody makes the partition of the hour that is not complete, by hand: the check says so."""
    early = shop.end.strftime(LAYOUT)
    command = [str(environment.home / "bin" / "dagster"), "asset", "materialize", "-f", "orders.py",
               "--select", "orders_by_hour", "--partition", early]  # fmt: skip
    _, said = programs.call("by-hand", command, HANG_S)
    newest = _asked(programs, [str(environment.python), "-c", ASKED])["checks"][:1]
    if newest != [["FAILED", [early]]]:
        outcome.wrong.append(
            f"{early} was made too early, and the check said {newest}: {said[-1_500:]}"
        )
    outcome.numbers["made too early and found"] = len(newest)


def _asked(programs: Programs, program: list[str]) -> dict[str, Any]:
    status, said = programs.call("asked", program, HANG_S)
    lines = [line for line in said.splitlines() if line.startswith("asked ")]
    if status or not lines:
        raise RunFailed(f"Dagster's instance could not be asked: {said[-1_500:]}")
    found: dict[str, Any] = json.loads(lines[-1].removeprefix("asked "))
    return found
