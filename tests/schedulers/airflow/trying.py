"""What Airflow's own commands say of Lowmark's connection and sensor, without its processes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime

from tests.schedulers.airflow.home import Airflow, changed, line, page
from tests.schedulers.outcome import Outcome
from tests.schedulers.shop import Shop
from tests.waits import HANG_S

CONNECTION = "AIRFLOW_CONN_LOWMARK_DEFAULT"
FAR = datetime(2030, 1, 1, tzinfo=UTC)


def connection(shop: Shop, airflow: Airflow, outcome: Outcome) -> None:
    """The page's command adds the connection; Airflow lists the package and its connection type, and its test of
    the connection reaches the tracker."""
    host, _, port = shop.target.rpartition(":")
    adding = changed(line("airflow connections add"), host=("127.0.0.1", host), port=("7070", port))
    asked: dict[str, tuple[Sequence[str], Sequence[str]]] = {
        "added": (shlex.split(adding)[1:], ("Successfully added `conn_id`=lowmark_default",)),
        "provider": (("providers", "list", "-o", "json"), ('"package_name": "lowmark"', "has been completely processed")),
        "hook": (
            ("providers", "hooks", "-o", "json"),
            ('"connection_type": "lowmark"', "lowmark.airflow.hooks.LowmarkHook", '"hook_name": "Lowmark"'),
        ),
        "connection": (("connections", "test", "lowmark_default"), ("Connection success!",)),
    }  # fmt: skip
    for name, (words, wanted) in asked.items():
        status, said = airflow.programs.call(name, airflow.command(*words), HANG_S)
        on_one_line = " ".join(said.split())
        outcome.wrong += [
            f"airflow {' '.join(words)} ended with {status} and did not say {text!r}: {said[-1_500:]}"
            for text in wanted
            if status or text not in on_one_line
        ]


def sensors(shop: Shop, airflow: Airflow, outcome: Outcome) -> None:
    """The page's sensor by `airflow dags test`: done where its hour is complete; held by the front that is silent;
    out of time. Its trigger runs in the command's own process, which knows the connections of the environment alone."""
    airflow.programs.variables[CONNECTION] = f"lowmark://{shop.target}"
    once = changed(page("sensor"), tries=("retries=2", "retries=0"))
    shop.complete_hour()
    shop.complete_hour()
    first = shop.completed[1][0]  # where the first hour ends
    cases = {
        "reached": (first, once, "state=success, run_type="),
        "held": (FAR, changed(once, silence=("minutes=10", "seconds=1")), "'shop' has been silent"),
        "timed-out": (FAR, changed(once, time=("timeout=3_000", "timeout=2")), "was not complete within 2 s"),
    }  # fmt: skip
    for name, (until, text, reason) in cases.items():
        file = airflow.dag("sensor", text)
        command = airflow.command("dags", "test", "orders_wait", until.isoformat())
        _, said = airflow.programs.call(f"sensor-{name}", command, HANG_S)
        if reason not in said:
            outcome.wrong.append(
                f"the sensor that is {name} did not say {reason!r}: {said[-1_500:]}"
            )
        file.unlink()
    del airflow.programs.variables[CONNECTION]
    reported = [each.hour for each in shop.history()]
    if reported != [first.isoformat()]:
        outcome.wrong.append(
            f"behind the sensors ran {reported}, instead of {first.isoformat()} alone"
        )
    outcome.numbers["sensors tested"] = len(cases)
