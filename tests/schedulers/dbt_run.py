"""dbt with DuckDB by the files of docs/schedulers.md: an hour a batch, killed while it is waited for and in dbt."""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.docs.pages import ROOT, blocks
from tests.install.environments import Environment
from tests.schedulers.airflow.home import changed
from tests.schedulers.environments import variables
from tests.schedulers.judged import Reported, faults
from tests.schedulers.outcome import Outcome
from tests.schedulers.running import Programs, RunFailed
from tests.schedulers.shop import BEGIN, ORDERS_AN_HOUR, SPEC, Shop
from tests.waits import HANG_S

HOURS = 5
KILLED_AT = {1: "START batch", 2: "OK created", 3: ""}
"""By hour, what dbt says just before it is killed: it has begun with the batch, or has stored it; it is waited for."""
LAYOUT = "%Y-%m-%dT%H:%M:%S"
CLOSE_LOOK_S = 0.01  # paces: its looks
PROJECT = "name: orders\nversion: '1.0'\nprofile: orders\nmodel-paths: [models]\nflags: {send_anonymous_usage_stats: false}\n"
PROFILE = "orders:\n  target: here\n  outputs:\n    here: {type: duckdb, path: orders.duckdb, threads: 1}\n"
ASKED = """
import duckdb, json
rows = duckdb.connect("orders.duckdb", read_only=True).execute(
    "select strftime(hour, '%Y-%m-%dT%H:%M:%S'), orders from orders_by_hour order by 1").fetchall()
print("asked", json.dumps(rows))
"""


def run(environment: Environment, shop: Shop, outcome: Outcome) -> None:
    """Each hour's orders are counted once and whole, whoever is killed."""
    lowmark = shop.directory / "bin" / "lowmark"
    lowmark.write_text(f"#!/bin/sh\nexec '{sys.executable}' -m tracker.cli \"$@\"\n")
    lowmark.chmod(0o755)
    of_programs = variables(environment, lowmark.parent) | {
        "LOWMARK_TARGET": shop.target, "DBT_PROFILES_DIR": str(environment.work),
    }  # fmt: skip
    _write_files(environment.work)
    with Programs(environment.work, of_programs) as programs:
        began = [_hour(shop, programs, number, outcome) for number in range(HOURS)]
        began += _follow(shop, programs, outcome)
        _judge(shop, environment, programs, began, outcome)


def _write_files(directory: Path) -> None:
    shown = {b.info: b.text for b in blocks(ROOT / "docs" / "schedulers.md")}
    (directory / "models").mkdir()
    (directory / "orders").mkdir()
    (directory / "models" / "orders_by_hour.sql").write_text(shown["sql dbt model"])
    (directory / "models" / "sources.yml").write_text("version: 2\n" + shown["yaml dbt sources"])
    (directory / "orders-by-hour.sh").write_text(shown["sh dbt"])
    (directory / "orders_by_hour.py").write_text(
        changed(
            shown["python dbt"],
            since=("record)", "record, since=int(sys.argv[1]))"),
            sys=("import os", "import os, sys"),
        )
    )
    (directory / "dbt_project.yml").write_text(PROJECT)
    (directory / "profiles.yml").write_text(PROFILE)


def _hour(shop: Shop, programs: Programs, number: int, outcome: Outcome) -> int:
    """The page's script waits for an hour; its rows come in, it is complete, and dbt counts them. Returns when dbt
    began with what is there now, in nanoseconds since 1970."""
    until = (BEGIN + timedelta(hours=number + 1)).strftime(LAYOUT)
    script = ["sh", "orders-by-hour.sh", until]
    name = f"hour-{number}"
    programs.start(name, script)
    programs.wait_for("its wait", lambda: shop.waiting > 0, HANG_S)
    _orders_come_in(shop, number)
    said = KILLED_AT.get(number)
    if said != "":
        shop.complete_hour()
    if said is not None:
        programs.wait_for(repr(said), lambda: said in programs.tail(name), HANG_S, CLOSE_LOOK_S)
        programs.kill(name)
        outcome.kills += 1
        name = f"{name}-again"
        programs.start(name, script)
    if said == "":
        shop.restart_tracker()
        outcome.kills += 1
        shop.complete_hour()
    status = programs.ended(name, HANG_S)
    if status:
        raise RunFailed(f"{name} ended with {status}: {programs.tail(name)}")
    return _began(programs)


def _began(programs: Programs) -> int:
    """When dbt began with its last run, in nanoseconds since 1970."""
    results = json.loads((programs.directory / "target" / "run_results.json").read_text())
    began = datetime.fromisoformat(results["metadata"]["invocation_started_at"]).replace(tzinfo=UTC)
    return (began - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1_000


def _follow(shop: Shop, programs: Programs, outcome: Outcome) -> list[int]:
    """The page's program leaves out no hour: it dies when dbt has stored one, before it has recorded that, and
    another hour is complete before it is back. Returns when dbt began with the last of them, for each."""
    begin = int(shop.end.timestamp())
    record = programs.directory / "orders-by-hour.json"

    def position() -> int:
        return int(json.loads(record.read_text())["next"])

    for name in ("follow", "follow-again"):
        _orders_come_in(shop, len(shop.completed))
        shop.complete_hour()
        programs.start(name, [sys.executable, "orders_by_hour.py", str(begin)])
        if name == "follow":
            programs.wait_for(
                "the hour in dbt", lambda: "OK created" in programs.tail("follow"), HANG_S, CLOSE_LOOK_S
            )  # fmt: skip
        else:
            programs.wait_for("both hours", lambda: position() == begin + 2 * 3_600, HANG_S)
        programs.kill(name)
        outcome.kills += name == "follow"
        if name == "follow" and position() != begin:
            outcome.wrong.append("the kill came behind the record: nothing was shown")
    return [_began(programs)] * 2


def _orders_come_in(shop: Shop, number: int) -> None:
    """As rows of a file, before they are processed."""
    begin = SPEC.start_slot + 3_600 * number
    rows = [f"{begin + 60 * n}" for n in range(ORDERS_AN_HOUR)]
    moments = "".join(time.strftime("%Y-%m-%d %H:%M:%S\n", time.gmtime(int(row))) for row in rows)
    (shop.directory / "orders" / f"{number}.csv").write_text("ordered_at\n" + moments)


def _judge(
    shop: Shop, environment: Environment, programs: Programs, began: list[int], outcome: Outcome
) -> None:
    """Each row of the table is a report: of when dbt began with its hour."""
    status, said = programs.call("asked", [str(environment.python), "-c", ASKED], HANG_S)
    if status:
        raise RunFailed(f"DuckDB could not be asked: {said}")
    rows = json.loads(said.splitlines()[-1].removeprefix("asked "))
    expected = shop.expected(LAYOUT)
    at_ns = dict(zip(expected, began, strict=True))
    outcome.hours, outcome.reports = len(expected), len(rows)
    outcome.wrong += faults([Reported(at_ns.get(hour, 0), hour) for hour, _ in rows], expected)
    outcome.wrong += [f"{hour} has {n} orders" for hour, n in rows if n != ORDERS_AN_HOUR]
