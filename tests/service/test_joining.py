"""A process becomes a shard: its number, a peer's state in pieces, its own store, whatever kind that is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from acker.v1 import peer_service_pb2 as peer_pb
from acker.v1 import peer_service_pb2_grpc as peer_grpc
from tests.cluster.redis_server import RedisServer
from tests.waits import HANG_S, until_async
from tracker.client.admin import Admin
from tracker.client.ports import free_ports
from tracker.core import log as m
from tracker.core.model import Edge, PipelineSpec, RefusalCode, Refused
from tracker.core.process import ProcessConfig
from tracker.service.cluster import peers
from tracker.service.cluster.addresses import checked_address
from tracker.service.cluster.joining import CannotJoin, Newcomer
from tracker.service.cluster.owning import Claim, Claimant, HasLeft, Owned, mark_gone
from tracker.service.cluster.peer_link import GivenUp
from tracker.service.config import ServerConfig
from tracker.service.server import TrackerServer
from tracker.store import GONE, StoreError, StoreUnavailable, open_leases, open_store

CONFIG = ProcessConfig(rescale_margin_ms=0)
SPEC = PipelineSpec("p", ("in", "out"), (Edge("in", "out"),), fronts=("f",))


def addresses(count: int) -> list[str]:
    return [f"127.0.0.1:{port}" for port in free_ports(count)]


def first(address: str, store: str = "memory:", config: ProcessConfig = CONFIG) -> TrackerServer:
    return TrackerServer(ServerConfig(0, (address,), store, grace_s=0.1, process=config))


def joining(address: str, at: str, store: str) -> ServerConfig:
    return ServerConfig(
        0, (), store, grace_s=0.1, process=CONFIG, join=(at,), address=address, listen=address
    )


async def owned_by(config: ServerConfig) -> Owned:
    owned = await asyncio.wait_for(Newcomer(config).own(asyncio.Event()), HANG_S)
    assert owned is not None
    return owned


async def serving(config: ServerConfig, owned: Owned) -> TrackerServer:
    server = TrackerServer(_of(config, owned.shard), owned.store, owned.epoch)
    await server.start()
    return server


def _of(config: ServerConfig, shard: int) -> ServerConfig:
    return ServerConfig(
        shard, (), config.store, grace_s=0.1, process=CONFIG, join=config.join,
        address=config.address,
    )  # fmt: skip


def counts(*servers: TrackerServer) -> bool:
    numbers = {server.config.shard for server in servers}
    return all(server.engine.process.membership.members == numbers for server in servers)


async def in_thread(call: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(call)


@pytest.fixture(params=["memory", "sqlite", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "memory":
        yield "memory:"
    elif request.param == "sqlite":
        yield f"sqlite:{tmp_path / 'store'}"
    else:
        server = RedisServer(tmp_path / "redis")
        server.start()
        try:
            yield f"redis://127.0.0.1:{server.port}?namespace=joining"
        finally:
            server.discard()


async def test_a_newcomer_begins_with_its_peers_state_in_a_store_of_any_kind(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "BOOTSTRAP_PIECE_BYTES", 50)
    one, two = addresses(2)
    server = first(one, store)
    await server.start()
    await in_thread(lambda: Admin(one).register(SPEC))
    config = joining(two, one, store)
    owned = await owned_by(config)
    assert owned.shard == 1
    newcomer = await serving(config, owned)
    await until_async(lambda: counts(server, newcomer))
    assert newcomer.engine.process.spec("p") == server.engine.process.spec("p")
    with Admin(two) as admin:
        grown = await in_thread(lambda: admin.rescale(2))
        assert grown.table.version == 1
        if store != "memory:":  # it comes back as the same shard, by what its store says
            await newcomer.kill()
            again = await owned_by(config)
            assert again.shard == 1 and again.epoch > owned.epoch
            newcomer = await serving(config, again)
            await until_async(lambda: counts(server, newcomer))
        await in_thread(lambda: admin.rescale(1))
    await asyncio.wait_for(newcomer.wait(), HANG_S)
    assert newcomer.left and newcomer.failure is None
    await newcomer.stop()
    await server.stop()


async def test_a_newcomer_that_is_given_up_before_it_has_begun_is_told_so(tmp_path: Path) -> None:
    one, two = addresses(2)
    server = first(one, config=ProcessConfig(join_timeout_ms=100))
    await server.start()
    number = await server.engine.ask(m.JoinShard(object(), two))
    await until_async(lambda: not server.engine.process.membership.joining)
    newcomer = Newcomer(joining(two, one, f"sqlite:{tmp_path}"))
    with pytest.raises(GivenUp, match=f"shard {number.shard} has been given up"):
        await asyncio.wait_for(newcomer.fetch(number.shard), HANG_S)
    await server.stop()


async def test_one_whose_store_is_gone_before_others_count_it_is_another_shard() -> None:
    one, two = addresses(2)
    server = first(one)
    await server.start()
    config = joining(two, one, "memory:")
    before = await owned_by(config)  # and its process ends before it is served
    after = await asyncio.wait_for(owned_by(config), HANG_S)
    assert (before.shard, after.shard) == (1, 2)
    assert server.engine.process.membership.joining.keys() == {2}
    async with grpc.aio.insecure_channel(one) as channel:
        stub: Any = peer_grpc.PeerServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError, match="named by 65 characters, the limit is 64"):
            await stub.JoinShard(peer_pb.JoinShardRequest(address=two, process="p" * 65))
    await server.stop()


async def test_one_that_has_lost_its_store_cannot_join_from_the_same_address() -> None:
    one, two = addresses(2)
    server = first(one)
    await server.start()
    config = joining(two, one, "memory:")
    newcomer = await serving(config, await owned_by(config))
    await until_async(lambda: counts(server, newcomer))
    await newcomer.kill()
    with pytest.raises(CannotJoin, match=f"shard 1 is reached at {two}, and its store is not"):
        await owned_by(config)
    await server.stop()


async def test_a_shard_that_comes_back_while_its_store_is_away_waits_for_it(tmp_path: Path) -> None:
    """Its store is no other one's, and is not gone."""
    redis = RedisServer(tmp_path / "redis").start()
    one, two = addresses(2)
    server = first(one)
    await server.start()
    config = joining(two, one, f"redis://{redis.host}:{redis.port}")
    newcomer = await serving(config, await owned_by(config))
    await until_async(lambda: counts(server, newcomer))
    await newcomer.kill()
    redis.kill()
    with pytest.raises(StoreUnavailable):  # by which its process tries again
        await owned_by(config)
    redis.start()
    owned = await owned_by(config)
    assert owned.shard == 1
    owned.store.close()
    await server.stop()
    redis.discard()


