"""A tick that cannot be taken because of a fault of the tracker's own ends its stream, unanswered."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from acker.v1 import node_service_pb2 as node_pb
from acker.v1 import node_service_pb2_grpc as node_grpc
from acker.v1 import pipeline_service_pb2 as pipeline_pb
from acker.v1 import pipeline_service_pb2_grpc as pipeline_grpc
from tracker.core.model import PipelineSpec, TickContent
from tracker.service.config import ServerConfig
from tracker.service.server import TrackerServer
from tracker.wire.pipelines import spec_to_pb
from tracker.wire.ticks import content_from_pb

WAIT_S = 20.0


def test_the_stream_ends_and_what_came_before_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = content_from_pb

    def faulty(content: Any) -> TickContent:
        if content.leaves:
            raise RuntimeError("a fault")
        return taken(content)

    async def story() -> None:
        server = TrackerServer(ServerConfig(0, ("127.0.0.1:0",)))
        await server.start()
        async with grpc.aio.insecure_channel(server.address) as channel:
            pipelines: Any = pipeline_grpc.PipelineServiceStub(channel)
            nodes: Any = node_grpc.NodeServiceStub(channel)
            spec = spec_to_pb(PipelineSpec("p", ("a",), front_count=1))
            await pipelines.RegisterPipeline(pipeline_pb.RegisterPipelineRequest(spec=spec))
            joined = await nodes.JoinNode(node_pb.JoinNodeRequest(pipeline="p", node_id="n"))
            attach = node_pb.CommitTicksRequest(attach=node_pb.Attach(pipeline="p", key=joined.key))
            monkeypatch.setattr("tracker.service.rpc.nodes.content_from_pb", faulty)
            stream = nodes.CommitTicks()
            await stream.write(attach)
            assert (await stream.read()).attached.last_number == 0
            for number, leaves in ((1, []), (2, ["front"])):
                tick = node_pb.NumberedTick(number=number)
                tick.content.leaves.extend(leaves)
                await stream.write(node_pb.CommitTicksRequest(tick=tick))
            async with asyncio.timeout(WAIT_S):
                with pytest.raises(grpc.aio.AioRpcError) as failed:
                    while await stream.read() is not grpc.aio.EOF:
                        pass
            assert failed.value.code() is grpc.StatusCode.UNKNOWN
            again = nodes.CommitTicks()
            await again.write(attach)
            async with asyncio.timeout(WAIT_S):
                while (await again.read()).attached.last_number < 1:
                    again = nodes.CommitTicks()
                    await again.write(attach)
        await server.stop()

    asyncio.run(story())
