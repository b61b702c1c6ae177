"""A tracker that has more to do than it can, and gets a second shard: on this machine, where the load and the
shards share the cores."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tests.elastic.rescaling import rescaled
from tests.waits import HANG_S

INTERVAL_MS, ITEMS = 1.5, 2
PAUSE_S = 6.0


def find(root: Path) -> dict[str, Any]:
    shutil.rmtree(root / "saturated", ignore_errors=True)
    run = rescaled(
        root / "saturated", PAUSE_S, steps=((2, False),), standing_cells=0,
        interval_ms=INTERVAL_MS, items=ITEMS, finish_s=HANG_S,
    )  # fmt: skip
    assert not run.trouble, run.trouble
    wrong = [line for judged in run.judged if not judged.ok for line in judged.said]
    assert not wrong, wrong[:5]
    return {
        "lines": {
            "p50": [(window.at_s, window.p50_ms) for window in run.windows],
            "p99": [(window.at_s, window.p99_ms) for window in run.windows],
        },
        "marks": [(event["to_s"], event["what"]) for event in run.events],
    }
