"""Notification latency while shards are added and removed under load, against trackers that stay as they are.

`make elastic` makes the same rounds, and more of what it is to show; here they are made for the bar alone.
What was said in them is judged as it is there, and a wrong word is no figure. A bar that the rounds cannot show to be met is
not met.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from benchmarks.bars import BARS
from benchmarks.figures import Budget, Figure
from benchmarks.pairs import Verdict
from benchmarks.scratch import scratch
from tests.elastic.rescaling import rounds_made
from tests.elastic.verdicts import verdict

BAR = BARS["latency while shards come and go"]


def find(budget: Budget) -> Iterable[Figure]:
    """Raises AssertionError where a run did not come to its end, or something said in it was wrong."""
    bounds = []
    # In memory: on a disk, all shards of one machine would wait for each other's writes.
    with scratch() as directory:
        for made in rounds_made(Path(directory), BAR):
            for what, run in made.runs.items():
                assert not run.trouble, f"{what}: {run.trouble}"
                for each in run.judged:
                    assert each.ok, f"{what}: {each.said}"
            bounds.append(made.bounds)
    judged = verdict(bounds, BAR)
    untold = "; ".join(filter(None, (each.why_untold(BAR) for each in bounds)))
    yield Figure(
        "worst p99 of a second while shards come and go / steady p99 of controls before and after",
        tuple(each.worst_ratio for each in bounds),
        "",
        "1, 2, 4, 3, 1 shards; the controls with as many processes as there were in that second; their own "
        f"worst second: {max(each.worst_steady_ratio for each in bounds):.2f}"
        + (f"; cannot be judged where {untold}" if untold else ""),
        BAR,
        judged=Verdict.NOT_MET if judged is Verdict.CANNOT_TELL else judged,
    )
