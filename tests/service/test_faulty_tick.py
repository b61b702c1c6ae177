"""A tick that cannot be taken because of a fault of the tracker's own ends its stream, unanswered."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from acker.v1 import types_pb2 as pb
from tests.service.serving import config, serving
from tests.waits import HANG_S
from tracker.core.model import TickContent
from tracker.wire.ticks import content_from_pb


async def test_the_stream_ends_and_what_came_before_is_durable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = content_from_pb

    def faulty(content: Any) -> TickContent:
        if content.leaves:
            raise RuntimeError("a fault")
        return taken(content)

    async with serving(config()) as served:
        monkeypatch.setattr("tracker.service.rpc.nodes.content_from_pb", faulty)
        ticks = await served.ticks()
        assert ticks.last_number == 0
        await ticks.send(1)
        await ticks.send(2, pb.TickContent(leaves=["front"]))
        async with asyncio.timeout(HANG_S):
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                while await ticks.call.read() is not grpc.aio.EOF:
                    pass
        assert failed.value.code() is grpc.StatusCode.UNKNOWN
        async with asyncio.timeout(HANG_S):
            while (await served.attach(ticks.attach)).last_number < 1:
                pass
