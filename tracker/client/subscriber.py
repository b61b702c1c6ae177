"""Hearing min time: its current value and then each change, or one wait. Synchronous and asyncio.

A subscriber may name several processes of the tracker: it goes to the next when one is gone, resumes
with what it has told, and never tells a min time that goes back. What it does is written once, in coroutines
(`_Hearing`); those of a `Subscriber`, whose connection blocks, never suspend.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar

import grpc

from acker.v1 import progress_service_pb2 as progress_pb
from acker.v1 import progress_service_pb2_grpc as progress_grpc
from tracker.client.closing import Closing
from tracker.client.connection import (
    AsyncConnection,
    Backoff,
    Connection,
    describe_failure,
    finished,
    is_retried,
)
from tracker.client.refusals import refusal_of
from tracker.client.updates import Heard, Update, slot_time, slot_until, subscribe_request
from tracker.core.model import Refusal, RefusalCode
from tracker.core.model.rounds import Rounds
from tracker.core.model.slots import FOREVER, LOWEST_SLOT
from tracker.errors import LowmarkError, RefusedError, UnavailableError

ANSWER_TIMEOUT_S = 30.0
SIGNAL_LOOK_S = 1.0
"""How often a wait looks for signals: one that comes as the wait is about to begin does not end it."""
LOOK_TIMEOUT_S = 1.0
"""A wait of no time asks once, for at most so long."""
WAIT_CALL_S = 30.0
"""One WaitUntil call lasts at most this long; then it is made again, at the next process."""

Processes = TypeVar("Processes", Connection, AsyncConnection)


class _Hearing(Generic[Processes]):
    """What subscribers of both kinds do."""

    _connects: type[Processes]

    def __init__(
        self,
        target: str | Sequence[str],
        pipeline: str,
        segments: Sequence[str] | None = None,
    ) -> None:
        self.pipeline = pipeline
        self._chosen = tuple(segments or ())
        self._connection: Processes = self._connects(target)
        self._heard = Heard(pipeline)
        self._updating: set[Any] = set()
        """Who hears, one for each iteration of `updates()`."""

    @property
    def heard_generation(self) -> int | None:
        """The newest generation of the pipeline in which anything was heard; None before. It belongs into a record of what
        follows from what was heard."""
        return self._heard.generation

    def goes_on_since(self, generation: int | None) -> None:
        """What is recorded was heard in this generation (None: it is not known in which). Where that pipeline was deleted, and
        another one has its name, all that asks the tracker from now on raises RefusedError."""
        if generation is not None:
            self._heard.hear_generation(generation)

    async def _read(self, stream: _Stream | _AsyncStream) -> None:
        """Takes in all that a stream brings as soon as it comes, however slowly it is read here."""
        connection, backoff = self._connection, Backoff()
        known: dict[str | None, int] = {}
        while not (connection.closed.is_set() or stream.stopped):
            address = connection.next_target()
            stub: Any = progress_grpc.ProgressServiceStub(connection.channel(address))
            wanted = subscribe_request(self.pipeline, self._chosen, known, self._heard.generation)
            call = stub.Subscribe(iter([wanted]))
            try:
                if stream.begin(call):
                    async for message in stream.each(call):
                        backoff.reset()
                        connection.answered(address)
                        self._heard.hear_removed(message.removed)
                        self._heard.hear(message)
                        known = self._heard.known()
                        stream.heard()
            except grpc.RpcError as error:
                connection.suggest(self._raise_if_final(error, address, self._chosen))
            finally:
                call.cancel()
            await stream.pause(backoff.pause_s())

    async def _min_time(self, segment: str | None, timeout_s: float) -> int:
        await self._ask(timeout_s)
        found = self._heard.get(segment)
        if found is None:
            raise _unknown(self.pipeline, segment, self._heard.names())
        return found

    async def _min_moment(self, segment: str | None, timeout_s: float) -> datetime | None:
        slot = await self._min_time(segment, timeout_s)
        if slot == FOREVER:
            return None
        return slot_time(Rounds(self._heard.rounds).whole(slot), self._heard.slack_ns)

    async def _slot_until(self, when: int | datetime) -> int:
        if not isinstance(when, int) and not self._heard.slack_ns:
            await self._ask(ANSWER_TIMEOUT_S)
        return slot_until(when, self._heard.slack_ns, self._heard.rounds)

    async def _ask(self, timeout_s: float) -> None:
        answer, _ = await self._connection.ask(
            lambda channel: progress_grpc.ProgressServiceStub(channel).GetMinTime,
            progress_pb.GetMinTimeRequest(
                pipeline=self.pipeline, heard_generation=self._heard.generation
            ),
            timeout_s,
        )
        self._heard.hear(answer)

    async def _wait_until(
        self, until: int | datetime, segment: str | None, timeout_s: float | None
    ) -> bool:
        heard, connection = self._heard, self._connection
        deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        if not isinstance(until, int):
            if not heard.slack_ns:
                try:
                    await self._ask(max(LOOK_TIMEOUT_S, deadline - time.monotonic()))
                except UnavailableError:
                    return False
            until = slot_until(until, heard.slack_ns, heard.rounds)
        request = progress_pb.WaitUntilRequest(
            pipeline=self.pipeline, segment=segment or "", slot=until,
            heard_generation=heard.generation,
        )  # fmt: skip
        backoff, is_known = Backoff(), heard.generation is not None
        if deadline <= time.monotonic():
            return await self._is_reached_now(until, segment)
        # What was heard before is asked once more: the pipeline may have been deleted, and its name used again.
        while True:
            left_s = min(WAIT_CALL_S, deadline - time.monotonic())
            if left_s <= 0:
                return heard.has_reached(segment, until)
            address = connection.next_target()
            stub = progress_grpc.ProgressServiceStub(connection.channel(address))
            # The first answer comes at once: by its generation this pipeline is told from another one that gets its name.
            request.slot = until if is_known else LOWEST_SLOT
            try:
                answer = await connection.attempt(stub.WaitUntil, request, left_s)
                generation = answer.generation if answer.HasField("generation") else None
                heard.reached(segment, answer.min_time, generation)
                if not is_known and generation is not None:
                    request.heard_generation = generation
                is_known = True
                connection.answered(address)
            except grpc.RpcError as error:
                asked = () if segment is None else (segment,)
                connection.suggest(self._raise_if_final(error, address, asked))
                is_over = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
                if not (is_over or heard.has_reached(segment, until)):
                    await connection.pause(min(backoff.pause_s(), left_s))
            if heard.has_reached(segment, until):
                return True

    def _raise_if_final(self, error: grpc.RpcError, address: str, segments: Sequence[str]) -> str:
        """Raises what another attempt at another process would not change. segments: that were asked for. Returns the process
        to try next, if one was named."""
        refused = refusal_of(error)
        if refused is not None:
            code = refused.refusal.code
            # A process that is behind does not know yet a segment that has come while the pipeline runs.
            is_behind = code is RefusalCode.UNKNOWN_SEGMENT and {*segments} <= {
                *self._heard.names()
            }
            if is_behind or code in (RefusalCode.NOT_READY, RefusalCode.FULL):
                return refused.home_address
            raise refused from None
        if not is_retried(error):
            raise LowmarkError(f"{address}: {describe_failure(error)}") from None
        return ""

    async def _is_reached_now(self, until: int, segment: str | None) -> bool:
        try:
            return await self._min_time(segment, LOOK_TIMEOUT_S) >= until
        except UnavailableError:
            return False

    async def _wait_round(
        self, time: int, number: int | None, segment: str | None, timeout_s: float | None
    ) -> bool:
        if not self._heard.slack_ns:
            await self._ask(ANSWER_TIMEOUT_S if timeout_s is None else timeout_s)
        until = Rounds(self._heard.rounds).over(time, number)
        return await self._wait_until(until, segment, timeout_s)


class Subscriber(_Hearing[Connection], Closing):
    """Min times of one pipeline; of some segments, or of all. Safe for use by several threads.

    target: host:port of one process or of several (with commas, or a sequence)."""

    _connects = Connection

    def updates(self) -> Iterator[Update]:
        """The current value of each chosen segment and of the whole pipeline, then each change, until
        `close()`. Each update is the newest value when it is given: who reads slowly misses the values
        in between, and is never behind by more than what it takes to read one update of each segment.
        Reconnects for ever; raises RefusedError if the pipeline or a segment is unknown. Each call of it
        begins anew with the current values."""
        stream = _Stream()
        name = f"lowmark-updates-{self.pipeline}"
        threading.Thread(target=self._run, args=(stream,), name=name, daemon=True).start()
        told: dict[str | None, tuple[int, bool]] = {}
        self._updating.add(stream)
        try:
            over = self._connection.closed.is_set()
            while not over:
                over = stream.wait()
                if over and not told:
                    break  # nothing has come, so nothing is told from memory
                yield from self._heard.news(told, self._chosen)
            if stream.failure is not None and not self._connection.closed.is_set():
                raise stream.failure
        finally:
            self._updating.discard(stream)
            stream.stop()

    def _run(self, stream: _Stream) -> None:
        try:
            finished(self._read(stream))
        except Exception as error:
            stream.failure = error
        finally:
            stream.end()

    def min_time(self, segment: str | None = None, timeout_s: float = ANSWER_TIMEOUT_S) -> int:
        """Min time now, of a segment or of the whole pipeline: a slot, exclusive. Never less than
        what this subscriber has told. Raises RefusedError, UnavailableError."""
        return finished(self._min_time(segment, timeout_s))

    def min_times(self, timeout_s: float = ANSWER_TIMEOUT_S) -> dict[str | None, int]:
        """Min times now, as `min_time`, of all segments by name, and of the whole pipeline under None."""
        finished(self._ask(timeout_s))
        heard = self._heard
        found = {segment: heard.get(segment) for segment in (None, *heard.names())}
        return {segment: slot for segment, slot in found.items() if slot is not None}

    def min_moment(
        self, segment: str | None = None, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> datetime | None:
        """Min time now as a moment (UTC): all that was labelled before it is completely processed. None where the
        segment is complete, and beyond the years 1 to 9999. Else as `min_time`."""
        return finished(self._min_moment(segment, timeout_s))

    def slack_ns(self, timeout_s: float = ANSWER_TIMEOUT_S) -> int:
        """Width of the pipeline's slots in nanoseconds. Raises RefusedError, UnavailableError."""
        if not self._heard.slack_ns:
            finished(self._ask(timeout_s))
        return self._heard.slack_ns

    def rounds(self, timeout_s: float = ANSWER_TIMEOUT_S) -> Rounds:
        """How the pipeline's slots are packed. Raises RefusedError, UnavailableError."""
        self.slack_ns(timeout_s)
        return Rounds(self._heard.rounds)

    def slot_until(self, when: int | datetime) -> int:
        """The least min time by which everything labelled before a moment is complete: a whole time. A naive
        datetime counts as UTC; a slot is as it is, and nobody is asked. Raises RefusedError, UnavailableError."""
        return finished(self._slot_until(when))

    def wait_round(
        self,
        time: int,
        number: int | None = None,
        segment: str | None = None,
        timeout_s: float | None = None,
    ) -> bool:
        """Waits until round `number` of a time is over: until everything at it and before is processed, so that
        all that it has put into the next round is there (None: until all rounds of the time are over). Of a time
        whose loop ends early, all rounds that are left are over at once, as soon as nothing of it is in flight
        and the fronts have promised more. Else as `wait_until`; raises RoundsExceededError for a round that
        the pipeline has not."""
        return finished(self._wait_round(time, number, segment, timeout_s))

    def wait_until(
        self,
        until: int | datetime,
        segment: str | None = None,
        timeout_s: float | None = None,
    ) -> bool:
        """Waits until min time, of a segment or of the whole pipeline, has reached a slot, or until
        everything labelled before a moment is complete. False if `timeout_s` seconds pass first
        (None: waits for ever; 0: looks whether it is so now), reconnecting all the while. Raises RefusedError,
        ClosedError."""
        return finished(self._wait_until(until, segment, timeout_s))

    def close(self) -> None:
        """Ends `updates()`; waits in other threads raise ClosedError."""
        self._connection.closed.set()
        for stream in list(self._updating):
            stream.stop()
        self._connection.close()


