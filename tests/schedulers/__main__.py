"""`make schedulers`: Airflow, Dagster and dbt start a report for each complete hour, under kills; each hour once.

    python -m tests.schedulers [--only airflow,dagster,dbt] [--sabotage early]

Each runs the files of docs/schedulers.md in an environment of its own under build/schedulers, with Lowmark's wheel, on
a real tracker; what it reported is judged against when each hour was complete. One whose packages can't be had is
skipped, and says why. With the sabotage the pipeline does not track its orders, and each scheduler must fail.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict

from scripts.summary import finish
from tests.install.environments import Environment
from tests.schedulers import airflow_run, dagster_run, dbt_run
from tests.schedulers.environments import NotToBeHad, environment
from tests.schedulers.outcome import Outcome
from tests.schedulers.shop import Shop, open_shop

RUNS: dict[str, Callable[[Environment, Shop, Outcome], None]] = {
    "dagster": dagster_run.run, "dbt": dbt_run.run, "airflow": airflow_run.run,
}  # fmt: skip


def tried(name: str, *, tracked: bool) -> Outcome:
    """One scheduler's run, whatever becomes of it."""
    began_s = time.monotonic()
    outcome = Outcome(name)
    try:
        made = environment(name)
        outcome.install_seconds = round(time.monotonic() - began_s)
        with open_shop(made.work, tracked=tracked) as shop:
            RUNS[name](made, shop, outcome)
    except NotToBeHad as error:
        outcome.skipped = str(error)
    except Exception as error:  # the others are tried all the same
        outcome.broken = f"{type(error).__name__}: {error}"
    outcome.seconds = round(time.monotonic() - began_s)
    return outcome


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended
    parser = argparse.ArgumentParser(prog="python -m tests.schedulers", description=__doc__)
    parser.add_argument("--only", default=",".join(RUNS), help="of " + ", ".join(RUNS))
    parser.add_argument("--sabotage", choices=["early"], help="orders are not tracked")
    options = parser.parse_args(arguments)
    chosen = options.only.split(",")
    unknown = set(chosen) - RUNS.keys()
    if unknown:
        parser.error(f"no scheduler {sorted(unknown)[0]!r}; there are {', '.join(RUNS)}")
    outcomes = []
    for name in chosen:
        print(f"== {name}", flush=True)
        outcomes.append(tried(name, tracked=not options.sabotage))
        print(outcomes[-1], flush=True)
    failed = [each for each in outcomes if each.wrong or each.broken]
    skipped = [each for each in outcomes if each.skipped]
    shown = {
        "schedulers": len(outcomes), "hours": sum(each.hours for each in outcomes),
        "reports": sum(each.reports for each in outcomes), "kills": sum(each.kills for each in outcomes),
        "failed": len(failed), "wrong": sum(len(each.wrong) for each in outcomes), "skipped": len(skipped),
        "seconds": sum(each.seconds for each in outcomes),
    }  # fmt: skip
    ok = not failed and len(skipped) < len(outcomes)
    missing = "" if ok or failed else skipped[0].skipped
    details = {"runs": [asdict(outcome) for outcome in outcomes]}
    return finish("schedulers", ok=ok, shown=shown, details=details, skipped=missing)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
