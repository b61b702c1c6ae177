"""Certificates and tokens are renewed while all go on."""

from __future__ import annotations

import os
import resource
import threading
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from examples.children import free_ports
from tests.client.support import TWO_SEGMENTS, done
from tests.security.certificates import Authority
from tests.security.serving import Served, wait_for
from tests.waits import HANG_S
from tracker.client import Admin, Credentials, NodeClient, credentials
from tracker.client.credentials import _Token, read_token
from tracker.core.model import TickContent
from tracker.errors import InvalidError
from tracker.service.rpc.security import Security, _Reloading, listen_at


async def _answers(address: str, ca: str) -> bool:
    """Whether a new connection trusts the server and is answered."""
    async with Credentials(ca).aio_channel(address, ()) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            await stub.Check(health_pb2.HealthCheckRequest(), timeout=HANG_S)
        except grpc.aio.AioRpcError as error:
            assert error.code() is grpc.StatusCode.UNAVAILABLE, error
            return False
        return True


async def test_a_certificate_that_is_replaced_counts_for_the_next_connection(
    tmp_path: Path,
) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    served, fresh = old.server(), new.server()
    server = grpc.aio.server()
    health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)
    address = listen_at(server, "127.0.0.1:0", Security(served.cert, served.key), who="it")
    await server.start()
    try:
        assert await _answers(address, old.cert)
        assert not await _answers(address, new.cert)
        Path(served.key).write_text("not a key")
        assert await _answers(address, old.cert), "what cannot be used is passed over"
        os.replace(fresh.key, served.key)
        os.replace(fresh.cert, served.cert)
        assert await _answers(address, new.cert)
        assert not await _answers(address, old.cert)
    finally:
        await server.stop(None)


def test_a_certificate_that_could_not_be_opened_for_a_moment_is_taken_with_the_next_connection(
    tmp_path: Path,
) -> None:
    """A process whose clients take all that it may have open does not go on with one that is about to expire."""
    served, fresh = Authority(tmp_path).server(), Authority(tmp_path, "new").server()
    files = _Reloading(Security(served.cert, served.key))
    os.replace(fresh.key, served.key)
    os.replace(fresh.cert, served.cert)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, most[1]))
    try:
        assert files.changed() is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)
    assert files.changed() is not None
    assert files.changed() is None, "it is the one that counts"


def test_a_token_that_is_replaced_is_sent_with_the_next_call(tmp_path: Path) -> None:
    path, sent = tmp_path / "token", []
    token = _Token(str(path))

    def call() -> None:
        token(None, lambda metadata, error: sent.append(error or dict(metadata)))  # type: ignore[arg-type]

    for text in ("first", "second"):
        fresh = tmp_path / "fresh"
        fresh.write_text(text)
        os.replace(fresh, path)
        call()
        assert sent.pop() == {"authorization": f"Bearer {text}"}
    path.unlink()
    call()
    assert "cannot be read" in str(sent.pop())


def test_a_node_goes_on_whose_files_could_not_be_read_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are renewed one after the other, by somebody who removes each before, while its tracker is away."""
    served, missed = Served(tmp_path), threading.Event()
    token_file = Path(served.token("front", _any=["register", "commit", "subscribe"]))
    token = token_file.read_text()

    def read(path: str) -> str:
        try:
            return read_token(path)
        except InvalidError:
            missed.set()
            raise

    monkeypatch.setattr(credentials, "read_token", read)
    served.addresses = [f"127.0.0.1:{free_ports(1)}"]
    way = ("--store", f"sqlite:{tmp_path / 'data'}", "--tokens", str(served.tokens_file))
    server = served.server("served", served.addresses[0], *way)
    target = served.target(None, str(token_file))
    with server:
        wait_for(target)
        with Admin(target, HANG_S) as admin:
            admin.register(TWO_SEGMENTS)
        with NodeClient(target, "two", "n") as node:
            node.join(HANG_S)
            assert done(node.commit(TickContent())) == 1
            assert server.stop() == 0
            token_file.unlink()
            os.utime(served.authority.cert)
            assert missed.wait(HANG_S)
            token_file.write_text(token)
            server.start()
            assert done(node.commit(TickContent())) == 2
