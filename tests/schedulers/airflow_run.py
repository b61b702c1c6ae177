"""Airflow by the files of docs/schedulers.md: `airflow dags test`, then all its processes, the triggerer killed."""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
from datetime import datetime

import lowmark
from tests.docs.pages import ROOT, blocks
from tests.install.environments import Environment
from tests.schedulers.judged import faults
from tests.schedulers.outcome import Outcome
from tests.schedulers.running import Programs
from tests.schedulers.shop import Shop, open_shop

HOURS, KILLED_AT = 7, (2, 5)
LAYOUT = "%Y-%m-%dT%H:%M:%S"
MIGRATE_S, TEST_S, START_S, REPORT_S = 600.0, 600.0, 600.0, 600.0
"""Upper bounds, for a machine that has much else to do."""
SETTINGS = {
    "CORE__LOAD_EXAMPLES": "False", "CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
    "API__WORKERS": "1", "TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "6",
    "TRIGGERER__JOB_HEARTBEAT_SEC": "1", "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
    "DAG_PROCESSOR__REFRESH_INTERVAL": "5", "CORE__PARALLELISM": "2", "USAGE_DATA_COLLECTION__ENABLED": "False",
}  # fmt: skip
PROCESSES = {
    "api-server": (), "dag-processor": (), "scheduler": ("--skip-serve-logs",), "triggerer": ("--skip-serve-logs",),
}  # fmt: skip
"""With what each is started: nothing listens but on the loopback address."""
EVENTS = (
    "SELECT partition_key FROM asset_event JOIN asset ON asset.id = asset_id WHERE asset.name = ?"
)
STATES = "SELECT state, count(*) FROM dag_run WHERE dag_id = 'orders_report' GROUP BY state"


def run(environment: Environment) -> Outcome:
    """Each hour is one run, though the triggerer is killed twice; a sensor waits, gives up, and says who holds it."""
    outcome = Outcome("airflow")
    with (
        open_shop(environment.work) as shop,
        Programs(environment.work, _variables(environment, shop)) as programs,
    ):
        airflow = str(environment.home / "bin" / "airflow")
        _write(environment, "sensor")
        status, said = programs.call("migrate", [airflow, "db", "migrate"], MIGRATE_S)
        if status:
            outcome.wrong.append(f"airflow db migrate: {said[-1_000:]}")
            return outcome
        database = environment.work / "airflow.db"
        shutil.copy(database, empty := environment.work / "empty.db")
        _sensors(shop, programs, airflow, outcome)
        # `dags test` leaves rows whose numbers SQLite gives to others.
        for leftover in environment.work.glob("airflow.db*"):
            leftover.unlink()
        shutil.copy(empty, database)
        shop.history_file.unlink(missing_ok=True)
        (environment.work / "dags" / "sensor.py").unlink()
        _write(environment, "periods")
        _follow(shop, environment, programs, airflow, outcome)
        _judge(shop, environment, outcome)
    return outcome


def _variables(environment: Environment, shop: Shop) -> dict[str, str]:
    home = environment.work
    (port,) = lowmark.free_ports(1)
    host, _, tracker_port = shop.target.rpartition(":")
    settings = SETTINGS | {
        "CORE__DAGS_FOLDER": str(home / "dags"), "API__HOST": "127.0.0.1", "API__PORT": str(port),
        "CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "API_AUTH__JWT_SECRET": secrets.token_urlsafe(32), "API__SECRET_KEY": secrets.token_urlsafe(32),
        "DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
    }  # fmt: skip
    return (
        environment.variables
        | {f"AIRFLOW__{name}": value for name, value in settings.items()}
        | {
            "AIRFLOW_HOME": str(home),
            "AIRFLOW_CONN_LOWMARK_DEFAULT": f"lowmark://{host}:{tracker_port}",
            "PATH": os.pathsep.join((str(shop.directory / "bin"), environment.variables["PATH"])),
        }
    )


