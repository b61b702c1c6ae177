"""Getting a shard to own: one's own, or, where another process has that or there is none, any whose
owner has gone.

Who acquires a shard fences whoever had it, so a take-over is right even where the other still runs.
When it is time, the lease says; or sooner the network: an owner whose connection ends, and whose port
then refuses another one, has died on a machine that lives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field

import structlog

from tracker.service.failpoints import failpoint
from tracker.service.tasks import unless
from tracker.store import (
    GONE,
    Held,
    Lease,
    Leases,
    Store,
    StoreError,
    StoreUnavailable,
    open_leases,
    open_store,
)

log = structlog.get_logger(__name__)

POLL_INTERVAL_S = 0.1
"""How often whoever waits looks at the leases."""
AWAY_POLL_INTERVAL_S = 0.5
"""How often it looks while the store does not answer."""
AFTER_OUTAGE_LEASES = 2
"""A store that was away has taken no renewals. When it is back, owners get so many times the length of
a lease before another takes their shard because of that."""
LOOK_FOR_SHARDS_S = 2.0
"""How often whoever waits looks for shards that have come since."""
WATCH_PAUSE_S = 0.2
_CHUNK_BYTES = 1024
_WAITS_FOR_SHARD = "waits_for_shard"


class HasLeft(Exception):
    """The shard that was to be served has left its tracker."""


@dataclass(frozen=True, slots=True)
class Owned:
    """A shard that is owned now: its open store, and the owner's epoch."""

    shard: int
    store: Store
    epoch: int


@dataclass(frozen=True, slots=True)
class Claim:
    """Who wants to own what. `name` tells an owner that starts again from another; `own`: the number
    of its own shard, which it takes before any other (None: it is a standby); `shards`: how many there
    were from the start; those that have come since are found in the store; `passes_over`: shards of others that it could not
    serve, with the epoch of that attempt: not before somebody else has tried."""

    store: str
    name: str
    lease_ms: int
    shards: int
    own: int | None = None
    passes_over: Mapping[int, int] = field(default_factory=dict)

    def wanted(self, stored: Sequence[int] = ()) -> list[int]:
        """Numbers of the shards that it would take, in this order. stored: those that the store has."""
        if not self.shards:
            return [] if self.own is None else [self.own]
        others = [s for s in sorted({*range(self.shards), *stored}) if s != self.own]
        return others if self.own is None else [self.own, *others]


class Claimant:
    """Tries until it owns a shard."""

    def __init__(
        self,
        claim: Claim,
        on_look: Callable[[Sequence[str], bool], Awaitable[None]] | None = None,
    ) -> None:
        """`on_look` is called at each look, with where others serve, and whether every shard is another
        process's."""
        self._claim = claim
        self._on_look = on_look
        self._held: dict[int, str] = {}
        self._gone: set[int] = set()
        """Shards that have left."""
        self._leases: Leases | None = None
        self._stores: dict[int, Store] = {}
        self._reported: dict[int, str] = {}
        self._watches: dict[int, Watch] = {}
        self._outages: dict[int, Outage] = {}
        self._news = asyncio.Event()

    async def own(self, stop: asyncio.Event) -> Owned | None:
        """Returns what it owns; None if it is told to stop. Raises StoreError where its own shard's
        store cannot be used, and HasLeft where that shard has left."""
        self._leases = await asyncio.to_thread(open_leases, self._claim.store)
        owned: Owned | None = None
        clock, look_s = asyncio.get_running_loop().time, 0.0
        wanted = self._claim.wanted()
        try:
            while owned is None and not stop.is_set():
                pause_s = POLL_INTERVAL_S
                self._held.clear()
                if clock() >= look_s:
                    wanted = self._claim.wanted(await asyncio.to_thread(self._leases.shards))
                    look_s = clock() + LOOK_FOR_SHARDS_S
                for shard in wanted:
                    try:
                        owned = await self._try(shard)
                    except StoreUnavailable as error:
                        self._report(shard, "store_away", error)
                        pause_s = AWAY_POLL_INTERVAL_S
                    if owned is not None:
                        return owned
                if self._on_look is not None:
                    all_held = len(self._held) == len(wanted) - len(self._gone)
                    await self._on_look(list(self._held.values()), all_held)
                await self._wait(stop, pause_s)
            return None
        finally:
            for watch in self._watches.values():
                watch.end()
            await asyncio.to_thread(self._close, owned)

    async def _try(self, shard: int) -> Owned | None:
        assert self._leases is not None
        claim = self._claim
        lease = await asyncio.to_thread(self._leases.read, shard)
        outage = self._outages.setdefault(shard, Outage(claim.lease_ms / 1000))
        counts = outage.over(lease is not None, asyncio.get_running_loop().time())
        if lease is not None and lease.owner == GONE:
            if shard == claim.own:
                raise HasLeft(
                    f"shard {shard} has left the tracker: nothing is to be served any more"
                )
            self._gone.add(shard)
            return None
        if shard != claim.own and (lease is None or lease.epoch == 0):
            return None  # nobody has ever had it: it waits for its owner
        if lease is not None and claim.passes_over.get(shard) == lease.epoch:
            return None
        replaces = 0
        if lease is not None and lease.owner != claim.name and (lease.remaining_ms or not counts):
            if not self._is_gone(shard, lease):
                self._report(shard, _WAITS_FOR_SHARD, f"it belongs to {lease.owner}")
                if lease.address:  # it serves, or did until it was last seen
                    self._held[shard] = lease.address
                return None
            replaces = lease.epoch
        try:
            return await asyncio.to_thread(self._acquire, shard, replaces)
        except Held as held:
            self._report(shard, _WAITS_FOR_SHARD, held)
            return None
        except StoreUnavailable:
            raise
        except StoreError as error:
            if shard == claim.own:
                raise
            # A standby has other shards to watch over.
            self._report(shard, "cannot_take_over", error)
            return None

    def _is_gone(self, shard: int, lease: Lease) -> bool:
        """Whether the owner was seen to serve, and to die since. One that does not serve yet says no
        address: what listens there may be what it was before."""
        if not lease.address:
            return False
        watch = self._watches.get(shard)
        if watch is None or watch.epoch != lease.epoch:
            if watch is not None:
                watch.end()
            self._watches[shard] = Watch(shard, lease, self._news)
            return False
        return watch.gone

    def _acquire(self, shard: int, replaces: int) -> Owned | None:
        claim = self._claim
        if shard not in self._stores:
            self._stores[shard] = open_store(claim.store, shard)
        store = self._stores[shard]
        epoch = store.acquire(claim.name, lease_ms=claim.lease_ms, replaces=replaces)
        failpoint("acquire-after")
        if shard != claim.own and shard >= claim.shards and not has_begun(store, epoch):
            # Its process was about to become a shard: nothing of it may be served as if it were one.
            store.release(epoch)
            return None
        log.info("owns", shard=shard, epoch=epoch, owner=claim.name)
        return Owned(shard, store, epoch)

    async def _wait(self, stop: asyncio.Event, pause_s: float) -> None:
        await unless(stop, self._news.wait(), pause_s)
        self._news.clear()

    def _report(self, shard: int, what: str, why: object) -> None:
        """Logs what keeps a shard, once until that changes. That another process has it is what a standby is for."""
        if self._reported.get(shard) != what:
            self._reported[shard] = what
            is_ordinary = what == _WAITS_FOR_SHARD and shard != self._claim.own
            (log.info if is_ordinary else log.warning)(what, shard=shard, reason=str(why))

    def _close(self, owned: Owned | None) -> None:
        for shard, store in self._stores.items():
            if owned is None or shard != owned.shard:
                store.close()
        if self._leases is not None:
            self._leases.close()


