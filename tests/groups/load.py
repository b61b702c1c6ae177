"""The nodes of some pipelines in one process, which tick all the time: a front, and three nodes behind it.

    python -m tests.groups.load TARGET DIRECTORY INTERVAL_MS PIPELINE[,PIPELINE ...]

Every INTERVAL_MS the front of each pipeline labels items; `pass` takes them from `in` to `mid`, `gather` keeps what comes there as
state, under a hold, and emits it to `out` now and then, and `take` lets go of it. A line `finish` lets the fronts leave; the nodes
follow when nothing is left. Says `started`, then `finished`.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from examples.history import Recorder
from tests.cluster.children import now_slot
from tests.cluster.steps import Item, Steps
from tests.cluster.told import told_to_finish
from tests.waits import HANG_S
from tracker.client import NodeClient
from tracker.core.model import Edge, HoldMove, PipelineSpec
from tracker.core.model.slots import FOREVER

SEGMENTS = ("in", "mid", "out")
FRONT = "front"
FRONTS = {FRONT: "in"}
NODES = (FRONT, "pass", "gather", "take")
HOLD = "gathered"
ITEMS = 2
"""That a front labels at a time."""
EMITTED_EVERY = 4
"""In so many rounds `gather` emits what it has once."""


def spec(name: str) -> PipelineSpec:
    edges = (Edge("in", "mid"), Edge("mid", "out"))
    return PipelineSpec(name, SEGMENTS, edges, fronts=(FRONT,), start_slot=now_slot())


class Rounds(threading.Thread):
    """All nodes of a pipeline, one after the other, each round. Nobody waits for a tick to be durable: what is under way when the
    pipeline moves, or its group dies, is of all of them."""

    def __init__(
        self, target: str, directory: Path, name: str, interval_s: float, finish: threading.Event
    ) -> None:
        super().__init__(name=name)
        self._interval_s, self._finish = interval_s, finish
        self.steps = Steps(directory / f"{name}-load.jsonl", Recorder)
        self._nodes = {node: NodeClient(target, name, node) for node in NODES}
        for node in self._nodes.values():
            node.join(HANG_S)
        self._slot = self._nodes[FRONT].join_front(FRONT, FRONTS[FRONT], HANG_S).slot
        self._waiting: dict[str, list[Item]] = {segment: [] for segment in SEGMENTS}
        self._gathered: list[Item] = []
        """What is only in the state of `gather`, as items of `out`."""

    def run(self) -> None:
        number, due_s = 0, time.monotonic()
        while not self._finish.is_set():
            self._label(number)
            self._go_on(emits=number % EMITTED_EVERY == 0)
            number += 1
            due_s = max(due_s + self._interval_s, time.monotonic() - self._interval_s)
            time.sleep(max(0.0, due_s - time.monotonic()))  # paces: the load
        self.steps.leave_front(self._nodes[FRONT], FRONT)
        while any(self._waiting.values()) or self._gathered:
            self._go_on(emits=True)
        for node in self._nodes.values():
            node.leave(HANG_S)
        self.steps.close()

    def _label(self, number: int) -> None:
        self._slot = max(now_slot(), self._slot)
        items = [("in", self._slot, f"{number}.{k}") for k in range(ITEMS)]
        self.steps.commit(self._nodes[FRONT], items, [], (FRONT, self._slot))
        self._waiting["in"] += items

    def _go_on(self, *, emits: bool) -> None:
        """Each node takes what has come before this round."""
        emitted, passed = self._take("out"), self._take("mid")
        if emitted:
            self.steps.commit(self._nodes["take"], [], emitted, emitted=emitted)
        self._gather(passed, emits=emits)
        if taken := self._take("in"):
            children = [("mid", slot, f"{name}>") for _, slot, name in taken]
            self.steps.commit(self._nodes["pass"], children, taken)
            self._waiting["mid"] += children

    def _gather(self, items: list[Item], *, emits: bool) -> None:
        """One tick: what has come becomes state, and what was state before it perhaps goes out. The hold stands at the lowest of
        what stays."""
        node = self._nodes["gather"]
        out, self._gathered = (self._gathered, []) if emits else ([], self._gathered)
        absorbed = [("out", slot, f"{name}>") for _, slot, name in items]
        if not out and not absorbed:
            return
        self._gathered += absorbed
        stands = min((slot for _, slot, _ in self._gathered), default=FOREVER)
        hold = HoldMove(HOLD, SEGMENTS.index("out"), stands)
        self.steps.commit(node, out, items, holds=(hold,), absorbed=absorbed)
        self._waiting["out"] += out

    def _take(self, segment: str) -> list[Item]:
        taken, self._waiting[segment] = self._waiting[segment], []
        return taken


def main(target: str, directory: str, interval_ms: str, names: str) -> int:
    finish = told_to_finish()
    every = [
        Rounds(target, Path(directory), name, float(interval_ms) / 1000, finish)
        for name in names.split(",")
    ]
    for each in every:
        each.start()
    print("started", flush=True)
    for each in every:
        each.join()
    failures = [f"{each.name}: {failure}" for each in every for failure in each.steps.failures]
    print("\n".join(failures), file=sys.stderr)
    print("finished", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
