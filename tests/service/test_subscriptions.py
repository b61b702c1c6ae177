"""What one subscription stream is owed: what is, then the newest value of what has changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from acker.v1 import progress_service_pb2 as progress_pb
from acker.v1 import progress_service_pb2_grpc as progress_grpc
from acker.v1 import types_pb2 as pb
from tests.client.support import TWO_SEGMENTS, done, joined_front, promise
from tests.waits import HANG_S
from tracker import EmbeddedTracker
from tracker.client import NodeClient
from tracker.core.model import PipelineSpec
from tracker.service.rpc.progress import Hub, ProgressServicer
from tracker.service.rpc.waiters import WaiterRegistry
from tracker.service.stats import Stats


@pytest.fixture
def front(running: EmbeddedTracker) -> NodeClient:
    return joined_front(running.node("two", "f", "front"))


def promised(front: NodeClient, slot: int) -> None:
    done(front.commit(promise(slot)))


class Stream:
    """A raw subscription: what the wire says, without the client's own memory."""

    def __init__(self, call: Any) -> None:
        self.call = call

    async def subscribe(self, *segments: str, **more: Any) -> None:
        subscription = progress_pb.Subscription(pipeline="two", segments=segments, **more)
        await self.call.write(progress_pb.SubscribeRequest(subscribe=subscription))

    async def unsubscribe(self) -> None:
        await self.call.write(progress_pb.SubscribeRequest(unsubscribe="two"))

    async def read(self) -> tuple[int, dict[str, int]]:
        """The pipeline's min time, and those of the segments with news."""
        message = await asyncio.wait_for(self.call.read(), HANG_S)
        return message.min_time, {s.segment: s.min_time for s in message.segments}


@asynccontextmanager
async def opened(running: EmbeddedTracker) -> AsyncIterator[Stream]:
    async with grpc.aio.insecure_channel(running.target) as channel:
        yield Stream(progress_grpc.ProgressServiceStub(channel).Subscribe())


def in_a_stream(running: EmbeddedTracker, story: Callable[[Stream], Awaitable[None]]) -> None:
    async def run() -> None:
        async with opened(running) as stream:
            await story(stream)

    asyncio.run(run())


def test_the_present_comes_first_and_then_each_change(
    running: EmbeddedTracker, front: NodeClient
) -> None:
    promised(front, 10)
    assert running.subscriber("two").wait_until(10, timeout_s=HANG_S)

    async def story(stream: Stream) -> None:
        await stream.subscribe()
        assert await stream.read() == (10, {"first": 10, "second": 10})
        await asyncio.to_thread(promised, front, 12)
        assert await stream.read() == (12, {"first": 12, "second": 12})

    in_a_stream(running, story)


def test_a_subscription_is_changed_and_ended_while_the_stream_runs(
    running: EmbeddedTracker, front: NodeClient
) -> None:
    async def story(stream: Stream) -> None:
        await stream.subscribe("second")
        assert await stream.read() == (0, {"second": 0})
        await stream.subscribe("first")  # instead
        assert await stream.read() == (0, {"first": 0})
        await asyncio.to_thread(promised, front, 3)
        assert await stream.read() == (3, {"first": 3})
        await stream.unsubscribe()
        await stream.subscribe("first", heard=[pb.SegmentTime(segment="first", min_time=3)])
        await asyncio.to_thread(promised, front, 4)
        seen = await stream.read()
        while seen[0] < 4:  # the pipeline's own value was not said to be heard
            seen = await stream.read()
        assert seen == (4, {"first": 4})

    in_a_stream(running, story)


def test_what_was_heard_before_is_not_told_again(
    running: EmbeddedTracker, front: NodeClient
) -> None:
    promised(front, 10)
    assert running.subscriber("two").wait_until(10, timeout_s=HANG_S)

    async def story(stream: Stream) -> None:
        # Another process was ahead: `second` was heard at 15, which this one has not come to.
        await stream.subscribe(
            heard=[
                pb.SegmentTime(segment="first", min_time=10),
                pb.SegmentTime(segment="second", min_time=15),
            ],
            heard_min_time=10,
        )
        await asyncio.to_thread(promised, front, 12)
        assert await stream.read() == (12, {"first": 12})
        await asyncio.to_thread(promised, front, 16)
        assert await stream.read() == (16, {"first": 16, "second": 16})

    in_a_stream(running, story)


