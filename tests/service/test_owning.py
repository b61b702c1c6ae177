"""Who gets which shard, and when; what a process says while it waits."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from acker.v1 import node_service_pb2 as node_pb
from acker.v1 import node_service_pb2_grpc as node_grpc
from acker.v1 import peer_service_pb2_grpc as peer_grpc
from acker.v1 import types_pb2 as types_pb
from tests.waits import HANG_S, until_async
from tracker.client.ports import free_ports
from tracker.client.refusals import refusal_of
from tracker.core import log as m
from tracker.core.model import PipelineSpec, RefusalCode, Refused
from tracker.core.process import LogLost
from tracker.service.cluster.addresses import Addresses
from tracker.service.cluster.owning import AFTER_OUTAGE_LEASES, Claim, Claimant, Outage, Owned
from tracker.service.cluster.peer_link import TO_SHARD_KEY
from tracker.service.config import ServerConfig
from tracker.service.http.metrics import ServiceMetrics
from tracker.service.leasing import LeaseKeeper
from tracker.service.rpc.probes import Probes
from tracker.service.rpc.redirect import LIVE_SERVICE, RedirectServer
from tracker.service.run import AuxiliaryEndpoints, _serve_until, serve
from tracker.service.server import TrackerServer
from tracker.store import (
    Fenced,
    MemoryStore,
    SqliteStore,
    StoreDamaged,
    StoreError,
    StoreUnavailable,
)
from tracker.store.sqlite import read_lease
from tracker.wire.frames import frame_to_pb

LONG_MS = 3_600_000


def shard_store(directory: Path, shard: int) -> SqliteStore:
    return SqliteStore(directory / f"shard-{shard}.db", shard)


def owned_before(
    directory: Path, shard: int, *, address: str = "gone:1", lease_ms: int = 0
) -> None:
    """Somebody has had the shard; the lease runs for so long."""
    store = shard_store(directory, shard)
    store.renew(store.acquire(address, lease_ms=lease_ms), lease_ms, address)
    store.close()


class Waits:
    """A claimant in the background; `waiting` is set when it begins to wait."""

    def __init__(self, directory: Path, name: str, own: int | None, shards: int = 2) -> None:
        self.waiting, self._stop = asyncio.Event(), asyncio.Event()

        async def on_look(serving: Sequence[str], all_served: bool) -> None:
            self.waiting.set()

        claim = Claim(f"sqlite:{directory}", name, 1_000, shards, own)
        self._task = asyncio.ensure_future(Claimant(claim, on_look).own(self._stop))

    async def shard(self) -> int:
        owned = await asyncio.wait_for(self._task, HANG_S)
        assert owned is not None
        owned.store.close()
        return owned.shard

    async def begins_to_wait(self) -> None:
        await asyncio.wait_for(self.waiting.wait(), HANG_S)
        assert not self._task.done()

    async def told_to_stop(self) -> Owned | None:
        self._stop.set()
        return await asyncio.wait_for(self._task, HANG_S)


async def test_a_process_takes_its_own_shard_at_once(tmp_path: Path) -> None:
    assert await Waits(tmp_path, "b:1", own=1).shard() == 1


async def test_a_standby_leaves_alone_what_nobody_has_ever_owned(tmp_path: Path) -> None:
    standby = Waits(tmp_path, "s:1", own=None)
    await standby.begins_to_wait()
    owned_before(tmp_path, 1)
    assert await standby.shard() == 1
    assert not (tmp_path / "shard-0.db").exists()


async def test_a_process_whose_shard_is_taken_is_a_standby_for_the_others(tmp_path: Path) -> None:
    owned_before(tmp_path, 0, lease_ms=LONG_MS)
    displaced = Waits(tmp_path, "a:1", own=0)
    await displaced.begins_to_wait()
    owned_before(tmp_path, 1)
    assert await displaced.shard() == 1


async def test_it_waits_until_the_lease_is_given_back_or_it_is_told_to_stop(tmp_path: Path) -> None:
    owner = shard_store(tmp_path, 0)
    epoch = owner.acquire("other:1", lease_ms=LONG_MS)
    owner.renew(epoch, LONG_MS, "other:1")
    first, second = (Waits(tmp_path, name, own=0, shards=1) for name in ("a:1", "b:1"))
    await first.begins_to_wait()
    await second.begins_to_wait()
    assert await second.told_to_stop() is None
    owner.release(epoch)
    assert await first.shard() == 0
    owner.close()


def test_a_lease_that_ran_out_while_the_store_was_away_counts_when_its_owner_had_time() -> None:
    """Nobody could renew one: else each outage would move every shard."""
    lease_s = 3.0
    outage = Outage(lease_s)
    assert outage.over(True, 10.0), "it has not been away"
    assert outage.over(False, 20.0) and outage.over(False, 24.0)
    back_s = 25.0
    assert not outage.over(True, back_s)
    assert not outage.over(True, back_s + AFTER_OUTAGE_LEASES * lease_s - 0.1)
    assert outage.over(True, back_s + AFTER_OUTAGE_LEASES * lease_s)


def test_an_answer_that_failed_once_is_no_outage() -> None:
    outage = Outage(3.0)
    outage.over(False, 20.0)
    assert outage.over(True, 21.0), "owners had time left to renew"


class Serving:
    """Something that listens where an owner would, and holds its connections until it dies."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.connected = asyncio.Event()
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._hold, "127.0.0.1", self._port)

    async def _hold(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self.connected.set()

    async def die(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await self._server.wait_closed()


async def test_an_owner_that_is_seen_to_die_is_replaced_before_its_lease_ends(
    tmp_path: Path,
) -> None:
    (port,) = free_ports(1)
    owned_before(tmp_path, 0, address=f"127.0.0.1:{port}", lease_ms=LONG_MS)
    standby = Waits(tmp_path, "s:1", own=None)
    await standby.begins_to_wait()  # the owner does not serve yet: that is not its death
    owner = Serving(port)
    await owner.start()
    await asyncio.wait_for(owner.connected.wait(), HANG_S)
    await owner.die()
    assert await standby.shard() == 0


async def test_a_store_that_cannot_be_used_ends_its_owner_but_not_a_standby(tmp_path: Path) -> None:
    owned_before(tmp_path, 0)
    (tmp_path / "shard-1.db").write_bytes(b"this is no database" * 1000)
    with pytest.raises(StoreError, match="damaged or not SQLite"):
        await Waits(tmp_path, "b:1", own=1).shard()
    assert await Waits(tmp_path, "s:1", own=None).shard() == 0


async def test_whoever_waits_says_that_it_lives_and_sends_callers_elsewhere() -> None:
    (port,) = free_ports(1)
    redirect = RedirectServer(f"127.0.0.1:{port}")
    await redirect.open()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        for name, status in (("", "NOT_SERVING"), (LIVE_SERVICE, "SERVING")):
            said = await health.Check(health_pb2.HealthCheckRequest(service=name))
            assert health_pb2.HealthCheckResponse.ServingStatus.Name(said.status) == status
        nodes: Any = node_grpc.NodeServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as unary:
            await nodes.JoinNode(node_pb.JoinNodeRequest(pipeline="p", node_id="n"))
        with pytest.raises(grpc.aio.AioRpcError) as stream:
            await nodes.CommitTicks(iter([node_pb.CommitTicksRequest()])).read()
        for error in (unary.value, stream.value):
            refused = refusal_of(error)
            assert refused is not None and refused.refusal.code is RefusalCode.NOT_READY
    await redirect.close()
    again = RedirectServer(f"127.0.0.1:{port}")  # the port is free for whoever serves there
    await again.open()
    await again.close()


# --- owners that may have been replaced -----------------------------------------------------------


class CutOffStore(MemoryStore):
    """A store that its owner cannot reach while it is told so."""

    def __init__(self) -> None:
        super().__init__()
        self.away = threading.Event()
        self.asked = threading.Event()
        self.answer: StoreError = StoreUnavailable("it does not answer")

    def renew(self, epoch: int, lease_ms: int, address: str | None = None) -> None:
        if self.away.is_set():
            self.asked.set()
            raise self.answer
        super().renew(epoch, lease_ms, address)


async def one_of_two(store: MemoryStore) -> TrackerServer:
    """A process of two; the other one does not run."""
    addresses = tuple(f"127.0.0.1:{port}" for port in free_ports(2))
    server = TrackerServer(ServerConfig(0, addresses, lease_ms=200, grace_s=0.1), store)
    await server.start()
    return server


def more_than_there_is() -> m.FrameArrived:
    """Another shard says that it holds entries that this one does not know."""
    return m.FrameArrived(m.Frame(1, 1, m.EntriesReceived(999)))


async def test_a_log_that_others_know_more_of_is_lost_where_this_is_the_owner() -> None:
    server = await one_of_two(MemoryStore())
    server.engine.post(more_than_there_is())
    await asyncio.wait_for(server.wait(), HANG_S)
    assert isinstance(server.failure, LogLost)
    await server.stop()


async def test_a_log_that_others_know_more_of_is_another_owners_where_that_has_taken_over() -> None:
    """It was cut off from the store, replaced, and heard of the new owner's log from another shard
    before it could ask the store: nothing is lost."""
    store = CutOffStore()
    server = await one_of_two(store)
    store.away.set()
    store.acquire("another", replaces=1)
    store.asked.clear()
    server.engine.post(more_than_there_is())
    await asyncio.to_thread(store.asked.wait, HANG_S)
    assert server.failure is None, "it cannot know yet"
    store.away.clear()
    await asyncio.wait_for(server.wait(), HANG_S)
    assert isinstance(server.failure, Fenced)
    await server.stop()


async def test_a_log_that_others_know_more_of_in_a_store_that_is_damaged_ends_its_process() -> None:
    """Somebody has put half of an older copy there. The store does not say who owns it before that is mended."""
    store = CutOffStore()
    server = await one_of_two(store)
    store.answer = StoreDamaged("database disk image is malformed")
    store.away.set()
    server.engine.post(more_than_there_is())
    await asyncio.wait_for(server.wait(), HANG_S)
    assert isinstance(server.failure, StoreDamaged)
    await server.stop()


def test_a_lease_counts_from_when_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the answer is on its way: the store may have counted from the question on."""
    now_s = 100.0
    monkeypatch.setattr("tracker.service.leasing.time.clock_gettime", lambda _: now_s)

    class SlowStore(MemoryStore):
        def renew(self, epoch: int, lease_ms: int, address: str | None = None) -> None:
            nonlocal now_s
            now_s += 2.0

    keeper = LeaseKeeper(SlowStore(), 1, 3_000, lambda error: None)
    keeper.renew()
    assert keeper.left_s == 1.0


async def test_a_process_whose_lease_may_have_ended_sends_nodes_elsewhere() -> None:
    """Else a node that its new home has told of more ticks would take them for lost."""
    store = CutOffStore()
    server = await one_of_two(store)
    assert server.engine.lease_left_s is not None
    server.engine.check_lease()
    store.away.set()
    await asyncio.to_thread(store.asked.wait, HANG_S)
    with pytest.raises(Refused, match="may have another owner by now"):
        # Its lease ends by itself, and tells nobody.
        await until_async(server.engine.check_lease)
    store.away.clear()
    await until_async(lambda: server.engine.lease_left_s)
    server.engine.check_lease()
    await server.stop()


class TakenStore(MemoryStore):
    """Another owner comes just before this one says where it is."""

    def renew(self, epoch: int, lease_ms: int, address: str | None = None) -> None:
        if address is not None:
            self.acquire("another", replaces=epoch)
        super().renew(epoch, lease_ms, address)


async def test_a_log_that_cannot_be_read_keeps_no_standby_from_other_shards(
    tmp_path: Path,
) -> None:
    """It is free all the time, and comes before the others: whoever serves those would be replaced by nobody."""
    addresses = tuple(f"127.0.0.1:{port}" for port in free_ports(3))
    url = f"sqlite:{tmp_path}"
    damaged = shard_store(tmp_path, 0)
    damaged.commit(damaged.acquire(addresses[0]), [(1, b"no record")])
    damaged.close()
    other = TrackerServer(ServerConfig(1, addresses[:2], url, grace_s=0.1))
    await other.start()
    await other.stop()
    config = ServerConfig(0, addresses[:2], url, grace_s=0.1, standby=True, address=addresses[2])
    stop, auxiliary = asyncio.Event(), AuxiliaryEndpoints(Probes(""), ServiceMetrics(0))
    standing_by = asyncio.ensure_future(_serve_until(config, stop, auxiliary))
    await until_async(lambda: auxiliary.metrics.server is not None or standing_by.done())
    assert auxiliary.metrics.server is not None and auxiliary.metrics.server.config.shard == 1
    stop.set()
    assert await standing_by == 0


async def test_who_is_started_where_one_serves_already_replaces_nobody(tmp_path: Path) -> None:
    """By mistake, or by something that starts it again and again: it has the other one's name, and no port."""
    (port,) = free_ports(1)
    twice = ServerConfig(0, (f"127.0.0.1:{port}",), f"sqlite:{tmp_path}", grace_s=0.1)
    running = TrackerServer(twice)
    await running.start()
    before = read_lease(tmp_path / "shard-0.db")
    assert await serve(twice) == 1
    after = read_lease(tmp_path / "shard-0.db")
    assert before is not None and after is not None and before.epoch == after.epoch
    await running.stop()


async def test_a_start_that_fails_leaves_its_port_to_the_next_one() -> None:
    (port,) = free_ports(1)
    config = ServerConfig(0, (f"127.0.0.1:{port}",), grace_s=0.1)
    with pytest.raises(Fenced):
        await TrackerServer(config, TakenStore()).start()
    again = TrackerServer(config, MemoryStore())
    await again.start()
    await again.stop()


@pytest.mark.parametrize(
    ("named", "status"),
    [
        ("1", grpc.StatusCode.FAILED_PRECONDITION),
        (None, grpc.StatusCode.INVALID_ARGUMENT),
    ],
    ids=["for another shard", "for nobody in particular"],
)
async def test_what_is_meant_for_a_shard_that_was_served_here_before_is_not_taken(
    named: str | None, status: grpc.StatusCode
) -> None:
    """A link that has not heard that the shard has moved: its confirmations count another log."""
    server = await one_of_two(MemoryStore())
    # A stream of grpc.aio that still writes when it is ended takes its own INTERNAL for the other's status.
    with grpc.insecure_channel(server.address) as channel:
        stub: Any = peer_grpc.PeerServiceStub(channel)
        message = frame_to_pb(more_than_there_is().frame)
        misled = stub.Exchange(iter([message]), metadata=((TO_SHARD_KEY, named),) if named else ())
        assert await asyncio.wait_for(asyncio.to_thread(misled.code), HANG_S) is status
        assert server.failure is None
        # The same, meant for this shard, is taken: it says that the log was lost.
        taken = stub.Exchange(iter([message]), metadata=((TO_SHARD_KEY, "0"),))
        await asyncio.wait_for(server.wait(), HANG_S)
        assert isinstance(server.failure, LogLost)
        taken.cancel()
    await server.stop()


def test_the_newest_owner_says_where_a_shard_is() -> None:
    addresses, moved = Addresses({0: "a:1", 1: "b:1"}), []
    addresses.on_move(1, lambda: moved.append(addresses[1]))
    addresses.learn(1, 5, "c:1")
    addresses.learn(1, 5, "c:1")  # heard again
    addresses.learn(1, 4, "b:1")  # an owner that has been replaced
    addresses.learn(7, 9, "x:1")  # no such shard
    addresses.learn(0, 1, "")
    assert (dict(addresses), moved) == ({0: "a:1", 1: "c:1"}, ["c:1"])


@pytest.mark.parametrize(
    ("addresses", "block_slots", "why"),
    [
        (3, 64, "began with 2 shards and blocks of 64 slots"),
        (1, 64, "started for 1 shard and blocks of 64 slots"),
        (2, 32, "started for 2 shards and blocks of 32 slots"),
    ],
)
async def test_a_process_does_not_start_for_another_number_of_shards(
    tmp_path: Path, addresses: int, block_slots: int, why: str
) -> None:
    """The others would not be waited for, and what is open there be announced as complete."""

    def server(count: int, block_slots: int = 64) -> TrackerServer:
        places = tuple(f"127.0.0.1:{port}" for port in free_ports(count))
        return TrackerServer(ServerConfig(0, places, f"sqlite:{tmp_path}", block_slots=block_slots))

    first = server(2)
    await first.start()
    await first.stop()
    with pytest.raises(StoreError, match=why):
        await server(addresses, block_slots).start()
    again = server(2)
    await again.start()
    await again.stop()


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="no clock goes on in a sleep here")
def test_a_lease_ends_while_the_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it renews, it does not know that another process has owned the shard meanwhile."""
    slept_s, clock = [0.0], time.clock_gettime

    def after_the_sleep(which: int) -> float:
        return clock(which) + (slept_s[0] if which == time.CLOCK_BOOTTIME else 0)

    monkeypatch.setattr(time, "clock_gettime", after_the_sleep)
    store = MemoryStore()
    keeper = LeaseKeeper(store, store.acquire("a"), LONG_MS, lambda _: None)
    keeper.renew()
    assert keeper.held
    slept_s[0] = LONG_MS / 1000
    assert not keeper.held


async def alone(store: MemoryStore) -> TrackerServer:
    """The only process of a tracker, with a pipeline."""
    addresses = (f"127.0.0.1:{free_ports(1)[0]}",)
    server = TrackerServer(ServerConfig(0, addresses, lease_ms=200, grace_s=0.1), store)
    await server.start()
    spec = PipelineSpec("p", ("s",), front_count=1)
    await server.engine.ask(m.RegisterPipeline(object(), spec))
    return server


async def lease_is_over(server: TrackerServer, store: CutOffStore) -> None:
    """It cannot renew it, and ends."""
    store.away.set()
    await until_async(lambda: server.engine.lease_left_s == 0)


async def test_that_records_are_gone_is_said_by_nobody_who_may_have_been_replaced() -> None:
    """The next owner has acknowledged what the node knows of: it would end for good."""
    store = CutOffStore()
    server = await alone(store)
    knows_more = node_pb.JoinNodeRequest(
        pipeline="p", node_id="n", kind="front", known_incarnation=9, known_ticks=5, joining="j"
    )
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub: Any = node_grpc.NodeServiceStub(channel)
        for code in (RefusalCode.LOST, RefusalCode.NOT_READY):
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await stub.JoinNode(knows_more, timeout=HANG_S)
            refused = refusal_of(failed.value)
            assert refused is not None and refused.refusal.code is code, refused
            await lease_is_over(server, store)
    store.away.clear()
    await server.stop()


async def test_a_lease_may_end_while_nodes_wait_to_be_taken_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = CutOffStore()
    server = await alone(store)

    async def taken_up() -> None:
        await lease_is_over(server, store)

    monkeypatch.setattr(server.engine, "taken_up", taken_up)
    attach = node_pb.CommitTicksRequest(
        attach=node_pb.Attach(pipeline="p", key=types_pb.NodeKey(node_id="n", incarnation=1))
    )
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub: Any = node_grpc.NodeServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            async for _ in stub.CommitTicks(iter([attach]), timeout=HANG_S):
                pass
    refused = refusal_of(failed.value)
    assert refused is not None and refused.refusal.code is RefusalCode.NOT_READY, refused
    assert "may have another owner" in refused.refusal.message
    store.away.clear()
    await server.stop()
