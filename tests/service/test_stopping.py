"""How a process ends: in order when it is told to, at once when it must not go on, and how it refuses
to start on a store that it cannot believe."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from acker.v1 import node_service_pb2 as node_pb
from acker.v1 import node_service_pb2_grpc as node_grpc
from acker.v1 import pipeline_service_pb2 as pipeline_pb
from acker.v1 import pipeline_service_pb2_grpc as pipeline_grpc
from acker.v1 import progress_service_pb2 as progress_pb
from acker.v1 import progress_service_pb2_grpc as progress_grpc
from tracker.client.embedded import free_ports
from tracker.core.model import PipelineSpec
from tracker.core.process import LogLost, Process
from tracker.service import engine as engine_module
from tracker.service.config import ServerConfig
from tracker.service.server import TrackerServer
from tracker.store import LogShortened, MemoryStore, StoreError
from tracker.wire.pipelines import spec_to_pb

WAIT_S = 20.0
SPEC = PipelineSpec("p", ("a",), front_count=1)


def config(tmp_path: Path | None = None, **more: Any) -> ServerConfig:
    store = "memory:" if tmp_path is None else f"sqlite:{tmp_path}"
    return ServerConfig(0, ("127.0.0.1:0",), store, **more)


async def register(channel: grpc.aio.Channel) -> None:
    request = pipeline_pb.RegisterPipelineRequest(spec=spec_to_pb(SPEC))
    stub: Any = pipeline_grpc.PipelineServiceStub(channel)
    await stub.RegisterPipeline(request, timeout=WAIT_S)


async def attached(channel: grpc.aio.Channel) -> Any:
    """A stream of ticks of a node that has joined."""
    stub: Any = node_grpc.NodeServiceStub(channel)
    joined = await stub.JoinNode(node_pb.JoinNodeRequest(pipeline="p", node_id="n"), timeout=WAIT_S)
    stream = stub.CommitTicks()
    await stream.write(
        node_pb.CommitTicksRequest(attach=node_pb.Attach(pipeline="p", key=joined.key))
    )
    assert (await stream.read()).WhichOneof("message") == "attached"
    return stream


async def commit(stream: Any, number: int) -> None:
    tick = node_pb.NumberedTick(number=number)
    await stream.write(node_pb.CommitTicksRequest(tick=tick))


async def until(condition: Callable[[], bool]) -> None:
    """Returns when something holds of which no event tells."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)


def linked(process: Process) -> bool:
    return all(shard.connected for shard in process.describe_shards())


async def status_of(call: Any) -> tuple[grpc.StatusCode, str]:
    """The status with which a call ends, that waits for something."""
    return (
        await asyncio.wait_for(call.code(), WAIT_S),
        await asyncio.wait_for(call.details(), WAIT_S),
    )


def test_whoever_waits_is_told_when_a_process_stops() -> None:
    async def story() -> None:
        server = TrackerServer(config(grace_s=3600.0))
        await server.start()
        async with grpc.aio.insecure_channel(server.address) as channel:
            await register(channel)
            progress: Any = progress_grpc.ProgressServiceStub(channel)
            nodes: Any = node_grpc.NodeServiceStub(channel)
            ticks = await attached(channel)
            hears = progress.Subscribe()
            await hears.write(
                progress_pb.SubscribeRequest(subscribe=progress_pb.Subscription(pipeline="p"))
            )
            assert (await hears.read()).min_time == 0
            waits = progress.WaitUntil(progress_pb.WaitUntilRequest(pipeline="p", slot=9))
            resolves = nodes.ResolveUnits(
                node_pb.ResolveUnitsRequest(
                    pipeline="p", segment="a", names=["file:///x"], wait_ms=60_000
                )
            )
            await until(lambda: server._hub.waiting.count == 1 and server._units.count == 1)
            # The grace is an hour: it ends because all were told, and left.
            await asyncio.wait_for(server.stop(), WAIT_S)
            for call in (ticks, hears, waits, resolves):
                code, details = await status_of(call)
                assert code is grpc.StatusCode.UNAVAILABLE, details

    asyncio.run(story())


