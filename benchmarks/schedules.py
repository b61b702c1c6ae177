"""Random schedules in simulation without false or lost completion, as run before with `make sim`.

A million of them take a machine some hours: this adds up what `make sim` has run of just this code,
and runs none itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.figures import Bar, Budget, Figure
from tests.simulation.progress import PROGRESS, Progress, add_up, commit

MILLION = 1_000_000


def find(budget: Budget) -> Iterable[Figure]:
    total, _ = add_up(Progress(PROGRESS).done(range(1 << 62), None))
    held = 0 if total.kinds.total() else total.schedules
    yield Figure(
        "random schedules of this code, each without false or lost completion",
        (float(held),),
        "",
        f"make sim N={MILLION} runs them; {total.kinds.total()} failed; code {commit()[:12]}",
        Bar(MILLION, at_most=False),
    )
