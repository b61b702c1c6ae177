"""A tracker that is paused evicts nobody: it was the one that heard nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.children import Running, discard, now_slot, paused
from tests.cluster.tracker import Tracker
from tests.processes.everything import is_reached
from tracker.core.model import PipelineSpec, SilentFront
from tracker.core.model.slots import FOREVER

PIPELINE = "p"
EVICT_AFTER_MS = 1_000


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[list[Running]]:
    """A tracker of one shard, a front, a subscriber; not started."""
    tracker = Tracker(tmp_path)
    target = tracker.target
    (tmp_path / "in").mkdir()
    front = Running(
        "tests.processes.front", target, PIPELINE, "a", str(tmp_path / "in"),
        errors=tmp_path / "front.log",
    )  # fmt: skip
    listener = Running("tests.cluster.listener", target, PIPELINE, errors=tmp_path / "listener.log")
    try:
        tracker.start()
        spec = PipelineSpec(
            PIPELINE, ("in",), fronts=("a",), start_slot=now_slot(),
            silent_front=SilentFront.EVICT, evict_after_ms=EVICT_AFTER_MS,
        )  # fmt: skip
        tracker.register(spec)
        front.start()
        listener.start()
        yield [*tracker.shards, front, listener]
    finally:
        discard([listener, front])
        tracker.close()


@pytest.mark.parametrize("pause_s", [2.0, 8.0], ids=["its streams live on", "its streams break"])
def test_a_pause_of_the_tracker_evicts_no_front_that_runs(
    processes: list[Running], pause_s: float
) -> None:
    """Longer than a front may be silent. Its files stay open, since nobody reads: min time must stand
    at the first, and never be said to be complete."""
    tracker, front, listener = processes
    front.until_says("started")
    with paused(tracker):
        time.sleep(pause_s)  # paces: that time passes is what is tried
    behind = len(listener.lines)
    front.tell("finish")
    front.ends_well()  # it has committed all, and has left in order
    assert any(line == "left" for _, line in front.lines)
    listener.until(lambda line: json.loads(line)["segment"] is None)
    assert not any(is_reached(line, FOREVER) for _, line in listener.lines[behind:])