def test_processes_that_are_linked_stop_one_after_the_other() -> None:
    async def story() -> None:
        addresses = tuple(f"127.0.0.1:{port}" for port in free_ports(2))
        servers = [TrackerServer(ServerConfig(n, addresses, grace_s=3600.0)) for n in (0, 1)]
        for server in servers:
            await server.start()
        for process in [server.engine.process for server in servers]:
            await until(partial(linked, process))
        for server in servers:
            await asyncio.wait_for(server.stop(), WAIT_S)

    asyncio.run(story())


def test_what_was_handed_over_before_a_stop_is_there_after_it(tmp_path: Path) -> None:
    async def story() -> int:
        server = TrackerServer(config(tmp_path))
        await server.start()
        async with grpc.aio.insecure_channel(server.address) as channel:
            await register(channel)
            stream = await attached(channel)
            for number in range(1, 201):
                await commit(stream, number)
            heard = (await stream.read()).committed.number
            await server.stop()
        again = TrackerServer(config(tmp_path))
        await again.start()
        node = again.engine.process.describe("p", 0).nodes[0]
        await again.stop()
        assert node.node_time >= heard > 0
        return heard

    asyncio.run(story())


def as_version_1_kept_it(path: Path) -> None:
    """Rewrites a file: no checksum behind a record, and nothing of leases."""
    with sqlite3.connect(path) as file:
        file.execute("UPDATE log SET record = substr(record, 1, length(record) - 4)")
        file.execute("UPDATE snapshot SET data = substr(data, 1, length(data) - 4)")
        file.execute("DELETE FROM meta WHERE name NOT IN ('shard', 'epoch', 'owner')")
        file.execute("PRAGMA user_version=1")


def test_a_process_goes_on_with_what_the_version_before_has_stored(tmp_path: Path) -> None:
    async def story() -> None:
        server = TrackerServer(config(tmp_path))
        await server.start()
        async with grpc.aio.insecure_channel(server.address) as channel:
            await register(channel)
            stream = await attached(channel)
            await commit(stream, 1)
            await stream.read()
            await server.engine.write_snapshot()
            await commit(stream, 2)
            await stream.read()
            await server.stop()
        as_version_1_kept_it(tmp_path / "shard-0.db")
        again = TrackerServer(config(tmp_path))
        await again.start()
        assert again.engine.process.describe("p", 0).nodes[0].node_time == 2
        await again.stop()

    asyncio.run(story())


class FailingStore(MemoryStore):
    """Fails to write when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = threading.Event()
        self.failed = threading.Event()

    def commit(self, epoch: int, records: Sequence[tuple[int, bytes]]) -> None:
        if self.fails.is_set():
            self.failed.set()
            raise StoreError("no space left")
        super().commit(epoch, records)


def test_a_write_that_fails_is_tried_again_and_nothing_acknowledged_in_between() -> None:
    async def story() -> None:
        store = FailingStore()
        server = TrackerServer(config(), store)
        await server.start()
        async with grpc.aio.insecure_channel(server.address) as channel:
            await register(channel)
            stream = await attached(channel)
            store.fails.set()
            await commit(stream, 1)
            await asyncio.to_thread(store.failed.wait, WAIT_S)
            assert server.engine.process.describe("p", 0).nodes[0].node_time == 0
            store.fails.clear()
            answer = await asyncio.wait_for(stream.read(), WAIT_S)
            assert answer.committed.number == 1
        await server.stop()

    asyncio.run(story())


class ShortenedStore(MemoryStore):
    """Has lost records when it is told so."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = threading.Event()

    def commit(self, epoch: int, records: Sequence[tuple[int, bytes]]) -> None:
        if self.lost.is_set():
            raise LogShortened("acknowledged records are gone")
        super().commit(epoch, records)


