"""Airflow by the files of docs/schedulers.md: its connection, `airflow dags test`, then all its processes, under kills."""

from __future__ import annotations

import secrets
import shutil

from lowmark.testing import free_ports
from tests.install.environments import Environment
from tests.schedulers.airflow import following, trying
from tests.schedulers.airflow.home import Airflow
from tests.schedulers.environments import variables
from tests.schedulers.outcome import Outcome
from tests.schedulers.running import Programs
from tests.schedulers.shop import Shop
from tests.waits import HANG_S

SETTINGS = {
    "CORE__LOAD_EXAMPLES": "False", "CORE__DAGS_ARE_PAUSED_AT_CREATION": "False", "CORE__TEST_CONNECTION": "Enabled",
    "API__WORKERS": "1", "TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "6",
    "TRIGGERER__JOB_HEARTBEAT_SEC": "1", "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
    "SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "15", "SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
    "DAG_PROCESSOR__REFRESH_INTERVAL": "5", "CORE__PARALLELISM": "2", "USAGE_DATA_COLLECTION__ENABLED": "False",
}  # fmt: skip


def run(environment: Environment, shop: Shop, outcome: Outcome) -> None:
    """Each hour is one run, though the triggerer and the scheduler are killed; a sensor waits, gives up, and says who
    holds it."""
    with Programs(environment.work, _variables(environment, shop)) as programs:
        airflow = Airflow(environment, programs)
        status, said = programs.call("migrate", airflow.command("db", "migrate"), HANG_S)
        if status:
            outcome.wrong.append(f"airflow db migrate: {said[-1_000:]}")
            return
        trying.connection(shop, airflow, outcome)
        shutil.copy(airflow.database, empty := environment.work / "empty.db")
        trying.sensors(shop, airflow, outcome)
        # `dags test` leaves rows whose numbers SQLite gives to others.
        for leftover in environment.work.glob("airflow.db*"):
            leftover.unlink()
        shutil.copy(empty, airflow.database)
        shop.history_file.unlink(missing_ok=True)
        following.follow(shop, airflow, outcome)
        following.judge(shop, airflow, outcome)


def _variables(environment: Environment, shop: Shop) -> dict[str, str]:
    home = environment.work
    (port,) = free_ports(1)
    settings = SETTINGS | {
        "CORE__DAGS_FOLDER": str(home / "dags"), "API__HOST": "127.0.0.1", "API__PORT": str(port),
        "CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "API_AUTH__JWT_SECRET": secrets.token_urlsafe(32), "API__SECRET_KEY": secrets.token_urlsafe(32),
        "DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
    }  # fmt: skip
    given = {f"AIRFLOW__{name}": value for name, value in settings.items()}
    return variables(environment, shop.directory / "bin") | given | {"AIRFLOW_HOME": str(home)}
