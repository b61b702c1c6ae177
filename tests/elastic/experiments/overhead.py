"""What it costs to be elastic while nothing changes: a tracker that has had other numbers of shards, and so
has a table of several entries, beside one that was started as it is; by turns."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tests.elastic.rescaling import Run, control, grown

SHARDS = 2
STEPS = (2, 3, 2)
SECONDS = 10.0
ROUNDS = 2


def find(root: Path) -> dict[str, Any]:
    runs: dict[str, list[Run]] = {"fixed": [], "elastic": []}
    for _ in range(ROUNDS):
        for name, done in runs.items():
            shutil.rmtree(root / "overhead", ignore_errors=True)
            if name == "fixed":
                run = control(root / "overhead", SHARDS, SECONDS)
            else:
                run = grown(root / "overhead", STEPS, SECONDS)
            assert not run.trouble, run.trouble
            done.append(run)
    lines = {
        f"{name}, {what}": [
            (turn * SECONDS + window.at_s, value)
            for turn, run in enumerate(each)
            for window in run.windows
            for value in (window.p50_ms if what == "p50" else window.p99_ms,)
        ]
        for name, each in runs.items()
        for what in ("p50", "p99")
    }
    table = {
        name: [{"p50_ms": r.p50_ms, "p99_ms": r.p99_ms, "load": r.load} for r in each]
        for name, each in runs.items()
    }
    return {"lines": lines, "table": table}