def test_a_process_whose_store_has_lost_records_stops_and_acknowledges_nothing_more() -> None:
    async def story() -> None:
        store = ShortenedStore()
        server = TrackerServer(config(), store)
        await server.start()
        async with grpc.aio.insecure_channel(server.address) as channel:
            await register(channel)
            stream = await attached(channel)
            store.lost.set()
            await commit(stream, 1)
            await asyncio.wait_for(server.wait(), WAIT_S)
            assert isinstance(server.failure, LogShortened)
            code, _ = await status_of(stream)
            assert code is grpc.StatusCode.UNAVAILABLE
        await server.stop()

    asyncio.run(story())


def test_a_store_that_fails_does_not_hold_a_process_that_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_module, "FLUSH_AT_STOP_S", 0.2)

    async def story() -> None:
        store = FailingStore()
        server = TrackerServer(config(grace_s=0.2), store)
        await server.start()
        async with grpc.aio.insecure_channel(server.address) as channel:
            await register(channel)
            stream = await attached(channel)
            store.fails.set()
            await commit(stream, 1)
            await asyncio.to_thread(store.failed.wait, WAIT_S)
            await asyncio.wait_for(server.stop(), WAIT_S)

    asyncio.run(story())


def test_an_owner_that_was_replaced_stops_and_answers_nothing_more() -> None:
    async def story() -> None:
        store = MemoryStore()
        server = TrackerServer(config(), store)
        await server.start()
        async with grpc.aio.insecure_channel(server.address) as channel:
            await register(channel)
            stream = await attached(channel)
            store.acquire(server.config.own_address)  # one that has started again
            await commit(stream, 1)
            await asyncio.wait_for(server.wait(), WAIT_S)
            assert "replaced by epoch 2" in str(server.failure)
            code, _ = await status_of(stream)
            assert code is grpc.StatusCode.UNAVAILABLE
            nodes: Any = node_grpc.NodeServiceStub(channel)
            with pytest.raises(grpc.aio.AioRpcError, match="UNAVAILABLE"):
                await nodes.JoinNode(node_pb.JoinNodeRequest(pipeline="p", node_id="m"))
        await server.stop()

    asyncio.run(story())


def damaged(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as database:
        assert database.execute(statement).rowcount == 1


@pytest.mark.parametrize(
    ("statement", "error", "says"),
    [
        (
            "UPDATE log SET record = x'ffffff' WHERE position = 2",
            StoreError,
            "record 2 of shard 0 is damaged.*backup",
        ),
        ("DELETE FROM log WHERE position = 2", LogLost, "from record 1 to 3.*missing"),
    ],
    ids=["unreadable", "missing"],
)
def test_a_damaged_log_is_refused_at_the_start_and_left_alone(
    tmp_path: Path, statement: str, error: type[Exception], says: str
) -> None:
    async def story() -> None:
        server = TrackerServer(config(tmp_path))
        await server.start()
        async with grpc.aio.insecure_channel(server.address) as channel:
            await register(channel)
            stream = await attached(channel)
            await commit(stream, 1)
            await stream.read()
        await server.stop()
        damaged(tmp_path / "shard-0.db", statement)
        before = (tmp_path / "shard-0.db").stat().st_size
        with pytest.raises(error, match=says):
            await TrackerServer(config(tmp_path)).start()
        assert (tmp_path / "shard-0.db").stat().st_size == before

    asyncio.run(story())


def test_a_port_in_use_is_named_and_the_store_let_go(tmp_path: Path) -> None:
    async def story() -> None:
        running = TrackerServer(config())
        await running.start()
        taken = ServerConfig(0, (running.address,), f"sqlite:{tmp_path}")
        with pytest.raises(OSError, match=f"shard 0 cannot listen on {running.address}"):
            await TrackerServer(taken).start()
        await running.stop()
        freed = TrackerServer(taken)
        await freed.start()
        await freed.stop()

    asyncio.run(story())
