"""`make year`: a year of 1,000 pipelines on one process, and a shorter one with two shards: nothing that is kept grows."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.scratch import scratch
from scripts.summary import BUILD, finish
from tests.check.history import history_of
from tests.check.rules import violations
from tests.year.lives import Lives, Scale
from tests.year.smaller import applied, constants
from tests.year.tables import Kept
from tests.year.world import STEPS_A_DAY, Tracker
from tracker.core.config import ProcessConfig
from tracker.core.home.registration import MAX_SEGMENTS
from tracker.core.pipeline.pipeline import MAX_LISTED_RESTARTS
from tracker.core.shard.names import MAX_GIVEN_UP
from tracker.core.shard.shard import ShardPipeline

MARKS = 12
PART = 12
"""The form with two shards is so much shorter, and smaller."""
_HEAPS = 4_096
"""More than the heaps of a combiner hold before they are cleared, by segment, and the names of units."""


def bounds() -> dict[str, int]:
    """Tables that may fill for longer than the run, and their bounds."""
    return {
        "Combiner._promises": _HEAPS,
        "Combiner._touched": _HEAPS,
        "UnitNames._by_slot": _HEAPS,
        "UnitNames._given_up": MAX_GIVEN_UP,
        "CellTable._page_heaps": _HEAPS,
        "Pipeline.restarts": MAX_LISTED_RESTARTS,
        "Dropped.cells": MAX_SEGMENTS,
        "PipelineSpec.removed": ProcessConfig().max_segments,
        "Known.removed": ProcessConfig().max_segments,
        "SegmentGraph._from": ProcessConfig().max_segments,
    }


def keep_closed_keys() -> None:
    """A shard never forgets a key that is closed."""
    ShardPipeline.drop_key = lambda *_: None  # type: ignore[method-assign]


SABOTAGES: dict[str, Callable[[], None]] = {"kept": keep_closed_keys}


def live(directory: Path, scale: Scale, shards: int, marks: int = MARKS) -> list[dict[str, Any]]:
    """A run, as the lines of its history, with so many marks in it."""
    smaller = constants(scale)
    with applied(smaller), closing(Tracker(directory, shards, smaller)) as tracker:
        return _lived(tracker, scale, shards, marks)


def _lived(tracker: Tracker, scale: Scale, shards: int, marks: int) -> list[dict[str, Any]]:
    lives = Lives(tracker, scale)
    lines: list[dict[str, Any]] = [
        {
            "kind": "header", "at_ns": 0, "pipeline": f"{scale.pipelines} pipelines", "segments": [],
            "edges": [], "bounds": bounds(), "shards": shards, **asdict(scale),
        }
    ]  # fmt: skip
    for mark in range(1, marks + 1):
        began = time.process_time()
        while lives.steps < scale.steps * mark // marks:
            lives.step()
        lines.append(_mark(mark, tracker, lives))
        if mark == 1:  # what is not durable, and is kept, shows from here to the end
            tracker.restart()
            lives.restarted()
        sizes = lines[-1]["sizes"]
        print(
            f"{mark:2} of {marks}: {time.process_time() - began:.0f} s, resident {sizes['resident_bytes'] / 2**20:.0f} MiB, "
            f"tables {sizes['tables_bytes'] / 2**20:.1f}, snapshot {sizes['snapshot_bytes'] / 2**20:.2f} in "
            f"{sizes['snapshot_s']} s, store {sizes['store_bytes'] / 2**20:.1f}, log up to {sizes['log_records_most']} "
            f"records, started in {sizes['start_s']} s ({sizes['start_records']} records, {sizes['start_bytes'] / 2**20:.0f} MiB)",
            flush=True,
        )
    return lines


def _mark(number: int, tracker: Tracker, lives: Lives) -> dict[str, Any]:
    """Measures a tracker."""
    parts = [part for listeners in tracker.listeners for part in listeners.parts]
    kept = Kept([*tracker.processes, *parts])
    sizes = {"tables_bytes": kept.size_bytes, **tracker.measured()}
    tables = {
        name: (each.entries, each.most, each.size_bytes)
        for name, each in kept.tables.items()
        if each.entries
    }
    return {
        "kind": "mark", "at_ns": tracker.now_ns, "number": number, "tables": tables,
        "objects": kept.objects, "sizes": sizes, "did": dict(lives.did),
    }  # fmt: skip


def judged(name: str, lines: list[dict[str, Any]]) -> list[str]:
    """Records a run's history, and what it breaks."""
    path = BUILD / f"{name}-history.jsonl"
    BUILD.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = violations(history_of(enumerate(lines, 1)))
    for violation in found:
        print(f"{name}: {violation}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.year", description=__doc__)
    parser.add_argument("--pipelines", type=int, default=1_000)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--sabotage", choices=sorted(SABOTAGES), default="")
    given = parser.parse_args()
    if given.sabotage:
        SABOTAGES[given.sabotage]()
    grown, shown = [], {}  # type: list[str], dict[str, object]
    for shards in given.shards:
        part = 1 if shards == 1 else PART
        days, nodes = max(60, given.days // part), max(1_000, given.nodes // part)
        pipelines_ = max(40, given.pipelines // part)
        scale = Scale(
            pipelines_, days * STEPS_A_DAY, nodes, busy=max(3, pipelines_ // 10),
            crowded=max(1, pipelines_ // 250), changing=max(1, pipelines_ // 100),
            deleted=max(2, pipelines_ // 20),
        )  # fmt: skip
        with scratch() as directory:
            lines = live(Path(directory), scale, shards)
        grown += judged("year" if shards == 1 else f"year-{shards}-shards", lines)
        last = lines[-1]
        if shards == 1:
            shown |= {"pipelines": pipelines_, "days": days, **last["did"]}
            shown |= {f"{n}": v for n, v in last["sizes"].items()}
    shown["grown"] = sum(each.startswith("grown") for each in grown)
    return finish("year", ok=not grown, shown=shown, details={"said": grown})


if __name__ == "__main__":
    sys.exit(main())
