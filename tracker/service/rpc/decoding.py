"""Requests whose bytes are no message: refused as what they are, not as a failure of the server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from tracker.core.model import Refusal, RefusalCode, Refused
from tracker.service.rpc.errors import Context, abort
from tracker.service.rpc.wrapping import Handler, wrapped


class _Malformed:
    """Stands for a request that could not be read."""

    def __init__(self, size_bytes: int, error: DecodeError) -> None:
        self.refusal = Refusal(
            RefusalCode.INVALID, f"a request of {size_bytes} bytes cannot be read: {error}"
        )


class RefuseMalformed(grpc.aio.ServerInterceptor):
    """Ends calls with a malformed request with INVALID_ARGUMENT; gRPC itself would say UNKNOWN."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        handler = await continuation(handler_call_details)
        if handler is None or handler.request_deserializer is None:
            return handler
        return wrapped(handler, _of_unary, _of_stream, _reading(handler.request_deserializer))


def _reading(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def read(data: bytes) -> Any:
        try:
            return deserialize(data)
        except DecodeError as error:
            return _Malformed(len(data), error)

    return read


def _of_unary(serve: Any) -> Any:
    async def served(request: Any, context: Context) -> Any:
        if isinstance(request, _Malformed):
            await abort(context, request.refusal, {})
        return await serve(request, context)

    return served


def _of_stream(serve: Any) -> Any:
    async def served(requests: AsyncIterator[Any], context: Context) -> Any:
        """A servicer of streams refuses what its requests raise."""
        await serve(_well_formed(requests), context)

    return served


async def _well_formed(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for request in requests:
        if isinstance(request, _Malformed):
            raise Refused(request.refusal.code, request.refusal.message)
        yield request
