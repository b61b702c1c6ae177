"""Reaching a tracker: any of its processes, or the one that is home, with retries until a deadline.

Channels are made when they are first used, in the process that uses them.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ParamSpec, TypeVar

import grpc

from acker.v1 import pipeline_service_pb2 as pipeline_pb
from acker.v1 import pipeline_service_pb2_grpc as pipeline_grpc
from tracker.client.credentials import Credentials, Stamp
from tracker.client.refusals import refusal_of
from tracker.client.targets import Targets
from tracker.core.model import RefusalCode
from tracker.errors import ClosedError, InvalidError, LowmarkError, UnavailableError
from tracker.wire.grpc_options import CHANNEL_OPTIONS

Answer = TypeVar("Answer")
Result = TypeVar("Result")
Given = ParamSpec("Given")

CALL_TIMEOUT_S = 5.0
"""One attempt at a call; within the caller's own deadline others follow."""
RETRY_FIRST_S = 0.05
RETRY_MOST_S = 0.5
REDIRECT_FIRST_S = 0.005
"""Before the next attempt when a process has answered that another one is home, or that it soon is: while
shards come and go, that takes some milliseconds."""
MAX_OLDER_CHANNELS = 16
"""Channels with older certificates that are kept open; and as many to processes that are gone."""
MAX_REDIRECTS = 8
"""Redirects in a row: more say that the processes disagree on who is home, as they may for a while when
shards have changed hands; then it pauses before it asks again."""

MAX_REMEMBERED = 10_000
"""Pipelines of which it is remembered where they live."""

_GIVEN_UP = {
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.INVALID_ARGUMENT,
}
"""Failures, other than refusals, that another attempt does not change."""


def is_retried(error: grpc.RpcError) -> bool:
    """Whether another attempt may succeed where this one, which was not refused, failed."""
    return error.code() not in _GIVEN_UP


def _is_late(error: grpc.RpcError) -> bool:
    return error.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def describe_failure(error: grpc.RpcError) -> str:
    """A failed call's status and text, for people."""
    return f"{error.code().name}: {error.details()}"


def parse_targets(target: str | Sequence[str]) -> tuple[str, ...]:
    """`host:port`, several of them with commas, or a sequence of them. Raises LowmarkError."""
    parts = target.split(",") if isinstance(target, str) else list(target)
    targets = tuple(part.strip() for part in parts if part.strip())
    for address in targets:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise InvalidError(f"target {address!r} is not host:port")
    if not targets:
        raise InvalidError("no target is given; name the tracker as host:port")
    return targets


class SecureTarget(tuple[str, ...]):
    """A target with credentials of its own, for every class that takes a target; those of a plain one
    are the environment's (LOWMARK_TLS_CA, LOWMARK_TLS_CERT, LOWMARK_TLS_KEY, LOWMARK_TOKEN_FILE)."""

    credentials: Credentials

    def __new__(cls, target: str | Sequence[str], credentials: Credentials) -> SecureTarget:
        """Raises LowmarkError if the target is not host:port."""
        made = super().__new__(cls, parse_targets(target))
        made.credentials = credentials
        return made


def _pipeline_of(request: Any) -> str:
    """The pipeline that a request names; nothing where it names none."""
    spec = getattr(request, "spec", None)
    return str(getattr(request, "pipeline", "") if spec is None else spec.name)


class Backoff:
    """Growing pauses between attempts, with jitter so that many clients do not come at once."""

    def __init__(self, first_s: float = RETRY_FIRST_S, most_s: float = RETRY_MOST_S) -> None:
        self._next_s = self._first_s = min(first_s, most_s)
        self._most_s = most_s

    def pause_s(self) -> float:
        """The next one: twice as long as the one before, up to the most, less up to a half by chance."""
        pause = self._next_s * (0.5 + random.random() / 2)
        self._next_s = min(2 * self._next_s, self._most_s)
        return pause

    def reset(self) -> None:
        self._next_s = self._first_s


