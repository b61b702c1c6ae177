"""The links of one process: one to each other shard, from its joining until it has left or is given up."""

from __future__ import annotations

import asyncio

import structlog

from tracker.client.credentials import Credentials
from tracker.core import log as m
from tracker.service.cluster.addresses import Addresses
from tracker.service.cluster.peer_link import PeerLink
from tracker.service.engine import Engine
from tracker.store import Leases, StoreError

log = structlog.get_logger(__name__)


class Links:
    """Opened once this process serves. Until then frames find no link, and are lost as on a broken one."""

    def __init__(self, addresses: Addresses, credentials: Credentials) -> None:
        """`credentials`: how this process shows itself to the others."""
        self.by_shard: dict[int, PeerLink] = {}
        self._addresses, self._credentials = addresses, credentials
        self._engine: Engine
        self._leases: Leases
        self._is_open = False
        self._stopping: list[asyncio.Task[None]] = []
        """The links to shards that were given up."""

    def attach(self, engine: Engine, leases: Leases) -> None:
        """Whose frames go there, and who knows where shards have moved. Comes before all that follows."""
        self._engine, self._leases = engine, leases

    def find_shards(self) -> None:
        """Takes from what was recovered where the shards are that this process was not given at its
        start. Raises StoreError where it does not know of one."""
        process = self._engine.process
        for shard, address in process.membership.addresses.items():
            if shard not in self._addresses:
                self._addresses.set(shard, address)
        unknown = [shard for shard in process.links if shard not in self._addresses]
        if unknown:
            raise StoreError(
                f"shard {process.shard} is not told where shards {unknown} are: one that was there from the "
                "start is started with --shard and --peers"
            )

    def open(self) -> None:
        """Dials all other shards, and from now on those that join."""
        self._is_open = True
        for shard in self._engine.process.links:
            self._open_link(shard)

    def _open_link(self, shard: int) -> PeerLink:
        link = PeerLink(shard, self._addresses, self._engine, self._leases, self._credentials)
        self.by_shard[shard] = link
        return link

    def send(self, shard: int, frame: m.Frame) -> None:
        if (link := self.by_shard.get(shard)) is not None:
            link.offer(frame)

    def members_changed(self, effect: m.MembersChanged) -> None:
        """A shard joins, has left or is given up: its link begins or ends."""
        shard = effect.shard
        if effect.address is not None:
            log.info("shard_joins", shard=shard, address=effect.address)
            if shard not in self._addresses:
                self._addresses.set(shard, effect.address)
            if self._is_open and shard not in self.by_shard:
                self._open_link(shard)
        elif self._engine.process.membership.is_lost(shard):
            log.warning("shard_lost", shard=shard)
            self._stop(shard)
        elif shard in self._engine.process.membership.former:
            log.info("shard_left", shard=shard)
            if shard in self.by_shard:
                self.by_shard[shard].finish()
        else:
            log.warning("shard_given_up", shard=shard)
            self._stop(shard)

    def _stop(self, shard: int) -> None:
        self._addresses.forget(shard)
        if (link := self.by_shard.pop(shard, None)) is not None:
            self._stopping.append(asyncio.get_running_loop().create_task(link.stop()))

    def heard_of(self, shard: int, address: str) -> None:
        """A process begins a stream: one whose shard has left may not know that its last entry has come."""
        link = self.by_shard.get(shard)
        if link is not None:
            link.hurry()
        if shard in self._engine.process.membership.former and (link is None or link.ended):
            self._addresses.set(shard, address)
            self._open_link(shard).finish()

    async def stop(self) -> None:
        """Ends all links; what they had under way is lost."""
        await asyncio.gather(*(link.stop() for link in self.by_shard.values()), *self._stopping)
