"""What is announced of a pipeline to whoever listens to an earlier one of its name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from acker.v1 import progress_service_pb2 as progress_pb
from tests.waits import HANG_S
from tracker.core.model import PipelineSpec, RefusalCode, Refused
from tracker.service.rpc.progress import Hub, ProgressServicer
from tracker.service.stats import Stats


class _Process:
    """Min times that the test sets, by pipeline."""

    def __init__(self) -> None:
        self.specs = {name: PipelineSpec(name, ("s",), front_count=1) for name in ("one", "two")}
        self.slots = {"one": 1, "two": 1}

    def spec(self, name: str) -> PipelineSpec:
        return self.specs[name]

    def min_times(self, name: str) -> tuple[int]:
        return (self.slots[name],)

    def pipeline_min_time(self, name: str) -> int:
        return self.slots[name]

    def generation(self, _: str) -> int:
        return 0


@dataclass
class _Engine:
    process: _Process
    stats: Stats = field(default_factory=Stats)


class _SlowContext:
    """A stream whose reader takes one message for each permission."""

    def __init__(self) -> None:
        self.written: asyncio.Queue[progress_pb.SubscribeResponse] = asyncio.Queue()
        self.may = asyncio.Semaphore(0)

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    async def write(self, message: bytes) -> None:
        self.written.put_nowait(progress_pb.SubscribeResponse.FromString(message))
        await self.may.acquire()


async def test_a_slow_reader_hears_nothing_of_a_pipeline_that_has_got_the_name_of_a_deleted_one() -> (
    None
):
    """The news of both was due; while that of the first was on its way, the second was deleted and registered anew."""
    process, hub, context = _Process(), Hub(), _SlowContext()
    servicer: Any = ProgressServicer(_Engine(process), hub)  # type: ignore[arg-type]

    async def requests() -> AsyncIterator[progress_pb.SubscribeRequest]:
        for name in process.specs:
            yield progress_pb.SubscribeRequest(subscribe=progress_pb.Subscription(pipeline=name))

    stream = asyncio.ensure_future(servicer.Subscribe(requests(), context))
    for _ in process.specs:
        assert (await asyncio.wait_for(context.written.get(), HANG_S)).min_time == 1
        context.may.release()
    process.slots = {"one": 2, "two": 2}
    hub.announced("one")
    hub.announced("two")
    first = await asyncio.wait_for(context.written.get(), HANG_S)
    assert (first.pipeline, first.min_time) == ("one", 2)

    hub.ended("two")
    process.specs["two"] = PipelineSpec("two", ("s",), front_count=1, start_slot=1_000)
    process.slots["two"] = 1_000
    hub.announced("two")

    context.may.release()
    context.may.release()
    with pytest.raises(Refused) as refused:
        await asyncio.wait_for(stream, HANG_S)
    assert refused.value.refusal.code is RefusalCode.UNKNOWN_PIPELINE
    assert context.written.empty(), context.written.get_nowait()
