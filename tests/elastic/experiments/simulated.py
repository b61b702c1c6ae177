"""A tracker that has more to do than it can, and gets more shards, each on a machine of its own: simulated.

The processes are the production core; the network, the disk and the time that an event takes are not. A
process handles one event after another, and each takes its service time; so a process that gets more than it
can do has a queue, and min time is behind by the time that its events wait there.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from examples.latency import percentile
from tracker.core.log import (
    Announced,
    Answer,
    Append,
    AttachSession,
    Committed,
    Effect,
    Entries,
    Event,
    FrameArrived,
    FrontGranted,
    JoinNode,
    JoinShard,
    MembersChanged,
    PeerConnected,
    RegisterPipeline,
    RescaleShards,
    Send,
    SessionAttached,
    SessionRefused,
    ShardNumber,
    SubmitTick,
    TickRefused,
    TicksDurable,
    Wake,
    WakeAt,
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
from tracker.core.model.ack_values import unit_value
from tracker.core.model.routing import RoutingTable
from tracker.core.process import Process, ProcessConfig

MS = 1_000_000
SLOT_NS = 10 * MS
NETWORK_NS, DISK_NS, RETRY_NS = 200_000, 1 * MS, 5 * MS
TICK_NS, ENTRY_NS, OTHER_NS = 270_000, 40_000, 30_000
"""What it takes to handle a tick, an entry of another home's log, anything else."""
WINDOW = 25
"""Ticks of a node that are on their way: the others wait at the node, and count all the same."""


@dataclass(frozen=True)
class Workload:
    """nodes: each commits a tick a slot. changes: (second, shards from then on, evacuating)."""

    nodes: int
    seconds: int
    changes: tuple[tuple[float, int, bool], ...]


TOO_MUCH = Workload(40, 11, ((3.0, 2, False), (7.0, 4, False)))
"""4,000 ticks a second are more than one process can do."""


@dataclass
class Server:
    """A process, and what waits for it."""

    process: Process
    waiting: deque[Event] = field(default_factory=deque)
    busy: bool = False
    committing: bool = False
    wake_ns: int = 0