def test_a_stream_may_close_its_half_and_listen_on(
    running: EmbeddedTracker, front: NodeClient
) -> None:
    async def story(stream: Stream) -> None:
        await stream.subscribe("first")
        await stream.call.done_writing()
        assert await stream.read() == (0, {"first": 0})
        await asyncio.to_thread(promised, front, 3)
        assert await stream.read() == (3, {"first": 3})

    in_a_stream(running, story)


@pytest.mark.parametrize(
    ("request_", "status", "says"),
    [
        (
            progress_pb.SubscribeRequest(subscribe=progress_pb.Subscription(pipeline="x")),
            grpc.StatusCode.NOT_FOUND,
            "'x' is not registered",
        ),
        (
            progress_pb.SubscribeRequest(
                subscribe=progress_pb.Subscription(pipeline="two", segments=["s"])
            ),
            grpc.StatusCode.NOT_FOUND,
            "no segment 's'",
        ),
        (progress_pb.SubscribeRequest(), grpc.StatusCode.INVALID_ARGUMENT, "says nothing"),
    ],
    ids=["pipeline", "segment", "nothing"],
)
def test_what_cannot_be_subscribed_to_is_refused_by_name(
    running: EmbeddedTracker, request_: Any, status: grpc.StatusCode, says: str
) -> None:
    async def story(stream: Stream) -> None:
        await stream.call.write(request_)
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await stream.read()
        assert failed.value.code() is status
        assert says in str(failed.value.details())

    in_a_stream(running, story)


class _Process:
    """Min times that the test sets."""

    def __init__(self) -> None:
        self.slot = 0

    def spec(self, _: str) -> PipelineSpec:
        return TWO_SEGMENTS

    def min_times(self, _: str) -> tuple[int, int]:
        return (self.slot, self.slot)

    def pipeline_min_time(self, _: str) -> int:
        return self.slot

    def generation(self, _: str) -> int:
        return 0


class _Engine:
    def __init__(self, process: _Process) -> None:
        self.process = process
        self.stats = Stats()


class _SlowContext:
    """A stream whose reader takes one message at a time, when the test lets it."""

    def __init__(self) -> None:
        self.written: asyncio.Queue[progress_pb.SubscribeResponse] = asyncio.Queue()
        self.go_on = asyncio.Event()

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    async def write(self, message: bytes) -> None:
        self.written.put_nowait(progress_pb.SubscribeResponse.FromString(message))
        await self.go_on.wait()


async def test_a_slow_reader_gets_the_newest_value_and_nothing_gathers_for_it() -> None:
    process, hub, context = _Process(), Hub(), _SlowContext()
    servicer: Any = ProgressServicer(_Engine(process), hub)  # type: ignore[arg-type]

    async def requests() -> AsyncIterator[progress_pb.SubscribeRequest]:
        yield progress_pb.SubscribeRequest(subscribe=progress_pb.Subscription(pipeline="two"))

    stream = asyncio.ensure_future(servicer.Subscribe(requests(), context))
    assert (await asyncio.wait_for(context.written.get(), HANG_S)).min_time == 0
    for slot in range(1, 1001):  # while the first message is being read
        process.slot = slot
        hub.announced("two")
    context.go_on.set()
    assert (await asyncio.wait_for(context.written.get(), HANG_S)).min_time == 1000
    process.slot = 1001
    hub.announced("two")
    assert (await asyncio.wait_for(context.written.get(), HANG_S)).min_time == 1001
    stream.cancel()
    await asyncio.gather(stream, return_exceptions=True)


async def test_news_between_the_look_and_the_wait_is_not_missed() -> None:
    waiting: WaiterRegistry[str] = WaiterRegistry()
    with waiting.waiter("x") as waiter:
        waiting.news("x")
        assert await waiter.until(None)
        assert not await waiter.until(asyncio.get_running_loop().time())
    waiting.news("x")  # nobody waits any more
