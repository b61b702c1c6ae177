"""How large requests may be, by what they ask; and how many bytes of large ones a process keeps at a time.

gRPC has one limit for all messages of a port, which is that of the largest tick. A call that carries less by its
nature is refused before its request is parsed. What a large request takes is counted until its call is over, so
that calls which wait count for as long as they do. Streams are not counted: they are read as far as there is room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from tracker.core.model import RefusalCode, Refused
from tracker.service.rpc.errors import Context
from tracker.service.rpc.limits import Limits, client_of
from tracker.service.rpc.wrapping import Interceptor, Wrapped, wrapped
from tracker.wire.grpc_options import MAX_PROBE_BYTES, MAX_TICK_BYTES
from tracker.wire.refusals import invalid, unreadable

MAX_REQUEST_BYTES = 16 * 1024
"""Of a call that names things, and carries nothing: every name at its longest has room."""
LARGE = {
    "/acker.v1.PipelineService/RegisterPipeline", "/acker.v1.PipelineService/RetireNode",
    "/acker.v1.NodeService/StageContributions", "/acker.v1.NodeService/ResolveUnits",
}  # fmt: skip
"""Calls that carry something: as much as a tick."""
_BETWEEN_GROUPS = "/acker.v1.GroupService/Ask"
_PROBES = "/grpc.health.v1.Health/"


def most_bytes(method: str) -> int:
    """How large a request of a method may be."""
    if method in LARGE or method == _BETWEEN_GROUPS:
        return MAX_TICK_BYTES
    return MAX_PROBE_BYTES if method.startswith(_PROBES) else MAX_REQUEST_BYTES


class RequestSizes(Interceptor):
    """Refuses requests that are larger than their kind may be, and large ones while there are too many. It comes
    before whatever looks into requests."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._clients: dict[str, int] = {}

    @property
    def in_flight(self) -> int:
        """Bytes of the large requests whose calls are under way."""
        return sum(self._clients.values())

    def intercepted(self, call: grpc.HandlerCallDetails, handler: Wrapped) -> Wrapped:
        if handler.request_streaming or handler.request_deserializer is None:
            return handler
        of_unary = partial(self._sized, call.method, handler.request_deserializer)
        return wrapped(handler, of_unary, lambda serve: serve, lambda data: data)

    def _sized(self, method: str, parse: Callable[[bytes], Any], serve: Any) -> Any:
        async def served(data: bytes, context: Context) -> Any:
            size, most = len(data), most_bytes(method)
            if size > most:
                raise invalid(
                    f"a request of {size} bytes for {method} is over the limit of {most} bytes; use "
                    "shorter names, or ask for less at a time"
                )
            with self._counted(size, context):
                try:
                    request = parse(data)
                except DecodeError as error:
                    raise unreadable(size, error) from None
                del data
                return await serve(request, context)

        return served

    @contextmanager
    def _counted(self, size: int, context: Context) -> Iterator[None]:
        if size <= MAX_REQUEST_BYTES:
            yield
            return
        client = client_of(context)
        own = self._clients.get(client, 0)
        self._check(size, self.in_flight, "max_bytes_in_flight", "all clients")
        self._check(size, own, "max_bytes_in_flight_per_client", f"client {client!r}")
        self._clients[client] = own + size
        try:
            yield
        finally:
            left = self._clients[client] - size
            if left:
                self._clients[client] = left
            else:
                del self._clients[client]

    def _check(self, size: int, there: int, limit: str, whose: str) -> None:
        """Raises Refused(FULL) where a request has no room beside those under way."""
        most: int = getattr(self._limits, limit)
        if there + size > most:
            raise Refused(
                RefusalCode.FULL,
                f"large requests of {whose} take {there} bytes, and {size} more would pass the limit "
                f"{limit} of {most}; send fewer of them at a time, or smaller ones",
            )
