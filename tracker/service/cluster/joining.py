"""Becoming a shard of a tracker that runs: a number, a peer's state, a store of one's own (rule 10).

A process that is ended at any moment begins again with the same command. Until it has its peer's state
durably it has sent nothing to anyone, and asks again: it gets another number, and the one before is
given up. From then on it is a shard that comes back from its own store.
"""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import Any
from uuid import uuid4

import grpc
import structlog

from acker.v1 import peer_service_pb2 as peer_pb
from acker.v1 import peer_service_pb2_grpc as peer_grpc
from acker.v1 import pipeline_service_pb2 as pipeline_pb
from acker.v1 import pipeline_service_pb2_grpc as pipeline_grpc
from tracker.client.connection import Backoff, describe_failure, is_retried
from tracker.client.refusals import refusal_of
from tracker.client.targets import Targets
from tracker.core.model import RefusalCode, Refused
from tracker.core.model.levels import NEWEST_LEVEL
from tracker.errors import RefusedError
from tracker.service.cluster.owning import Claim, Claimant, Owned, has_begun
from tracker.service.cluster.peer_link import GivenUp
from tracker.service.cluster.waits import Wait
from tracker.service.config import ServerConfig
from tracker.service.failpoints import failpoint
from tracker.service.tasks import unless
from tracker.store import Held, Lease, StoreError, check_store, open_leases, open_store
from tracker.wire.grpc_options import CHANNEL_OPTIONS
from tracker.wire.storage import snapshot_from_bytes

log = structlog.get_logger(__name__)

CALL_TIMEOUT_S = 5.0
PIECE_TIMEOUT_S = 30.0
"""How long a peer may take for the next piece of its state, the first included."""
MAX_BOOTSTRAP_BYTES = 2**31 - 1
"""Limit of a peer's state: a store could not give a larger message back."""


class CannotJoin(Exception):
    """The process cannot become a shard: it says why, and what to do."""


