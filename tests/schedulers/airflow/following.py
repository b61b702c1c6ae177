"""Airflow's processes follow the shop, and some of them die: the page's two Dags, another watcher, and a sensor."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from tests.schedulers.airflow.home import PROCESSES, Airflow, changed, page
from tests.schedulers.judged import faults
from tests.schedulers.outcome import Outcome
from tests.schedulers.running import RunFailed
from tests.schedulers.shop import Shop
from tests.waits import HANG_S

LAYOUT = "%Y-%m-%dT%H:%M:%S"
CLOSE_LOOK_S = 0.02  # paces: its looks
WATCHERS = 2
SILENT_AFTER_S = 30
DAGS = ("orders_release", "orders_report", "orders_two_release")


class Kill(NamedTuple):
    """A process dies when something is counted that was not before an hour became complete; None: at once. again: the
    watcher has nothing new to report when it is back, and reports the same again."""

    process: str
    moment: str
    counted: Callable[[Airflow], int] | None = None
    again: bool = False


KILLS = (
    Kill("triggerer", "an hour is complete"),
    Kill("triggerer", "the watcher's event is stored", lambda a: a.events("orders_complete")),
    Kill(
        "triggerer",
        "the watcher's event is stored",
        lambda a: a.events("orders_complete"),
        again=True,
    ),
    # Airflow runs it again when it has found that out.
    Kill("scheduler", "a release runs", lambda a: a.running("orders_release")),
    Kill("scheduler", "an hour is released", lambda a: a.events("orders_hours")),
    Kill("api-server", "a release runs", lambda a: a.running("orders_release")),
    Kill("dag-processor", "an hour is complete"),
)


def follow(shop: Shop, airflow: Airflow, outcome: Outcome) -> None:
    """Hours become complete while processes die, each at a moment of its own; the last when all are there again:
    what were still to be repeated would be before it."""
    airflow.dag("periods", page("periods"))
    airflow.dag("two_hours", two_hours())
    for process in PROCESSES:
        airflow.start(process)
    _reported(shop, airflow)
    _one_wait_each(shop, airflow, outcome)
    for kill in KILLS:
        _die(kill, shop, airflow)
    shop.restart_tracker()
    outcome.kills += len(KILLS) + 1
    until = _sensor(shop, airflow, outcome)
    shop.complete_hour()
    _reported(shop, airflow, sensors=1)
    two = len(_two(shop.expected(LAYOUT)))
    airflow.programs.wait_for(
        "the releases of two hours", lambda: len(airflow.keys("orders_two_hours")) >= two, HANG_S
    )
    _quiet(airflow)
    _one_wait_each(shop, airflow, outcome)
    outcome.wrong += _faults_of_sensor(shop, until)


def _die(kill: Kill, shop: Shop, airflow: Airflow) -> None:
    """One hour becomes complete before it, another while the process is dead."""
    _quiet(airflow)
    count = kill.counted
    before = count(airflow) if count else 0
    shop.complete_hour()
    if count:
        airflow.programs.wait_for(
            kill.moment, lambda: count(airflow) > before, HANG_S, CLOSE_LOOK_S
        )
    airflow.programs.kill(kill.process)
    if not kill.again:
        shop.complete_hour()
    events = airflow.events("orders_complete")
    airflow.start(kill.process)
    if kill.again:
        airflow.programs.wait_for(
            "the same report", lambda: airflow.events("orders_complete") > events, HANG_S
        )
        shop.complete_hour()
    _reported(shop, airflow)


def two_hours() -> str:
    """A watcher of periods of another length, of the whole pipeline, for another asset, with its release alone."""
    return changed(
        page("periods").partition('with DAG("orders_report"')[0],
        length=('"load", every="1h"', 'every="2h"'),
        watched=('"orders_complete"', '"orders_two_complete"'),
        periods=('"orders_hours"', '"orders_two_hours"'),
        release=('"orders_release"', '"orders_two_release"'),
    )


def _reported(shop: Shop, airflow: Airflow, sensors: int = 0) -> None:
    """Waits for the reports of all hours that are complete, and of some sensors."""
    reports = len(shop.completed) + sensors
    airflow.programs.wait_for(f"{reports} reports", lambda: len(shop.history()) >= reports, HANG_S)


def _quiet(airflow: Airflow) -> None:
    """Waits until no run is under way."""

    def ended() -> bool:
        states = {state for dag in DAGS for state in airflow.states(dag)}
        return states <= {"success", "failed"}

    airflow.programs.wait_for("the end of every run", ended, HANG_S)


def _one_wait_each(shop: Shop, airflow: Airflow, outcome: Outcome) -> None:
    """Each watcher waits by one call at the tracker, once all is as it should be."""
    airflow.programs.wait_for(
        "both watchers", lambda: airflow.events("orders_two_complete") > 0, HANG_S
    )
    airflow.programs.wait_for("their waits", lambda: shop.waiting == WATCHERS, HANG_S)


def sensor() -> str:
    """The page's, started by hand, which is held soon and tried again at once."""
    return changed(
        page("sensor"),
        schedule=('schedule="0 * * * *"', "schedule=None"),
        until=('segment="load"', 'segment="load", until="{{ logical_date.isoformat() }}"'),
        report=("data_interval_end", "logical_date"),
        silence=("minutes=10", f"seconds={SILENT_AFTER_S}"),
        tries=("retries=2,", "retries=50, retry_delay=timedelta(seconds=1),"),
    )


