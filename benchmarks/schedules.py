"""Random schedules in simulation without false or lost completion, as run before with `make sim`.

A million of them take a machine hours: this runs none itself. It counts what `make sim` has run of just
this code. If that is less than what `recorded_schedules.json` beside this file tells, that counts instead:
longer runs, each with its commit, its seeds, what failed in it, and what has changed since then of the code
that is simulated. Counted are the schedules in which nothing failed.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

from benchmarks.bars import BARS
from benchmarks.figures import Budget, Figure
from scripts.summary import ROOT
from tests.simulation.progress import PROGRESS, SIMULATED, Progress, add_up
from tests.simulation.progress import commit as now

MILLION = 1_000_000
RECORDED = Path(__file__).with_name("recorded_schedules.json")


def find(budget: Budget) -> Iterable[Figure]:
    total, _ = add_up(Progress(PROGRESS).done(range(1 << 62), None))
    run, failed = total.schedules, total.kinds.total()
    of = f"code {now()[:12]}"
    recorded = json.loads(RECORDED.read_text())
    recorded_run = sum(each["schedules"] for each in recorded)
    if recorded_run > run:
        run = recorded_run
        failed = sum(sum(each["kinds"].values()) for each in recorded)
        of = "; ".join(
            f"seeds {each['seeds']} of {each['commit'][:12]}, {_changed_since(each['commit'])}"
            for each in recorded
        )
    yield Figure(
        "random schedules without false or lost completion, or any other failure",
        (float(run - failed),),
        "",
        f"make sim N={MILLION} runs them; {run:,} were run, {failed} failed; {of}",
        BARS["schedules"],
        exact=True,
    )


def _changed_since(commit: str) -> str:
    """How many files of what is simulated differ from a commit's."""
    command = ["git", "diff", "--name-only", commit.rstrip("+"), "--", *SIMULATED]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if said.returncode or commit.endswith("+"):
        return "which is not at hand: nobody can say what has changed since"
    changed = len(said.stdout.split())
    return f"{changed or 'none'} of the simulated files changed up to {now()[:12]}"
