"""Getting a shard to own: one's own, or, for a standby, any whose owner has gone.

Nothing but the lease is waited for here. Who acquires a shard fences whoever had it, so a take-over
is right even where the other still runs; the lease only says when it is time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import structlog

from tracker.service.failpoints import failpoint
from tracker.store import Held, Leases, Store, StoreError, StoreUnavailable, open_leases, open_store

log = structlog.get_logger(__name__)

POLL_INTERVAL_S = 0.1
"""How often whoever waits looks at the leases."""
AWAY_POLL_INTERVAL_S = 0.5
"""... while the store does not answer."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Owned:
    """A shard that is owned now: its open store, and the owner's epoch."""

    shard: int
    store: Store
    epoch: int


@dataclass(frozen=True, slots=True)
class Claim:
    """Who wants to own what. `name` tells an owner that starts again from another; `shards`: those
    it would take; `abandoned`: only shards that somebody has owned."""

    store: str
    name: str
    address: str
    lease_ms: int
    shards: tuple[int, ...]
    abandoned: bool


class Claimant:
    """Tries until it owns a shard."""

    def __init__(self, claim: Claim, on_wait: Callable[[], Awaitable[None]]) -> None:
        """`on_wait` is called once, before it begins to wait."""
        self._claim = claim
        self._on_wait = on_wait
        self._leases: Leases | None = None
        self._stores: dict[int, Store] = {}
        self._said: dict[int, str] = {}
        self._waits = False

    async def own(self, stop: asyncio.Event) -> Owned | None:
        """Returns what it owns; None if it is told to stop. Raises StoreError for a store that
        cannot be used, where it wants no other shard than that."""
        self._leases = await asyncio.to_thread(open_leases, self._claim.store)
        owned: Owned | None = None
        try:
            while owned is None and not stop.is_set():
                pause_s = POLL_INTERVAL_S
                for shard in self._claim.shards:
                    try:
                        owned = await self._try(shard)
                    except StoreUnavailable as error:
                        self._say(shard, "store_away", error)
                        pause_s = AWAY_POLL_INTERVAL_S
                    if owned is not None:
                        return owned
                await self._wait(stop, pause_s)
            return None
        finally:
            await asyncio.to_thread(self._close, owned)

    async def _try(self, shard: int) -> Owned | None:
        assert self._leases is not None
        claim = self._claim
        lease = await asyncio.to_thread(self._leases.read, shard)
        if claim.abandoned and (lease is None or lease.epoch == 0):
            return None
        if lease is not None and lease.remaining_ms and lease.owner != claim.name:
            self._say(shard, "waits_for_shard", f"it belongs to {lease.owner}")
            return None
        try:
            return await asyncio.to_thread(self._acquire, shard)
        except Held as held:
            self._say(shard, "waits_for_shard", held)
            return None
        except StoreUnavailable:
            raise
        except StoreError as error:
            if not claim.abandoned:
                raise
            # A standby has other shards to watch over.
            self._say(shard, "cannot_take_over", error)
            return None

    def _acquire(self, shard: int) -> Owned:
        claim = self._claim
        if shard not in self._stores:
            self._stores[shard] = open_store(claim.store, shard)
        store = self._stores[shard]
        epoch = store.acquire(claim.name, address=claim.address, lease_ms=claim.lease_ms)
        failpoint("acquire-after")
        log.info("owns", shard=shard, epoch=epoch, owner=claim.name)
        return Owned(shard, store, epoch)

    async def _wait(self, stop: asyncio.Event, pause_s: float) -> None:
        if not self._waits:
            self._waits = True
            await self._on_wait()
        try:
            await asyncio.wait_for(stop.wait(), pause_s)
        except TimeoutError:
            pass

    def _say(self, shard: int, what: str, why: object) -> None:
        """Once, until it changes."""
        if self._said.get(shard) != what:
            self._said[shard] = what
            log.warning(what, shard=shard, reason=str(why))

    def _close(self, owned: Owned | None) -> None:
        for shard, store in self._stores.items():
            if owned is None or shard != owned.shard:
                store.close()
        if self._leases is not None:
            self._leases.close()
