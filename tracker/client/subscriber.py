"""Hearing min time: as a stream of updates, as a value, as a wait. Synchronous and asyncio.

A subscriber may name several processes of the tracker: it goes to the next when one is gone, resumes
with what it has heard, and never hears a min time go back.
"""

from __future__ import annotations

import asyncio
import queue
import random
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime
from types import TracebackType

import grpc

from acker.v1 import progress_service_pb2 as progress_pb
from acker.v1 import progress_service_pb2_grpc as progress_grpc
from tracker.client.connection import Backoff, Connection, parse_targets
from tracker.client.errors import LowmarkError, RefusedError, UnavailableError, refusal_of
from tracker.client.updates import Heard, Update, slot_until
from tracker.grpc_options import CHANNEL_OPTIONS

CALL_TIMEOUT_S = 30.0
WAIT_CALL_S = 30.0
"""One WaitUntil call lasts at most this long; then it is made again."""
_END = None


class Subscriber:
    """Min times of one pipeline; of some segments, or of all.

    target: host:port of one process or of several (with commas, or a sequence)."""

    def __init__(
        self,
        target: str | Sequence[str],
        pipeline: str,
        segments: Sequence[str] | None = None,
    ) -> None:
        self.pipeline = pipeline
        self._connection = Connection(target)
        self._heard = Heard(pipeline, segments or ())
        self._closed = threading.Event()
        self._calls: dict[object, grpc.Call] = {}

    def updates(self) -> Iterator[Update]:
        """The current value of each chosen segment and of the pipeline, then each change, until
        `close()`. Reconnects for ever; raises RefusedError if the pipeline or a segment is unknown."""
        backoff = Backoff()
        while not self._closed.is_set():
            try:
                for message in self._stream(self._connection.target()):
                    backoff.reset()
                    yield from self._heard.take(message)
            except grpc.RpcError as error:
                refused = refusal_of(error)
                if refused is not None:
                    raise refused from None
            self._connection.next_target()
            self._closed.wait(backoff.pause_s())

    def _stream(self, address: str) -> Iterator[progress_pb.SubscribeResponse]:
        requests: queue.SimpleQueue[progress_pb.SubscribeRequest | None] = queue.SimpleQueue()
        requests.put(self._heard.subscribe())
        stub = progress_grpc.ProgressServiceStub(self._connection.channel(address))
        call = stub.Subscribe(iter(requests.get, _END))
        self._calls[requests] = call
        try:
            if not self._closed.is_set():
                yield from call
        finally:
            requests.put(_END)
            call.cancel()
            del self._calls[requests]

    def min_time(self, segment: str | None = None, timeout_s: float = CALL_TIMEOUT_S) -> int:
        """Min time now, of a segment or of the whole pipeline: a slot, exclusive. Never less than
        what this subscriber has heard. Raises RefusedError, UnavailableError."""
        answer = self._get(timeout_s)
        self._heard.take(
            progress_pb.SubscribeResponse(
                pipeline=self.pipeline,
                segments=answer.segments,
                min_time=answer.min_time,
                slack_ns=answer.slack_ns,
            )
        )
        if segment is None:
            assert self._heard.whole is not None
            return self._heard.whole
        if segment not in self._heard.segments:
            raise LowmarkError(f"pipeline {self.pipeline!r} has no segment {segment!r}")
        return self._heard.segments[segment]

    def _get(self, timeout_s: float) -> progress_pb.GetMinTimeResponse:
        request = progress_pb.GetMinTimeRequest(pipeline=self.pipeline)
        answer, _ = self._connection.call(
            lambda channel: progress_grpc.ProgressServiceStub(channel).GetMinTime,
            request,
            timeout_s,
        )
        return answer

    def wait_until(
        self,
        until: int | datetime,
        segment: str | None = None,
        timeout_s: float | None = None,
    ) -> bool:
        """Waits until min time has reached a slot, or everything before a moment is complete; False
        after `timeout_s` seconds (None: waits for ever). Raises RefusedError, and UnavailableError
        if the tracker cannot be reached at first."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        slot = (
            until
            if isinstance(until, int)
            else slot_until(until, self.slack_ns(timeout_s or CALL_TIMEOUT_S))
        )
        request = progress_pb.WaitUntilRequest(
            pipeline=self.pipeline, segment=segment or "", slot=slot
        )
        backoff = Backoff()
        while not self._closed.is_set():
            left_s = WAIT_CALL_S if deadline is None else deadline - time.monotonic()
            if left_s <= 0:
                return False
            try:
                channel = self._connection.channel(self._connection.target())
                stub = progress_grpc.ProgressServiceStub(channel)
                stub.WaitUntil(request, timeout=min(left_s, WAIT_CALL_S))
                return True
            except grpc.RpcError as error:
                refused = refusal_of(error)
                if refused is not None:
                    raise refused from None
                if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    self._connection.next_target()
                    self._closed.wait(backoff.pause_s())
        return False

    def slack_ns(self, timeout_s: float = CALL_TIMEOUT_S) -> int:
        """Width of the pipeline's slots in nanoseconds. Raises RefusedError, UnavailableError."""
        if not self._heard.slack_ns:
            self._heard.slack_ns = self._get(timeout_s).slack_ns
        return self._heard.slack_ns

    def close(self) -> None:
        """Ends `updates()` and the waits, also in other threads."""
        self._closed.set()
        for call in list(self._calls.values()):
            call.cancel()
        self._connection.close()

    def __enter__(self) -> Subscriber:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncSubscriber:
    """As `Subscriber`, for asyncio. Make and use it in one loop."""

    def __init__(
        self,
        target: str | Sequence[str],
        pipeline: str,
        segments: Sequence[str] | None = None,
    ) -> None:
        self.pipeline = pipeline
        self._targets = parse_targets(target)
        self._turn = random.randrange(len(self._targets))
        self._heard = Heard(pipeline, segments or ())
        self._channels: dict[str, grpc.aio.Channel] = {}

    def _stub(self) -> progress_grpc.ProgressServiceAsyncStub:
        address = self._targets[self._turn % len(self._targets)]
        if address not in self._channels:
            self._channels[address] = grpc.aio.insecure_channel(address, CHANNEL_OPTIONS)
        return progress_grpc.ProgressServiceStub(self._channels[address])

    async def updates(self) -> AsyncIterator[Update]:
        """The current value of each chosen segment and of the pipeline, then each change, for as long
        as it is iterated. Reconnects for ever; raises RefusedError."""
        backoff = Backoff()
        while True:
            call = self._stub().Subscribe()
            try:
                await call.write(self._heard.subscribe())
                async for message in call:
                    backoff.reset()
                    for update in self._heard.take(message):
                        yield update
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
                refused = refusal_of(error) if isinstance(error, grpc.RpcError) else None
                if refused is not None:
                    raise refused from None
            finally:
                call.cancel()
            self._turn += 1
            await asyncio.sleep(backoff.pause_s())

    async def min_time(self, segment: str | None = None, timeout_s: float = CALL_TIMEOUT_S) -> int:
        """Min time now, a slot, exclusive; never less than heard. Raises RefusedError,
        UnavailableError."""
        answer = await self._get(timeout_s)
        self._heard.take(
            progress_pb.SubscribeResponse(
                pipeline=self.pipeline,
                segments=answer.segments,
                min_time=answer.min_time,
                slack_ns=answer.slack_ns,
            )
        )
        if segment is None:
            assert self._heard.whole is not None
            return self._heard.whole
        if segment not in self._heard.segments:
            raise LowmarkError(f"pipeline {self.pipeline!r} has no segment {segment!r}")
        return self._heard.segments[segment]

    async def _get(self, timeout_s: float) -> progress_pb.GetMinTimeResponse:
        deadline = time.monotonic() + timeout_s
        backoff = Backoff()
        while True:
            try:
                return await self._stub().GetMinTime(
                    progress_pb.GetMinTimeRequest(pipeline=self.pipeline),
                    timeout=max(0.001, deadline - time.monotonic()),
                )
            except grpc.aio.AioRpcError as error:
                await self._pause(error, backoff, deadline)

    async def _pause(self, error: grpc.aio.AioRpcError, backoff: Backoff, deadline: float) -> None:
        refused: RefusedError | None = refusal_of(error)
        if refused is not None:
            raise refused from None
        self._turn += 1
        pause_s = backoff.pause_s()
        if time.monotonic() + pause_s >= deadline:
            raise UnavailableError(
                f"the tracker at {', '.join(self._targets)} did not answer: {error.details()}"
            ) from None
        await asyncio.sleep(pause_s)

    async def wait_until(
        self,
        until: int | datetime,
        segment: str | None = None,
        timeout_s: float | None = None,
    ) -> bool:
        """Waits until min time has reached a slot, or everything before a moment is complete; False
        after `timeout_s` seconds (None: waits for ever)."""
        deadline = time.monotonic() + timeout_s if timeout_s is not None else float("inf")
        if not isinstance(until, int):
            if not self._heard.slack_ns:
                self._heard.slack_ns = (await self._get(timeout_s or CALL_TIMEOUT_S)).slack_ns
            until = slot_until(until, self._heard.slack_ns)
        request = progress_pb.WaitUntilRequest(
            pipeline=self.pipeline, segment=segment or "", slot=until
        )
        backoff = Backoff()
        while (left_s := deadline - time.monotonic()) > 0:
            try:
                await self._stub().WaitUntil(request, timeout=min(left_s, WAIT_CALL_S))
                return True
            except grpc.aio.AioRpcError as error:
                refused = refusal_of(error)
                if refused is not None:
                    raise refused from None
                if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    self._turn += 1
                    await asyncio.sleep(min(backoff.pause_s(), max(0.0, left_s)))
        return False

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()

    async def __aenter__(self) -> AsyncSubscriber:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