def has_begun(store: Store, epoch: int) -> bool:
    """Whether a shard has anything in its store, for the owner of this epoch."""
    stored = store.load(epoch)
    return stored.snapshot is not None or next(stored.records, None) is not None


def mark_gone(url: str, shard: int, epoch: int = 0) -> None:
    """Writes into a shard's store that nobody is to serve it any more; its last owner has this epoch, and
    its lease may run still. Raises StoreError."""
    with closing(open_store(url, shard)) as store:
        store.acquire(GONE, replaces=epoch)


class Outage:
    """Whether the leases of a store say nothing, because nobody could renew one for a while."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._since: float | None = None
        self._patient_until = 0.0

    def over(self, answers: bool, now_s: float) -> bool:
        """Takes whether the store answers now; returns whether a lease that has run out counts."""
        if not answers:
            if self._since is None:
                self._since = now_s
            return True
        if self._since is not None:
            if now_s - self._since >= self._lease_s / 2:
                self._patient_until = now_s + AFTER_OUTAGE_LEASES * self._lease_s
            self._since = None
        return now_s >= self._patient_until


class Watch:
    """A connection to an owner that serves, to hear of its death at once."""

    def __init__(self, shard: int, lease: Lease, news: asyncio.Event) -> None:
        self.epoch = lease.epoch
        self._shard = shard
        self.gone = False
        self._seen = False
        """Whether it has ever been connected: the owner served."""
        self._address = lease.address
        self._news = news
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            if await self._connected():
                continue
            if self._seen:
                self.gone = True
                self._news.set()
                return
            await asyncio.sleep(WATCH_PAUSE_S)  # it does not serve yet

    async def _connected(self) -> bool:
        """Connects, and returns when that ends; False if it was refused: a machine that lives, and
        nobody who serves there. One that does not answer at all may be cut off, and its process may
        live: that is for the lease to say."""
        host, _, port = self._address.rpartition(":")
        try:
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except ConnectionRefusedError:
            return False
        except (OSError, ValueError):
            await asyncio.sleep(WATCH_PAUSE_S)
            return True
        if not self._seen:
            log.info("watches_owner", shard=self._shard, epoch=self.epoch, address=self._address)
        start, self._seen = asyncio.get_running_loop().time(), True
        with closing(writer), suppress(OSError):
            while await reader.read(_CHUNK_BYTES):
                pass
        # Something before the process may take connections, and end them at once: no hurry then.
        is_brief = asyncio.get_running_loop().time() - start < WATCH_PAUSE_S
        await asyncio.sleep(WATCH_PAUSE_S if is_brief else 0)
        return True

    def end(self) -> None:
        self._task.cancel()
