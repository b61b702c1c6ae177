"""How a process ends: in order when it is told to, at once when it must not go on, and how it refuses
to start on a store that it cannot believe."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from acker.v1 import node_service_pb2 as node_pb
from acker.v1 import progress_service_pb2 as progress_pb
from tests.service.serving import config, serving, status_of
from tests.waits import HANG_S, until_async
from tracker.client.ports import free_ports
from tracker.core.process import LogLost, Process
from tracker.service import engine as engine_module
from tracker.service.config import ServerConfig
from tracker.service.relaying import RelayServer
from tracker.service.rpc.probes import Probes
from tracker.service.rpc.redirect import RedirectServer
from tracker.service.rpc.security import Security, listen_at
from tracker.service.server import TrackerServer
from tracker.store import LogShortened, MemoryStore, StoreDamaged, StoreError


def linked(process: Process) -> bool:
    return all(shard.connected for shard in process.describe_shards())


async def test_whoever_waits_is_told_when_a_process_stops() -> None:
    async with serving(config(grace_s=3600.0)) as served:
        ticks = await served.ticks()
        hears = served.progress.Subscribe()
        await hears.write(
            progress_pb.SubscribeRequest(subscribe=progress_pb.Subscription(pipeline="p"))
        )
        assert (await hears.read()).min_time == 0
        waits = served.progress.WaitUntil(progress_pb.WaitUntilRequest(pipeline="p", slot=9))
        resolves = served.nodes.ResolveUnits(
            node_pb.ResolveUnitsRequest(
                pipeline="p", segment="a", names=["file:///x"], wait_ms=60_000
            )
        )
        server = served.server
        await until_async(lambda: server.parts.hub.waiting.count == server.parts.units.count == 1)
        # The grace is an hour: it ends because all were told, and left.
        await served.stop()
        for call in (ticks.call, hears, waits, resolves):
            code, details = await status_of(call)
            assert code is grpc.StatusCode.UNAVAILABLE, details


async def test_a_process_that_stops_waits_for_no_connection_without_a_call() -> None:
    async with serving(config(grace_s=3600.0)) as served:
        host, port = served.server.address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))  # as a standby's
        assert await reader.read(1)  # it is let in, and has been greeted
        await served.stop()
        await reader.read()  # to its end
        writer.close()


async def test_processes_that_are_linked_stop_one_after_the_other() -> None:
    addresses = tuple(f"127.0.0.1:{port}" for port in free_ports(2))
    servers = [TrackerServer(ServerConfig(n, addresses, grace_s=3600.0)) for n in (0, 1)]
    for server in servers:
        await server.start()
    for process in [server.engine.process for server in servers]:
        await until_async(partial(linked, process))
    for server in servers:
        await asyncio.wait_for(server.stop(), HANG_S)


async def test_what_was_handed_over_before_a_stop_is_there_after_it(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as served:
        ticks = await served.ticks()
        for number in range(1, 201):
            await ticks.send(number)
        heard = (await ticks.answer()).committed.number
    async with serving(config(tmp_path)) as again:
        assert again.node_time >= heard > 0


class FailingStore(MemoryStore):
    """Fails to write when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = threading.Event()
        self.failed = threading.Event()

    def commit(self, epoch: int, records: Sequence[tuple[int, bytes]], level: int = 1) -> None:
        if self.fails.is_set():
            self.failed.set()
            raise StoreError("no space left")
        super().commit(epoch, records, level)


async def test_a_write_that_fails_is_tried_again_and_nothing_acknowledged_in_between() -> None:
    store = FailingStore()
    async with serving(config(), store) as served:
        ticks = await served.ticks()
        store.fails.set()
        await ticks.send(1)
        await asyncio.to_thread(store.failed.wait, HANG_S)
        assert served.node_time == 0
        store.fails.clear()
        assert (await ticks.answer()).committed.number == 1


class SpoiltStore(MemoryStore):
    """Has lost records, or is damaged, when it is told so."""

    def __init__(self, error: StoreError) -> None:
        super().__init__()
        self.lost, self._error = threading.Event(), error

    def commit(self, epoch: int, records: Sequence[tuple[int, bytes]], level: int = 1) -> None:
        if self.lost.is_set():
            raise self._error
        super().commit(epoch, records, level)


@pytest.mark.parametrize(
    "error", [LogShortened("acknowledged records are gone"), StoreDamaged("x")]
)
async def test_a_process_whose_store_is_spoilt_stops_and_acknowledges_nothing_more(
    error: StoreError,
) -> None:
    store = SpoiltStore(error)
    async with serving(config(), store) as served:
        ticks = await served.ticks()
        store.lost.set()
        await ticks.send(1)
        await asyncio.wait_for(served.server.wait(), HANG_S)
        assert served.server.failure is error
        code, _ = await status_of(ticks.call)
        assert code is grpc.StatusCode.UNAVAILABLE


