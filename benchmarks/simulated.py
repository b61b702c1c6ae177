"""A tracker on simulated machines, with a clock of its own, in nanoseconds.

The processes and what their links send together are production code; network, disk and machines are simulated.
Counted is what is sent, by kinds.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence

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
from tracker.core.model import Edge, PipelineSpec, TickContent
from tracker.core.model.routing import RoutingTable
from tracker.core.process import Process
from tracker.service.cluster.outgoing import Outgoing

SLOT_NS = 10_000_000
NETWORK_NS = 200_000
DISK_NS = 1_000_000


class World:
    """So many shards with one pipeline "p", whose segments are a chain, and one front; what is sent, by kinds."""

    def __init__(self, shards: int, segments: Sequence[str] = ("in",)) -> None:
        self.counted: Counter[str] = Counter()
        self.now = 0
        self.promised, self.heard = Moments(), Moments()
        """When which slot was promised by the front, and heard of by a subscriber."""
        self._segments = tuple(segments)
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._routing = RoutingTable.uniform(shards)
        self._processes = [Process(shard, self._routing, 1) for shard in range(shards)]
        self._links = {
            (a, b): Link(self, b) for a in range(shards) for b in range(shards) if a != b
        }
        self._committing = [False] * shards
        self._nodes: dict[object, Node] = {}
        self._answers: dict[object, object] = {}

    def begin(self) -> None:
        """Links are up, and the pipeline is registered."""
        for one in self._processes:
            for other in self._processes:
                if one is not other:
                    self.post(one.shard, PeerConnected(other.shard))
        edges = tuple(Edge(u, v) for u, v in itertools.pairwise(self._segments))
        spec = PipelineSpec("p", self._segments, edges, front_count=1, horizon_slots=1 << 40)
        self._ask(self._routing.registrar("p"), RegisterPipeline("spec", spec), "spec")

    def until_complete(self, slot: int) -> None:
        """Runs until every shard knows that all below a slot is complete, and a subscriber has heard of it."""
        self.run_until(
            lambda: (
                min(p.pipeline_min_time("p") for p in self._processes) >= slot
                and self.heard.reached(slot) is not None
            )
        )

    def at(self, moment: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (moment, next(self._order), action))

    def run_until(self, done: Callable[[], bool]) -> None:
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
                    self.heard.add(effect.pipeline_min_time, self.now + NETWORK_NS)

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
        self.run_until(lambda: request in self._answers)
        return self._answers[request]

    def join(self, node_id: str) -> Node:
        home = self._routing.home("p", node_id)
        joined = self._ask(home, JoinNode(node_id, "p", node_id, "bench"), node_id)
        node = Node(self, home, node_id)
        self._nodes[node] = node
        self.post(home, AttachSession(node, "p", joined.key))  # type: ignore[attr-defined]
        return node


class Moments:
    """When something that only grows came to which slot."""

    def __init__(self) -> None:
        self._slots: list[int] = []
        self._at_ns: list[int] = []

    def add(self, slot: int, at_ns: int) -> None:
        if not self._slots or slot > self._slots[-1]:
            self._slots.append(slot)
            self._at_ns.append(at_ns)

    def reached(self, slot: int) -> int | None:
        """When it came to a slot, or beyond it; None if it has not."""
        place = bisect_left(self._slots, slot)
        return self._at_ns[place] if place < len(self._slots) else None


class Link:
    """From one process to another: what goes together is one message."""

    def __init__(self, world: World, to: int) -> None:
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


class Node:
    """The stream of a node: numbers its ticks, and knows which are durable."""

    def __init__(self, world: World, home: int, node_id: str) -> None:
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
