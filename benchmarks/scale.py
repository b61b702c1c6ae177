"""What one deployment takes, from the production core and codecs under simulated time.

N shards run in one thread: each has the core's process, what it appends is written as its store would get it, what it
sends waits as a link lets it wait and goes through the bytes of a message, and so do ticks and notifications. Only what
gRPC, the disk and the operating system take is left out; `throughput` and `latency` measure that through processes.
A second of simulated time has as many ticks as the load says, so the messages are those of such a second.

Each axis is measured by itself, at several sizes, with a straight line through them and how far the farthest point
lies from it; then one point has them all.
"""

from __future__ import annotations

import gc
import itertools
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from acker.v1 import peer_service_pb2 as peer_pb
from acker.v1 import progress_service_pb2 as progress_pb
from acker.v1 import types_pb2 as pb
from benchmarks.figures import Budget, Figure, shown
from benchmarks.tree import cost_of_tree
from tracker.core.log import (
    Announced,
    Answer,
    Append,
    AttachSession,
    Committed,
    Effect,
    Event,
    FrameArrived,
    FrontGranted,
    JoinNode,
    PeerConnected,
    RegisterPipeline,
    Send,
    SessionRefused,
    SubmitTick,
    TickRefused,
    Wake,
    WakeAt,
)
from tracker.core.model import (
    Cells,
    Edge,
    FrontJoin,
    Heartbeat,
    NodeKey,
    PipelineSpec,
    Refusal,
    RefusalCode,
    TickContent,
)
from tracker.core.model.routing import RoutingTable
from tracker.core.process import Process, ProcessConfig
from tracker.service.cluster.outgoing import Outgoing
from tracker.wire.frames import carriers, frame_from_pb, frame_to_pb, write_frame
from tracker.wire.storage import record_to_bytes
from tracker.wire.ticks import content_from_pb, content_to_pb

MS = 1_000_000
STEP_NS = MS
"""What is sent in one step arrives in the next; what is appended in one is durable then, in one group commit."""
SLOT_NS = 10 * MS
BLOCK_SLOTS = 64
PROMISE_STEPS = 100
"""A front promises so often."""
MAX_NODES = 20_000
AT_ONCE = 200
"""Requests under way at once while a deployment is set up."""


@dataclass
class Counted:
    """What went where. Bytes are those of the messages, without what gRPC and TCP add."""

    ticks: int = 0
    tick_bytes: int = 0
    messages: int = 0
    """Between shards."""
    message_bytes: int = 0
    log_bytes: int = 0
    announcements: int = 0