async def test_a_store_of_another_tracker_is_not_taken(tmp_path: Path) -> None:
    one, two = addresses(2)
    url = f"sqlite:{tmp_path}"
    other = open_store(url, 1)
    other.write_snapshot(other.acquire("somebody"), 0, b"something")
    other.close()
    server = first(one)
    await server.start()
    with pytest.raises(StoreError, match="has a shard 1 already"):
        await owned_by(joining(two, one, url))
    await server.stop()


def test_addresses_that_nobody_could_reach_are_refused() -> None:
    for address in (
        "",
        "host",
        "host:0",
        "host:70000",
        ":1",
        "0.0.0.0:1",
        "[::]:1",
        "h\n:1",
        "h" * 300 + ":1",
    ):
        with pytest.raises(Refused) as refused:
            checked_address(address)
        assert refused.value.refusal.code is RefusalCode.INVALID
    assert checked_address("[::1]:7070") == "[::1]:7070"


async def test_a_standby_takes_shards_that_came_later_and_none_that_left_or_never_began(
    tmp_path: Path,
) -> None:
    url = f"sqlite:{tmp_path}"
    for shard in (0, 1, 2, 3):
        one = open_store(url, shard)
        epoch = one.acquire(f"owner-{shard}", lease_ms=3_600_000 if shard == 0 else 0)
        if shard in (1, 3):  # 2 was about to join
            one.write_snapshot(epoch, 0, b"something")
        one.close()
    mark_gone(url, 1)
    claim = Claim(url, "standby", 3_000, 1)
    owned = await asyncio.wait_for(Claimant(claim).own(asyncio.Event()), HANG_S)
    assert owned is not None and owned.shard == 3
    await in_thread(owned.store.close)
    # And whoever served the one that left is told so.
    with pytest.raises(HasLeft, match="shard 1 has left"):
        await Claimant(Claim(url, "owner-1", 3_000, 2, 1)).own(asyncio.Event())
    leases = open_leases(url)
    assert leases.shards() == [0, 1, 2, 3]
    lease = leases.read(1)
    assert lease is not None and lease.owner == GONE
    leases.close()


async def test_a_shard_that_left_and_begins_with_an_empty_store_is_told_so() -> None:
    one, two = addresses(2)
    servers = [
        TrackerServer(ServerConfig(n, (one, two), grace_s=0.1, process=CONFIG)) for n in (0, 1)
    ]
    for server in servers:
        await server.start()
    with Admin(one) as admin:
        await in_thread(lambda: admin.rescale(1))
    await asyncio.wait_for(servers[1].wait(), HANG_S)
    assert servers[1].left
    await servers[1].stop()
    again = TrackerServer(ServerConfig(1, (one, two), grace_s=0.1, process=CONFIG))
    await again.start()
    await asyncio.wait_for(again.wait(), HANG_S)
    assert isinstance(again.failure, GivenUp) and "shard 1 has left" in str(again.failure)
    await again.stop()
    await servers[0].stop()


async def test_a_process_that_others_cannot_reach_says_so_to_a_newcomer() -> None:
    (port, other) = free_ports(2)
    server = first(f"0.0.0.0:{port}")
    await server.start()
    config = joining(f"127.0.0.1:{other}", f"127.0.0.1:{port}", "memory:")
    with pytest.raises(CannotJoin, match="give --address HOST:PORT"):
        await owned_by(config)
    await server.stop()
