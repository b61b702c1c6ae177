"""The workload on which the published design was evaluated, in simulation.

Items enter one after the other, pass re-partitions on several machines, and leave. The local trackers' windows
and merging are production code, as is the tracker.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

from benchmarks.simulated import NETWORK_NS, SLOT_NS, Node, World
from local_tracker.core.window import Flush, FlushWindow, Step, merged_content
from tracker.core.model import Cells, FrontJoin, Heartbeat, TickContent
from tracker.core.model.ack_values import child_value, root_value

ITEM_NS = 10_000_000
FLUSH_MS = 5.0
HOP_NS = (200_000, 1_000_000)


@dataclass(frozen=True)
class Workload:
    """passed_on: a re-partition keeps an item's ack value, and makes no item of it."""

    items: int
    hops: int
    machines: int
    passed_on: bool
    flush: Flush = Flush.WHEN_IDLE


class Evaluation(World):
    """A workload with so many shards, and how long completion takes to be heard of."""

    def __init__(self, shards: int, workload: Workload) -> None:
        super().__init__(shards)
        self.workload = workload
        self.done = 0
        self._random = random.Random(7)
        self._done_ns: dict[int, int] = {}

    def run(self) -> Counter[str]:
        """Everything that is sent from the first item until the last is complete."""
        self.begin()
        front = Front(self, self.join("front"))
        self.machines = [
            LocalTracker(self, self.join(f"local{n}")) for n in range(self.workload.machines)
        ]
        front.node.commit(TickContent(joins=(FrontJoin("front", 0),)))
        self.run_until(lambda: front.node.granted)
        self.counted.clear()
        began = self.now
        for item in range(self.workload.items):
            self.at(began + item * ITEM_NS, lambda item=item: front.enter(item))  # type: ignore[misc]
        self.run_until(lambda: self.done == self.workload.items and front.node.idle)
        ends = self.now // SLOT_NS + 1
        self.at(ends * SLOT_NS, front.promise)
        self.until_complete(ends)
        return self.counted

    def latencies_ms(self) -> list[float]:
        """By slot: from the moment in which its last item and the promise beyond it had been handed over,
        until a subscriber has heard of it."""
        found = []
        for slot, done_ns in self._done_ns.items():
            promised_ns, heard_ns = self.promised.reached(slot + 1), self.heard.reached(slot + 1)
            assert promised_ns is not None and heard_ns is not None
            found.append((heard_ns - max(done_ns, promised_ns)) / 1e6)
        return found

    def hop(self, item: int, slot: int, value: int, hops: int) -> None:
        """An item arrives at a machine, which passes it on, or is the last."""
        machine = self.machines[self._random.randrange(self.workload.machines)]
        if hops == self.workload.hops:
            machine.hand_over(slot, value, None)
            self.done += 1
            self._done_ns[slot] = self.now
            return
        after = value
        if not self.workload.passed_on:
            after = child_value(value, "re-partition", 0)
            machine.hand_over(slot, value, after)
        pause = self._random.randrange(*HOP_NS)
        self.at(self.now + pause, lambda: self.hop(item, slot, after, hops + 1))


class LocalTracker:
    """One on each machine: a flush a window at most, one on its way at a time."""

    def __init__(self, world: Evaluation, node: Node) -> None:
        self._world, self.node = world, node
        self._window = FlushWindow(FLUSH_MS, 10_000, 100_000, world.workload.flush)
        self._steps = 0
        self._planned = -1
        node.on_durable = self._plan

    def hand_over(self, slot: int, consumed: int, created: int | None) -> None:
        self._steps += 1
        step = Step("worker", self._steps, consumed=Cells.of([(0, slot, consumed, 1)]))
        if created is not None:
            step.created = Cells.of([(0, slot, created, 1)])
        self._window.add(step, self._world.now)
        self._plan()

    def _plan(self) -> None:
        due = self._window.due_ns()
        if due is not None and self.node.idle and self._planned < self._world.now:
            self._planned = max(due, self._world.now)
            self._world.at(self._planned, self._flush)

    def _flush(self) -> None:
        self._planned = -1
        due = self._window.due_ns()
        if due is None or not self.node.idle or due > self._world.now:
            self._plan()
            return
        self.node.commit(merged_content(self._window.take(self._world.now)))


class Front:
    """Creates each item in the slot in which it enters; what it promises goes with the next item."""

    def __init__(self, world: Evaluation, node: Node) -> None:
        self._world, self.node = world, node

    def enter(self, item: int) -> None:
        """Its slot begins now: whatever lies below it was created by ticks before this one."""
        slot, value = self._world.now // SLOT_NS, root_value("front", item, 0)
        content = TickContent(created=Cells.of([(0, slot, value, 1)]))
        if self.node.idle:
            content.heartbeats = (Heartbeat("front", slot),)
            self._world.promised.add(slot, self._world.now)
        self.node.commit(content)
        self._world.at(self._world.now + NETWORK_NS, lambda: self._world.hop(item, slot, value, 0))

    def promise(self) -> None:
        slot = self._world.now // SLOT_NS
        self._world.promised.add(slot, self._world.now)
        self.node.commit(TickContent(heartbeats=(Heartbeat("front", slot),)))
