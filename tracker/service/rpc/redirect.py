"""What a process answers while it waits for a shard: that it lives, and that others should be asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tracker.core.model import Refusal, RefusalCode
from tracker.service.rpc.errors import abort
from tracker.service.rpc.health import HealthServicer
from tracker.service.rpc.security import Security, listen_at
from tracker.wire.grpc_options import ELSEWHERE_OPTIONS

LIVE_SERVICE = "live"
"""The name under which the health service says whether the process runs at all; without a name it
says whether it serves a shard."""

_WAITS = Refusal(
    RefusalCode.NOT_READY,
    "this process waits for a shard, and serves none; ask another process of the tracker",
    home=0,
)


class Elsewhere(grpc.GenericRpcHandler):
    """Refuses every call, of whatever kind, and names a process that serves, if one is known."""

    def __init__(self, refusal: Refusal, address: Callable[[], str]) -> None:
        """address: gives host:port of one for the next call; nothing if none is known."""
        self._refusal, self._address = refusal, address

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        async def refuse(requests: AsyncIterator[bytes], context: Any) -> None:
            await abort(context, self._refusal, {0: self._address()})

        return grpc.stream_stream_rpc_method_handler(refuse)


class RedirectServer:
    """A server on the address that the process will serve at."""

    def __init__(self, listen: str, security: Security | None = None) -> None:
        self._security = security or Security()
        self._listen = listen
        self._server: grpc.aio.Server | None = None
        self._serving = ""

    def send_to(self, address: str) -> None:
        """Who comes is sent there; nowhere, if it is empty."""
        self._serving = address

    async def open(self) -> None:
        """Raises OSError if it cannot listen there. May be repeated."""
        if self._server is not None:
            return
        server = grpc.aio.server(options=ELSEWHERE_OPTIONS)
        healths = HealthServicer()
        await healths.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
        await healths.set(LIVE_SERVICE, health_pb2.HealthCheckResponse.SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(healths, server)
        server.add_generic_rpc_handlers((Elsewhere(_WAITS, lambda: self._serving),))
        listen_at(server, self._listen, self._security, who="a process that waits for its shard")
        await server.start()
        self._server = server

    async def close(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
            self._server = None
