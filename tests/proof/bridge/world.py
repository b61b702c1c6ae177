"""A run of the core that ships: some shards, their stores and links, and nodes, in an order that a seed decides.

Anything may come next: a node takes a step, a store finishes a part of what it was given, a frame arrives, late, twice or never, time
passes, a process writes a snapshot, or dies and comes back, and so may a node. What comes is told to a `Watcher`, event by event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from tests.core.driver import MS, Cluster
from tests.proof.bridge.ledger import Ledger, Tick
from tests.proof.bridge.nodes import Node
from tracker.core.log import (
    Announced,
    Answer,
    AttachSession,
    Effect,
    Event,
    Frame,
    FrameArrived,
    FrontGranted,
    Joined,
    JoinNode,
    JoinShard,
    PeerConnected,
    PeerDisconnected,
    RestartPipeline,
    RetireNode,
    SessionAttached,
    SessionRefused,
    ShardNumber,
    SubmitTick,
    TickRefused,
    Wake,
)
from tracker.core.model import Cells, Edge, PipelineSpec, RefusalCode, Refused
from tracker.core.process import Process, ProcessConfig
from tracker.core.process.snapshot import ProcessSnapshot

NAME = "p"
LASTING = "F"
"""The front that the pipeline waits for. It feeds the first segment, which leads to all others, and never leaves: so nothing is ever complete."""


@dataclass(frozen=True)
class Scale:
    """How much there is of a run, and how likely what goes wrong is, in each step."""

    shards: int
    workers: int = 1
    fronts: int = 1
    events: int = 110
    ticks: int = 16
    crash: float = 0.0
    rejoin: float = 0.0
    snapshot: float = 0.0
    lose: float = 0.0
    repeat: float = 0.0
    overtake: float = 0.0
    restart: float = 0.0
    retire: float = 0.0
    newcomers: int = 0
    """Shards that join."""
    patient: bool = True
    """Whether those that are expected come, or are given up."""


class Watcher(Protocol):
    """Who looks at what happens."""

    world: World

    def published(self, tick: Tick) -> None: ...

    def before(self, shard: int, event: Event) -> None: ...

    def after(self, shard: int, event: Event, effects: Sequence[Effect]) -> None: ...

    def snapshot(self, shard: int) -> None: ...

    def crashes(self, shard: int, durable: int) -> None:
        """durable: the position of the last record that was."""

    def bootstraps(self, shard: int, peer: int, snapshot: ProcessSnapshot) -> None: ...

    def recovered(self, shard: int, effects: Sequence[Effect]) -> None: ...


def pipeline(random: Random) -> PipelineSpec:
    """One to three segments, all reached from the first one, with cycles."""
    names = "abc"[: random.choice((1, 2, 2, 3))]
    edges = [
        Edge(names[random.randrange(k)], names[k], random.choice((0, 0, 1)))
        for k in range(1, len(names))
    ]
    if len(names) > 1 and random.random() < 0.3:
        edges.append(Edge(names[-1], names[0], random.choice((0, 1))))
    return PipelineSpec(NAME, tuple(names), tuple(edges), fronts=(LASTING,))


class World(Cluster):
    """The run of a seed."""

    def __init__(self, seed: int, scale: Scale, watcher: Watcher, spec: PipelineSpec) -> None:
        self.random, self.scale, self.watcher = Random(seed), scale, watcher
        watcher.world = self
        self.ledger = Ledger(spec)
        self.nodes: dict[str, Node] = {}
        self._sessions: dict[str, Node] = {}
        self._restarts_from: tuple[int | None, bool] | None = None
        self._retired: list[str] = []
        self._joining: dict[str, int] = {}
        """By address the number that a shard was given."""
        self._asked: dict[object, str] = {}
        config = ProcessConfig(
            report_burst=self.random.choice((1, 2, 4)), retransmit_ms=self.random.choice((10, 40)),
            announced_report_ms=self.random.choice((4, 20)), join_timeout_ms=10**6 if scale.patient else 30,
        )  # fmt: skip
        super().__init__(scale.shards, config=config)

    # --- what is watched ------------------------------------------------------------------------

    def handle(self, shard: int, event: Event) -> list[Effect]:
        self.now_ns += 1
        self.watcher.before(shard, event)
        effects = self.processes[shard].handle(event, self.now_ns)
        self.watcher.after(shard, event, effects)
        self._take(shard, effects)
        self._tell_nodes(effects)
        return effects

    def start(self, shard: int) -> Process:
        self.epochs[shard] += 1
        process = Process(
            shard, self.first_table, self.epochs[shard], self.config, self.speaks.get(shard, self.begins)
        )  # fmt: skip
        self.processes[shard] = process
        records = self.stored[shard]
        effects = process.recover(self.snapshots.get(shard), records, self.now_ns, self.formats.get(shard, 0) if records else 0)  # fmt: skip
        self.watcher.recovered(shard, effects)
        self._take(shard, effects)
        for other in sorted(self.processes):
            if other != shard:
                self.handle(shard, PeerConnected(other))
                self.handle(other, PeerConnected(shard))
        return process

    def _grow(self) -> None:
        """A shard asks for a number, or begins with what another one knows (rule 10)."""
        for address in [f"host-{n}" for n in range(self.scale.newcomers)]:
            if address not in self._joining:
                request = f"number-{next(self._requests)}"
                self._asked[request] = address
                self.handle(self.sequencer, JoinShard(request, address))
                return
            shard = self._joining[address]
            if shard not in self.processes and shard not in self.snapshots and self.scale.patient:
                peer = self.random.choice(sorted(self.processes))
                try:
                    snapshot = self.processes[peer].bootstrap_snapshot(shard)
                except Refused:
                    return
                self.snapshots[shard] = snapshot
                self.watcher.bootstraps(shard, peer, snapshot)
                self.start(shard)
                return

    def take_snapshot(self, shard: int) -> None:
        self.watcher.snapshot(shard)
        super().take_snapshot(shard)

    def crash(self, shard: int) -> None:
        stored = self.stored[shard]
        durable = stored[-1][0] if stored else self.processes[shard].committed
        self.watcher.crashes(shard, max(durable, self.processes[shard].committed))
        super().crash(shard)
        for other in sorted(self.processes):
            self.handle(other, PeerDisconnected(shard))
        for node in self.nodes.values():
            if node.home == shard:
                node.session = None
                node.asked = None

    def _tell_nodes(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case FrontGranted(str(session), grant):
                    node = self._sessions[session]
                    if grant.front in node.fronts:
                        node.fronts[grant.front].granted = grant.slot
                case Announced(_, min_times):
                    for segment, slot in min_times:
                        self.ledger.said[segment] = max(slot, self.ledger.said[segment])
                case Answer(request, ShardNumber(shard)):
                    self._joining[self._asked[request]] = shard
                case SessionAttached(str(session), last):
                    self._hand_over(self._sessions[session], session, last)
                case SessionRefused(str(session)):
                    if self._sessions[session].session == session:
                        self._sessions[session].session = None
                case TickRefused(str(session)):
                    self._refused(self._sessions[session], effect)

    def _refused(self, node: Node, refused: TickRefused) -> None:
        """A node hands over again what came too early, while a front of it waits for its grant. What comes too late was made of what is late, which
        is no fault of its node: it gives up."""
        node.session = None
        match refused.refusal.code:
            case RefusalCode.OUT_OF_ORDER | RefusalCode.NOT_READY:
                pass
            case RefusalCode.BELOW_MIN_TIME if self._retired:
                node.gone = True
            case _:
                raise AssertionError(refused.refusal)

    def _hand_over(self, node: Node, session: str, last: int) -> None:
        for index in range(len(node.published)):
            if node.session == session and node.number(index) > last:
                self.handle(
                    node.home, SubmitTick(session, node.number(index), node.contents[index])
                )

    # --- nodes ----------------------------------------------------------------------------------

    def begin(self) -> None:
        """The pipeline is registered, and the nodes are there."""
        self.register(self.ledger.spec)
        self.settle()
        names = [f"front{n}" for n in range(self.scale.fronts)]
        names += [f"worker{n}" for n in range(self.scale.workers)]
        for name in names:
            home = self.first_table.home(NAME, name)
            lasting = LASTING if name == "front0" else "G" if name.startswith("front") else None
            self.nodes[name] = Node(name, home, self.ledger, self.random, lasting)

    def _join(self, node: Node) -> None:
        """A node begins, or comes back with all that it has published (rule 9)."""
        if node.asked is None:
            node.asked = f"join-{next(self._requests)}"
            node.session = None
            self.handle(node.home, JoinNode(node.asked, NAME, node.id, "other", take_over=True))
        answers = self.answers(node.asked)
        if answers and isinstance(answers[-1], Joined):
            joined = answers[-1]
            node.joined(joined.key, joined.generation, max((b.id for b in joined.last_batches), default=-1))  # fmt: skip
            self._attach(node)
        elif answers:
            node.asked = None

    def _attach(self, node: Node) -> None:
        assert node.key is not None
        node.session = f"{node.id}/{next(self._requests)}"
        self._sessions[node.session] = node
        self.handle(node.home, AttachSession(node.session, NAME, node.key))

    def _has_room(self) -> bool:
        """Whether there are not too many ticks yet."""
        most = self.scale.ticks * (1.5 if self.ledger.finishing else 1.0)
        return len(self.ledger.ticks) < most

    def _step(self, node: Node) -> None:
        if node.gone:
            return
        if node.key is None or node.asked is not None or self.random.random() < self.scale.rejoin:
            self._join(node)
        elif node.session is None:
            # A stream may have ended since the pipeline was restarted: then the node has to join anew.
            (self._attach if self.random.random() < 0.5 else self._join)(node)
        elif self._has_room() and node.decide():
            index = len(node.published) - 1
            self.watcher.published(node.published[index])
            tick = SubmitTick(node.session, node.number(index), node.contents[index])
            if self.random.random() < 0.9:
                self.handle(node.home, tick)
            else:
                self.handle(node.home, tick)
                self.handle(node.home, tick)

    # --- what comes next ------------------------------------------------------------------------

    def run(self) -> None:
        """So many events, and then what settles without faults."""
        self.begin()
        for event in range(self.scale.events):
            self.ledger.finishing = event > self.scale.events * 0.6
            self._next()
        for node in self.nodes.values():
            for _ in range(6):
                if node.session is None or node.asked is not None:
                    self._step(node)
                    self.settle()
        self.settle()

    def _next(self) -> None:
        random, scale = self.random, self.scale
        self.now_ns += random.choice((0, 0, MS // 2, MS))
        shard = random.choice(sorted(self.processes))
        chance = random.random()
        if chance < scale.crash:
            self._crash(shard)
        elif chance < scale.crash + scale.snapshot:
            self.take_snapshot(shard)
        elif chance < scale.crash + scale.snapshot + scale.restart:
            self._restart()
        elif chance < scale.crash + scale.snapshot + scale.restart + scale.retire:
            self._retire()
        else:
            kinds = ("node", "commit", "frame", "wake", "wait", "grow")
            match random.choices(kinds, (30, 30, 45, 10, 2, 8 if scale.newcomers else 0))[0]:
                case "grow":
                    self._grow()
                case "node":
                    self._step(random.choice([*self.nodes.values()]))
                case "commit":
                    if waiting := len(self.pending[shard]):
                        self.commit(shard, random.choice((waiting, random.randint(1, waiting))))
                case "frame":
                    if links := self.deliverable():
                        self._deliver(*random.choice(links))
                case "wake":
                    self.handle(shard, Wake())
                case "wait":
                    self.now_ns += (self.config.retransmit_ms + 1) * MS
                    for each in sorted(self.processes):
                        self.handle(each, Wake())

    def _crash(self, shard: int) -> None:
        """What was given to the store may be durable, with nobody having heard so."""
        if self.random.random() < 0.5 and self.pending[shard]:
            self.store(shard, self.random.randint(1, len(self.pending[shard])))
        self.crash(shard)
        if self.random.random() < 0.5:
            for _ in range(self.random.randrange(8)):
                links = self.deliverable()
                if links:
                    self._deliver(*self.random.choice(links))
        self.start(shard)

    def _retire(self) -> None:
        """An operator says that a front's node is gone, until that is answered. What it has published, and not handed over, no home takes any more
        (rule 9)."""
        node = self.nodes["front1"]
        if node.key is None or (self._retired and self.answers(self._retired[-1])):
            return
        for _ in range(0 if node.gone else 4):
            if node.decide():
                self.watcher.published(node.published[-1])
        node.gone = True
        self.ledger.gone.add(node.id)
        self._retired.append(f"retired-{next(self._requests)}")
        self.handle(node.home, RetireNode(self._retired[-1], NAME, node.id, Cells.empty(), 0))

    def _restart(self) -> None:
        """An operator restarts the pipeline, once, and asks again where that may have been lost."""
        if self._restarts_from is None:
            self._restarts_from = self.random.choice((None, None, 0, 1, 2)), True
        registrar = self.first_table.registrar(NAME)
        request = f"restart-{next(self._requests)}"
        self.handle(registrar, RestartPipeline(request, NAME, 0, self._restarts_from[0], 0))

    def _deliver(self, source: int, target: int) -> None:
        link, random = self.links[source, target], self.random
        place = 0 if random.random() >= self.scale.overtake else random.randrange(len(link))
        frame = link[place]
        if random.random() >= self.scale.repeat:
            del link[place]
        if random.random() >= self.scale.lose:
            self._arrive(target, frame)

    def _arrive(self, target: int, frame: Frame) -> None:
        if target not in self.processes:
            return
        try:
            self.processes[target].check_frame(frame)
        except Refused:
            return  # a shell passes it over, and ends the connection: it is as if it were lost
        self.handle(target, FrameArrived(frame))

    def deliver(self, source: int, target: int, frames: int | None = None) -> None:
        link = self.links[source, target]
        for _ in range(len(link) if frames is None else frames):
            self._arrive(target, link.popleft())
