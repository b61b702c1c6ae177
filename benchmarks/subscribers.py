"""What an announcement costs a process by how many subscribe, in processor time of the process."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks.latency import TIMEOUT_S, Heard
from tests.cluster.tracker import Tracker
from tracker.client import NodeClient
from tracker.core.model import Heartbeat, PipelineSpec, TickContent


def cost_us(sizes: tuple[int, ...], announcements: int, rounds: int) -> dict[int, list[float]]:
    """By number of subscribers, microseconds of the process for a tick that moves min time, until all of
    them have been told; one value a round."""
    costs: dict[int, list[float]] = {size: [] for size in sizes}
    with tempfile.TemporaryDirectory(prefix="lowmark-bench-") as directory, ExitStack() as stack:
        tracker = stack.enter_context(Tracker(Path(directory)))
        for turn in range(rounds):
            for size in sizes:
                costs[size].append(_cost_us(tracker, f"p{turn}-{size}", size, announcements))
    return costs


def _cost_us(tracker: Tracker, pipeline: str, subscribers: int, announcements: int) -> float:
    tracker.register(PipelineSpec(pipeline, ("in",), front_count=1))
    with ExitStack() as stack:
        front = stack.enter_context(NodeClient(tracker.target, pipeline, "front", "front"))
        front.join(TIMEOUT_S)
        front.join_front("front", "in", TIMEOUT_S)
        heard = stack.enter_context(Heard(tracker.addresses, pipeline, subscribers))
        began = tracker.processor_s()
        for slot in range(1, announcements + 1):
            front.commit(TickContent(heartbeats=(Heartbeat("front", slot),)))
            heard.reached(slot)
        return (tracker.processor_s() - began) / announcements * 1e6
