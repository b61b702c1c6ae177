"""The one place where a call ends because something was refused: servicers raise `Refused`, and no more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from inspect import isasyncgen
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from tracker.core.model import Refused
from tracker.service.rpc.errors import Context, abort
from tracker.service.rpc.wrapping import Interceptor, Wrapped, wrapped
from tracker.wire.refusals import unreadable


class EndRefused(Interceptor):
    """Ends calls that are refused with what was refused; those whose request is no message, too, of which gRPC
    itself would say UNKNOWN. It is the first of the interceptors, so that it hears of all."""

    def __init__(self, addresses: Mapping[int, str]) -> None:
        """addresses: where each shard listens, for refusals that name another one."""
        self._addresses = addresses

    def intercepted(self, call: grpc.HandlerCallDetails, handler: Wrapped) -> Wrapped:
        if handler.request_deserializer is None:
            return handler
        of_stream = partial(self.ending, _each_well_formed)
        read = _reading(handler.request_deserializer)
        return wrapped(handler, partial(self.ending, _well_formed), of_stream, read)

    def ending(self, checked: Callable[[Any], Any], serve: Any) -> Any:
        """A servicer's method, with this as its end. checked: what it is given of what was said."""

        async def served(said: Any, context: Context) -> Any:
            try:
                answer = serve(checked(said), context)
                if not isasyncgen(answer):
                    return await answer
                async with aclosing(answer) as parts:  # as reflection answers, and none of ours
                    async for part in parts:
                        await context.write(part)
            except Refused as refused:
                await abort(context, refused.refusal, self._addresses)

        return served


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
