"""Processes that wait for a shard state their release to those that serve: an upgrade is not finished without them (rule 10).

A standby of the release before could take no shard over once the upgrade is finished. It is no part of the protocol: whether it
is there, and of which release, is only known to who serves, for as long as it says so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import grpc

from acker.v1 import peer_service_pb2 as peer_pb
from acker.v1 import peer_service_pb2_grpc as peer_grpc
from tracker import __version__
from tracker.client.credentials import Credentials
from tracker.core.model import RefusalCode, Refused
from tracker.core.model.levels import NEWEST_LEVEL
from tracker.service.tasks import end
from tracker.wire.grpc_options import CHANNEL_OPTIONS

TELL_INTERVAL_S = 1.0
"""How often a process that waits states its release."""
HEARD_S = 5.0
"""One that has not been heard for so long does not wait any more."""
CALL_TIMEOUT_S = 1.0
MAX_STANDBYS = 64
"""Of more than these, those that were heard first are forgotten."""


@dataclass(frozen=True, slots=True)
class Standby:
    """A process that waits for a shard: where it will be reached, the highest feature level that it speaks, its release."""

    address: str
    speaks: int
    release: str


@dataclass(slots=True)
class Standbys:
    """Those that a process which serves has heard."""

    clock_s: Callable[[], float] = time.monotonic
    _heard: dict[str, tuple[Standby, float]] = field(default_factory=dict)
    """By address, and when; the one heard last comes last."""
    _since_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._since_s = self.clock_s()

    def hear(self, standby: Standby) -> None:
        """One states that it waits."""
        self._heard.pop(standby.address, None)
        self._heard[standby.address] = standby, self.clock_s()
        while len(self._heard) > MAX_STANDBYS:
            del self._heard[next(iter(self._heard))]

    def waiting(self, serving: Collection[str] = ()) -> list[Standby]:
        """Those that wait, by address, but for who serves a shard by now."""
        from_s = self.clock_s() - HEARD_S
        found = [standby for standby, at_s in self._heard.values() if at_s >= from_s]
        return sorted((s for s in found if s.address not in serving), key=lambda s: s.address)

    def check_speak(self, level: int, serving: Collection[str]) -> None:
        """Raises Refused(NOT_READY) while one that waits does not speak a level, or may not have said so yet."""
        if (left_s := self._since_s + HEARD_S - self.clock_s()) > 0:
            raise _not_ready(
                level, f"for {left_s:.1f} s standbys may not have stated their release"
            )
        older = [s for s in self.waiting(serving) if s.speaks < level]
        if older:
            shown = ", ".join(
                f"the standby at {s.address}, of release {s.release or 'unknown'}, speaks levels up to {s.speaks}"
                for s in older
            )
            raise _not_ready(level, f"{shown}; start it with the newer release")


def _not_ready(level: int, why: str) -> Refused:
    return Refused(RefusalCode.NOT_READY, f"feature level {level} has to wait: {why}; ask again")


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
