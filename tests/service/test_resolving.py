"""Names of units that are waited for are looked up in turns: whoever waits for many keeps nobody else waiting."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import grpc
import pytest

from acker.v1 import node_service_pb2 as node_pb
from acker.v1 import pipeline_service_pb2 as pipeline_pb
from tests.service.serving import SPEC, config, serving
from tests.waits import HANG_S, until_async
from tracker.core.process import Process
from tracker.service.rpc.nodes import MAX_RESOLVE_NAMES, NodeServicer
from tracker.service.rpc.waiters import WaiterRegistry

CALLS = 8
NEWS = 3


async def test_others_are_served_between_two_looks_for_many_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turn, looks = 0, Counter[int]()
    look = Process.resolve_units

    def counted(self: Process, pipeline: str, segment: int, names: Sequence[str]) -> Any:
        looks[turn] += 1
        return look(self, pipeline, segment, names)

    async def turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(Process, "resolve_units", counted)
    async with serving(config()) as served:
        units = WaiterRegistry[tuple[str, int]]()
        servicer: Any = NodeServicer(served.server.engine, units)
        turning = asyncio.ensure_future(turns())
        request = node_pb.ResolveUnitsRequest(
            pipeline=SPEC.name,
            segment=SPEC.segments[0],
            names=[f"{number:x}" for number in range(MAX_RESOLVE_NAMES // 10)],
            wait_ms=60_000,
        )
        calls = [asyncio.ensure_future(servicer.ResolveUnits(request, None)) for _ in range(CALLS)]
        for news in range(1, NEWS + 1):
            await until_async(lambda news=news: looks.total() == news * CALLS)  # type: ignore[misc]
            units.news((SPEC.name, 0))
        await until_async(lambda: looks.total() == (NEWS + 1) * CALLS)
        assert max(looks.values()) == 1
        for task in (turning, *calls):
            task.cancel()
        async with asyncio.timeout(HANG_S):
            await asyncio.gather(turning, *calls, return_exceptions=True)


async def test_who_waits_for_names_of_a_pipeline_that_ends_is_told_at_once() -> None:
    """It was deleted, or has gone to another group, where they may be by now."""
    async with serving(config()) as served:
        waits = node_pb.ResolveUnitsRequest(
            pipeline=SPEC.name, segment=SPEC.segments[0], names=["of-nobody"], wait_ms=60_000
        )
        waiting = asyncio.ensure_future(served.nodes.ResolveUnits(waits))
        await until_async(lambda: served.server.parts.units.count == 1)
        deleted = pipeline_pb.DeletePipelineRequest(pipeline=SPEC.name, drop_open=True)
        await served.pipelines.DeletePipeline(deleted, timeout=HANG_S)
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await waiting
        assert ended.value.code() is grpc.StatusCode.NOT_FOUND
