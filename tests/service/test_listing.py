"""Pipelines are listed while they come and go."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from acker.v1 import pipeline_service_pb2 as pipeline_pb
from tests.service.serving import SPEC, Serving, config, serving
from tests.waits import HANG_S, until_async
from tracker.core.model import PipelineSpec
from tracker.service.rpc import pipelines
from tracker.wire.pipelines import spec_to_pb


async def deleted(served: Serving, name: str) -> None:
    request = pipeline_pb.DeletePipelineRequest(pipeline=name, drop_open=True)
    await served.pipelines.DeletePipeline(request, timeout=HANG_S)
    process = served.server.engine.process
    await until_async(lambda: all(spec.name != name for spec in process.pipelines()))


async def test_one_that_is_deleted_while_they_are_listed_keeps_no_other_from_being_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others are served between two of them."""
    async with serving(config()) as served:
        for name in ("q", "r"):
            spec = spec_to_pb(PipelineSpec(name, SPEC.segments, front_count=1))
            request = pipeline_pb.RegisterPipelineRequest(spec=spec)
            await served.pipelines.RegisterPipeline(request, timeout=HANG_S)
        turns: list[None] = []

        async def sleep(_: float) -> None:
            turns.append(None)
            if len(turns) == 1:
                await deleted(served, "q")

        monkeypatch.setattr(
            pipelines, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": sleep})
        )
        listed = await served.pipelines.ListPipelines(pipeline_pb.ListPipelinesRequest())
        assert [each.spec.name for each in listed.pipelines] == ["p", "r"]


async def test_what_is_counted_of_one_goes_with_it() -> None:
    """Others may come for years, each with a name of its own."""
    async with serving(config()) as served:
        await (await served.ticks()).commit(1)
        counted = served.server.engine.stats.pipelines
        assert counted["p"].ticks == 1
        await deleted(served, "p")
        assert not counted
