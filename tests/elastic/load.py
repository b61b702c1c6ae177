"""The steady load, in one process: two fronts, and three nodes behind them, at an even rate.

    python -m tests.elastic.load TARGET DIRECTORY INTERVAL_MS ITEMS

Every INTERVAL_MS each front labels ITEMS items and commits them with its promise; three nodes take
what has come, pass it on from `in` to `mid` to `out`, and let go of it there. A line `finish` lets the fronts
leave; the nodes follow when nothing is left. Says `started`, then `finished`.
"""

from __future__ import annotations

import itertools
import queue
import sys
import threading
import time
from pathlib import Path

from tests.cluster.children import now_slot
from tests.cluster.steps import Item, Steps
from tests.cluster.told import told_to_finish
from tests.waits import HANG_S
from tracker.client import NodeClient
from tracker.core.model import Edge, PipelineSpec

PIPELINE = "elastic"
SEGMENTS = ("in", "mid", "out")
FRONTS = {"a": "in", "b": "in"}
"""Those that are there from the beginning to the end, and the segments that they feed."""
MOST_ITEMS = 500
END: list[Item] = []


def spec() -> PipelineSpec:
    edges = (Edge("in", "mid"), Edge("mid", "out"))
    return PipelineSpec(PIPELINE, SEGMENTS, edges, fronts=tuple(FRONTS), start_slot=now_slot())


class Front(threading.Thread):
    """Labels items, evenly, until `finish` is set."""

    def __init__(self, load: Load, name: str) -> None:
        super().__init__(name=name)
        self._load, self._node = load, NodeClient(load.target, PIPELINE, name, kind="front")
        self._node.join(HANG_S)
        self._slot = self._node.join_front(name, FRONTS[name], HANG_S).slot

    def run(self) -> None:
        load, number, due_s = self._load, 0, time.monotonic()
        while not load.finish.is_set():
            self._slot = max(now_slot(), self._slot)
            items = [("in", self._slot, f"{self.name}{number}.{k}") for k in range(load.items)]
            load.steps.commit(self._node, items, [], (self.name, self._slot))
            load.waiting["in"].put(items)
            number += 1
            due_s = max(due_s + load.interval_s, time.monotonic() - load.interval_s)
            time.sleep(max(0.0, due_s - time.monotonic()))  # paces: the load
        load.steps.leave_front(self._node, self.name)
        self._node.leave(HANG_S)


class Worker(threading.Thread):
    """Takes what waits in a segment and makes items of the next one of it, if there is one."""

    def __init__(self, load: Load, segment: str) -> None:
        super().__init__(name=f"from-{segment}")
        self._load, self._segment = load, segment
        self._next = dict(itertools.pairwise(SEGMENTS)).get(segment)
        self._node = NodeClient(load.target, PIPELINE, self.name)
        self._node.join(HANG_S)

    def run(self) -> None:
        load, waiting, ended = self._load, self._load.waiting[self._segment], False
        while not ended:
            items = waiting.get()
            ended = items is END
            items = list(items)
            while not ended and len(items) < MOST_ITEMS and not waiting.empty():
                more = waiting.get()
                ended = more is END
                items += more
            if items:
                children = [(self._next, slot, f"{name}>") for _, slot, name in items]
                made = children if self._next else []
                load.steps.commit(self._node, made, items)  # type: ignore[arg-type]
                if self._next:
                    load.waiting[self._next].put(made)  # type: ignore[arg-type]
            time.sleep(load.interval_s / 2)  # paces: the load
        if self._next:
            load.waiting[self._next].put(END)
        self._node.leave(HANG_S)


class Load:
    """What the threads share."""

    def __init__(self, target: str, directory: Path, interval_ms: float, items: int) -> None:
        self.target, self.interval_s, self.items = target, interval_ms / 1000, items
        self.finish = told_to_finish()
        self.steps = Steps(directory / "load.jsonl")
        self.waiting: dict[str, queue.SimpleQueue[list[Item]]] = {
            segment: queue.SimpleQueue() for segment in SEGMENTS
        }
        self.fronts = [Front(self, name) for name in FRONTS]
        self.workers = [Worker(self, segment) for segment in SEGMENTS]

    def run(self) -> None:
        for thread in (*self.fronts, *self.workers):
            thread.start()
        print("started", flush=True)
        for thread in self.fronts:
            thread.join()
        self.waiting["in"].put(END)
        for thread in self.workers:
            thread.join()
        self.steps.close()


def main(target: str, directory: str, interval_ms: str, items: str) -> int:
    load = Load(target, Path(directory), float(interval_ms), int(items))

    load.run()
    for failure in load.steps.failures:
        print(failure, file=sys.stderr)
    print("finished", flush=True)
    return 1 if load.steps.failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
