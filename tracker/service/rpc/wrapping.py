"""Serving a call by what an interceptor makes of its handler."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import grpc

Wrapped: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

_MAKERS = {
    "unary_unary": grpc.unary_unary_rpc_method_handler,
    "unary_stream": grpc.unary_stream_rpc_method_handler,
    "stream_unary": grpc.stream_unary_rpc_method_handler,
    "stream_stream": grpc.stream_stream_rpc_method_handler,
}


def wrapped(
    handler: Wrapped,
    of_unary: Callable[[Any], Any],
    of_stream: Callable[[Any], Any],
    read: Callable[[bytes], Any] | None = None,
) -> Wrapped:
    """The handler with another function in place of its own: made by `of_unary` where the call has one
    request, else by `of_stream`. read: in place of its own way to read a request."""
    for kind, make in _MAKERS.items():
        serve = getattr(handler, kind)
        if serve is not None:
            of = of_unary if kind.startswith("unary") else of_stream
            return make(
                of(serve), read or handler.request_deserializer, handler.response_serializer
            )
    return handler


class Interceptor(grpc.aio.ServerInterceptor):
    """Makes something of the handlers of calls; of a call that nobody serves, nothing."""

    @abstractmethod
    def intercepted(self, call: grpc.HandlerCallDetails, handler: Wrapped) -> Wrapped:
        """What serves the call in place of its handler."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Wrapped | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Wrapped | None:
        handler = await continuation(handler_call_details)
        return handler and self.intercepted(handler_call_details, handler)
