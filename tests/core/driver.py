"""Real processes, driven by hand: a test says what is delivered, made durable, lost, and when.

Nothing moves by itself. `settle()` lets everything happen that can; between two calls a test may hold
links back, keep commits waiting, or let a process die.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import count
from typing import Any, TypeVar

import numpy as np

from tests import inside
from tracker.core.log import (
    Announced,
    Answer,
    Append,
    AttachSession,
    Committed,
    Effect,
    Event,
    Frame,
    FrameArrived,
    FrontGranted,
    Grant,
    HomeEntry,
    Joined,
    JoinNode,
    JoinShard,
    LeaveNode,
    LeftTracker,
    PeerConnected,
    Record,
    RegisterPipeline,
    RescaleShards,
    Send,
    SessionRefused,
    ShardNumber,
    SubmitTick,
    TickRefused,
    TicksDurable,
    Wake,
    WakeAt,
)
from tracker.core.log.records import level_raised_by
from tracker.core.model import (
    Batch,
    Cells,
    FrontJoin,
    Heartbeat,
    HoldMove,
    NodeKey,
    PipelineSpec,
    Refusal,
    RefusalCode,
    TickContent,
    Unit,
)
from tracker.core.model.levels import NEWEST_LEVEL
from tracker.core.model.routing import RoutingTable
from tracker.core.pipeline.pipeline import Pipeline
from tracker.core.process import Process, ProcessConfig
from tracker.core.process.snapshot import ProcessSnapshot

MS = 1_000_000
_ROUNDS = 400

Some = TypeVar("Some")
Item = tuple[int, int, int]
"""(segment number, slot, ack value)."""


def content(
    *,
    created: Iterable[Item] = (),
    consumed: Iterable[Item] = (),
    heartbeats: dict[str, int] | None = None,
    joins: dict[str, int] | None = None,
    leaves: Iterable[str] = (),
    batch: Batch | None = None,
    units_created: Iterable[Unit] = (),
    units_consumed: Iterable[Unit] = (),
    holds: dict[str, tuple[int, int]] | None = None,
) -> TickContent:
    """What a tick carries, from plain values."""
    return TickContent(
        created=Cells.of((*item, 1) for item in created),
        consumed=Cells.of((*item, 1) for item in consumed),
        heartbeats=tuple(Heartbeat(*pair) for pair in (heartbeats or {}).items()),
        joins=tuple(FrontJoin(*pair) for pair in (joins or {}).items()),
        leaves=tuple(leaves),
        batch=batch,
        units_created=tuple(units_created),
        units_consumed=tuple(units_consumed),
        holds=tuple(HoldMove(name, *at) for name, at in (holds or {}).items()),
    )


def names_of(cluster: Cluster, registrar: int) -> Iterator[str]:
    """Names that are registered with a shard."""
    names = map("q{}".format, count())
    return (name for name in names if cluster.routing.registrar(name) == registrar)


class Cluster:
    """Some shards, their stores, and the links between them."""

    def __init__(
        self,
        shards: int,
        *,
        block_slots: int = 1,
        config: ProcessConfig | None = None,
        speaks: int = NEWEST_LEVEL,
    ) -> None:
        """speaks: the feature level of the release that the tracker begins with."""
        self.first_table = RoutingTable.uniform(shards, block_slots)
        self.config = config or ProcessConfig()
        self.now_ns = 0
        self.begins = speaks
        self.speaks: dict[int, int] = {}
        """By shard the feature level of the release that is there now, where it is another one."""
        self.formats: dict[int, int] = {}
        """By shard the feature level that it takes to read its store."""
        self.processes: dict[int, Process] = {}
        self.stored: dict[int, list[tuple[int, Record]]] = defaultdict(list)
        self.pending: dict[int, list[tuple[int, Record]]] = defaultdict(list)
        self.snapshots: dict[int, ProcessSnapshot] = {}
        self.epochs: dict[int, int] = defaultdict(int)
        self.links: dict[tuple[int, int], deque[Frame]] = defaultdict(deque)
        self.held: set[tuple[int, int]] = set()
        """Links whose frames wait."""
        self.said: list[tuple[int, Announced]] = []
        """Every announcement, with the shard that made it."""
        self.gone: set[int] = set()
        """Shards that have left."""
        self.effects: list[Effect] = []
        """All effects so far."""
        self._requests = count(1)
        self._crash_at: dict[int, int] = {}
        self.has_crashed = False
        self._wakes: dict[int, int] = {}
        for shard in range(shards):
            self.start(shard)

    # --- processes --------------------------------------------------------------------------------

    @property
    def routing(self) -> RoutingTable:
        """The newest table that anyone has."""
        tables = [process.routing for process in self.processes.values()]
        return max(tables, key=lambda table: table.version, default=self.first_table)

    @property
    def sequencer(self) -> int:
        """The shard that decides which shards come and go, as far as anyone has heard."""
        known = (process.membership for process in self.processes.values())
        return max(known, key=lambda each: each.moves).sequencer

    def start(self, shard: int) -> Process:
        """Starts a shard's process from what its store holds."""
        self.epochs[shard] += 1
        speaks = self.speaks.get(shard, self.begins)
        process = Process(shard, self.first_table, self.epochs[shard], self.config, speaks)
        self.processes[shard] = process
        snapshot, records = self.snapshots.get(shard), self.stored[shard]
        level = self.formats.get(shard, 0) if records else 0
        effects = process.recover(snapshot, records, self.now_ns, level)
        self._take(shard, effects)
        for other in self.processes:
            if other != shard:
                self.handle(shard, PeerConnected(other))
                self.handle(other, PeerConnected(shard))
        return process

    def begin_to_join(self) -> int:
        """A shard is given a number."""
        answer = self.ask(self.sequencer, JoinShard, f"host-{next(self._requests)}:1")
        assert isinstance(answer, ShardNumber), answer
        return answer.shard

    def bootstrap(self, shard: int, peer: int) -> Process:
        """A shard that is joining takes up what a peer knows, and begins."""
        self.snapshots[shard] = self.processes[peer].bootstrap_snapshot(shard)
        return self.start(shard)

    def join_shard(self, peer: int | None = None) -> int:
        """A shard joins, and everything happens that follows. peer: who hands out its state; the sequencer if None."""
        shard = self.begin_to_join()
        self.settle()
        self.bootstrap(shard, self.sequencer if peer is None else peer)
        self.settle()
        return shard

    def rescale(
        self, shards: int, *, evacuate: bool = False, without: tuple[int, ...] = ()
    ) -> RoutingTable:
        """An operator asks for so many shards, and everything happens that follows."""
        answer = self.ask(self.sequencer, RescaleShards, shards, evacuate, without)
        assert isinstance(answer, RoutingTable), answer
        self.settle()
        return answer

    def crash(self, shard: int) -> None:
        """Ends a process: what is not durable is gone, and so are frames under way to and from it."""
        del self.processes[shard]
        self.pending[shard].clear()
        self._wakes.pop(shard, None)
        for link, frames in self.links.items():
            if shard in link:
                frames.clear()

    def restart(self, shard: int) -> Process:
        self.crash(shard)
        return self.start(shard)

    def upgrade(self, shard: int, speaks: int = NEWEST_LEVEL) -> Process:
        """Another release takes the place of a process."""
        assert self.formats.get(shard, 0) <= speaks, "its store would refuse it"
        self.speaks[shard] = speaks
        return self.restart(shard)

    def take_snapshot(self, shard: int) -> None:
        """Replaces the log so far by a snapshot."""
        snapshot = self.processes[shard].snapshot()
        self.snapshots[shard] = snapshot
        self.stored[shard] = [r for r in self.stored[shard] if r[0] > snapshot.position]

    def restart_all(self, *, from_snapshots: bool = False) -> None:
        """Every process dies and comes back, one after the other."""
        for shard in list(self.processes):
            if from_snapshots:
                self.take_snapshot(shard)
            self.restart(shard)
        self.settle()

    # --- looking ----------------------------------------------------------------------------------

    def pipeline(self, shard: int, name: str = "p") -> Pipeline:
        """What a process has of a pipeline."""
        return inside.pipeline(self.processes[shard], name)

    def pipelines(self, name: str = "p") -> list[Pipeline]:
        """What each process has of a pipeline."""
        return [inside.pipeline(process, name) for process in self.processes.values()]

    def logged(self, kind: type[Some]) -> list[Some]:
        """Entries of a kind that home logs were given, durable or not."""
        records = [e.record for e in self.effects if isinstance(e, Append)]
        entries = [record.entry for record in records if isinstance(record, HomeEntry)]
        return [entry for entry in entries if isinstance(entry, kind)]

    def ids_at(self, home: int, pipeline: str = "p") -> Iterator[str]:
        """Ids of nodes that are at home at a shard."""
        return (name for name in map(str, count()) if self.routing.home(pipeline, name) == home)

    def slots_of(self, shard: int, begin: int = 0) -> Iterator[int]:
        """Slots that a shard owns, from one on."""
        return (slot for slot in count(begin) if self.routing.owner(slot, "p") == shard)

    # --- moving -----------------------------------------------------------------------------------

    def handle(self, shard: int, event: Event) -> list[Effect]:
        process = self.processes[shard]
        effects = process.handle(event, self.now_ns)
        self._take(shard, effects)
        process.validate()
        return effects

    def _take(self, shard: int, effects: list[Effect]) -> None:
        self.effects += effects
        for effect in effects:
            match effect:
                case Append():
                    self.pending[shard].append((effect.position, effect.record))
                case Send():
                    self.links[shard, effect.shard].append(effect.frame)
                case Announced():
                    self.said.append((shard, effect))
                case WakeAt():
                    self._wakes[shard] = effect.now_ns
                case LeftTracker():
                    self.gone.add(shard)

    def crash_at(self, shard: int, commits: int) -> None:
        """The shard's process dies when so many more of its commits are durable, and starts again."""
        self._crash_at[shard] = commits
        self.has_crashed = False

    def _crashes_now(self, shard: int) -> bool:
        self._crash_at[shard] = left = self._crash_at.get(shard, 0) - 1
        return left == 0

    def commit(self, shard: int, records: int | None = None) -> None:
        """Makes what waits durable, or the first `records` of it, and says so."""
        self.store(shard, records)
        if self._crashes_now(shard):
            self.has_crashed = True
            self.restart(shard)
        elif self.stored[shard]:
            self.handle(shard, Committed(self.stored[shard][-1][0]))

    def store(self, shard: int, records: int | None = None) -> None:
        """Makes records durable without the process hearing of it."""
        waiting = self.pending[shard]
        needs = [level_raised_by(record) for _, record in waiting[:records]]
        here = self.processes[shard].membership.level if shard in self.processes else 0
        self.formats[shard] = max([self.formats.get(shard, 0), here, *needs])
        number = len(waiting) if records is None else records
        self.stored[shard] += waiting[:number]
        del waiting[:number]

    def deliver(self, source: int, target: int, frames: int | None = None) -> None:
        """Delivers what is under way on a link, in order, or its first `frames`."""
        link = self.links[source, target]
        for _ in range(len(link) if frames is None else frames):
            frame = link.popleft()
            if target in self.processes:
                self.processes[target].check_frame(frame)
                self.handle(target, FrameArrived(frame))

    def settle(self, until: Callable[[], bool] = lambda: False) -> None:
        """Lets everything happen that can, time passing where it must, until nothing follows that
        anyone could see, or until something holds."""
        for _ in range(_ROUNDS):
            if until():
                return
            moved = self.move_once()
            if moved:
                continue
            self.now_ns += (self.config.report_interval_ms + 1) * MS
            for shard in list(self.processes):
                if self._wakes.get(shard, self.now_ns + 1) <= self.now_ns:
                    self.handle(shard, Wake())
            if not any(self.pending.values()) and not self.deliverable():
                return
        raise AssertionError(f"still moving after {_ROUNDS} rounds")

    def part(self, *shards: int) -> None:
        """These hear nothing of one another."""
        self.held |= {(one, other) for one in shards for other in shards if one != other}

    def reconnect(self) -> None:
        """Nothing is held back any more, and what was lost is sent again."""
        self.held.clear()
        self.pass_time(self.config.retransmit_ms + 1)

    def move_at_once(self) -> None:
        """Lets everything happen that needs no time."""
        while self.move_once():
            pass

    def move_once(self) -> bool:
        """Makes durable what waits, and delivers what is under way; returns whether there was anything."""
        busy = [shard for shard, waiting in self.pending.items() if waiting]
        for shard in busy:
            self.commit(shard)
        links = self.deliverable()
        for link in links:
            self.deliver(*link)
        return bool(busy or links)

    def deliverable(self) -> list[tuple[int, int]]:
        """The links with frames on their way that nobody holds up: from which shard to which."""
        return [link for link, frames in self.links.items() if frames and link not in self.held]

    def pass_time(self, milliseconds: float) -> None:
        """Time passes, and what is due happens: when it is due, where silent fronts are evicted."""
        end_ns = self.now_ns + int(milliseconds * MS)
        while self.now_ns < end_ns:
            step_ns = end_ns - self.now_ns
            if any(inside.evicts(process) for process in self.processes.values()):
                step_ns = min(step_ns, self.config.evict_check_ms * MS)
            self.pause(step_ns / MS)

    def pause(self, milliseconds: float) -> None:
        """Time passes in which no process runs; what is due happens behind it."""
        self.now_ns += int(milliseconds * MS)
        for shard in list(self.processes):
            self.handle(shard, Wake())
        self.settle()

    def pass_time_without_commits(self) -> None:
        """Time passes, and what is due happens as far as it needs nothing to be durable."""
        self.now_ns += (self.config.report_interval_ms + 1) * MS
        for shard in list(self.processes):
            self.handle(shard, Wake())

    # --- asking -----------------------------------------------------------------------------------

    def ask(self, shard: int, make: Callable[..., Any], *arguments: Any) -> Any:
        """Sends a request and returns the answer; lets everything happen in between."""
        request = f"request-{next(self._requests)}"
        self.handle(shard, make(request, *arguments))
        if not self.answers(request):
            self.settle()
        (answer,) = self.answers(request)
        return answer

    def answers(self, request: object) -> list[Any]:
        """The results that a request was answered with so far."""
        return [e.result for e in self.effects if isinstance(e, Answer) and e.request == request]

    def ask_home(
        self, node_id: str, make: Callable[..., Any], *arguments: Any, pipeline: str = "p"
    ) -> Any:
        """Asks the home of a node; the pipeline and the node come first."""
        home = self.routing.home(pipeline, node_id)
        return self.ask(home, make, pipeline, node_id, *arguments)

    def register(self, spec: PipelineSpec) -> Any:
        return self.ask(self.routing.registrar(spec.name), RegisterPipeline, spec)

    def front(
        self, spec: PipelineSpec, node_id: str, promise: int | None = None, **fronts: int
    ) -> HandNode:
        """A node whose fronts feed the segments given by their names, here `a` the first one where none is
        named; each may have promised a slot."""
        node = self.node(spec, node_id, "front")
        for front, segment in (fronts or {"a": 0}).items():
            node.join_front(front, segment)
            if promise is not None:
                node.commit(heartbeats={front: promise})
        return node

    def join(self, node_id: str, kind: str = "other", *, pipeline: str = "p", **more: Any) -> Any:
        """What a node is answered that wants to join. more: other fields of JoinNode."""
        return self.ask_home(node_id, partial(JoinNode, **more), kind, pipeline=pipeline)

    def node(self, spec: PipelineSpec, node_id: str, kind: str = "other", **more: Any) -> HandNode:
        """Joins a node and attaches a stream of ticks."""
        joined = self.join(node_id, kind, pipeline=spec.name, **more)
        assert isinstance(joined, Joined), joined
        node = HandNode(self, spec, self.routing.home(spec.name, node_id), joined)
        node.attach()
        return node

    def min_times(self, spec: PipelineSpec) -> list[tuple[int, ...]]:
        """What each running process says, by shard."""
        return [p.min_times(spec.name) for _, p in sorted(self.processes.items())]

    def agreed(self, spec: PipelineSpec) -> tuple[int, ...]:
        """What all processes say, once everything that can has happened."""
        self.settle()
        said = set(self.min_times(spec))
        assert len(said) == 1, f"the processes differ: {said}"
        return said.pop()