class World:
    """A clock, and all that happens by it."""

    def __init__(self) -> None:
        self.now = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._config = ProcessConfig(rescale_margin_ms=50)
        self._first = RoutingTable.uniform(1)
        self.servers: dict[int, Server] = {}
        self.sessions: dict[Hashable, Node] = {}
        self._answers: dict[Hashable, Any] = {}
        self.announced: list[tuple[int, int]] = []
        """(moment, min time), by shard 0."""
        self.start(0, None)

    def start(self, shard: int, snapshot: Any) -> None:
        process = Process(shard, self._first, 1, self._config)
        self.servers[shard] = Server(process)
        self._take(shard, process.recover(snapshot, [], self.now))
        for other in self.servers:
            if other != shard:
                self.post(shard, PeerConnected(other))
                self.post(other, PeerConnected(shard))

    def at(self, moment: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (max(moment, self.now), next(self._order), action))

    def run_until(self, done: Callable[[], bool]) -> None:
        while not done():
            self.now, _, action = heapq.heappop(self._queue)
            action()

    def post(self, shard: int, event: Event) -> None:
        """An event arrives at a process, which comes to it in its turn."""
        server = self.servers[shard]
        server.waiting.append(event)
        if not server.busy:
            self._next(shard)

    def _next(self, shard: int) -> None:
        server = self.servers[shard]
        server.busy = bool(server.waiting)
        if server.busy:
            event = server.waiting.popleft()
            self.at(self.now + service_ns(event), lambda: self._handle(shard, event))

    def _handle(self, shard: int, event: Event) -> None:
        self._take(shard, self.servers[shard].process.handle(event, self.now))
        self._next(shard)

    def _take(self, shard: int, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Append():
                    self._write(shard)
                case Send(other, frame):
                    self._send(other, FrameArrived(frame))
                case WakeAt(moment):
                    self._wake(shard, moment)
                case Answer(request, result):
                    self._answers[request] = result
                case Announced() if shard == 0:
                    self.announced.append((self.now, effect.pipeline_min_time))
                case SessionAttached(session, last):
                    self._tell(session, lambda node, last=last: node.attached(last))  # type: ignore[misc]
                case SessionRefused(session, refusal):
                    self._tell(session, lambda node, r=refusal: node.refused(r))  # type: ignore[misc]
                case TicksDurable(session, number):
                    self._tell(session, lambda node, n=number: node.durable(n))  # type: ignore[misc]
                case FrontGranted(session, _):
                    self.sessions[session].granted = True
                case TickRefused():
                    raise RuntimeError(effect.refusal.message)
                case MembersChanged() | _:
                    pass

    def _send(self, shard: int, event: Event) -> None:
        if shard in self.servers:
            self.at(self.now + NETWORK_NS, lambda: self.post(shard, event))

    def _tell(self, session: Hashable, action: Callable[[Node], None]) -> None:
        node = self.sessions.get(session)
        if node is not None:
            self.at(
                self.now + NETWORK_NS, lambda: action(node) if node.session == session else None
            )

    def _wake(self, shard: int, moment: int) -> None:
        server = self.servers[shard]
        if server.wake_ns <= self.now or moment < server.wake_ns:
            server.wake_ns = moment
            self.at(moment, lambda: self.post(shard, Wake()))

    def _write(self, shard: int) -> None:
        server = self.servers[shard]
        if not server.committing:
            server.committing = True
            # What is appended while this event is handled goes with it.
            self.at(self.now, lambda: self._written(shard, server.process.position))

    def _written(self, shard: int, position: int) -> None:
        def durable() -> None:
            server = self.servers[shard]
            server.committing = False
            self.post(shard, Committed(position))
            if server.process.position > position:
                self._write(shard)

        self.at(self.now + DISK_NS, durable)

    def ask(self, shard: int, event: Event, request: Hashable) -> Any:
        self.post(shard, event)
        self.run_until(lambda: request in self._answers)
        answer = self._answers.pop(request)
        if isinstance(answer, Refusal):
            raise RuntimeError(answer.message)
        return answer

    def add_shard(self) -> None:
        """A process joins, as fast as the others let it."""
        request = f"join-{len(self.servers)}"
        self.post(0, JoinShard(request, f"host-{len(self.servers)}:1"))

        def begin() -> None:
            if request not in self._answers:
                self.at(self.now + MS, begin)
                return
            answer = self._answers.pop(request)
            if not isinstance(answer, ShardNumber):
                self.at(self.now + MS, self.add_shard)
                return
            try:
                snapshot = self.servers[0].process.bootstrap_snapshot(answer.shard)
            except Exception:  # its M does not show yet that all have heard of the newcomer
                self._answers[request] = answer
                self.at(self.now + MS, begin)
                return
            self.start(answer.shard, snapshot)

        begin()

    def rescale(self, shards: int, evacuate: bool, done: Callable[[], None]) -> None:
        """Lets processes join until there are enough, then changes the table."""
        request = f"rescale-{self.now}"
        members = self.servers[0].process.membership
        if len(members.members) < shards:
            if not members.joining and len(self.servers) == len(members.members):
                self.add_shard()
            self.at(self.now + 2 * MS, lambda: self.rescale(shards, evacuate, done))
            return
        self.post(0, RescaleShards(request, shards, evacuate))

        def wait() -> None:
            answer = self._answers.pop(request, None)
            if isinstance(answer, Refusal):
                self.rescale(shards, evacuate, done)
            elif answer is None:
                self.at(self.now + MS, wait)
            else:
                done()

        wait()


def service_ns(event: Event) -> int:
    if isinstance(event, SubmitTick):
        return TICK_NS
    if isinstance(event, FrameArrived) and isinstance(event.frame.body, Entries):
        return OTHER_NS + ENTRY_NS * len(event.frame.body.entries)
    return OTHER_NS


class Node:
    """The stream of a node: goes where its home is, and sends again what is not durable."""

    def __init__(self, world: World, node_id: str) -> None:
        self._world, self.node_id = world, node_id
        self._home, self._number = 0, 0
        self._unacknowledged: dict[int, TickContent] = {}
        self._sent = 0
        self._is_attached = self.granted = False
        joined = world.ask(0, JoinNode(node_id, "p", node_id, "bench"), node_id)
        self.key: NodeKey = joined.key
        self.session: Hashable = None
        self._attach()

    def _attach(self) -> None:
        self._world.sessions.pop(self.session, None)
        self.session = (self.node_id, self._world.now)
        self._world.sessions[self.session] = self
        self._world.post(self._home, AttachSession(self.session, "p", self.key))

    def attached(self, last: int) -> None:
        self._is_attached, self._sent = True, last
        self._send()

    def refused(self, refusal: Refusal) -> None:
        """Moved, or not taken up yet."""
        self._is_attached = False
        if refusal.home in self._world.servers:
            self._home = refusal.home
        self._world.at(self._world.now + RETRY_NS, self._attach)

    def durable(self, number: int) -> None:
        for done in [n for n in self._unacknowledged if n <= number]:
            del self._unacknowledged[done]
        self._send()

    def commit(self, content: TickContent) -> None:
        self._number += 1
        self._unacknowledged[self._number] = content
        self._send()

    def _send(self) -> None:
        """As many as may be on their way."""
        world, home = self._world, self._home
        oldest = next(iter(self._unacknowledged), self._number + 1)
        while self._is_attached and self._sent < min(self._number, oldest + WINDOW - 1):
            self._sent += 1
            event = SubmitTick(self.session, self._sent, self._unacknowledged[self._sent])
            world.at(world.now + NETWORK_NS, lambda event=event: world.post(home, event))  # type: ignore[misc]


def find() -> dict[str, Any]:
    return simulate(TOO_MUCH)


def simulate(work: Workload) -> dict[str, Any]:
    """p50 and p99 of each second, by the moment in which a slot could be known."""
    world = World()
    spec = PipelineSpec("p", ("in",), front_count=1, horizon_slots=1 << 40)
    world.ask(0, RegisterPipeline("spec", spec), "spec")
    front = Node(world, "front")
    nodes = [Node(world, f"node-{number}") for number in range(work.nodes)]
    front.commit(TickContent(joins=(FrontJoin("front", 0),)))
    world.run_until(lambda: front.granted)
    began, slots, marks = world.now, work.seconds * 100, []

    def step(slot: int) -> None:
        front.commit(TickContent(heartbeats=(Heartbeat("front", slot),)))
        for number, node in enumerate(nodes):
            consumed = [] if slot == 0 else [_item(slot - 1, number)]
            node.commit(
                TickContent(created=Cells.of([_item(slot, number)]), consumed=Cells.of(consumed))
            )
        if slot + 1 < slots:
            world.at(began + (slot + 1) * SLOT_NS, lambda: step(slot + 1))

    for second, shards, evacuate in work.changes:
        marks.append((second, f"to {shards}{', evacuating' if evacuate else ''}"))
        world.at(
            began + int(second * 1e9),
            lambda shards=shards, evacuate=evacuate: world.rescale(  # type: ignore[misc]
                shards,
                evacuate,
                lambda: marks.append(((world.now - began) / 1e9, f"{shards} shards")),
            ),
        )
    step(0)
    last = slots - 2
    world.run_until(lambda: bool(world.announced) and world.announced[-1][1] > last - 1)
    seconds: dict[int, list[float]] = defaultdict(list)
    said = iter(world.announced)
    moment, min_time = next(said)
    for slot in range(last):
        while min_time <= slot:
            moment, min_time = next(said)
        complete = (slot + 1) * SLOT_NS  # when it is let go of
        seconds[complete // 10**9].append((moment - began - complete) / MS)
    return {
        "lines": {
            f"p{percent}": [(float(s), percentile(f, percent)) for s, f in sorted(seconds.items())]
            for percent in (50, 99)
        },
        "marks": sorted(marks),
    }  # fmt: skip


def _item(slot: int, number: int) -> tuple[int, int, int, int]:
    return 0, slot, unit_value(f"{slot}.{number}"), 1
