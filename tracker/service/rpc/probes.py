"""The health service on a port of its own, without TLS or token, for probes that have neither.

It is there for as long as the process is, whether that waits for a shard, reads its log, or serves.
"""

from __future__ import annotations

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tracker.service.rpc.health import HealthServicer
from tracker.service.rpc.redirect import LIVE_SERVICE
from tracker.service.rpc.security import Security, listen_at
from tracker.wire.grpc_options import PROBE_OPTIONS

READY_SERVICE = "ready"
"""The name under which the health service says whether the process does its part: it serves a shard, or
waits while every shard is served. An upgrade may go on to the next process; one that waited for this one
to serve would wait for ever where a standby has taken its shard over."""
SERVES_SERVICE = ""
"""... and whether it serves a shard."""

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Probes:
    """What probes are answered. Without an address it does nothing."""

    def __init__(self, listen: str) -> None:
        """listen: host:port, or nothing."""
        self._listen = listen
        self._health = HealthServicer()
        self._server: grpc.aio.Server | None = None
        self.address = listen

    async def open(self) -> None:
        """Raises OSError if it cannot listen there."""
        if not self._listen:
            return
        await self.busy()
        await self._health.set(LIVE_SERVICE, _SERVING)
        self._server = server = grpc.aio.server(options=PROBE_OPTIONS)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        self.address = listen_at(
            server, self._listen, Security(), who="the health service for probes"
        )
        await server.start()

    async def busy(self) -> None:
        """It reads its log, or ends."""
        await self._say(serves=False, ready=False)

    async def waits(self, all_served: bool) -> None:
        """It waits for a shard; `all_served`: every shard is another process's."""
        await self._say(serves=False, ready=all_served)

    async def serves(self) -> None:
        await self._say(serves=True, ready=True)

    async def _say(self, *, serves: bool, ready: bool) -> None:
        for service, yes in ((SERVES_SERVICE, serves), (READY_SERVICE, ready)):
            await self._health.set(service, _SERVING if yes else _NOT_SERVING)

    async def close(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
            self._server = None
