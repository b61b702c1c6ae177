"""Notification latency while shards are added and removed under load, against trackers that stay as they are.

`make elastic` makes the same rounds, and more of what it is to show; here they are made for the bar alone.
What was said in them is judged as it is there, and a wrong word is no figure.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from benchmarks.bars import BARS
from benchmarks.figures import Budget, Figure
from benchmarks.scratch import scratch
from tests.elastic.rescaling import Round


def find(budget: Budget) -> Iterable[Figure]:
    """Raises AssertionError where a run did not come to its end, or something said in it was wrong."""
    rounds = []
    # In memory: on a disk, all shards of one machine would wait for each other's writes.
    with scratch() as directory:
        for _ in range(budget.pick(1, 1, 3)):
            rounds.append(Round.made(Path(directory)))
            for what, run in rounds[-1].runs.items():
                assert not run.trouble, f"{what}: {run.trouble}"
                for judged in run.judged:
                    assert judged.ok, f"{what}: {judged.said}"
    yield Figure(
        "worst p99 of a second while shards come and go / p99 of a control run",
        tuple(max(each.ratios) for each in rounds),
        "",
        "1, 2, 4, 3, 1 shards; the control with as many processes as there were in that second; the worst "
        f"second of the controls themselves: {max(each.worst_steady_ratio for each in rounds):.2f}",
        BARS["latency while shards come and go"],
    )