class Deployment:
    """Shards in one thread, with links between them as they are served."""

    def __init__(self, shards: int, config: ProcessConfig | None = None) -> None:
        routing = RoutingTable.uniform(shards, BLOCK_SLOTS)
        self.routing = routing
        self.processes = [Process(shard, routing, 1, config) for shard in range(shards)]
        self.now_ns = 10**9
        self.counted = Counted()
        self.answers: dict[int, Any] = {}
        self.granted: set[object] = set()
        self._links = {
            (one, other): Outgoing() for one, other in itertools.permutations(range(shards), 2)
        }
        self._wakes: list[int | None] = [None] * shards
        for one, other in self._links:
            self.handle(one, PeerConnected(other))
        self.steps(20)

    def handle(self, shard: int, event: Event) -> None:
        """One event at one shard."""
        self.take(shard, self.processes[shard].handle(event, self.now_ns))

    def take(self, shard: int, effects: Iterable[Effect]) -> None:
        """Carries out what a shard's process asks for."""
        for effect in effects:
            self._take(shard, effect)

    def append(self, shard: int, position: int, data: bytes) -> None:
        """A record, as a shard's store gets it. It is durable when `commit` is called."""
        self.counted.log_bytes += len(data)

    def commit(self, shard: int) -> None:
        """What a shard has appended is durable."""
        self.handle(shard, Committed(self.processes[shard].position))

    def refused(self, effect: TickRefused | SessionRefused) -> None:
        """A node is refused, where nothing is to be. Raises RuntimeError."""
        raise RuntimeError(effect.refusal.message)

    def _take(self, shard: int, effect: Effect) -> None:
        match effect:
            case Append():
                self.append(shard, effect.position, record_to_bytes(effect.record))
            case Send():
                self._links[shard, effect.shard].add(effect.frame, self.now_ns)
            case WakeAt():
                self._wakes[shard] = effect.now_ns
            case Announced():
                self.counted.announcements += 1
            case Answer():
                self.answers[effect.request] = effect.result  # type: ignore[index]
            case FrontGranted():
                self.granted.add(effect.session)
            case TickRefused() | SessionRefused():
                self.refused(effect)

    def steps(self, count: int) -> None:
        """Lets a few milliseconds pass."""
        for _ in range(count):
            self.step()

    def step(self) -> None:
        """A millisecond: what is due arrives, what was appended is durable, who wants to be woken is."""
        self.now_ns += STEP_NS
        due = [(place, link) for place, link in self._links.items() if _is_due(link, self.now_ns)]
        for (shard, other), link in due:
            self._deliver(shard, other, link)
        for shard, process in enumerate(self.processes):
            if process.position > process.committed:
                self.commit(shard)
            wake_ns = self._wakes[shard]
            if wake_ns is not None and wake_ns <= self.now_ns:
                self._wakes[shard] = None
                self.handle(shard, Wake())

    def is_at_rest(self, within_ns: int) -> bool:
        """Whether nothing is on its way, and nobody is to be woken in that time."""
        until_ns = self.now_ns + within_ns
        return (
            all(process.position == process.committed for process in self.processes)
            and not any(_is_due(link, until_ns) for link in self._links.values())
            and all(wake_ns is None or wake_ns > until_ns for wake_ns in self._wakes)
        )

    def replace(self, shard: int, process: Process) -> None:
        """Another process is a shard's from here on, as after a restart: what was on its way is lost."""
        self.processes[shard], self._wakes[shard] = process, None
        for place in self._links:
            if shard in place:
                self._links[place] = Outgoing()

    def connect(self, shard: int) -> None:
        """A shard's links are up again."""
        for one, other in self._links:
            if shard in (one, other):
                self.handle(one, PeerConnected(other))

    def _deliver(self, shard: int, other: int, link: Outgoing) -> None:
        first, *following = link.take(self.now_ns)
        message = frame_to_pb(first)
        for frame in following:
            write_frame(frame, message.following.add())
        sent = message.SerializeToString()
        self.counted.messages += 1
        self.counted.message_bytes += len(sent)
        for carrier in carriers(peer_pb.ExchangeRequest.FromString(sent)):
            frame = frame_from_pb(carrier)
            self.processes[other].check_frame(frame)
            self.handle(other, FrameArrived(frame))

    def ask(self, requests: Iterable[tuple[int, Callable[[int], Event]]]) -> list[Any]:
        """The answers to requests (shard, event of a request's number), many under way at once. What is not ready is asked
        again."""
        answers: list[Any] = []
        for some in _in_parts([*requests], AT_ONCE):
            waiting, given = dict(enumerate(some)), dict[int, Any]()
            while waiting:
                for number, (shard, event) in waiting.items():
                    self.handle(shard, event(number))
                self.step()
                while len(self.answers) < len(waiting):
                    self.step()
                given |= self.answers
                self.answers.clear()
                waiting = {
                    n: each for n, each in waiting.items() if _is_to_be_asked_again(given[n])
                }
            answers += [given[number] for number in range(len(some))]
        for answer in answers:
            if isinstance(answer, Refusal):
                raise RuntimeError(answer.message)
        return answers

    def join(self, wanted: Sequence[tuple[str, str]]) -> list[Node]:
        """Nodes by pipeline and id, attached to their homes."""
        homes = [self.routing.home(*each) for each in wanted]
        answers = self.ask(
            (home, partial(_joining, *each)) for home, each in zip(homes, wanted, strict=True)
        )
        joined = [
            Node(home, each[0], answer.key)
            for home, each, answer in zip(homes, wanted, answers, strict=True)
        ]
        for node in joined:
            self.attach(node)
        return joined

    def attach(self, node: Node) -> None:
        """A node begins a stream of ticks."""
        self.handle(node.home, AttachSession(node, node.pipeline, node.key))

    def tick(self, node: Node, content: TickContent) -> None:
        """A node commits its next tick, as the bytes of a message."""
        sent = content_to_pb(content).SerializeToString()
        self.counted.ticks += 1
        self.counted.tick_bytes += len(sent)
        node.number += 1
        content = content_from_pb(pb.TickContent.FromString(sent))
        self.handle(node.home, SubmitTick(node, node.number, content))


