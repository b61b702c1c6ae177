"""Certificates and tokens are renewed while all go on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from tests.security.certificates import Authority
from tests.waits import HANG_S
from tracker.client import Credentials
from tracker.client.credentials import _Token
from tracker.service.rpc.security import Security, listen_at


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
