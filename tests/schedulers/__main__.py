"""`make schedulers`: Airflow, Dagster and dbt start a report for each complete hour, under kills; each hour once.

    python -m tests.schedulers [--only airflow,dagster,dbt]

Each runs the files of docs/schedulers.md in an environment of its own under build/schedulers, with Lowmark's wheel, on
a real tracker; what it reported is judged against when each hour was complete. One whose packages can't be had is
skipped, and says why.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict

from scripts.summary import finish
from tests.install.environments import Environment, InstallFailed
from tests.schedulers import airflow_run, dagster_run, dbt_run
from tests.schedulers.environments import NotToBeHad, environment
from tests.schedulers.outcome import Outcome
from tests.schedulers.running import RunFailed

RUNS: dict[str, Callable[[Environment], Outcome]] = {
    "dagster": dagster_run.run, "dbt": dbt_run.run, "airflow": airflow_run.run,
}  # fmt: skip


def tried(name: str) -> Outcome:
    """One scheduler's run, whatever becomes of it."""
    began_s = time.monotonic()
    try:
        outcome = RUNS[name](environment(name))
    except NotToBeHad as error:
        outcome = Outcome(name, skipped=str(error))
    except (InstallFailed, RunFailed, subprocess.TimeoutExpired) as error:
        outcome = Outcome(name, wrong=[str(error)])
    outcome.seconds = round(time.monotonic() - began_s)
    return outcome


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.schedulers", description=__doc__)
    parser.add_argument("--only", default=",".join(RUNS), help="of " + ", ".join(RUNS))
    chosen = parser.parse_args(arguments).only.split(",")
    unknown = set(chosen) - RUNS.keys()
    if unknown:
        parser.error(f"no scheduler {sorted(unknown)[0]!r}; there are {', '.join(RUNS)}")
    outcomes = []
    for name in chosen:
        print(f"== {name}", flush=True)
        outcomes.append(tried(name))
        print(outcomes[-1], flush=True)
    failed = [each for each in outcomes if each.wrong]
    skipped = [each for each in outcomes if each.skipped]
    shown = {
        "schedulers": len(outcomes), "hours": sum(each.hours for each in outcomes),
        "reports": sum(each.reports for each in outcomes), "kills": sum(each.kills for each in outcomes),
        "failed": len(failed), "skipped": len(skipped),
    }  # fmt: skip
    ok = not failed and len(skipped) < len(outcomes)
    return finish("schedulers", ok=ok, shown=shown, details={"runs": [asdict(o) for o in outcomes]})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
