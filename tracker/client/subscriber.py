"""Hearing min time: its current value and then each change, or one wait. Synchronous and asyncio.

A subscriber may name several processes of the tracker: it goes to the next when one is gone, resumes
with what it has told, and never tells a min time that goes back.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any

import grpc

from acker.v1 import pipeline_service_pb2 as pipeline_pb
from acker.v1 import pipeline_service_pb2_grpc as pipeline_grpc
from acker.v1 import progress_service_pb2 as progress_pb
from acker.v1 import progress_service_pb2_grpc as progress_grpc
from tracker.client.connection import (
    CALL_TIMEOUT_S,
    MAX_OLDER_CHANNELS,
    Backoff,
    Connection,
    credentials_for,
    describe_failure,
    is_retried,
    parse_targets,
)
from tracker.client.credentials import MISSING, Stamp
from tracker.client.errors import (
    ClosedError,
    LowmarkError,
    RefusedError,
    UnavailableError,
    refusal_of,
)
from tracker.client.targets import Targets
from tracker.client.updates import Heard, Update, slot_until, subscribe_request
from tracker.core.model import Refusal, RefusalCode
from tracker.wire.grpc_options import CHANNEL_OPTIONS

ANSWER_TIMEOUT_S = 30.0
WAIT_CALL_S = 30.0
"""One WaitUntil call lasts at most this long; then it is made again, at the next process."""


class Subscriber:
    """Min times of one pipeline; of some segments, or of all. Safe for use by several threads.

    target: host:port of one process or of several (with commas, or a sequence)."""

    def __init__(
        self,
        target: str | Sequence[str],
        pipeline: str,
        segments: Sequence[str] | None = None,
    ) -> None:
        self.pipeline = pipeline
        self._chosen = tuple(segments or ())
        self._connection = Connection(target)
        self._heard = Heard(pipeline)
        self._closed = threading.Event()
        self._streams: set[_Stream] = set()
        """One for each iteration of `updates()`."""

    def updates(self) -> Iterator[Update]:
        """The current value of each chosen segment and of the whole pipeline, then each change, until
        `close()`. Each update is the newest value when it is given: who reads slowly misses the values
        in between, and is never behind by more than what it takes to read one update of each segment.
        Reconnects for ever; raises RefusedError if the pipeline or a segment is unknown. Each call of it
        begins anew with the current values."""
        stream = _Stream()
        name = f"lowmark-updates-{self.pipeline}"
        threading.Thread(target=self._read, args=(stream,), name=name, daemon=True).start()
        told: dict[str | None, int] = {}
        self._streams.add(stream)
        try:
            over = self._closed.is_set()
            while not over:
                over = stream.wait()
                yield from self._heard.news(told, self._chosen)
            if stream.failure is not None and not self._closed.is_set():
                raise stream.failure
        finally:
            self._streams.discard(stream)
            stream.stop()

    def _read(self, stream: _Stream) -> None:
        """Takes in all that a stream says as soon as it is said, however slowly it is told on."""
        backoff = Backoff()
        try:
            while not self._closed.is_set() and not stream.stopped.is_set():
                address = self._connection.next_target()
                try:
                    for message in self._messages(address, stream):
                        backoff.reset()
                        self._connection.answered(address)
                        self._heard.hear(message)
                        stream.heard()
                except grpc.RpcError as error:
                    self._connection.suggest(_raise_if_final(error, address))
                stream.stopped.wait(backoff.pause_s())
        except Exception as error:
            stream.failure = error
        finally:
            stream.end()

    def _messages(self, address: str, stream: _Stream) -> Iterator[progress_pb.SubscribeResponse]:
        stub = progress_grpc.ProgressServiceStub(self._connection.channel(address))
        known = self._heard.known() if stream.has_heard else {}
        call = stub.Subscribe(iter([subscribe_request(self.pipeline, self._chosen, known)]))
        try:
            if stream.begin(call):
                yield from call
        finally:
            call.cancel()

    def min_time(self, segment: str | None = None, timeout_s: float = ANSWER_TIMEOUT_S) -> int:
        """Min time now, of a segment or of the whole pipeline: a slot, exclusive. Never less than
        what this subscriber has told. Raises RefusedError, UnavailableError."""
        self._ask(timeout_s)
        return _min_time(self._heard, segment)

    def slack_ns(self, timeout_s: float = ANSWER_TIMEOUT_S) -> int:
        """Width of the pipeline's slots in nanoseconds. Raises RefusedError, UnavailableError."""
        if not self._heard.slack_ns:
            self._ask(timeout_s)
        return self._heard.slack_ns

    def _ask(self, timeout_s: float) -> None:
        request = progress_pb.GetMinTimeRequest(pipeline=self.pipeline)
        answer, _ = self._connection.call(
            lambda channel: progress_grpc.ProgressServiceStub(channel).GetMinTime,
            request,
            timeout_s,
        )
        self._heard.hear(answer)

    def wait_until(
        self,
        until: int | datetime,
        segment: str | None = None,
        timeout_s: float | None = None,
    ) -> bool:
        """Waits until min time, of a segment or of the whole pipeline, has reached a slot, or until
        everything labelled before a moment is complete. False if `timeout_s` seconds pass first
        (None: waits for ever), reconnecting all the while. Raises RefusedError, ClosedError."""
        deadline = _deadline(timeout_s)
        if not isinstance(until, int) and not self._heard.slack_ns:
            try:
                self._ask(_left(deadline, float("inf")))
            except UnavailableError:
                return False
        request = _wait_request(self.pipeline, self._heard, until, segment)
        backoff = Backoff()
        while not _has_reached(self._heard, segment, request.slot):
            left_s = _left(deadline, WAIT_CALL_S)
            if left_s <= 0:
                return False
            address = self._connection.next_target()
            stub = progress_grpc.ProgressServiceStub(self._connection.channel(address))
            try:
                answer = stub.WaitUntil(request, timeout=left_s)
                self._heard.reached(segment, answer.min_time)
                self._connection.answered(address)
            except grpc.RpcError as error:
                self._connection.suggest(_raise_if_final(error, address))
                if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    self._closed.wait(min(backoff.pause_s(), left_s))
            except ValueError:
                raise ClosedError("the subscriber was closed while it waited") from None
        return True

    def close(self) -> None:
        """Ends `updates()`; waits in other threads raise ClosedError."""
        self._closed.set()
        for stream in list(self._streams):
            stream.stop()
        self._connection.close()

    def __enter__(self) -> Subscriber:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Stream:
    """What the reader of `updates()` and the thread that hears for it share."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self.has_heard = False
        self.failure: Exception | None = None
        """What ended the thread, unless it was told to stop. Set before `end`."""
        self._changed = threading.Condition()
        self._has_news = False
        self._over = False
        self._call: Any = None

    def begin(self, call: Any) -> bool:
        """A call is under way; False if it must not be any more."""
        with self._changed:
            self._call = call
            return not self.stopped.is_set()

    def heard(self) -> None:
        """Something was heard."""
        with self._changed:
            self.has_heard = self._has_news = True
            self._changed.notify()

    def end(self) -> None:
        """Nothing more will be heard."""
        with self._changed:
            self._over = True
            self._changed.notify()

    def wait(self) -> bool:
        """Waits until something was heard since it last returned, or until nothing will be any more;
        returns whether that is so."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_news or self._over)
            self._has_news = False
            return self._over

    def stop(self) -> None:
        """Ends the thread, at once where it waits for its call."""
        with self._changed:
            self.stopped.set()
            call = self._call
        if call is not None:
            call.cancel()