class _Processes(ABC):
    """The processes of one tracker, by their addresses, and how any of them is asked: in coroutines, which
    suspend in `AsyncConnection` alone."""

    of_one_group = False
    """Whether nothing is to be asked of the other groups of the deployment."""

    @abstractmethod
    def _made(self, address: str) -> Any:
        """A new channel."""

    @abstractmethod
    def _let_go(self, channel: Any) -> None:
        """An older channel is not kept any longer."""

    @abstractmethod
    def _learn_from(self, stub: Any) -> None:
        """Asks a process which shards there are, and goes on."""

    @abstractmethod
    async def attempt(self, method: Callable[..., Any], request: Any, timeout_s: float) -> Any:
        """One call. Raises grpc.RpcError, ClosedError."""

    @abstractmethod
    async def pause(self, seconds: float) -> bool:
        """Waits, and returns whether this was closed."""

    def __init__(self, target: str | Sequence[str]) -> None:
        """Raises LowmarkError, and InvalidError if those of the environment do not go together."""
        self.targets = parse_targets(target)
        own = target.credentials if isinstance(target, SecureTarget) else None
        self.credentials = own or Credentials.from_environment()
        self.closed = threading.Event()
        self._stamp: Stamp = ()
        self._read: grpc.ChannelCredentials | None = None
        """What the files held that are of this stamp; None without TLS."""
        self._channels: dict[str, Any] = {}
        self._older: list[Any] = []
        """Made with certificates that were renewed since; kept for the calls under way."""
        self._gone: list[Any] = []
        """To where no process of the tracker is any more; kept for the same."""
        self._lock = threading.Lock()
        self._lives: dict[str, str] = {}
        """By pipeline the process that has answered last when another one had named it: it may live in another group."""
        self._others = Targets(self.targets)
        self._process: int | None = None

    def channel(self, address: str) -> Any:
        """The channel to a process. Raises ClosedError after `close`, and in a process that was
        forked off after channels had been made: they do not work there."""
        with self._lock:
            if self.closed.is_set():
                raise ClosedError(f"the connection to {', '.join(self.targets)} is closed")
            if self._process is None:
                self._process = os.getpid()
            elif self._process != os.getpid():
                raise ClosedError(
                    f"the connection to {', '.join(self.targets)} was opened in process "
                    f"{self._process}, which forked this one; open it after the fork"
                )
            self._renew()
            while len(self._gone) > MAX_OLDER_CHANNELS:
                self._let_go(self._gone.pop(0))
            if address not in self._channels:
                self._channels[address] = self._made(address)
            return self._channels[address]

    def _renew(self) -> None:
        """Lets go of the channels if the files of certificates have changed. Files that cannot be read now are just being
        replaced, where they could be before: it goes on with what they held. Raises InvalidError where they never could be."""
        stamp = self.credentials.stamp()
        if stamp == self._stamp:
            return
        try:
            self._read = self.credentials.read()
        except InvalidError:
            if self._read is None:
                raise
            return
        self._stamp = stamp
        while len(self._older) > MAX_OLDER_CHANNELS:
            self._let_go(self._older.pop(0))
        self._older.extend(self._channels.values())
        self._channels.clear()

    def _taken(self) -> list[Any]:
        """All channels of this process, to be closed by whoever closes this."""
        self.closed.set()
        with self._lock:
            taken = [*self._channels.values(), *self._older, *self._gone]
            for channels in (self._channels, self._older, self._gone):
                channels.clear()
            return taken if self._process == os.getpid() else []

    def next_target(self) -> str:
        """Another process at each call (see `Targets.next`)."""
        return self._others.next()

    def suggest(self, address: str) -> None:
        """The next attempt goes there: another process has named it."""
        self._others.suggest(address)

    def redirected(self, address: str) -> None:
        """Another process has named this one as a home; the next attempt may go anywhere."""
        self._others.learn([address])

    def answered(self, address: str) -> None:
        """A process has answered; it is asked now and then which shards there are."""
        if self._others.answered():
            try:
                self._learn_from(pipeline_grpc.PipelineServiceStub(self.channel(address)))
            except (ClosedError, ValueError):  # it is being closed
                return

    def _learn(self, answer: pipeline_pb.ListShardsResponse) -> None:
        there = [shard.address for shard in answer.shards]
        if not self.of_one_group:
            there = [*answer.elsewhere, *there]
        self._others.learn(there, all_there_are=True)
        with self._lock:
            for address in self._channels.keys() - {*there, *self.targets}:
                self._gone.append(self._channels.pop(address))

    async def ask(
        self,
        make: Callable[[Any], Callable[..., Answer]],
        request: Any,
        timeout_s: float,
        call_timeout_s: float = CALL_TIMEOUT_S,
        prefer: str | None = None,
        *,
        retry_not_ready: bool = True,
    ) -> tuple[Answer, str]:
        """Makes a unary call at the process that can answer it; returns the answer and the address.

        make: from a channel to the stub's method; `prefer`: the address to ask first;
        `retry_not_ready`: whether a process that is not ready is asked again. Raises RefusedError,
        UnavailableError when no process answered within `timeout_s` seconds, or ClosedError.
        """
        deadline = time.monotonic() + timeout_s
        backoff, redirects, pipeline = Backoff(), 0, _pipeline_of(request)
        address = self._lives.get(pipeline) or prefer or self.next_target()
        last: tuple[str, grpc.RpcError] | None = None
        while True:
            left_s = max(0.001, deadline - time.monotonic())
            method = make(self.channel(address))
            try:
                answer = await self.attempt(method, request, min(left_s, call_timeout_s))
                self.answered(address)
                if redirects and pipeline:
                    self._remember(pipeline, address)
                return answer, address
            except grpc.RpcError as error:
                failure = error
            refused = refusal_of(failure)
            self._lives.pop(pipeline, None)
            if refused is not None and refused.refusal.code is RefusalCode.NOT_HOME:
                redirects += 1
                if refused.home_address and redirects <= MAX_REDIRECTS:
                    address = refused.home_address
                    self.redirected(address)
                    continue
                # Who owns the shard now is not known everywhere yet: it is asked again after a while.
            elif refused is not None and not (
                retry_not_ready and refused.refusal.code is RefusalCode.NOT_READY
            ):
                raise refused
            if refused is None and not is_retried(failure):
                raise LowmarkError(f"{address}: {describe_failure(failure)}")
            if refused is not None:
                self.suggest(refused.home_address)
            # Of an attempt that had less time than others the one before it says more.
            if last is None or left_s >= call_timeout_s or not _is_late(failure):
                last = address, failure
            pause_s = backoff.pause_s()
            if time.monotonic() + pause_s >= deadline:
                where, why = last
                raise UnavailableError(
                    f"the tracker at {', '.join(self.targets)} did not answer within "
                    f"{timeout_s:g} s (last: {where}: {describe_failure(why)}{self._advice(why)})"
                )
            if await self.pause(pause_s):
                raise self._closed_meanwhile()
            address, redirects = self.next_target(), 0

    def _remember(self, pipeline: str, address: str) -> None:
        with self._lock:
            self._lives[pipeline] = address
            if len(self._lives) > MAX_REMEMBERED:
                del self._lives[next(iter(self._lives))]

    def _closed_meanwhile(self) -> ClosedError:
        return ClosedError(f"the connection to {', '.join(self.targets)} was closed during a call")

    def _advice(self, failure: grpc.RpcError) -> str:
        """What else may be wrong where a connection ends before anything is answered."""
        if failure.code() is not grpc.StatusCode.UNAVAILABLE or refusal_of(failure) is not None:
            return ""
        if not self.credentials.ca:
            return "; if it speaks TLS, name its CA by LOWMARK_TLS_CA"
        own = "" if self.credentials.cert else ", which was given none by LOWMARK_TLS_CERT,"
        return f"; if it ends every connection, it may not trust this client's certificate{own} or not speak TLS"


