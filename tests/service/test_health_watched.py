"""A client that watches the health of a process and takes nothing of what it is told keeps that from nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.service.serving import config, serving
from tests.waits import HANG_S
from tracker.service.rpc.probes import Probes

TAKES_NOTHING = (("grpc.http2.lookahead_bytes", 0), ("grpc.http2.bdp_probe", 0))
"""Options of a client's channel: of a stream that it does not read it lets no byte come."""


@asynccontextmanager
async def watched(address: str) -> AsyncIterator[None]:
    """Somebody watches, has begun to, and reads nothing."""
    async with grpc.aio.insecure_channel(address, TAKES_NOTHING) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest())
        await watch.initial_metadata()
        await stub.Check(health_pb2.HealthCheckRequest(), timeout=HANG_S)
        yield
        watch.cancel()


async def test_a_process_says_to_probes_that_it_serves_and_that_it_does_not() -> None:
    probes = Probes("127.0.0.1:0")
    await probes.open()
    async with watched(probes.address), asyncio.timeout(HANG_S):
        await probes.serves()
        await probes.busy()
    await probes.close()


async def test_a_process_stops() -> None:
    async with serving(config()) as served, watched(served.server.address):
        await served.stop()
