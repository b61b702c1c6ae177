"""Small ways in and around that were open: by a page's name for this machine, a hang-up, a link, a proxy."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from examples.children import free_ports
from local_tracker.agent.spool import Spool
from tests.client.support import TWO_SEGMENTS
from tests.cluster.forked import fork
from tests.cluster.network import Place
from tests.cluster.tracker import Server
from tests.waits import HANG_S
from tracker.client import Admin
from tracker.client.embedded import embedded
from tracker.client.signals import ending_signals
from tracker.metrics.exposition import metrics_server
from tracker.service.server import SERVICES


@pytest.mark.parametrize(
    ("listen", "host", "status"),
    [
        ("127.0.0.1:0", "pages.example", 421), ("127.0.0.1:0", "", 421),
        ("127.0.0.1:0", "localhost:9100", 200), ("127.0.0.1:0", "127.0.0.1", 200),
        ("0.0.0.0:0", "tracker-0.example:9100", 200),
    ],
)  # fmt: skip
def test_metrics_of_this_machine_are_not_told_to_a_page_from_elsewhere(
    listen: str, host: str, status: int
) -> None:
    async def render() -> bytes:
        return b"lowmark_secret_pipeline 1\n"

    async def ask() -> bytes:
        server = metrics_server(listen, render)
        await server.start()
        try:
            port = int(server.address.rpartition(":")[2])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            said = await reader.read()
            writer.close()
            return said
        finally:
            await server.stop()

    said = asyncio.run(ask())
    assert said.startswith(f"HTTP/1.1 {status} ".encode())
    assert (b"secret" in said) == (status == 200)


@pytest.fixture
def hang_ups_count() -> Iterator[None]:
    """Also where these tests run under nohup, which lets nobody hear of them."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hang_ups_count")
def test_a_test_process_ignores_hang_ups_where_its_test_does() -> None:
    """Whatever the template did that it is forked from."""
    says = "import signal; print(signal.getsignal(signal.SIGHUP).name)"
    for way in (signal.SIG_IGN, signal.SIG_DFL):
        signal.signal(signal.SIGHUP, way)
        child = fork("timeit", ("-n1", "-r1", "-s", says, "pass"), os.environ, 2)
        with child.stdin, child.stdout:
            assert child.stdout.readline() == f"{way.name}\n"
            assert child.wait(HANG_S) == 0


@pytest.mark.usefixtures("hang_ups_count")
def test_a_process_that_is_hung_up_on_gives_its_lease_back(tmp_path: Path) -> None:
    """The next one need not wait until the lease is over."""
    way = ("--store", f"sqlite:{tmp_path / 'data'}", "--set", "lease_ms=60000")
    for name in ("first", "second"):
        address = f"127.0.0.1:{free_ports(1)}"
        with Server(Place(name, address, address), way, tmp_path) as process:
            with Admin(process.address, HANG_S) as admin:
                admin.shards()
            os.kill(process.pid, signal.SIGHUP)
            process.ends_well()


def test_where_hanging_up_is_ignored_it_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert signal.SIGHUP not in ending_signals()
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        assert {signal.SIGHUP, signal.SIGTERM, signal.SIGINT} == set(ending_signals())
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_spool_writes_through_no_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("keep me")
    spool = Spool(str(tmp_path / "s"))
    (tmp_path / "s.unfinished").symlink_to(victim)
    spool.close()
    Spool(str(tmp_path / "s")).close()
    assert victim.read_text() == "keep me"


def test_clients_do_not_go_by_a_proxy_of_the_web(monkeypatch: pytest.MonkeyPatch) -> None:
    with embedded() as running, socket.create_server(("127.0.0.1", 0)) as proxy:
        running.register(TWO_SEGMENTS)
        here = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        for name in ("http_proxy", "https_proxy", "grpc_proxy"):
            monkeypatch.setenv(name, here)
        monkeypatch.delenv("no_proxy", raising=False)
        with Admin(running.target, HANG_S) as admin:
            assert admin.pipeline("two").spec == TWO_SEGMENTS
        proxy.setblocking(False)
        with pytest.raises(BlockingIOError):
            proxy.accept()


def test_reflection_tells_the_services() -> None:
    async def ask(target: str) -> set[str]:
        async with grpc.aio.insecure_channel(target) as channel:
            of_aio: Any = channel  # the types of the stubs know blocking channels alone
            stub: Any = reflection_pb2_grpc.ServerReflectionStub(of_aio)
            request = reflection_pb2.ServerReflectionRequest(list_services="")
            call = stub.ServerReflectionInfo(iter([request]), timeout=HANG_S)
            answer = await call.read()
            return {service.name for service in answer.list_services_response.service}

    with embedded() as running:
        assert asyncio.run(ask(running.target)) >= {service.full_name for service in SERVICES}
