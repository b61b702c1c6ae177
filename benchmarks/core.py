"""The core of a tracker by itself: processes driven event by event, without network or disk.

Everything here takes one thread, so costs are its processor time: other work on the machine shows less.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from tracker.core.log import (
    Announced,
    Answer,
    Append,
    AttachSession,
    Committed,
    Effect,
    Event,
    FrameArrived,
    JoinNode,
    PeerConnected,
    RegisterPipeline,
    Send,
    SubmitTick,
    TickRefused,
    Wake,
)
from tracker.core.model import (
    Cells,
    FrontJoin,
    Heartbeat,
    NodeKey,
    PipelineSpec,
    Refusal,
    TickContent,
)
from tracker.core.model.routing import RoutingTable
from tracker.core.process import Process

TICK_NS = 25_000
"""How much the clock of a busy shard moves with each of its events: 40,000 a second."""
SETTLE_NS = 10_000_000
HORIZON = 1 << 40


class Cluster:
    """All shards of a tracker in one thread. What is appended becomes durable when `commit` is called,
    and what they send each other arrives at once."""

    def __init__(
        self,
        shards: int = 1,
        block_slots: int = 64,
        routing: RoutingTable | None = None,
        all_busy: bool = False,
    ) -> None:
        """all_busy: each shard has its own processor, and 40,000 events a second. Otherwise all together have so
        many, as one alone would: each of them reports as often, for fewer ticks."""
        routing = routing or RoutingTable.uniform(shards, block_slots)
        self.processes = [Process(shard, routing, 1) for shard in range(shards)]
        self.now_ns = 10**9
        self._tick_ns = TICK_NS // shards if all_busy else TICK_NS
        self.announced: dict[str, int] = {}
        """By pipeline the last min time told."""
        self.announcements = 0
        self.frames = 0
        self._answers: dict[int, object] = {}
        self._requests = itertools.count()
        self._sessions: dict[int, int] = {}
        for one in self.processes:
            for other in self.processes:
                if one is not other:
                    self.handle(one.shard, PeerConnected(other.shard))
        self.settle()

    def handle(self, shard: int, event: Event) -> None:
        """One event; frames are taken by those they are for."""
        self.now_ns += self._tick_ns
        self._take(shard, self.processes[shard].handle(event, self.now_ns))

    def _take(self, shard: int, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Append():
                    pass
                case Send(other, frame):
                    self.frames += 1
                    self.handle(other, FrameArrived(frame))
                case Announced():
                    self.announcements += 1
                    self.announced[effect.pipeline] = effect.pipeline_min_time
                case Answer(request, result):
                    self._answers[request] = result  # type: ignore[index]
                case TickRefused():
                    raise RuntimeError(effect.refusal.message)

    def commit(self) -> None:
        """Everything appended becomes durable, at each shard in one group."""
        for process in self.processes:
            if process.position > process.committed:
                self.handle(process.shard, Committed(process.position))

    def settle(self) -> None:
        """Until everything is durable, and every shard has reported what it holds."""
        for _ in range(3):
            while any(process.position > process.committed for process in self.processes):
                self.commit()
            self.now_ns += SETTLE_NS
            for process in self.processes:
                self.handle(process.shard, Wake())

    def _ask(self, shard: int, event: Event, request: int) -> object:
        self.handle(shard, event)
        while request not in self._answers:
            self.settle()
        answer = self._answers.pop(request)
        if isinstance(answer, Refusal):
            raise RuntimeError(answer.message)
        return answer

    def register(self, spec: PipelineSpec) -> None:
        request = next(self._requests)
        home = self.processes[0].routing.registrar(spec.name)
        self._ask(home, RegisterPipeline(request, spec), request)

    def node(self, pipeline: str, node_id: str) -> Node:
        request = next(self._requests)
        home = self.processes[0].routing.home(pipeline, node_id)
        joined = self._ask(home, JoinNode(request, pipeline, node_id, "bench"), request)
        return Node(self, home, pipeline, joined.key)  # type: ignore[attr-defined]


class Node:
    """A node at its home."""

    def __init__(self, cluster: Cluster, home: int, pipeline: str, key: NodeKey) -> None:
        self._cluster, self._home, self._number = cluster, home, 0
        cluster.handle(home, AttachSession(self, pipeline, key))

    def tick(self, content: TickContent) -> None:
        """Commits; durable when the cluster commits."""
        self._number += 1
        self._cluster.handle(self._home, SubmitTick(self, self._number, content))

    def join_front(self, front: str, segment: int = 0) -> None:
        self.tick(TickContent(joins=(FrontJoin(front, segment),)))
        self._cluster.settle()
        self._cluster.settle()


def cells(first: int, count: int, step: int, segment: int = 0) -> Cells:
    """`count` cells of neighbouring slots from `first` on, each with a value of its own by `step`: mixed, so
    that those of steps that follow one another do not cancel out in a slot."""
    step = (step + 1) * 0xD6E8FEB86659FD93 % 2**64
    values = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return Cells(
        np.full(count, segment, np.int32),
        first + np.arange(count, dtype=np.int64),
        values ^ np.uint64(step),
        np.ones(count, np.int64),
    )


def steady_ticks(
    cluster: Cluster,
    nodes: Sequence[Node],
    front: Node,
    ticks: int,
    first: int = 0,
    group: int = 20,
) -> None:
    """A pipeline at work: items are created and consumed a while later, node after node, and the front
    goes on. `front` has front "front"; `group` ticks share a commit."""
    delay = 2 * group
    for number in range(first, first + ticks):
        node = nodes[number % len(nodes)]
        content = TickContent(created=cells(number // 4, 1, number))
        if number >= delay:
            old = number - delay
            content.consumed = cells(old // 4, 1, old)
        node.tick(content)
        if number % group == group - 1:
            front.tick(TickContent(heartbeats=(Heartbeat("front", max(0, number // 4 - 10)),)))
            cluster.commit()
            cluster.commit()
