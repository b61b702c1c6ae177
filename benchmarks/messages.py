"""Service messages of the workload on which the published design was evaluated, counted in simulation.

50,000 items enter at 100 a second, pass 30 re-partitions on 15 machines, and leave. Slots are 10 ms
wide, local trackers flush every 5 ms at most. The evaluation of the published tracker (Information
Systems 117, 2023) counts 366 thousand messages with a central tracker, 701 thousand with a distributed
one, and 11.8 million with punctuations.

The processes, what their links send together, the local trackers' windows and merging are production
code; network, disk and machines are simulated. Counted like theirs is what is sent one way: ticks, what shards send each other,
notifications. Answers that say that ticks are durable, which the published design does not have, are
counted beside it. An item that is only passed on keeps its ack value: in and out cancel where it
passes, and nothing is to be said. The other case, in which every re-partition makes a new item of it,
is counted too.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from benchmarks.figures import Budget, Figure
from benchmarks.pairs import Bar
from local_tracker.core.window import FlushWindow, Step, merged_content
from tracker.core.log import (
    Announced,
    Answer,
    Append,
    AttachSession,
    Committed,
    Entries,
    EntriesReceived,
    Event,
    Frame,
    FrameArrived,
    FrontGranted,
    JoinNode,
    PeerConnected,
    RegisterPipeline,
    Send,
    ShardReport,
    SubmitTick,
    TickRefused,
    TicksDurable,
    Wake,
    WakeAt,
)
from tracker.core.model import Cells, FrontJoin, Heartbeat, PipelineSpec, TickContent
from tracker.core.model.ack_values import child_value, root_value
from tracker.core.model.routing import RoutingTable
from tracker.core.process import Process
from tracker.service.cluster.outgoing import Outgoing

ITEMS = 50_000
ITEM_NS = 10_000_000
HOPS, MACHINES = 30, 15
SLOT_NS = 10_000_000
FLUSH_MS = 5.0
HOP_NS = (200_000, 1_000_000)
NETWORK_NS = 200_000
DISK_NS = 1_000_000
PUBLISHED = {1: 366_000, 2: 701_000}
PUNCTUATIONS = 11_800_000


def find(budget: Budget) -> Iterable[Figure]:
    items = budget.pick(2_000, 10_000, ITEMS)
    scale = ITEMS / items
    measured = "" if items == ITEMS else f"; {items:,} items simulated, and multiplied"
    for shards in (1, 2):
        published = PUBLISHED[shards]
        kind = "central" if shards == 1 else "distributed, 2 shards"
        counted = Evaluation(shards, items, passed_on=True).run()
        one_way = sum(counted.values()) - counted["answers"]
        yield Figure(
            f"service messages of the published evaluation, {kind}",
            (one_way * scale,),
            "",
            f"published {published:,} with a local tracker, {PUNCTUATIONS:,} with punctuations; "
            f"{_kinds(counted, scale)}{measured}",
            Bar(published / 2),
            exact=True,
        )
        yield Figure(
            f"... with the answers to ticks, {kind}",
            (sum(counted.values()) * scale,),
            "",
            "as above",
        )
    if budget is not Budget.QUICK:
        for shards in (1, 2):
            counted = Evaluation(shards, items // 20, passed_on=False).run()
            one_way = sum(counted.values()) - counted["answers"]
            yield Figure(
                f"... where every re-partition makes a new item, {shards} shards",
                (one_way * scale * 20,),
                "",
                f"published {PUBLISHED[shards]:,}; {_kinds(counted, scale * 20)}; "
                f"{items // 20:,} items simulated, and multiplied",
            )


def _kinds(counted: Counter[str], scale: float) -> str:
    return ", ".join(f"{round(n * scale):,} {kind}" for kind, n in counted.most_common())


class Evaluation:
    """The workload on simulated machines, with a clock of its own, in nanoseconds."""

    def __init__(self, shards: int, items: int, passed_on: bool) -> None:
        self.counted: Counter[str] = Counter()
        self.items, self.passed_on = items, passed_on
        self.now = 0
        self._random = random.Random(7)
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._routing = RoutingTable.uniform(shards)
        self._processes = [Process(shard, self._routing, 1) for shard in range(shards)]
        self._links = {
            (a, b): Link(self, b) for a in range(shards) for b in range(shards) if a != b
        }
        self._committing = [False] * shards
        self._nodes: dict[object, _Node] = {}
        self._answers: dict[object, object] = {}
        self.done = 0

    # --- the simulated world ----------------------------------------------------------------------

    def at(self, moment: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (moment, next(self._order), action))

    def _run_until(self, done: Callable[[], bool]) -> None:
        while not done():
            self.now, _, action = heapq.heappop(self._queue)
            action()

    def post(self, shard: int, event: Event) -> None:
        for effect in self._processes[shard].handle(event, self.now):
            match effect:
                case Append():
                    self._write(shard)
                case Send(other, frame):
                    self._links[shard, other].offer(frame)
                case WakeAt(moment):
                    self.at(max(moment, self.now), lambda: self.post(shard, Wake()))
                case Answer(request, result):
                    self._answers[request] = result
                case TicksDurable(session, number):
                    self.counted["answers"] += 1
                    node = self._nodes[session]
                    self.at(self.now + NETWORK_NS, lambda n=number, to=node: to.durable(n))  # type: ignore[misc]
                case FrontGranted(session, _):
                    self._nodes[session].granted = True
                case TickRefused():
                    raise RuntimeError(effect.refusal.message)
                case Announced() if shard == 0:
                    self.counted["notifications"] += 1

    def _write(self, shard: int) -> None:
        if self._committing[shard]:
            return
        self._committing[shard] = True

        def written(position: int = self._processes[shard].position) -> None:
            self._committing[shard] = False
            self.post(shard, Committed(position))
            process = self._processes[shard]
            if process.position > process.committed:
                self._write(shard)

        # What is appended while this event is handled goes with it.
        self.at(
            self.now,
            lambda: self.at(
                self.now + DISK_NS,
                lambda p=self._processes[shard].position: written(p),  # type: ignore[misc]
            ),
        )

    def _ask(self, shard: int, event: Event, request: object) -> object:
        self.post(shard, event)
        self._run_until(lambda: request in self._answers)
        return self._answers[request]

    def join(self, node_id: str) -> _Node:
        home = self._routing.home("p", node_id)
        joined = self._ask(home, JoinNode(node_id, "p", node_id, "bench"), node_id)
        node = _Node(self, home, node_id)
        self._nodes[node] = node
        self.post(home, AttachSession(node, "p", joined.key))  # type: ignore[attr-defined]
        return node

    # --- the workload -----------------------------------------------------------------------------

    def run(self) -> Counter[str]:
        """Everything that is sent from the first item until the last is complete."""
        for one in self._processes:
            for other in self._processes:
                if one is not other:
                    self.post(one.shard, PeerConnected(other.shard))
        spec = PipelineSpec("p", ("in",), front_count=1, horizon_slots=1 << 40)
        self._ask(self._routing.registrar("p"), RegisterPipeline("spec", spec), "spec")
        front = Front(self, self.join("front"))
        self.machines = [LocalTracker(self, self.join(f"local{n}")) for n in range(MACHINES)]
        front.node.commit(TickContent(joins=(FrontJoin("front", 0),)))
        self._run_until(lambda: front.node.granted)
        self.counted.clear()
        began = self.now
        for item in range(self.items):
            self.at(began + item * ITEM_NS, lambda item=item: front.enter(item))  # type: ignore[misc]
        self._run_until(lambda: self.done == self.items and front.node.idle)
        ends = self.now // SLOT_NS + 1
        self.at(ends * SLOT_NS, front.promise)
        self._run_until(lambda: min(p.pipeline_min_time("p") for p in self._processes) >= ends)
        return self.counted

    def hop(self, item: int, slot: int, value: int, hops: int) -> None:
        """An item arrives at a machine, which passes it on, or is the last."""
        machine = self.machines[self._random.randrange(MACHINES)]
        if hops == HOPS:
            machine.hand_over(slot, value, None)
            self.done += 1
            return
        after = value
        if not self.passed_on:
            after = child_value(value, "re-partition", 0)
            machine.hand_over(slot, value, after)
        pause = self._random.randrange(*HOP_NS)
        self.at(self.now + pause, lambda: self.hop(item, slot, after, hops + 1))


class Link:
    """From one process to another: what goes together is one message."""

    def __init__(self, world: Evaluation, to: int) -> None:
        self._world, self._to = world, to
        self._outgoing = Outgoing()

    def offer(self, frame: Frame) -> None:
        due_before = self._outgoing.due_ns
        self._outgoing.add(frame, self._world.now)
        if self._outgoing.due_ns != due_before:
            self._plan()

    def _plan(self) -> None:
        if self._outgoing.due_ns is not None:
            self._world.at(self._outgoing.due_ns, self._send_if_due)

    def _send_if_due(self) -> None:
        due_ns = self._outgoing.due_ns
        if due_ns is None or due_ns > self._world.now:
            return
        frames = self._outgoing.take(self._world.now)
        self._world.counted[_between_shards(frames)] += 1
        self._world.at(self._world.now + NETWORK_NS, lambda: self._arrive(frames))

    def _arrive(self, frames: Sequence[Frame]) -> None:
        for frame in frames:
            self._world.post(self._to, FrameArrived(frame))


def _between_shards(frames: Sequence[Frame]) -> str:
    """What to call a message between shards, by the most important thing in it."""
    kinds = {type(frame.body) for frame in frames}
    named = ((Entries, "entries"), (ShardReport, "reports"), (EntriesReceived, "confirmations"))
    return next((f"messages with {name}" for kind, name in named if kind in kinds), "questions")


class _Node:
    """The stream of a node: numbers its ticks, and knows which are durable."""

    def __init__(self, world: Evaluation, home: int, node_id: str) -> None:
        self._world, self._home, self.node_id = world, home, node_id
        self.number = self.durable_number = 0
        self.granted = False
        self.on_durable: Callable[[], None] = lambda: None

    @property
    def idle(self) -> bool:
        return self.number == self.durable_number

    def commit(self, content: TickContent) -> None:
        self.number += 1
        self._world.counted["ticks"] += 1
        event = SubmitTick(self, self.number, content)
        self._world.at(self._world.now + NETWORK_NS, lambda: self._world.post(self._home, event))

    def durable(self, number: int) -> None:
        self.durable_number = max(number, self.durable_number)
        self.on_durable()


class LocalTracker:
    """One on each machine: a flush a window at most, one on its way at a time."""

    def __init__(self, world: Evaluation, node: _Node) -> None:
        self._world, self.node = world, node
        self._window = FlushWindow(FLUSH_MS, 10_000, 100_000)
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

    def __init__(self, world: Evaluation, node: _Node) -> None:
        self._world, self.node = world, node

    def enter(self, item: int) -> None:
        """Its slot begins now: whatever lies below it was created by ticks before this one."""
        slot, value = self._world.now // SLOT_NS, root_value("front", item, 0)
        content = TickContent(created=Cells.of([(0, slot, value, 1)]))
        if self.node.idle:
            content.heartbeats = (Heartbeat("front", slot),)
        self.node.commit(content)
        self._world.at(self._world.now + NETWORK_NS, lambda: self._world.hop(item, slot, value, 0))

    def promise(self) -> None:
        slot = self._world.now // SLOT_NS
        self.node.commit(TickContent(heartbeats=(Heartbeat("front", slot),)))