class Lossy(Cluster):
    """Frames of some kinds are lost on some links."""

    lost: set[tuple[int, int, type]] = set()

    def _take(self, shard: int, effects: list[Effect]) -> None:
        lost = [
            effect
            for effect in effects
            if isinstance(effect, Send)
            and (shard, effect.shard, type(effect.frame.body)) in self.lost
        ]
        super()._take(shard, [effect for effect in effects if effect not in lost])


class HandNode:
    """A node whose every message a test sends."""

    def __init__(self, cluster: Cluster, spec: PipelineSpec, home: int, joined: Joined) -> None:
        self.cluster, self.spec, self.home, self.joined = cluster, spec, home, joined
        self.key: NodeKey = joined.key
        self.last = 0
        self.sessions = 0
        self.session = ""

    def attach(self) -> list[Effect]:
        self.sessions += 1
        self.session = f"{self.key}/{self.sessions}"
        generation = self.joined.generation
        attach = AttachSession(self.session, self.spec.name, self.key, generation)
        return self.cluster.handle(self.home, attach)

    def send(self, number: int, tick: TickContent) -> list[Effect]:
        """Sends a tick under any number; returns what the home says at once."""
        return self.cluster.handle(self.home, SubmitTick(self.session, number, tick))

    def begin(self, **what: Any) -> None:
        """Sends the next tick, which must be accepted; it is not durable yet."""
        self.last += 1
        refused = _first(self.send(self.last, content(**what)), (TickRefused, SessionRefused))
        assert refused is None, refused

    @property
    def ended(self) -> Refusal:
        """Why its stream was ended."""
        (refused,) = [e for e in self.cluster.effects
                      if isinstance(e, SessionRefused) and e.session == self.session]  # fmt: skip
        return refused.refusal

    def attach_refused(self) -> Refusal:
        """Why no stream can be attached any more."""
        (refused,) = [e for e in self.attach() if isinstance(e, SessionRefused)]
        return refused.refusal

    def commit(self, **what: Any) -> None:
        """Sends the next tick and lets everything happen."""
        self.begin(**what)
        self.cluster.settle()
        assert self.durable >= self.last

    def refused(self, **what: Any) -> Refusal:
        """Sends a tick that must be refused; its number stays free."""
        effects = self.send(self.last + 1, content(**what))
        refused = _first(effects, (TickRefused,))
        assert refused is not None, f"was not refused: {effects}"
        assert refused.number == self.last + 1
        return refused.refusal

    @property
    def durable(self) -> int:
        """The last tick of this key that is known to be durable."""
        said = [
            e.number
            for e in self.cluster.effects
            if isinstance(e, TicksDurable) and str(e.session).startswith(f"{self.key}/")
        ]
        return max(said, default=0)

    @property
    def grants(self) -> list[Grant]:
        """The grants that this key has heard."""
        return [
            e.grant
            for e in self.cluster.effects
            if isinstance(e, FrontGranted) and str(e.session).startswith(f"{self.key}/")
        ]

    def join_front(self, front: str, segment: int = 0) -> Grant:
        """A front of the node begins to feed a segment; returns its grant."""
        self.commit(joins={front: segment})
        assert self.grants, "no grant was given"
        return self.grants[-1]

    def leave(self) -> Any:
        leave = partial(LeaveNode, generation=self.joined.generation)
        return self.cluster.ask(self.home, leave, self.spec.name, self.key)


def _first(effects: list[Effect], kinds: tuple[type, ...]) -> Any:
    return next((effect for effect in effects if isinstance(effect, kinds)), None)


def refused(answer: object, code: RefusalCode, *words: str) -> Refusal:
    """An answer that must be a refusal of this kind, whose message has these words."""
    assert isinstance(answer, Refusal) and answer.code is code, answer
    for word in words:
        assert word in answer.message
    return answer


def plain(thing: Any) -> Any:
    """A value that compares by contents, from nested dataclasses and arrays."""
    if is_dataclass(thing) and not isinstance(thing, type):
        given = [field.name for field in fields(thing) if field.init]
        return (type(thing).__name__, *(plain(getattr(thing, name)) for name in given))
    if isinstance(thing, np.ndarray):
        return thing.tolist()
    if isinstance(thing, (tuple, list)):
        return tuple(plain(part) for part in thing)
    return thing