async def test_a_store_that_fails_does_not_hold_a_process_that_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_module, "FLUSH_AT_STOP_S", 0.2)
    store = FailingStore()
    async with serving(config(grace_s=0.2), store) as served:
        ticks = await served.ticks()
        store.fails.set()
        await ticks.send(1)
        await asyncio.to_thread(store.failed.wait, HANG_S)
        await served.stop()


HANGS = """
import sys, threading
from tracker.service import run
from tracker.service.config import ServerConfig
from tracker.store import SqliteStore

def hang(*_, **__):
    print("it hangs", flush=True)
    threading.Event().wait()

setattr(SqliteStore, sys.argv[2], hang)
run.END_WITHIN_S = 0.5
run.configure_logging(as_json=True)
sys.exit(run.main(ServerConfig(0, ("127.0.0.1:0",), f"sqlite:{sys.argv[1]}")))
"""


@pytest.mark.parametrize(
    ("call", "until_it_says"), [("acquire", "hangs"), ("load", "hangs"), ("close", "serving")]
)
def test_a_call_of_the_store_that_hangs_does_not_hold_a_process_that_is_told_to_end(
    call: str, until_it_says: str, tmp_path: Path
) -> None:
    """As on a disk that answers no more: no limit ends such a call, and no thread in it."""
    command = [sys.executable, "-c", HANGS, str(tmp_path), call]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        try:
            while until_it_says not in (line := process.stdout.readline()):
                assert line, "it has ended"
            process.terminate()
            said = process.communicate(timeout=HANG_S)[0]
        finally:
            process.kill()
    assert process.returncode == 1
    assert '"event": "ended_by_force"' in said and " < hang < " in said


async def test_an_owner_that_was_replaced_stops_and_answers_nothing_more() -> None:
    store = MemoryStore()
    async with serving(config(), store) as served:
        ticks = await served.ticks()
        store.acquire(served.server.config.own_address)  # one that has started again
        await ticks.send(1)
        await asyncio.wait_for(served.server.wait(), HANG_S)
        assert "replaced by epoch 2" in str(served.server.failure)
        code, _ = await status_of(ticks.call)
        assert code is grpc.StatusCode.UNAVAILABLE
        with pytest.raises(grpc.aio.AioRpcError, match="UNAVAILABLE"):
            await served.nodes.JoinNode(node_pb.JoinNodeRequest(pipeline="p", node_id="m"))


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
async def test_a_damaged_log_is_refused_at_the_start_and_left_alone(
    tmp_path: Path, statement: str, error: type[Exception], says: str
) -> None:
    async with serving(config(tmp_path)) as served:
        await (await served.ticks()).commit(1)
    damaged(tmp_path / "shard-0.db", statement)
    before = (tmp_path / "shard-0.db").stat().st_size
    with pytest.raises(error, match=says):
        await TrackerServer(config(tmp_path)).start()
    assert (tmp_path / "shard-0.db").stat().st_size == before


@pytest.mark.parametrize(
    ("who", "begun"),
    [
        ("shard 0", lambda where: TrackerServer(ServerConfig(0, (where,))).start()),
        ("the relay", lambda where: RelayServer(ServerConfig(0, (where,), relay=("h:1",))).start()),
        ("a process that waits for its shard", lambda where: RedirectServer(where).open()),
        ("the health service for probes", lambda where: Probes(where).open()),
    ],
)
async def test_a_port_in_use_is_named_by_whoever_wants_it(who: str, begun: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        where = f"127.0.0.1:{holder.getsockname()[1]}"
        with pytest.raises(OSError, match=f"^{who} cannot listen on {where}: another process has"):
            await begun(where)


@pytest.mark.parametrize(
    ("listen", "address", "found"),
    [
        ("127.0.0.1:0", "", "127.0.0.1:PORT"), ("127.0.0.1:0", "tracker.example:0", "tracker.example:PORT"),
        ("127.0.0.1:0", "tracker.example:7070", "tracker.example:7070"),
    ],
)  # fmt: skip
async def test_port_0_is_any_and_the_address_has_the_one_that_it_is(
    listen: str, address: str, found: str
) -> None:
    server = grpc.aio.server()
    reached = listen_at(server, listen, Security(), who="it", address=address)
    port = reached.rpartition(":")[2]
    assert int(port) > 0 and reached == found.replace("PORT", port)
    await server.stop(None)


async def test_a_port_in_use_is_named_and_the_store_let_go(tmp_path: Path) -> None:
    running = TrackerServer(config())
    await running.start()
    taken = ServerConfig(0, (running.address,), f"sqlite:{tmp_path}")
    with pytest.raises(OSError, match=f"shard 0 cannot listen on {running.address}"):
        await TrackerServer(taken).start()
    await running.stop()
    freed = TrackerServer(taken)
    await freed.start()
    await freed.stop()