def finished(steps: Coroutine[Any, Any, Result]) -> Result:
    """What a coroutine comes to that does not suspend, since its connection is one that blocks."""
    try:
        steps.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    raise AssertionError("it suspends")


def blocking(method: Callable[Given, Coroutine[Any, Any, Result]]) -> Callable[Given, Result]:
    """The same method of a class whose connection blocks."""
    return lambda *given, **named: finished(method(*given, **named))


class Connection(_Processes):
    """The processes of one tracker, by their addresses. Safe for use by several threads."""

    call = blocking(_Processes.ask)
    """`ask`, without awaiting it."""

    def close(self) -> None:
        """Ends the calls under way; what is called from now on raises ClosedError."""
        for channel in self._taken():
            channel.close()

    def _made(self, address: str) -> grpc.Channel:
        return self.credentials.channel(address, CHANNEL_OPTIONS, self._read)

    def _let_go(self, channel: grpc.Channel) -> None:
        channel.close()

    def _learn_from(self, stub: pipeline_grpc.PipelineServiceStub) -> None:
        asked = stub.ListShards.future(pipeline_pb.ListShardsRequest(), timeout=CALL_TIMEOUT_S)
        asked.add_done_callback(self._has_asked)

    def _has_asked(self, asked: Any) -> None:
        try:
            self._learn(asked.result())
        except (grpc.RpcError, grpc.FutureCancelledError):
            return  # another time

    async def attempt(self, method: Callable[..., Any], request: Any, timeout_s: float) -> Any:
        try:
            return method(request, timeout=timeout_s)
        except ValueError:  # the channel was closed meanwhile, by close()
            raise self._closed_meanwhile() from None

    async def pause(self, seconds: float) -> bool:
        return self.closed.wait(seconds)


class AsyncConnection(_Processes):
    """The same, for asyncio: `ask` is awaited. To be made and used in one loop."""

    def __init__(self, target: str | Sequence[str]) -> None:
        super().__init__(target)
        self.learning: asyncio.Task[None] | None = None

    async def close(self, grace_s: float | None = None) -> None:
        """As `Connection.close`. grace_s: how long calls under way may go on; those that are ended raise CancelledError where they
        are awaited."""
        if self.learning is not None:
            self.learning.cancel()
            await asyncio.gather(self.learning, return_exceptions=True)
        await asyncio.gather(*(channel.close(grace_s) for channel in self._taken()))

    def _made(self, address: str) -> grpc.aio.Channel:
        return self.credentials.aio_channel(address, CHANNEL_OPTIONS, self._read)

    def _let_go(self, channel: grpc.aio.Channel) -> None:
        """It ends with its last call."""

    def _learn_from(self, stub: Any) -> None:
        self.learning = asyncio.ensure_future(self._ask_which(stub))

    async def _ask_which(self, stub: Any) -> None:
        try:
            self._learn(
                await stub.ListShards(pipeline_pb.ListShardsRequest(), timeout=CALL_TIMEOUT_S)
            )
        except grpc.RpcError:
            return  # another time

    async def attempt(self, method: Callable[..., Any], request: Any, timeout_s: float) -> Any:
        return await method(request, timeout=timeout_s)

    async def pause(self, seconds: float) -> bool:
        await asyncio.sleep(seconds)
        return self.closed.is_set()
