"""What pipelines take whose histories are full: two days of minutes and a year of hours, of each segment.

    python -m tests.year.full --pipelines 1000 --segments 3

The other bounds of a year's load are small beside this one. Memory and seconds are of a process that starts with such a
snapshot; it has no log.
"""

from __future__ import annotations

import argparse
import time
from array import array
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.scale import Load
from benchmarks.scratch import scratch
from tests.year.world import started
from tracker.core.cut.history import (
    COARSE_STEP_NS,
    FINE_STEP_NS,
    MAX_COARSE_ENTRIES,
    MAX_FINE_ENTRIES,
    HistorySnapshot,
)
from tracker.core.model import PipelineSpec
from tracker.store.sqlite import SqliteStore
from tracker.wire.storage import snapshot_to_bytes

_MS = 10**6
_UNIX_MS = 1_770_000_000_000
_JITTER = 7_919
"""Moments are not even: each is late by less than a second, in another way."""


def full_histories(spec: PipelineSpec) -> Iterator[HistorySnapshot]:
    """Of a pipeline of which min time has passed each minute and hour."""
    steps = ((FINE_STEP_NS, MAX_FINE_ENTRIES), (COARSE_STEP_NS, MAX_COARSE_ENTRIES))
    for segment in range(len(spec.segments)):
        for tier, (step_ns, most) in enumerate(steps):
            late_ms = [number * _JITTER % 1_000 for number in range(most)]
            at_ms = [_UNIX_MS + number * step_ns // _MS for number in range(most)]
            slots = [
                (each + late // 10) * _MS // spec.slack_ns
                for each, late in zip(at_ms, late_ms, strict=True)
            ]
            moments = map(sum, zip(at_ms, late_ms, strict=True))
            since = slots[0] - 1
            yield HistorySnapshot(segment, tier, since, array("q", slots), array("q", moments))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.year.full")
    parser.add_argument("--pipelines", type=int, default=1_000)
    parser.add_argument("--segments", type=int, default=3)
    given = parser.parse_args()
    load = Load(1, given.pipelines, 0, given.segments)
    snapshot = load.deployment.processes[0].snapshot()
    pipelines = tuple(
        replace(each, history=tuple(full_histories(each.spec)))  # type: ignore[call-arg]
        for each in snapshot.pipelines
    )
    began = time.process_time()
    data = snapshot_to_bytes(replace(snapshot, pipelines=pipelines))
    encoded_s = time.process_time() - began
    with scratch(4 * len(data)) as directory:
        path = Path(directory) / "full.sqlite"
        store = SqliteStore(path, 0)
        began = time.process_time()
        store.write_snapshot(store.acquire("full"), snapshot.position, data)
        written_s = time.process_time() - began
        store.close()
        found = started([path], {})
    print(
        f"{given.pipelines:,} pipelines of {given.segments} segments, histories full: snapshot {len(data) / 2**20:.0f} MiB, "
        f"encoded in {encoded_s:.1f} s and written in {written_s:.2f} s; started in {found['start_s']} s, "
        f"{found['start_bytes'] / 2**20:.0f} MiB"
    )


if __name__ == "__main__":
    main()