def _sensor(shop: Shop, airflow: Airflow, outcome: Outcome) -> datetime:
    """The page's sensor waits for the second hour from now: it is held by the silent front and tried again; the
    triggerer dies while it waits, and the hour becomes complete while it is dead. Returns what it waited for."""
    until = shop.end + timedelta(hours=2)
    airflow.dag("sensor", sensor())
    programs = airflow.programs

    def known() -> bool:
        return bool(airflow.rows("SELECT 1 FROM dag WHERE dag_id = 'orders_wait'"))

    def waits() -> bool:
        state, _, by_triggerer = airflow.task("orders_wait", "complete")
        return state == "deferred" and by_triggerer

    programs.wait_for("the Dag of the sensor", known, HANG_S)
    command = airflow.command("dags", "trigger", "orders_wait", "--logical-date", until.isoformat())
    status, said = programs.call("trigger", command, HANG_S)
    if status:
        raise RunFailed(f"airflow dags trigger ended with {status}: {said[-1_500:]}")
    # Not any other try: Airflow may count one as failed whose trigger fires within moments.
    programs.wait_for("a try of the sensor that is held", lambda: _held(airflow), HANG_S)
    programs.wait_for(
        "another try of the sensor", lambda: airflow.task("orders_wait", "complete")[1] > 1, HANG_S
    )  # fmt: skip
    shop.complete_hour()  # which ends the silence for a while
    programs.wait_for("the sensor to wait", waits, HANG_S)
    programs.kill("triggerer")
    outcome.kills += 1
    shop.complete_hour()
    airflow.start("triggerer")
    _reported(shop, airflow, sensors=1)
    programs.wait_for(
        "the end of the sensor's run", lambda: set(airflow.states("orders_wait")) == {"success"}, HANG_S
    )  # fmt: skip
    outcome.numbers["tries of a sensor"] = airflow.task("orders_wait", "complete")[1]
    return until


def _held(airflow: Airflow) -> bool:
    """Whether a try of the sensor has ended because of the silent front, and said so."""
    tries = [file.read_text() for file in airflow.logs.glob("dag_id=orders_wait/**/*.log")]
    return any("HeldError" in text and "'shop' has been silent" in text for text in tries)


def _faults_of_sensor(shop: Shop, until: datetime) -> list[str]:
    """What ran behind it: once, and after its hour was complete."""
    behind = [each for each in shop.history() if each.hour.endswith("+00:00")]
    complete = {(hour + timedelta(hours=1)).isoformat(): at_ns for hour, at_ns in shop.completed}
    return faults(behind, {until.isoformat(): complete[until.isoformat()]})


def _two(hours: Iterable[str]) -> list[str]:
    """The periods of two hours that are complete, by their first hour."""
    known = sorted(hours)
    return known[: len(known) // 2 * 2 : 2]


def judge(shop: Shop, airflow: Airflow, outcome: Outcome) -> None:
    """By the reports, and by what Airflow has of its runs and events."""
    expected = shop.expected(LAYOUT)
    reports = [each for each in shop.history() if not each.hour.endswith("+00:00")]
    outcome.hours, outcome.reports = len(expected), len(reports)
    outcome.wrong += faults(reports, expected)
    for asset, wanted in (("orders_hours", sorted(expected)), ("orders_two_hours", _two(expected))):
        if airflow.keys(asset) != wanted:
            outcome.wrong.append(f"the events of {asset} are of {airflow.keys(asset)}")
    if airflow.states("orders_report") != {"success": len(expected)}:
        outcome.wrong.append(f"runs of orders_report: {airflow.states('orders_report')}")
    again = airflow.repeated("orders_complete")
    outcome.numbers["reports of the watcher that came again"] = again
    if again < 1:
        outcome.wrong.append(f"the watcher reported {again} hours again: its kills showed nothing")