class Newcomer:
    """A process that becomes a shard."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._address = config.own_address
        self._process = uuid4().hex
        self._credentials = config.security.to_peers
        self._targets = Targets(config.join)
        self._turn = 0
        self._wait = Wait(log, "waits_to_join")

    async def own(self, stop: asyncio.Event) -> Owned | None:
        """Returns the shard that it owns; None if it is told to stop. Raises CannotJoin, GivenUp, and
        StoreError where its store cannot be used."""
        begun = await self._begun(stop)
        if begun is not None or stop.is_set():
            return begun
        return await unless(stop, self._join(stop))

    # --- coming back ------------------------------------------------------------------------------

    async def _begun(self, stop: asyncio.Event) -> Owned | None:
        """The shard that this process has begun to be before, by what its store says."""
        for shard in await asyncio.to_thread(self._own_shards):
            owned = await self._claim(shard, stop)
            if owned is None:
                return None
            if await asyncio.to_thread(has_begun, owned.store, owned.epoch):
                return owned
            await asyncio.to_thread(owned.store.close)
        return None

    def _own_shards(self) -> list[int]:
        with closing(open_leases(self._config.store)) as leases:
            found = [(shard, leases.read(shard)) for shard in leases.shards()]
        return [s for s, lease in reversed(found) if lease and lease.owner == self._address]

    async def _claim(self, shard: int, stop: asyncio.Event) -> Owned | None:
        config = self._config
        claim = Claim(config.store, self._address, config.lease_ms, 0, shard)
        return await Claimant(claim).own(stop)

    # --- joining ----------------------------------------------------------------------------------

    async def _join(self, stop: asyncio.Event) -> Owned | None:
        while True:
            await self._behind_those_before()
            shard, taken = await self._number()
            if taken:
                return await self._claim_taken(shard, stop)
            log.info("joins", shard=shard, address=self._address)
            failpoint("join-numbered")
            data = await self.fetch(shard)
            try:
                return await asyncio.to_thread(self._begin, shard, data)
            except Held as held:
                self._report(str(held))
                await asyncio.sleep(Backoff().pause_s())

    async def _claim_taken(self, shard: int, stop: asyncio.Event) -> Owned | None:
        """This address is a shard's: that is waited for, if its store is here."""
        lease = await asyncio.to_thread(self._lease, shard)
        if lease is None or not lease.epoch:
            # Raises StoreUnavailable where it may well be here, and nobody can look now.
            await asyncio.to_thread(check_store, self._config.store)
            raise CannotJoin(
                f"shard {shard} is reached at {self._address}, and its store is not here; start its "
                "process with its own store, or join with another address (--listen, --address)"
            )
        return await self._claim(shard, stop)

    def _lease(self, shard: int) -> Lease | None:
        with closing(open_leases(self._config.store)) as leases:
            return leases.read(shard)

    async def _behind_those_before(self) -> None:
        """Waits until the processes before this one in its set are shards: so numbers follow its order, and
        those that go first are at its end."""
        members = self._config.members
        before = set(members[: members.index(self._address)]) if self._address in members else set()
        backoff = Backoff()
        while before:
            target = self._targets.next()
            try:
                missing = before - set(await self._shards(target))
                if not missing:
                    return
                self._report(f"{', '.join(sorted(missing))} come before it, and are not there yet")
            except grpc.aio.AioRpcError as error:
                self._report(
                    f"{target}: which shards there are is not told: {describe_failure(error)}"
                )
            await asyncio.sleep(backoff.pause_s())

    async def _number(self) -> tuple[int, bool]:
        """The number that the sequencer gives; or that of the shard whose address this one is, and True."""
        backoff, address = Backoff(), self._targets.next()
        while True:
            request = peer_pb.JoinShardRequest(
                address=self._address, speaks=NEWEST_LEVEL, process=self._process
            )
            try:
                async with self._credentials.aio_channel(address, CHANNEL_OPTIONS) as channel:
                    stub: Any = peer_grpc.PeerServiceStub(channel)
                    answer = await stub.JoinShard(request, timeout=CALL_TIMEOUT_S)
                    return answer.shard, False
            except grpc.aio.AioRpcError as error:
                refused = refusal_of(error)
                if refused is not None and refused.refusal.code is RefusalCode.CONFLICT:
                    return refused.refusal.home, True
                address = self._next_after(error, refused, address)
            await asyncio.sleep(backoff.pause_s())

    def _next_after(
        self, error: grpc.aio.AioRpcError, refused: RefusedError | None, address: str
    ) -> str:
        """Whom to ask after a call that failed. Raises CannotJoin if nobody would say otherwise."""
        if refused is None:
            if not is_retried(error):
                raise CannotJoin(f"{address}: {describe_failure(error)}")
            self._report(f"{address}: {describe_failure(error)}")
        elif refused.refusal.code is RefusalCode.NOT_HOME:
            self._targets.learn([refused.home_address])
            return refused.home_address or self._targets.next()
        elif refused.refusal.code is RefusalCode.NOT_READY:
            self._report(refused.refusal.message)
        elif refused.refusal.code is RefusalCode.FENCED:
            raise GivenUp(refused.refusal.message)
        else:
            raise CannotJoin(refused.refusal.message)
        return self._targets.next()

    def _report(self, why: str) -> None:
        self._wait.report(address=self._address, reason=why)

    async def fetch(self, shard: int) -> bytes:
        """The state that a peer hands out. Asks one peer after another until one has given all of it."""
        backoff = Backoff()
        while True:
            target = self._targets.next()
            for peer in await self._peers(target) or [target]:
                try:
                    data = await self._fetch_from(peer, shard)
                    snapshot_from_bytes(data)  # a message that is not whole is asked for again
                except grpc.aio.AioRpcError as error:
                    self._next_after(error, refusal_of(error), peer)
                except (TimeoutError, Refused) as error:
                    self._report(f"{peer}: {error or 'its state does not come'}")
                else:
                    log.info("has_state", shard=shard, bytes=len(data), from_peer=peer)
                    failpoint("join-fetched")
                    return data
            await asyncio.sleep(backoff.pause_s())

    async def _peers(self, target: str) -> list[str]:
        """Where the shards are, as one process says; nothing if it says nothing."""
        try:
            found = await self._shards(target)
        except grpc.aio.AioRpcError:
            return []
        self._turn += 1
        start = self._turn % max(1, len(found))  # those that join at a time ask different ones
        return [*found[start:], *found[:start]]

    async def _shards(self, target: str) -> list[str]:
        """The addresses of the shards, by one process. Raises AioRpcError."""
        async with self._credentials.aio_channel(target, CHANNEL_OPTIONS) as channel:
            stub: Any = pipeline_grpc.PipelineServiceStub(channel)
            request = pipeline_pb.ListShardsRequest()
            answer = await stub.ListShards(request, timeout=CALL_TIMEOUT_S)
        joining = pipeline_pb.SHARD_ROLE_JOINING
        found = [s.address for s in answer.shards if s.address and s.role != joining]
        self._targets.learn(found)
        return found

    async def _fetch_from(self, peer: str, shard: int) -> bytes:
        pieces, size, total = [], 0, 0
        async with self._credentials.aio_channel(peer, CHANNEL_OPTIONS) as channel:
            stub: Any = peer_grpc.PeerServiceStub(channel)
            call = stub.Bootstrap(peer_pb.BootstrapRequest(shard=shard))
            while True:
                async with asyncio.timeout(PIECE_TIMEOUT_S):
                    answer = await call.read()
                if answer is grpc.aio.EOF:
                    break
                total = answer.total_bytes
                size += len(answer.piece)
                if total > MAX_BOOTSTRAP_BYTES:
                    raise CannotJoin(
                        f"the tracker's state is {total} bytes, the limit is {MAX_BOOTSTRAP_BYTES}; "
                        "let fewer pipelines share a tracker"
                    )
                pieces.append(answer.piece)
            # A peer that ends a stream too early may have been ended itself.
            code = await call.code()
            if code is not grpc.StatusCode.OK or size != total:
                raise TimeoutError(f"its state ended after {size} of {total} bytes")
        return b"".join(pieces)

    def _begin(self, shard: int, data: bytes) -> Owned:
        """Makes the peer's state durable, in the store that is this shard's from now on."""
        config = self._config
        store = open_store(config.store, shard)
        try:
            epoch = store.acquire(self._address, lease_ms=config.lease_ms)
            if has_begun(store, epoch):
                raise StoreError(
                    f"the store has a shard {shard} already, of another tracker or an older one; "
                    "name a store of its own with --store"
                )
            membership = snapshot_from_bytes(data).membership
            assert membership is not None, "a peer hands out which shards there are"
            store.write_snapshot(epoch, 0, data, membership.level)
            failpoint("join-stored")
        except BaseException:
            store.close()
            raise
        return Owned(shard, store, epoch)
