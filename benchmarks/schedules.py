"""Random schedules in simulation without false or lost completion, as run before with `make sim`.

A million of them take a machine hours: this runs none itself. It counts what `make sim` has run of just this
code, here or as it is kept beside the code. Counted are the schedules in which nothing failed.
"""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.bars import BARS
from benchmarks.figures import Budget, Figure
from scripts.check.record import commit
from tests.simulation.progress import Progress, add_up

MILLION = 1_000_000


def find(budget: Budget) -> Iterable[Figure]:
    total, _ = add_up(Progress().done(range(1 << 62), None))
    run, failed = total.schedules, total.kinds.total()
    yield Figure(
        "random schedules without false or lost completion, or any other failure",
        (float(run - failed),),
        "",
        f"make sim N={MILLION} runs them; {run:,} were run, {failed} failed; code {commit()}",
        BARS["schedules"],
        exact=True,
    )
