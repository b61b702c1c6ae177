"""What a process answers about its health: when it is asked, and to nobody who would listen."""

from __future__ import annotations

from typing import Any

import grpc
from grpc_health.v1 import health


class HealthServicer(health.aio.HealthServicer):
    """The library's, but that nobody watches: it would write to whoever does under the lock by which is set what a name
    says. One client that takes nothing could keep a process from saying anything, and so from serving and from stopping.
    What gRPC says of clients that cannot watch is that they go on without."""

    async def Watch(self, request: Any, context: Any) -> None:
        await context.abort(
            grpc.StatusCode.UNIMPLEMENTED, "nobody can watch here; ask by Check, again and again"
        )