def _is_due(link: Outgoing, by_ns: int) -> bool:
    return link.due_ns is not None and link.due_ns <= by_ns


def _registration(spec: PipelineSpec, request: int) -> Event:
    return RegisterPipeline(request, spec)


def _joining(pipeline: str, node_id: str, request: int) -> Event:
    return JoinNode(request, pipeline, node_id, "bench")


def _is_to_be_asked_again(answer: object) -> bool:
    return isinstance(answer, Refusal) and answer.code is RefusalCode.NOT_READY


def _in_parts(things: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for first in range(0, len(things), size):
        yield things[first : first + size]


@dataclass(eq=False)
class Node:
    """A node at its home; `last` are the cells that it has created and not consumed."""

    home: int
    pipeline: str
    key: NodeKey
    number: int = 0
    last: Cells = field(default_factory=Cells.empty)


class Load:
    """A deployment with pipelines, nodes and fronts, which commit as many ticks a second as they are told to."""

    def __init__(self, shards: int, pipelines: int, nodes: int, segments: int = 2) -> None:
        self.deployment = Deployment(shards)
        self._random = np.random.default_rng(7)
        names = [f"p{number}" for number in range(pipelines)]
        self.register(names, segments)
        homes = [(name, "front") for name in names]
        homes += [(names[n % pipelines], f"n{n}") for n in range(nodes)]
        joined = self.deployment.join(homes)
        self.fronts, self.nodes = joined[:pipelines], joined[pipelines:]
        for front in self.fronts:
            self.deployment.tick(front, TickContent(joins=(FrontJoin("front", 0),)))
        while len(self.deployment.granted) < pipelines:
            self.deployment.step()
        self._turn = itertools.cycle(self.nodes)
        self._promises = itertools.cycle(self.fronts)
        self._begin()

    def register(self, names: Iterable[str], segments: int) -> None:
        """Registers pipelines, each a chain of so many segments."""
        chain = tuple(f"s{number}" for number in range(segments))
        edges = tuple(Edge(*pair) for pair in itertools.pairwise(chain))
        start_slot = self.deployment.now_ns // SLOT_NS
        registrar = self.deployment.routing.registrar
        self.deployment.ask(
            (
                registrar(name),
                partial(
                    _registration,
                    PipelineSpec(
                        name,
                        chain,
                        edges,
                        front_count=1,
                        start_slot=start_slot,
                        max_nodes=MAX_NODES,
                    ),
                ),
            )
            for name in names
        )

    def _begin(self) -> None:
        self.deployment.steps(300)
        self.deployment.counted = Counted()

    def run(self, seconds: float, ticks_a_second: int) -> float:
        """So much simulated time at work; microseconds of processor time a tick."""
        steps = round(seconds * 1e9 / STEP_NS)
        due = done = 0.0
        promised = 0.0
        before, began = self.deployment.counted.ticks, time.process_time()
        for _ in range(steps):
            due += ticks_a_second * STEP_NS / 1e9
            while done < due:
                self._work(next(self._turn))
                done += 1
            promised += len(self.fronts) / PROMISE_STEPS
            while promised >= 1:
                slot = self.deployment.now_ns // SLOT_NS - 1
                self.deployment.tick(
                    next(self._promises), TickContent(heartbeats=(Heartbeat("front", slot),))
                )
                promised -= 1
            self.deployment.step()
        ticks = self.deployment.counted.ticks - before
        return (time.process_time() - began) / ticks * 1e6

    def _work(self, node: Node) -> None:
        """A micro-batch: a cell is created, and what the batch before created is consumed."""
        slot = self.deployment.now_ns // SLOT_NS
        created = Cells.of([(0, slot, int(self._random.integers(1, 2**63)), 100)])
        self.deployment.tick(node, TickContent(created=created, consumed=node.last))
        node.last = created


# --- the axes -------------------------------------------------------------------------------------

RATE = 2_000
"""Ticks a second of simulated time, where the load is not what is varied."""
LARGE = {"shards": 16, "nodes": 10_000, "executors": 100_000, "pipelines": 10_000}
"""What the extrapolations are for."""


def find(budget: Budget) -> Iterable[Figure]:
    seconds = budget.pick(1, 2, 4) / 4
    yield from _shards(seconds)
    yield from _nodes(seconds)
    yield from _pipelines(seconds)
    yield from _segments()
    yield from _executors()
    yield from _combined(budget)


def _fit(
    name: str, axis: str, unit: str, points: dict[int, float], most: int | None = None
) -> Iterable[Figure]:
    """The figure of the largest size, and in words the straight line through all of them: its slope, how far the
    farthest point lies from it, and what it says of `most`, beyond what was measured."""
    xs, ys = np.array([*points], float), np.array([*points.values()])
    slope, at_none = np.polyfit(xs, ys, 1)
    off = float(np.max(np.abs(slope * xs + at_none - ys)) / np.max(ys))
    largest = max(points)
    told = ", ".join(f"{shown(value)} with {size:,}" for size, value in points.items())
    line = f"{told}; a line of {slope:.3g} for each one more, farthest point {off:.0%} off"
    if most is not None and most > largest:
        line += f"; extrapolated to {most:,}: {shown(slope * most + at_none)} {unit}"
    yield Figure(f"{name}, {largest:,} {axis}", (points[largest],), unit, line)


def _shards(seconds: float) -> Iterable[Figure]:
    """The same load on more and more shards."""
    cost: dict[int, float] = {}
    messages, sent, written = dict(cost), dict(cost), dict(cost)
    for shards in (1, 2, 4, 8, 16):
        load = Load(shards, 10, 100)
        load.run(seconds / 4, RATE)
        load.deployment.counted = counted = Counted()
        cost[shards] = load.run(seconds, RATE)
        messages[shards] = counted.messages / counted.ticks
        sent[shards] = counted.message_bytes / counted.ticks
        written[shards] = counted.log_bytes / counted.ticks
    what = f"of a tick, {RATE:,} a second"
    yield from _fit(f"processor time {what}, all shards", "shards", "µs", cost)
    yield from _fit(f"messages between shards {what}", "shards", "", messages)
    yield from _fit(f"bytes between shards {what}", "shards", "bytes", sent)
    yield from _fit(f"bytes of all logs {what}", "shards", "bytes", written)


def _nodes(seconds: float) -> Iterable[Figure]:
    """One pipeline of one shard with more and more nodes, which take turns."""
    cost, memory, joining = {}, {}, {}
    for nodes in (100, 1_000, 10_000):
        load = Load(1, 1, nodes)
        load.run(seconds / 4, RATE)
        cost[nodes] = load.run(seconds, RATE)
    for nodes in (500, 1_000, 2_000):
        load = Load(1, 1, 1)
        wanted = [("p0", f"more{number}") for number in range(nodes)]
        began = time.process_time()
        memory[nodes] = _kept(lambda: load.deployment.join(wanted)) / nodes  # noqa: B023
        joining[nodes] = (time.process_time() - began) / nodes * 1e6
    yield from _fit("processor time of a tick, one shard", "nodes", "µs", cost)
    yield from _fit("memory of a node at its home", "nodes", "bytes", memory, LARGE["nodes"])


def _pipelines(seconds: float) -> Iterable[Figure]:
    """More and more pipelines, of which ten are at work; and what one by itself takes."""
    cost, registering, memory = {}, {}, {}
    for pipelines in (250, 500, 1_000, 2_000):
        load = Load(2, 10, 20)
        names = [f"idle{number}" for number in range(pipelines)]
        began = time.process_time()
        load.register(names, 3)
        registering[pipelines] = (time.process_time() - began) / pipelines * 1e6
        load.run(seconds / 4, RATE)
        cost[pipelines] = load.run(seconds, RATE)
    for pipelines in (250, 500, 1_000):
        load = Load(1, 1, 1)
        names = [f"idle{number}" for number in range(pipelines)]
        memory[pipelines] = _kept(lambda: load.register(names, 3)) / pipelines  # noqa: B023
    most = LARGE["pipelines"]
    yield from _fit(
        "processor time of registering one, both of two shards",
        "pipelines",
        "µs",
        registering,
        most,
    )
    yield from _fit(
        "processor time of a tick beside idle ones, two shards", "pipelines", "µs", cost, most
    )
    yield from _fit(
        "memory of an idle pipeline of 3 segments, a shard", "pipelines", "bytes", memory
    )


def _segments() -> Iterable[Figure]:
    """A chain of segments, registered with one shard: it blocks whatever else the process has to do."""
    registering = {}
    for segments in (250, 500, 1_000):
        load = Load(1, 1, 1)
        began = time.process_time()
        load.register(["chain"], segments)
        registering[segments] = (time.process_time() - began) * 1e3
    yield from _fit("processor time of registering a chain", "segments", "ms", registering)


def _executors() -> Iterable[Figure]:
    """Local trackers in a tree, each executor ending a task a second."""
    messages, took, sent = {}, {}, {}
    for executors in (1_000, 10_000, 100_000):
        began = time.process_time()
        levels, flushed = cost_of_tree(executors)
        took[executors] = (time.process_time() - began) * 1e3
        messages[executors], sent[executors] = levels["into the tracker"], flushed
    for what, unit, points in (("messages", "/s", messages), ("bytes", "bytes", sent)):
        told = ", ".join(f"{shown(value)} with {size:,}" for size, value in points.items())
        yield Figure(
            f"{what} into the tracker of a tree a second, {max(points):,} executors",
            (points[max(points)],),
            unit,
            f"{told}; no line: a level more merges what the one below sends",
        )
    yield from _fit("processor time of the whole tree for a second", "executors", "ms", took)


def _combined(budget: Budget) -> Iterable[Figure]:
    """As much at once as a few minutes allow."""
    pipelines, nodes = budget.pick(100, 250, 1_000), budget.pick(1_000, 2_500, 10_000)
    subscribers, rate = 1_000, 10_000
    began = time.process_time()
    load = Load(16, pipelines, nodes)
    what = f"16 shards, {pipelines:,} pipelines, {nodes:,} nodes, {subscribers:,} subscribers, {rate:,} ticks a second"
    yield Figure(
        f"setting up {what}", (time.process_time() - began,), "s", "processor time, all shards"
    )
    gc.collect()
    counted = load.deployment.counted
    cost = load.run(0.5, rate)
    told = counted.announcements / 16 * subscribers / pipelines * 2
    yield Figure("... processor time of a tick, all shards", (cost,), "µs", what)
    yield Figure(
        "... processors that are busy with core and codecs", (cost * rate / 1e6,), "", what
    )
    yield Figure("... messages between shards, a second", (counted.messages * 2,), "/s", what)
    yield Figure("... bytes between shards, a second", (counted.message_bytes * 2,), "bytes", what)
    yield Figure("... bytes of all logs, a second", (counted.log_bytes * 2,), "bytes", what)
    yield Figure("... notifications, a second", (told,), "/s", f"{_notified(2)} bytes each; {what}")


def _notified(segments: int) -> int:
    """Bytes of a notification of so many segments."""
    times = [pb.SegmentTime(segment=f"s{n}", min_time=177_000_000_000) for n in range(segments)]
    message = progress_pb.SubscribeResponse(
        pipeline="p1000", segments=times, min_time=177_000_000_000, slack_ns=SLOT_NS, rounds=1
    )
    return message.ByteSize()


def _kept(build: Callable[[], object]) -> int:
    """Bytes that are allocated more after something was built than before."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    build()
    gc.collect()
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return used
