"""Two shards whose every frame and record goes through bytes, and their servicers, without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Hashable, Iterable
from dataclasses import replace
from typing import Any

import grpc

from acker.v1 import peer_service_pb2 as peer_pb
from acker.v1 import types_pb2 as pb
from tests import inside
from tests.core.driver import Cluster, plain
from tracker.core import log as m
from tracker.core.insight.explain import StoreState
from tracker.core.model import (
    Batch,
    Cells,
    Edge,
    PipelineSpec,
    Refusal,
    RefusalCode,
    Refused,
    StagedContribution,
    Unit,
)
from tracker.core.process import Process, ProcessConfig
from tracker.service.cluster.addresses import Addresses
from tracker.service.cluster.peers import PeerServicer
from tracker.service.engine import Session
from tracker.service.rpc.access import Peers
from tracker.service.rpc.errors import STATUS
from tracker.service.rpc.nodes import NodeServicer
from tracker.service.rpc.pipelines import PipelineServicer
from tracker.service.rpc.progress import Hub, ProgressServicer
from tracker.service.rpc.refusals import EndRefused
from tracker.service.rpc.waiters import WaiterRegistry
from tracker.service.sampling import Sampler
from tracker.service.stats import Stats
from tracker.wire.frames import frame_from_pb, frame_to_pb
from tracker.wire.pipelines import state_to_pb
from tracker.wire.refusals import REFUSAL_KEY
from tracker.wire.storage import (
    record_from_bytes,
    record_to_bytes,
    snapshot_from_bytes,
    snapshot_to_bytes,
)

SPEC = PipelineSpec(
    "p", ("in", "out"), (Edge("in", "out", 1),), fronts=("F",), horizon_slots=1_000,
    max_open_units=20, max_nodes=20, max_staged=20,
)  # fmt: skip
ADDRESSES = {0: "127.0.0.1:1", 1: "127.0.0.1:2"}


class Wired(Cluster):
    """Two shards with pipeline `p`, whose front `F` of node `f` has promised slot 5."""

    def __init__(self, shards: int = 2) -> None:
        self.sessions: dict[Hashable, Session] = {}
        self.hubs = [Hub() for _ in range(shards)]
        super().__init__(shards, block_slots=2, config=ProcessConfig(max_pipelines=3))
        self.register(SPEC)
        self.front(SPEC, "f", promise=5, F=0)
        assert self.agreed(SPEC) == (5, 6)
        self.begun = len(self.effects)
        """What came before is how each of these begins."""

    def _take(self, shard: int, effects: list[m.Effect]) -> None:
        super()._take(shard, [through_bytes(effect) for effect in effects])
        for effect in effects:
            match effect:
                case m.TicksDurable(session, number) if session in self.sessions:
                    self.sessions[session].durable(number)
                case m.SessionAttached(session, number) if session in self.sessions:
                    self.sessions[session].attached(number)
                case m.SessionRefused(session, refusal) if session in self.sessions:
                    self.sessions[session].ended(refusal)
                case m.TickRefused(session, number, refusal) if session in self.sessions:
                    self.sessions[session].refused(number, refusal)
                case m.FrontGranted(session, grant) if session in self.sessions:
                    self.sessions[session].granted(grant)
                case m.Announced():
                    self.hubs[shard].announced(effect.pipeline)

    # --- what must hold ---------------------------------------------------------------------------

    def state(self) -> Any:
        """All that the processes have, what waits for their stores included."""
        return [
            (
                plain(p.snapshot()),
                p.position,
                inside.next_incarnation(p),
                plain(tuple(inside.pending(p))),
            )
            for _, p in sorted(self.processes.items())
        ]

    def kept(self) -> Any:
        """All that the processes have, however many records it came to: what is told at once to another shard is
        one there."""
        nowhere: dict[str, Any] = {"position": 0}
        return [
            (plain(replace(p.snapshot(), **nowhere)), inside.next_incarnation(p))
            for _, p in sorted(self.processes.items())
        ]

    def log(self, shard: int) -> list[tuple[int, bytes]]:
        return [(position, record_to_bytes(record)) for position, record in self.stored[shard]]

    def check(self) -> None:
        """Every process is sound, can be shown, and comes back from its log and from its snapshot."""
        self.settle()
        for shard, process in self.processes.items():
            process.validate()
            snapshot = snapshot_from_bytes(snapshot_to_bytes(process.snapshot()))
            records = [(at, record_from_bytes(data)) for at, data in self.log(shard)]
            for back in (recovered(self, shard, None, records), recovered(self, shard, snapshot)):
                back.validate()
                assert plain(back.pipelines()) == plain(process.pipelines())
                for spec in process.pipelines():
                    assert back.min_times(spec.name) == process.min_times(spec.name)
            for spec in process.pipelines():
                described = process.describe(spec.name, self.now_ns)
                state_to_pb(described).SerializeToString()


def lived(home: int) -> Wired:
    """A tracker after a life with everything in it, of nodes that are at home at one shard."""
    cluster = Wired()
    node_id = next(cluster.ids_at(home))
    node = cluster.node(SPEC, node_id)
    node.join_front("G")
    node.commit(
        created=[(0, slot, slot) for slot in range(10, 16)],
        units_created=[Unit(0, "file:///a", 10)],
        batch=Batch("query", 1, b"one"),
    )
    cells = Cells.of([(0, 12, 5, 1)])
    contribution = StagedContribution("query", "run", 2, 1, "op", 2, 3, 4, cells, cells)
    cluster.ask(home, m.StageContributions, "p", node_id, (contribution,))
    node.commit(consumed=[(0, 2, 3), *((0, slot, slot) for slot in range(10, 16))])
    node.commit(heartbeats={"G": 12})
    node.commit(leaves=["G"], created=[(1, 40, 9)])
    node.leave()
    lost = cluster.node(SPEC, node_id)
    lost.commit(created=[(1, 41, 9), (1, 42, 8)])
    given_up = Cells.of([(1, 41, 9, 1), (1, 42, 8, 1)])
    cluster.ask(home, m.RetireNode, "p", node_id, given_up, 1)
    cluster.settle()
    return cluster


def recovered(cluster: Cluster, shard: int, snapshot: Any, records: Iterable[Any] = ()) -> Process:
    """Another process, from what a store holds."""
    process = Process(shard, cluster.first_table, 99, cluster.config)
    process.recover(snapshot, records, cluster.now_ns)
    return process


class Peer(Wired):
    """Two shards of which one hears what some stranger says in the name of the other."""

    def __init__(self, sender: int, *, believed: bool = False) -> None:
        """believed: what is well formed, and false, is taken; the receiver need not be sound then."""
        self.believed = False
        super().__init__()
        self.sender, self.receiver, self.believed = sender, 1 - sender, believed
        self.held = {(0, 1), (1, 0)}

    def hear(self, said: tuple[m.Told, ...]) -> bool:
        """Whether the entries are taken; if not, nothing may have changed."""
        process = self.processes[self.receiver]
        body = m.Entries(process.links[self.sender].accepted + 1, said)
        try:
            sent = frame_to_pb(m.Frame(self.sender, self.epochs[self.sender], body))
        except ValueError:
            return False  # a number that no message holds
        return self.hear_message(sent)

    def hear_message(self, sent: peer_pb.ExchangeRequest) -> bool:
        process, before = self.processes[self.receiver], self.state()
        try:
            frame = frame_from_pb(sent)
            process.check_frame(frame)
        except Refused as refused:
            assert refused.refusal.code is RefusalCode.INVALID and refused.refusal.message
            assert self.state() == before
            return False
        self.handle(self.receiver, m.FrameArrived(frame))
        return True

    def handle(self, shard: int, event: m.Event) -> list[m.Effect]:
        if not self.believed:
            return super().handle(shard, event)
        effects = self.processes[shard].handle(event, self.now_ns)
        self._take(shard, effects)
        return effects

    def check_receiver(self) -> None:
        """What was taken is durable, and the process comes back with it."""
        for _ in range(4):
            self.commit(self.receiver)
            self.now_ns += 10**9
            self.handle(self.receiver, m.Wake())
        self.commit(self.receiver)
        process = self.processes[self.receiver]
        records = [(at, record_from_bytes(data)) for at, data in self.log(self.receiver)]
        back = recovered(self, self.receiver, None, records)
        if not self.believed:
            back.validate()
            assert back.membership == process.membership
        for spec in process.pipelines():
            state_to_pb(process.describe(spec.name, self.now_ns)).SerializeToString()


def through_bytes(effect: m.Effect) -> m.Effect:
    """An effect as the other side of a link, or of a store, gets it."""
    match effect:
        case m.Append(position, record):
            return m.Append(position, record_from_bytes(record_to_bytes(record)))
        case m.Send(shard, frame):
            data = frame_to_pb(frame).SerializeToString()
            return m.Send(shard, frame_from_pb(peer_pb.ExchangeRequest.FromString(data)))
    return effect


# --- servicers ------------------------------------------------------------------------------------


class CallEnded(Exception):
    """A call ended with a status; as a client sees it."""

    def __init__(self, status: grpc.StatusCode, details: str, refusal: pb.Refusal | None) -> None:
        super().__init__(f"{status.name}: {details}")
        self.status, self.details, self.refusal = status, details, refusal

    def check(self) -> None:
        """It is one of those of docs/errors.md, whole."""
        assert self.refusal is not None, self
        assert STATUS[RefusalCode(self.refusal.code)] is self.status, self
        assert self.details == self.refusal.message and self.details, self


class Context:
    """What a servicer may do with a call."""

    def __init__(self) -> None:
        self.written: list[Any] = []

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    async def write(self, message: Any) -> None:
        self.written.append(message)

    async def abort(
        self, status: grpc.StatusCode, details: str, trailing: tuple[tuple[str, bytes], ...] = ()
    ) -> None:
        data = dict(trailing).get(REFUSAL_KEY)
        raise CallEnded(status, details, None if data is None else pb.Refusal.FromString(data))


class WiredEngine:
    """One shard as its servicers see it. Whatever is asked of it happens at once, durability too, but while it is
    held: then nothing becomes durable, or is heard of elsewhere."""

    def __init__(self, cluster: Wired, shard: int) -> None:
        self._cluster, self._shard = cluster, shard
        self.stats = Stats()
        self._is_held = False

    @property
    def process(self) -> Process:
        return self._cluster.processes[self._shard]

    @property
    def store_state(self) -> StoreState:
        return StoreState()

    async def ask(self, event: Any) -> Any:
        self._cluster.handle(self._shard, event)
        self._cluster.settle()
        (answer,) = self._cluster.answers(event.request)
        if isinstance(answer, Refusal):
            raise Refused(answer.code, answer.message, home=answer.home, expected=answer.expected)
        return answer

    def post(self, event: m.Event) -> None:
        self._cluster.handle(self._shard, event)
        if not self._is_held:
            self._cluster.settle()

    async def held(self, messages: Iterable[Any]) -> AsyncIterator[Any]:
        """The messages of a stream, in which nothing happens before all are there."""
        self._is_held = True
        for message in messages:
            yield message
            await asyncio.sleep(0)  # a servicer takes a tick when it has asked for what comes next
        self._is_held = False
        self._cluster.settle()

    async def room(self) -> None:
        pass

    def check_lease(self) -> None:
        """Nobody takes a shard from its owner here."""

    async def taken_up(self) -> None:
        """Shards do not change here."""

    def add_session(self, name: Hashable, session: Session) -> None:
        self._cluster.sessions[name] = session

    def remove_session(self, name: Hashable) -> None:
        if self._cluster.sessions.pop(name, None) is not None:
            self.post(m.DetachSession(name))


class Served:
    """A servicer behind the interceptor that ends what is refused."""

    def __init__(self, servicer: Any) -> None:
        self.servicer = servicer

    def __getattr__(self, method: str) -> Any:
        return EndRefused(ADDRESSES).ending(
            False, lambda said: said, getattr(self.servicer, method)
        )


class Services:
    """The servicers of one shard."""

    def __init__(self, cluster: Wired, shard: int) -> None:
        engine: Any = WiredEngine(cluster, shard)
        self.engine: WiredEngine = engine
        units: WaiterRegistry[tuple[str, int]] = WaiterRegistry()
        pipelines = PipelineServicer(engine, ADDRESSES, Sampler(engine.process))
        self.nodes: Any = Served(NodeServicer(engine, units))
        self.pipelines: Any = Served(pipelines)
        self.progress: Any = Served(ProgressServicer(engine, cluster.hubs[shard]))
        trusting = Peers(ADDRESSES.values, by_certificate=False, calls=None)
        self.peers: Any = Served(PeerServicer(engine, Addresses(ADDRESSES), trusting, ""))


def called(call: Awaitable[Any], waits: bool = False, runner: Any = asyncio) -> Any:
    """Runs a call to its end; its answer, or the CallEnded with which it ended. One that may wait for
    what never comes (`waits`) is ended, and then None. runner: an asyncio.Runner, where many calls are made."""

    async def run() -> Any:
        task = asyncio.ensure_future(call)
        try:
            for _ in range(20):
                if task.done() or not waits:
                    break
                await asyncio.sleep(0)
            else:
                task.cancel()
            return await task
        except asyncio.CancelledError:
            return None
        except CallEnded as refusal:
            refusal.check()
            return refusal

    return runner.run(run())


async def stream(requests: Iterable[Any]) -> AsyncIterator[Any]:
    for request in requests:
        yield request
