"""What is announced of a pipeline to whoever listens to an earlier one of its name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest

from acker.v1 import progress_service_pb2 as progress_pb
from acker.v1.progress_service_pb2_grpc import add_ProgressServiceServicer_to_server
from tests.service.test_relay import Listener
from tests.waits import HANG_S
from tracker.client.connection import AsyncConnection
from tracker.client.updates import subscribe_request
from tracker.core.model import PipelineSpec, RefusalCode, Refused
from tracker.metrics.latencies import Latencies
from tracker.service.relaying import Relay, RelayServicer
from tracker.service.rpc.limits import Quotas
from tracker.service.rpc.progress import Hub, ProgressServicer
from tracker.service.stats import Stats


class _Process:
    """Min times that the test sets, by pipeline."""

    def __init__(self) -> None:
        self.specs = {name: PipelineSpec(name, ("s",), front_count=1) for name in ("one", "two")}
        self.slots = {"one": 1, "two": 1}
        self.generations = {"one": 0, "two": 0}

    def spec(self, name: str) -> PipelineSpec:
        return self.specs[name]

    def min_times(self, name: str) -> tuple[int]:
        return (self.slots[name],)

    def pipeline_min_time(self, name: str) -> int:
        return self.slots[name]

    def generation(self, name: str) -> int:
        return self.generations[name]

    def goes_on_since(self, name: str, generation: int) -> bool:
        """None was restarted."""
        return generation == self.generations[name]

    def use_again(self, name: str, slot: int) -> None:
        """Another one has the name, and is as far as a slot."""
        self.specs[name] = PipelineSpec(name, ("s",), front_count=1, start_slot=slot)
        self.slots[name] = slot
        self.generations[name] += 2


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
    process.use_again("two", 1_000)
    hub.announced("two")

    context.may.release()
    context.may.release()
    with pytest.raises(Refused) as refused:
        await asyncio.wait_for(stream, HANG_S)
    assert refused.value.refusal.code is RefusalCode.UNKNOWN_PIPELINE
    assert context.written.empty(), context.written.get_nowait()


async def test_who_waits_is_told_nothing_of_the_pipeline_that_gets_the_name_in_the_step_that_deletes_his() -> (
    None
):
    """The process was away, and one message of another one tells it of both."""
    process, hub = _Process(), Hub()
    servicer: Any = ProgressServicer(_Engine(process), hub)  # type: ignore[arg-type]
    asked = progress_pb.WaitUntilRequest(pipeline="two", slot=100, heard_generation=0)
    waiting = asyncio.ensure_future(servicer.WaitUntil(asked, _SlowContext()))
    while not hub.waiting.count:
        await asyncio.sleep(0)

    hub.ended("two")
    process.use_again("two", 1_000)
    hub.announced("two")

    with pytest.raises(Refused) as refused:
        await asyncio.wait_for(waiting, HANG_S)
    assert refused.value.refusal.code is RefusalCode.UNKNOWN_PIPELINE


class _Tracker:
    """Has said that who asks has heard of the same pipeline; before that is heard it deletes it, and has another one of its
    name."""

    def __init__(self) -> None:
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def Subscribe(
        self, requests: Any, context: Any
    ) -> AsyncIterator[progress_pb.SubscribeResponse]:
        if not self.asked.is_set():
            yield progress_pb.SubscribeResponse(pipeline="two", min_time=50, generation=2)
            await self.asked.wait()
        else:
            yield progress_pb.SubscribeResponse(pipeline="two", min_time=1_000, generation=5)
            await asyncio.Event().wait()

    async def GetMinTime(self, request: Any, context: Any) -> progress_pb.GetMinTimeResponse:
        self.asked.set()
        await self.may_answer.wait()
        return progress_pb.GetMinTimeResponse(min_time=50, generation=2)

    WaitUntil = GetHistory = GetMinTime


class _Restarted:
    """A tracker whose pipeline is restarted."""

    def __init__(self) -> None:
        self.asked, self.may_go_on = 0, asyncio.Event()

    async def Subscribe(
        self, requests: Any, context: Any
    ) -> AsyncIterator[progress_pb.SubscribeResponse]:
        yield progress_pb.SubscribeResponse(pipeline="two", min_time=50, generation=2)
        await self.may_go_on.wait()
        yield progress_pb.SubscribeResponse(pipeline="two", min_time=60, generation=3)
        await asyncio.Event().wait()

    async def GetMinTime(self, request: Any, context: Any) -> progress_pb.GetMinTimeResponse:
        self.asked += 1
        return progress_pb.GetMinTimeResponse(min_time=60, generation=3)

    WaitUntil = GetHistory = GetMinTime


@asynccontextmanager
async def _relaying(said: Any) -> AsyncIterator[tuple[Any, Relay, Hub]]:
    """What a relay answers by, the relay, and who waits there. said: the tracker."""
    server = grpc.aio.server()
    add_ProgressServiceServicer_to_server(said, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    connection, hub = AsyncConnection(f"127.0.0.1:{port}"), Hub()
    relay = Relay(connection, hub)
    servicer = RelayServicer(relay, connection, Latencies(), hub, Quotas())
    try:
        yield servicer, relay, hub
    finally:
        await relay.stop()
        await connection.close()
        await server.stop(None)


async def test_who_waits_at_a_relay_goes_on_when_his_pipeline_is_restarted_and_the_tracker_is_not_asked() -> (
    None
):
    """However many wait: all of what one stream says is of one pipeline."""
    said = _Restarted()
    async with _relaying(said) as (servicer, _, hub):
        asked = progress_pb.WaitUntilRequest(pipeline="two", slot=60, heard_generation=2)
        waiting = [asyncio.ensure_future(servicer.WaitUntil(asked, Listener())) for _ in range(10)]
        async with asyncio.timeout(HANG_S):
            while hub.waiting.count < len(waiting):
                await asyncio.sleep(0)
            said.may_go_on.set()
            answers = await asyncio.gather(*waiting)
    assert {(answer.min_time, answer.generation) for answer in answers} == {(60, 3)}
    assert said.asked == 0


async def test_a_relay_that_asks_whether_a_pipeline_is_the_same_goes_by_the_one_of_which_it_asked() -> (
    None
):
    said, context = _Tracker(), Listener()
    async with _relaying(said) as (servicer, relay, _):

        async def asks() -> AsyncIterator[progress_pb.SubscribeRequest]:
            yield subscribe_request("two", (), {None: 40}, generation=1)
            await asyncio.Event().wait()

        listening = asyncio.ensure_future(servicer.Subscribe(asks(), context))
        async with asyncio.timeout(HANG_S):
            await said.asked.wait()
            generation = 0
            while generation != 5:
                with suppress(Refused):  # the stream has ended meanwhile
                    await relay.look("two")  # somebody else, who has heard nothing
                    generation = relay.generation("two")
                await asyncio.sleep(0)
            said.may_answer.set()
            await asyncio.wait((listening,))
    listening.cancel()
    ended: Any = (await asyncio.gather(listening, return_exceptions=True))[0]
    assert not context.told
    assert isinstance(ended, Refused) and ended.refusal.code is RefusalCode.NOT_READY
