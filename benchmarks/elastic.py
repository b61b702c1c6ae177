"""Notification latency while shards are added and removed, as measured before with `make elastic`.

That takes its own quarter of an hour: this runs none of it, and puts the last run's figure beside the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from benchmarks.figures import Bar, Budget, Figure
from scripts.summary import BUILD

MEASURED = BUILD / "elastic.json"


def find(budget: Budget) -> Iterable[Figure]:
    """Raises FileNotFoundError where nothing has been measured: the bar is neither met nor missed."""
    if not MEASURED.exists():
        raise FileNotFoundError(f"{MEASURED} is not there; make elastic writes it")
    measured = json.loads(MEASURED.read_text())
    rounds = measured["rescaling"]
    began, load = measured["machine"]["began"], measured["machine"]["load_average"][0]
    yield Figure(
        "worst p99 of a second while shards come and go / p99 of a control run",
        tuple(each["worst_ratio"] for each in rounds),
        "",
        f"make elastic of {began}, load average {load}; the worst second of the controls themselves: "
        f"{max(each['worst_steady_ratio'] for each in rounds):.2f}",
        Bar(2.0),
    )
