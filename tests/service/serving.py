"""One process of a tracker in this one, on loopback, and calls to it as they stand on the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from acker.v1 import node_service_pb2 as node_pb
from acker.v1 import node_service_pb2_grpc as node_grpc
from acker.v1 import pipeline_service_pb2 as pipeline_pb
from acker.v1 import pipeline_service_pb2_grpc as pipeline_grpc
from acker.v1 import progress_service_pb2_grpc as progress_grpc
from acker.v1 import types_pb2 as pb
from tests.waits import HANG_S
from tracker.core.model import PipelineSpec
from tracker.service.config import ServerConfig
from tracker.service.server import TrackerServer
from tracker.store import MemoryStore
from tracker.wire.grpc_options import CHANNEL_OPTIONS
from tracker.wire.pipelines import spec_to_pb

SPEC = PipelineSpec("p", ("a",), front_count=1)


def config(directory: Path | None = None, **more: Any) -> ServerConfig:
    store = "memory:" if directory is None else f"sqlite:{directory}"
    return ServerConfig(0, ("127.0.0.1:0",), store, **more)


class Serving:
    """A process in which pipeline `p` is registered."""

    def __init__(self, server: TrackerServer, channel: grpc.aio.Channel) -> None:
        self.server = server
        self.nodes: Any = node_grpc.NodeServiceStub(channel)
        self.pipelines: Any = pipeline_grpc.PipelineServiceStub(channel)
        self.progress: Any = progress_grpc.ProgressServiceStub(channel)
        self._stopped = False

    @property
    def node_time(self) -> int:
        """The last durable tick of the only node."""
        return self.server.engine.process.describe("p", 0).nodes[0].node_time

    async def ticks(self) -> Ticks:
        """A stream of a node that has joined, and is attached."""
        request = node_pb.JoinNodeRequest(pipeline="p", node_id="n")
        joined = await self.nodes.JoinNode(request, timeout=HANG_S)
        return await self.attach(node_pb.Attach(pipeline="p", key=joined.key))

    async def attach(self, attach: node_pb.Attach) -> Ticks:
        """Another stream of a node that has joined."""
        call = self.nodes.CommitTicks()
        await call.write(node_pb.CommitTicksRequest(attach=attach))
        attached = (await call.read()).attached
        return Ticks(call, attach, attached.last_number)

    async def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            await asyncio.wait_for(self.server.stop(), HANG_S)


class Ticks:
    """A stream of ticks; it had come to `last_number` before."""

    def __init__(self, call: Any, attach: node_pb.Attach, last_number: int) -> None:
        self.call, self.attach, self.last_number = call, attach, last_number

    async def send(self, number: int, content: pb.TickContent | None = None) -> None:
        tick = node_pb.NumberedTick(number=number, content=content)
        await self.call.write(node_pb.CommitTicksRequest(tick=tick))

    async def answer(self) -> node_pb.CommitTicksResponse:
        answer: node_pb.CommitTicksResponse = await asyncio.wait_for(self.call.read(), HANG_S)
        return answer

    async def commit(self, number: int) -> None:
        """Sends a tick, and waits until it is durable."""
        await self.send(number)
        assert (await self.answer()).committed.number == number


async def status_of(call: Any) -> tuple[grpc.StatusCode, str]:
    """The status with which a call ends, that waits for something."""
    return (
        await asyncio.wait_for(call.code(), HANG_S),
        await asyncio.wait_for(call.details(), HANG_S),
    )


@asynccontextmanager
async def serving(of: ServerConfig, store: MemoryStore | None = None) -> AsyncIterator[Serving]:
    """A process that serves, and is stopped at the end if it has not been before."""
    server = TrackerServer(of, store)
    await server.start()
    async with grpc.aio.insecure_channel(server.address, CHANNEL_OPTIONS) as channel:
        served = Serving(server, channel)
        request = pipeline_pb.RegisterPipelineRequest(spec=spec_to_pb(SPEC))
        await served.pipelines.RegisterPipeline(request, timeout=HANG_S)
        yield served
        await served.stop()