class AsyncSubscriber:
    """As `Subscriber`, for asyncio. Make and use it in one loop."""

    def __init__(
        self,
        target: str | Sequence[str],
        pipeline: str,
        segments: Sequence[str] | None = None,
    ) -> None:
        self.pipeline = pipeline
        self._chosen = tuple(segments or ())
        self._targets = parse_targets(target)
        self._credentials = credentials_for(target)
        self._others = Targets(self._targets)
        self._learning: asyncio.Task[None] | None = None
        self._heard = Heard(pipeline)
        self._stamp: Stamp = ()
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._older: list[grpc.aio.Channel] = []
        """Made with certificates that were renewed since; kept for the calls under way."""
        self._calls: set[Any] = set()
        self._closed = False

    def _next_stub(self) -> tuple[str, Any]:
        if self._closed:
            raise ClosedError("the subscriber is closed")
        address = self._others.next()
        stamp = self._credentials.stamp()
        if stamp != self._stamp and not (self._channels and MISSING in stamp):
            self._stamp = stamp
            self._older = [*self._older, *self._channels.values()][-MAX_OLDER_CHANNELS:]
            self._channels.clear()
        if address not in self._channels:
            self._channels[address] = self._credentials.aio_channel(address, CHANNEL_OPTIONS)
        return address, progress_grpc.ProgressServiceStub(self._channels[address])

    def _answered(self, address: str) -> None:
        """A process has answered; it is asked now and then which shards there are."""
        if self._others.answered():
            self._learning = asyncio.ensure_future(self._learn(address))

    async def _learn(self, address: str) -> None:
        stub: Any = pipeline_grpc.PipelineServiceStub(self._channels[address])
        try:
            request = pipeline_pb.ListShardsRequest()
            answer = await stub.ListShards(request, timeout=CALL_TIMEOUT_S)
        except grpc.RpcError:
            return  # another time
        self._others.learn((shard.address for shard in answer.shards), all_there_are=True)

    async def updates(self) -> AsyncIterator[Update]:
        """As `Subscriber.updates`, until `close()`."""
        told: dict[str | None, int] = {}
        news = asyncio.Event()
        reading = asyncio.ensure_future(self._read(news))
        reading.add_done_callback(lambda _: news.set())
        over = False
        try:
            while not over:
                await news.wait()
                news.clear()
                over = reading.done()
                for update in self._heard.news(told, self._chosen):
                    yield update
            if not self._closed:
                reading.result()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, news: asyncio.Event) -> None:
        """Takes in all that a stream says as soon as it is said, however slowly it is told on."""
        has_heard = False
        backoff = Backoff()
        while not self._closed:
            address, stub = self._next_stub()
            known = self._heard.known() if has_heard else {}
            call = stub.Subscribe(iter([subscribe_request(self.pipeline, self._chosen, known)]))
            self._calls.add(call)
            try:
                async for message in call:
                    backoff.reset()
                    self._answered(address)
                    self._heard.hear(message)
                    has_heard = True
                    news.set()
            except grpc.aio.AioRpcError as error:
                self._others.suggest(_raise_if_final(error, address))
            except asyncio.CancelledError:
                # By `close()`, which cancels the call; or else the task itself is cancelled.
                task = asyncio.current_task()
                if not self._closed or (task is not None and task.cancelling()):
                    raise
            finally:
                self._calls.discard(call)
                call.cancel()
            if not self._closed:
                await asyncio.sleep(backoff.pause_s())

    async def min_time(
        self, segment: str | None = None, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> int:
        """As `Subscriber.min_time`."""
        await self._ask(timeout_s)
        return _min_time(self._heard, segment)

    async def _ask(self, timeout_s: float) -> None:
        deadline = _deadline(timeout_s)
        backoff = Backoff()
        request = progress_pb.GetMinTimeRequest(pipeline=self.pipeline)
        while True:
            address, stub = self._next_stub()
            try:
                left_s = max(0.001, _left(deadline, CALL_TIMEOUT_S))
                self._heard.hear(await stub.GetMinTime(request, timeout=left_s))
                self._answered(address)
                return
            except grpc.aio.AioRpcError as error:
                self._others.suggest(_raise_if_final(error, address))
                pause_s = backoff.pause_s()
                if _left(deadline, float("inf")) <= pause_s:
                    raise UnavailableError(
                        f"the tracker at {', '.join(self._targets)} did not answer within "
                        f"{timeout_s:g} s (last: {address}: {describe_failure(error)})"
                    ) from None
            await asyncio.sleep(pause_s)

    async def wait_until(
        self,
        until: int | datetime,
        segment: str | None = None,
        timeout_s: float | None = None,
    ) -> bool:
        """As `Subscriber.wait_until`."""
        deadline = _deadline(timeout_s)
        if not isinstance(until, int) and not self._heard.slack_ns:
            try:
                await self._ask(_left(deadline, float("inf")))
            except UnavailableError:
                return False
        request = _wait_request(self.pipeline, self._heard, until, segment)
        backoff = Backoff()
        while not _has_reached(self._heard, segment, request.slot):
            left_s = _left(deadline, WAIT_CALL_S)
            if left_s <= 0:
                return False
            address, stub = self._next_stub()
            try:
                answer = await stub.WaitUntil(request, timeout=left_s)
                self._heard.reached(segment, answer.min_time)
                self._answered(address)
            except grpc.aio.AioRpcError as error:
                self._others.suggest(_raise_if_final(error, address))
                if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    await asyncio.sleep(min(backoff.pause_s(), left_s))
        return True

    async def close(self) -> None:
        """Ends `updates()`, which may be iterated by another task."""
        self._closed = True
        for call in list(self._calls):
            call.cancel()
        if self._learning is not None:
            self._learning.cancel()
            await asyncio.gather(self._learning, return_exceptions=True)
        for channel in (*self._channels.values(), *self._older):
            await channel.close()
        self._channels.clear()
        self._older.clear()

    async def __aenter__(self) -> AsyncSubscriber:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def _deadline(timeout_s: float | None) -> float:
    return float("inf") if timeout_s is None else time.monotonic() + timeout_s


def _left(deadline: float, most_s: float) -> float:
    return min(most_s, deadline - time.monotonic())


def _raise_if_final(error: grpc.RpcError, address: str) -> str:
    """Raises what another attempt at another process would not change. Returns the process to try next,
    if one was named."""
    refused = refusal_of(error)
    if refused is not None:
        if refused.refusal.code in (RefusalCode.NOT_READY, RefusalCode.FULL):
            return refused.home_address
        raise refused from None
    if not is_retried(error):
        raise LowmarkError(f"{address}: {describe_failure(error)}") from None
    return ""


def _min_time(heard: Heard, segment: str | None) -> int:
    found = heard.get(segment)
    if found is None:
        raise _unknown(heard.pipeline, segment, heard.names())
    return found


def _unknown(pipeline: str, segment: str | None, known: list[str]) -> LowmarkError:
    return RefusedError(
        Refusal(
            RefusalCode.UNKNOWN_SEGMENT,
            f"pipeline {pipeline!r} has no segment {segment!r}; it has {known[:20]}",
        )
    )


def _wait_request(
    pipeline: str, heard: Heard, until: int | datetime, segment: str | None
) -> progress_pb.WaitUntilRequest:
    slot = until if isinstance(until, int) else slot_until(until, heard.slack_ns)
    return progress_pb.WaitUntilRequest(pipeline=pipeline, segment=segment or "", slot=slot)


def _has_reached(heard: Heard, segment: str | None, slot: int) -> bool:
    found = heard.get(segment)
    return found is not None and found >= slot
