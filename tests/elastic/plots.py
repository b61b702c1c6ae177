"""Draws what `make elastic` has found into docs/img: `python -m tests.elastic.plots`, from build/elastic.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.plot import plot
from scripts.summary import BUILD, ROOT

IMAGES = ROOT / "docs" / "img"
Lines = dict[str, list[tuple[float, float]]]


def draw(found: dict[str, Any]) -> list[Path]:
    """Draws whatever is there; returns the files."""
    pictures: dict[str, str] = {}
    if rounds := found.get("rescaling"):
        pictures["elastic-rescaling"] = _rescaling(rounds)
    experiments = found.get("experiments", {})
    for name, title, x, y, by_factors in (
        (
            "original",
            "word count, 100 lines a second of 100 words: latency of a line",
            "seconds",
            "ms",
            False,
        ),
        ("overhead", "two shards: started so, and after 1 → 2 → 3 → 2", "seconds", "ms", False),
        (
            "saturated",
            "too much for one shard, on two cores that all share",
            "seconds",
            "ms",
            False,
        ),
        (
            "simulated",
            "too much for one shard, each on its own machine (simulated)",
            "seconds",
            "ms",
            False,
        ),
        (
            "halfload",
            "less than half load, each on its own machine (simulated)",
            "seconds",
            "ms",
            False,
        ),
        ("sizes", "progress state: bytes of a snapshot", "seconds", "KiB", False),
        (
            "bootstrap",
            "where the time of a newcomer goes",
            "pipelines of ten segments",
            "seconds",
            False,
        ),
    ):
        if name in experiments:
            each = experiments[name]
            marks = [(at, what) for at, what in each.get("marks", ())]
            pictures[f"elastic-{name}"] = plot(title, x, y, each["lines"], by_factors, marks)
    IMAGES.mkdir(parents=True, exist_ok=True)
    files = []
    for name, svg in pictures.items():
        files.append(IMAGES / f"{name}.svg")
        files[-1].write_text(svg)
    return files


def _rescaling(rounds: list[dict[str, Any]]) -> str:
    """The round whose worst ratio is in the middle."""
    each = sorted(rounds, key=lambda each: each["worst_ratio"])[len(rounds) // 2]
    run, controls = each["run"], each["controls"]
    lines: Lines = {
        "p50": [(w["at_s"], w["p50_ms"]) for w in run["windows"]],
        "p99": [(w["at_s"], w["p99_ms"]) for w in run["windows"]],
        "p99 of the control": [
            (w["at_s"], w["p99_ms"] / ratio)
            for w, ratio in zip(run["windows"], each["ratios"], strict=True)
        ],
    }
    assert controls
    marks = [(event["from_s"], event["what"]) for event in run["events"] if event["what"] != "join"]
    return plot("notifications while shards come and go", "seconds", "ms", lines, False, marks)


def main() -> int:
    path = BUILD / "elastic.json"
    if not path.exists():
        print(f"plots: FAILED {path} is not there: make elastic")
        return 1
    for file in draw(json.loads(path.read_text())):
        print(file.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
