"""Shards come and go at less than half load, each on a machine of its own: simulated, so that nothing else on
this machine shows."""

from __future__ import annotations

from typing import Any

from tests.elastic.experiments.simulated import Workload, simulate

WORK = Workload(
    12, 18, ((3.0, 2, False), (6.0, 4, False), (9.0, 3, False), (12.0, 1, True))
)  # fmt: skip
STEADY = tuple((Workload(12, 4, ((0.0, shards, False),)), shards) for shards in (2, 3, 4))


def find() -> dict[str, Any]:
    found = simulate(WORK)
    alone = simulate(Workload(12, 4, ()))["lines"]["p99"][-2][1]
    found["steady_p99_ms"] = {1: alone} | {
        shards: simulate(work)["lines"]["p99"][-2][1] for work, shards in STEADY
    }
    return found
