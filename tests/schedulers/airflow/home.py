"""An Airflow of one environment: its commands, its Dag files, and what its database says."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

from tests.docs.pages import ROOT, blocks
from tests.install.environments import Environment
from tests.schedulers.running import Programs
from tests.waits import HANG_S

PROCESSES: dict[str, tuple[str, ...]] = {
    "api-server": (), "dag-processor": (), "scheduler": ("--skip-serve-logs",), "triggerer": ("--skip-serve-logs",),
}  # fmt: skip
"""With what each is started: nothing listens but on the loopback address."""
EVENTS = "SELECT {} FROM asset_event JOIN asset ON asset.id = asset_id WHERE asset.name = ?"


class Airflow:
    """Its programs run by themselves; the database is only read here."""

    def __init__(self, environment: Environment, programs: Programs) -> None:
        self.programs = programs
        self.database = environment.work / "airflow.db"
        self.logs = environment.work / "logs"
        self._program = str(environment.home / "bin" / "airflow")
        self._dags = environment.work / "dags"
        self._dags.mkdir()

    def command(self, *words: str) -> list[str]:
        """`airflow` with some words."""
        return [self._program, *words]

    def start(self, process: str) -> None:
        """Starts one of PROCESSES."""
        self.programs.start(process, self.command(process, *PROCESSES[process]))

    def dag(self, name: str, text: str) -> Path:
        """Writes a Dag file."""
        file = self._dags / f"{name}.py"
        file.write_text(text)
        return file

    def rows(self, statement: str, *given: str) -> list[tuple[Any, ...]]:
        """What the database says."""
        connection = sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=HANG_S)
        try:
            return connection.execute(statement, given).fetchall()
        finally:
            connection.close()

    def events(self, asset: str) -> int:
        """How many an asset has."""
        return len(self.rows(EVENTS.format("1"), asset))

    def repeated(self, asset: str) -> int:
        """How many events of an asset's watcher report a period that another one has reported."""
        extras = [
            json.loads(extra) for (extra,) in self.rows(EVENTS.format("asset_event.extra"), asset)
        ]
        keys = [extra["payload"]["key"] for extra in extras]
        return len(keys) - len(set(keys))

    def keys(self, asset: str) -> list[str]:
        """The partition keys of an asset's events, sorted."""
        return sorted(str(key) for (key,) in self.rows(EVENTS.format("partition_key"), asset))

    def states(self, dag: str) -> dict[str, int]:
        """How many runs of a Dag are in each state."""
        counted = "SELECT state, count(*) FROM dag_run WHERE dag_id = ? GROUP BY state"
        return {str(state): count for state, count in self.rows(counted, dag)}

    def running(self, dag: str) -> int:
        """How many tasks of a Dag run."""
        counted = "SELECT count(*) FROM task_instance WHERE dag_id = ? AND state = 'running'"
        return int(self.rows(counted, dag)[0][0])

    def task(self, dag: str, task: str) -> tuple[str, int, bool]:
        """Of the only run of a Dag: a task's state, the number of its try, and whether a triggerer has its trigger."""
        found = self.rows(
            "SELECT task_instance.state, try_number, triggerer_id IS NOT NULL FROM task_instance "
            "LEFT JOIN trigger ON trigger.id = trigger_id WHERE dag_id = ? AND task_id = ?", dag, task,
        )  # fmt: skip
        state, number, held = found[0] if found else ("none", 0, False)
        return str(state), int(number), bool(held)


def page(name: str) -> str:
    """A Dag file of docs/schedulers.md."""
    (file,) = [
        b.text
        for b in blocks(ROOT / "docs" / "schedulers.md")
        if b.info == f"python airflow {name}"
    ]
    return file


def changed(text: str, **changes: tuple[str, str]) -> str:
    """A text with something else in place of what it has; what is to be replaced must be there."""
    for what, (old, new) in changes.items():
        assert old in text, f"the page has no {old!r} any more: {what}"
        text = text.replace(old, new)
    return text


def line(begin: str) -> str:
    """The command of the page that begins so."""
    shown = [b.text for b in blocks(ROOT / "docs" / "schedulers.md") if b.info == "sh"]
    (found,) = [each for text in shown for each in text.splitlines() if each.startswith(begin)]
    return found
