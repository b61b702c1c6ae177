"""Where the time of a newcomer goes, by how much the tracker that it joins has to tell it: by what its own
log says, and when the others count it.

It is told no cells, which stay where they are; but every pipeline, with its graph, its fronts, its nodes and
its min times. So it is pipelines that are varied, and cells are open in one of them all along.
"""

from __future__ import annotations

import itertools
import shutil
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.restart_time import fill
from tests.cluster.children import Running
from tests.elastic.fleet import Fleet
from tests.waits import HANG_S
from tracker.client import NodeClient
from tracker.core.model import Edge, PipelineSpec

PIPELINES = (1, 100, 300, 900)
SEGMENTS = tuple(f"segment-{number}" for number in range(10))
OPEN_CELLS, PER_TICK = 100_000, 20_000
PHASES = (
    ("interpreter, imports, a number", "joins"),
    ("a peer's state", "has_state"),
    ("making it durable, reading it", "recovered"),
    ("entries since, counted by all", ""),
)
"""What ends with each event of its log; the last when the others say so."""


def find(root: Path) -> dict[str, Any]:
    lines: dict[str, list[tuple[float, float]]] = {name: [] for name, _ in PHASES}
    for pipelines in PIPELINES:
        shutil.rmtree(root / "bootstrap", ignore_errors=True)
        for name, seconds in _phases(root / "bootstrap", pipelines).items():
            lines[name].append((float(pipelines), seconds))
    return {"lines": lines}


def _phases(directory: Path, pipelines: int) -> dict[str, float]:
    with Fleet(directory, 1) as fleet:
        with fleet.admin() as admin:
            for number in range(pipelines):
                admin.register(
                    PipelineSpec(
                        f"pipeline-{number}", SEGMENTS,
                        tuple(Edge(one, other) for one, other in itertools.pairwise(SEGMENTS)),
                        open=True, horizon_slots=2**40,
                    )
                )  # fmt: skip
        with NodeClient(fleet.target, "pipeline-0", "filler") as node:
            node.join(HANG_S)
            fill(node, 1, OPEN_CELLS, PER_TICK)
        began = time.time()
        newcomer = fleet.join()
        counted = time.time()
        moments = _moments(newcomer)
    found, before = {}, began
    for name, event in PHASES:
        at = moments[event] if event else counted
        found[name], before = max(0.0, at - before), max(at, before)
    return found


def _moments(process: Running) -> dict[str, float]:
    """When its log has said what first."""
    found: dict[str, float] = {}
    for said in process.events():
        moment = datetime.fromisoformat(said["timestamp"].replace("Z", "+00:00"))
        found.setdefault(said["event"], moment.timestamp())
    return found