class _Stream:
    """What the reader of `updates()` and the thread that hears for it share."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        """What ended the thread, unless it was stopped. Set before `end`."""
        self._stopped = threading.Event()
        self._changed = threading.Condition()
        self._has_news = False
        self._over = False
        self._call: Any = None
        self._process = os.getpid()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def begin(self, call: Any) -> bool:
        """A call is under way; False if it must not be any more."""
        with self._changed:
            self._call = call
            return not self.stopped

    async def each(self, call: Any) -> AsyncIterator[progress_pb.SubscribeResponse]:
        """What the call says. It blocks."""
        for message in call:
            yield message

    async def pause(self, seconds: float) -> None:
        self._stopped.wait(seconds)

    def heard(self) -> None:
        """Something was heard."""
        with self._changed:
            self._has_news = True
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
            while not (self._has_news or self._over):
                self._changed.wait(SIGNAL_LOOK_S)
            self._has_news = False
            return self._over

    def stop(self) -> None:
        """Ends the thread, at once where it waits for its call; in a process that was forked off there is none, and the call is
        the other one's."""
        with self._changed:
            self._stopped.set()
            call = self._call
        if call is not None and self._process == os.getpid():
            call.cancel()


class AsyncSubscriber(_Hearing[AsyncConnection]):
    """As `Subscriber`, for asyncio. Make and use it in one loop."""

    _connects = AsyncConnection

    async def updates(self) -> AsyncIterator[Update]:
        """As `Subscriber.updates`, until `close()`."""
        told: dict[str | None, tuple[int, bool]] = {}
        stream = _AsyncStream()
        reading = asyncio.ensure_future(self._read(stream))
        self._updating.add(reading)
        reading.add_done_callback(lambda _: stream.news.set())
        over = False
        try:
            while not over:
                await stream.news.wait()
                stream.news.clear()
                over = reading.done()
                if over and not told:
                    break
                for update in self._heard.news(told, self._chosen):
                    yield update
            if not self._connection.closed.is_set():
                reading.result()
        finally:
            self._updating.discard(reading)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def min_time(
        self, segment: str | None = None, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> int:
        """As `Subscriber.min_time`."""
        return await self._min_time(segment, timeout_s)

    async def min_moment(
        self, segment: str | None = None, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> datetime | None:
        """As `Subscriber.min_moment`."""
        return await self._min_moment(segment, timeout_s)

    async def slot_until(self, when: int | datetime) -> int:
        """As `Subscriber.slot_until`."""
        return await self._slot_until(when)

    async def wait_until(
        self,
        until: int | datetime,
        segment: str | None = None,
        timeout_s: float | None = None,
    ) -> bool:
        """As `Subscriber.wait_until`."""
        return await self._wait_until(until, segment, timeout_s)

    async def wait_round(
        self,
        time: int,
        number: int | None = None,
        segment: str | None = None,
        timeout_s: float | None = None,
    ) -> bool:
        """As `Subscriber.wait_round`."""
        return await self._wait_round(time, number, segment, timeout_s)

    async def close(self) -> None:
        """Ends `updates()`, which may be iterated by another task."""
        self._connection.closed.set()
        for reading in list(self._updating):
            reading.cancel()
        await self._connection.close()

    async def __aenter__(self) -> AsyncSubscriber:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _AsyncStream:
    """What the reader of `updates()` and the task that hears for it share; the task ends by being cancelled."""

    stopped = False

    def __init__(self) -> None:
        self.news = asyncio.Event()

    def begin(self, call: Any) -> bool:
        return True

    def each(self, call: Any) -> Any:
        return call

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def heard(self) -> None:
        self.news.set()


def _unknown(pipeline: str, segment: str | None, known: list[str]) -> LowmarkError:
    return RefusedError(
        Refusal(
            RefusalCode.UNKNOWN_SEGMENT,
            f"pipeline {pipeline!r} has no segment {segment!r}; it has {known[:20]}",
        )
    )
