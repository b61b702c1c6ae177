"""Random schedules in simulation without false or lost completion, as run before with `make sim`.

A million of them take a machine hours: this runs none itself. It counts what `make sim` has run of just
this code. If that is less than what `recorded_schedules.json` beside this file tells, the `build/sim.json` of
a longer run of some commit, that counts instead, with the commit, and with what has changed since then of
the code that is simulated.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

from benchmarks.figures import Bar, Budget, Figure
from scripts.summary import ROOT
from tests.simulation.progress import PROGRESS, SIMULATED, Progress, add_up, commit

MILLION = 1_000_000
RECORDED = Path(__file__).with_name("recorded_schedules.json")


def find(budget: Budget) -> Iterable[Figure]:
    total, _ = add_up(Progress(PROGRESS).done(range(1 << 62), None))
    held, failed = total.schedules, total.kinds.total()
    code = f"code {commit()[:12]}"
    if RECORDED.exists():
        recorded = json.loads(RECORDED.read_text())
        if recorded["schedules"] > held and recorded["fault"] is None:
            held, failed = recorded["schedules"], sum(recorded["kinds"].values())
            code = f"code {recorded['commit'][:12]}, {_changed_since(recorded['commit'])}"
    yield Figure(
        "random schedules, each without false or lost completion",
        (float(0 if failed else held),),
        "",
        f"make sim N={MILLION} runs them; {failed} failed; {code}",
        Bar(MILLION, at_most=False),
    )


def _changed_since(commit: str) -> str:
    """How many files of what is simulated differ from a commit's."""
    command = ["git", "diff", "--name-only", commit.rstrip("+"), "--", *SIMULATED]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if said.returncode or commit.endswith("+"):
        return "which is not at hand: nobody can say what has changed since"
    changed = len(said.stdout.split())
    return f"{changed or 'none'} of the simulated files changed since"
