"""How a process that waits for a shard states its release to those that serve (`tracker.service.rpc.standbys`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress

import grpc

from acker.v1 import peer_service_pb2 as peer_pb
from acker.v1 import peer_service_pb2_grpc as peer_grpc
from tracker import __version__
from tracker.client.credentials import Credentials
from tracker.core.model.levels import NEWEST_LEVEL
from tracker.service.tasks import end
from tracker.wire.grpc_options import CHANNEL_OPTIONS

TELL_INTERVAL_S = 1.0
"""How often it does: several times in HEARD_S."""
CALL_TIMEOUT_S = 1.0


class Presence:
    """A process that waits for a shard, as those that serve hear of it."""

    def __init__(self, address: str, credentials: Credentials) -> None:
        self._request = peer_pb.StandByRequest(
            address=address, speaks=NEWEST_LEVEL, release=__version__
        )
        self._credentials = credentials
        self._telling: asyncio.Task[None] | None = None
        self._due_s = 0.0

    def look(self, serving: Sequence[str]) -> None:
        """Tells those that serve, if it is time, without waiting for them."""
        now_s = time.monotonic()
        if now_s < self._due_s or (self._telling is not None and not self._telling.done()):
            return
        self._due_s = now_s + TELL_INTERVAL_S
        self._telling = asyncio.get_running_loop().create_task(self._tell_all(serving))

    async def _tell_all(self, serving: Sequence[str]) -> None:
        await asyncio.gather(*map(self._tell, serving))

    async def _tell(self, address: str) -> None:
        # One of the release before does not know the call, one that is away hears it again: neither is trouble.
        with suppress(grpc.aio.AioRpcError):
            async with self._credentials.aio_channel(address, CHANNEL_OPTIONS) as channel:
                stub = peer_grpc.PeerServiceStub(channel)
                await stub.StandBy(self._request, timeout=CALL_TIMEOUT_S)

    async def stop(self) -> None:
        """Ends a call that is under way."""
        await end(self._telling)
