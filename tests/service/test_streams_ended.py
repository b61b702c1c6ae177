"""A node's stream is gone at its home however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from acker.v1 import node_service_pb2 as node_pb
from tests import inside
from tests.service.serving import config, serving
from tests.waits import HANG_S
from tracker.service.rpc.nodes import NodeServicer
from tracker.service.rpc.waiters import WaiterRegistry

TURNS = 12
"""Of the loop, in which a stream whose half was closed has ended."""


class Call:
    """A node's half of a stream, which attaches, and closes it when it is told to."""

    def __init__(self, attach: node_pb.Attach) -> None:
        self._attach = attach
        self.attached, self.closed = asyncio.Event(), asyncio.Event()

    async def requests(self) -> AsyncIterator[node_pb.CommitTicksRequest]:
        yield node_pb.CommitTicksRequest(attach=self._attach)
        await self.closed.wait()

    async def write(self, message: node_pb.CommitTicksResponse) -> None:
        self.attached.set()

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"


async def test_a_stream_that_is_cancelled_as_it_ends_is_gone() -> None:
    """Where a connection is lost, what is read ends and the call is cancelled, one closely behind the other."""
    async with serving(config()) as served:
        ticks = await served.ticks()
        ticks.call.cancel()
        engine = served.server.engine
        servicer: Any = NodeServicer(engine, WaiterRegistry())
        for turns in range(TURNS):
            call = Call(ticks.attach)
            serving_it = asyncio.ensure_future(servicer.CommitTicks(call.requests(), call))
            await asyncio.wait_for(call.attached.wait(), HANG_S)
            call.closed.set()
            for _ in range(turns):
                await asyncio.sleep(0)
            serving_it.cancel()
            await asyncio.gather(serving_it, return_exceptions=True)
            await engine.written()
            assert not inside.sessions(engine.process), f"cancelled after {turns} turns"