def _write(environment: Environment, name: str) -> None:
    """A Dag file of the page."""
    (file,) = [
        b.text
        for b in blocks(ROOT / "docs" / "schedulers.md")
        if b.info == f"python airflow {name}"
    ]
    dags = environment.work / "dags"
    dags.mkdir(exist_ok=True)
    (dags / f"{name}.py").write_text(file)


def _sensors(shop: Shop, programs: Programs, airflow: str, outcome: Outcome) -> None:
    """The page's sensor: done where its hour is complete; held by the front that is silent; out of time."""
    file = shop.directory / "dags" / "sensor.py"
    page = file.read_text()
    shop.complete_hour()
    shop.complete_hour()
    first, second = (hour for hour, _ in shop.completed)
    far = datetime(2030, 1, 1, tzinfo=first.tzinfo)
    cases = (
        ("reached", second, page, "'outcome': 'reached'"),
        ("held", far, page.replace("timedelta(minutes=10)", "timedelta(seconds=1)"), "'shop' has been silent"),
        ("timed-out", far, page.replace("timeout=3_000", "timeout=2"), "was not complete within 2 s"),
    )  # fmt: skip
    for name, until, text, reason in cases:
        file.write_text(text.replace("retries=2", "retries=0"))
        command = [airflow, "dags", "test", "orders_wait", until.isoformat()]
        _, said = programs.call(f"sensor-{name}", command, TEST_S)
        if reason not in said:
            outcome.wrong.append(
                f"the sensor that is {name} did not say {reason!r}: {said[-1_500:]}"
            )
    reported = [each.hour for each in shop.history()]
    if reported != [second.isoformat()]:
        outcome.wrong.append(
            f"behind the sensors ran {reported}, instead of {second.isoformat()} alone"
        )
    outcome.numbers["sensors"] = len(cases)


def _follow(
    shop: Shop, environment: Environment, programs: Programs, airflow: str, outcome: Outcome
) -> None:
    """Hours become complete; the triggerer dies right behind some of them, while another one does."""
    for name, options in PROCESSES.items():
        programs.start(name, [airflow, name, *options])
    programs.wait_for("the first hours", lambda: len(shop.history()) >= 2, START_S)
    while len(shop.completed) < HOURS:
        shop.complete_hour()
        if len(shop.completed) - 1 in KILLED_AT:
            programs.kill("triggerer")
            outcome.kills += 1
            shop.complete_hour()
            programs.start("triggerer", [airflow, "triggerer", *PROCESSES["triggerer"]])
        done = len(shop.completed)
        programs.wait_for(f"{done} hours", lambda: len(shop.history()) >= done, REPORT_S)  # noqa: B023
    programs.wait_for(
        "every run to end", lambda: set(_states(environment)) == {"success"}, REPORT_S
    )


def _rows(environment: Environment, statement: str, *given: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(f"file:{environment.work / 'airflow.db'}?mode=ro", uri=True)
    try:
        return connection.execute(statement, given).fetchall()
    finally:
        connection.close()


def _states(environment: Environment) -> dict[str, object]:
    return {str(state): count for state, count in _rows(environment, STATES)}


def _judge(shop: Shop, environment: Environment, outcome: Outcome) -> None:
    expected = shop.expected(LAYOUT)
    outcome.hours, outcome.reports = len(expected), len(shop.history())
    outcome.wrong += faults(shop.history(), expected)
    keys = sorted(str(key) for (key,) in _rows(environment, EVENTS, "orders_hours"))
    if keys != sorted(expected):
        outcome.wrong.append(f"the events of orders_hours are of {keys}")
    if _states(environment) != {"success": len(expected)}:
        outcome.wrong.append(f"runs of orders_report: {_states(environment)}")
    outcome.numbers["reports by the watcher"] = len(_rows(environment, EVENTS, "orders_complete"))
