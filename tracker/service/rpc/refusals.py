"""The one place where a call ends because something was refused: servicers raise `Refused`, and no more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from inspect import isasyncgen
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from tracker.core.model import Refusal, RefusalCode, Refused
from tracker.service.rpc.errors import Context, abort
from tracker.service.rpc.wrapping import Interceptor, Wrapped, wrapped
from tracker.wire.refusals import unreadable

Locate = Callable[[str], Awaitable[str]]
"""Of a pipeline, to host:port of a process of the group in which it lives, or nothing; may raise Refused."""

_WAITS = {
    "/acker.v1.ProgressService/Subscribe", "/acker.v1.ProgressService/WaitUntil",
}  # fmt: skip
"""Calls that any process of a group answers: who makes them goes on elsewhere where he is told to ask again."""


class EndRefused(Interceptor):
    """Ends calls that are refused with what was refused; those whose request is no message, too, of which gRPC
    itself would say UNKNOWN. It is the first of the interceptors, so that it hears of all."""

    def __init__(self, addresses: Mapping[int, str], locate: Locate | None = None) -> None:
        """addresses: where each shard listens, for refusals that name another one; locate: finds a process of the group in which a
        pipeline lives that is not here."""
        self._addresses, self._locate = addresses, locate

    def intercepted(self, call: grpc.HandlerCallDetails, handler: Wrapped) -> Wrapped:
        if handler.request_deserializer is None:
            return handler
        waits = call.method in _WAITS
        of_stream = partial(self.ending, waits, _each_well_formed)
        read = _reading(handler.request_deserializer)
        return wrapped(handler, partial(self.ending, waits, _well_formed), of_stream, read)

    def ending(self, waits: bool, checked: Callable[[Any], Any], serve: Any) -> Any:
        """A servicer's method, with this as its end. waits: whether who calls goes on elsewhere where he is told to ask again;
        checked: what it is given of what was said."""

        async def served(said: Any, context: Context) -> Any:
            try:
                answer = serve(checked(said), context)
                if not isasyncgen(answer):
                    return await answer
                async with aclosing(answer) as parts:  # as reflection answers, and none of ours
                    async for part in parts:
                        await context.write(part)
            except Refused as refused:
                await abort(context, await self._elsewhere(refused.refusal, waits), self._addresses)

        return served

    async def _elsewhere(self, refusal: Refusal, waits: bool) -> Refusal:
        """A refusal of a pipeline that is not here: with where it is, if it lives in another group, and for now where nobody knows."""
        if not refusal.pipeline or self._locate is None:
            return refusal
        try:
            address = await self._locate(refusal.pipeline)
        except Refused as unknown:
            return unknown.refusal
        if not address:
            return refusal
        code = RefusalCode.NOT_READY if waits else RefusalCode.NOT_HOME
        message = f"pipeline {refusal.pipeline!r} lives in another group of the deployment, which is reached at {address}"
        return Refusal(code, message, address=address)


def _reading(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Reads a request, or what it is to be refused for: nothing may be raised where gRPC reads."""

    def read(data: bytes) -> Any:
        try:
            return deserialize(data)
        except DecodeError as error:
            return unreadable(len(data), error)

    return read


def _well_formed(request: Any) -> Any:
    if isinstance(request, Refused):
        raise request
    return request


async def _each_well_formed(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for request in requests:
        yield _well_formed(request)
