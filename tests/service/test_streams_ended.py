"""A node's stream is gone at its home however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import grpc

from acker.v1 import node_service_pb2 as node_pb
from acker.v1 import node_service_pb2_grpc as node_grpc
from acker.v1 import types_pb2 as pb
from tests import inside
from tests.service.serving import config, serving
from tests.waits import HANG_S, until_async
from tracker.service.rpc.nodes import MAX_UNANSWERED, NodeServicer
from tracker.service.rpc.waiters import WaiterRegistry
from tracker.wire.grpc_options import MAX_TICKS_PER_MESSAGE

TURNS = 12
"""Of the loop, in which a stream whose half was closed has ended."""
TAKES_LITTLE = (("grpc.http2.lookahead_bytes", 1_024), ("grpc.http2.bdp_probe", 0))
"""Options of a client's channel: what it does not read is left with the server."""
MALFORMED = pb.TickContent(created=pb.Cells(slots=b"odd"))


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


async def test_a_node_that_reads_none_of_its_answers_is_cut_off() -> None:
    """It lets its home send next to nothing. Its ticks cannot be read, and each refusal is larger than the tick: what
    it does not take gathers up to the limit, and no further."""
    async with serving(config()) as served:
        ticks = await served.ticks()
        ticks.call.cancel()
        async with grpc.aio.insecure_channel(served.server.address, TAKES_LITTLE) as channel:
            stub: Any = node_grpc.NodeServiceStub(channel)
            call = stub.CommitTicks()
            await call.write(node_pb.CommitTicksRequest(attach=ticks.attach))
            assert (await call.read()).HasField("attached")
            bad = [node_pb.NumberedTick(number=1, content=MALFORMED)] * MAX_TICKS_PER_MESSAGE
            message = node_pb.CommitTicksRequest(ticks=node_pb.NumberedTicks(ticks=bad))
            with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                for _ in range(4 * MAX_UNANSWERED // MAX_TICKS_PER_MESSAGE):
                    await asyncio.wait_for(call.write(message), HANG_S)
            process = served.server.engine.process
            await until_async(lambda: not inside.sessions(process), "its stream goes on")
