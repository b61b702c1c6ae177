"""A whole tracker inside a test or a notebook: real servers on loopback, in a thread of their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any

import structlog

from tracker.client.admin import Admin
from tracker.client.closing import Closing
from tracker.client.node import NodeClient
from tracker.client.ports import free_ports
from tracker.client.rescaling import RoutingInfo
from tracker.client.subscriber import Subscriber
from tracker.core.model import NodeKind, PipelineSpec
from tracker.core.process import ProcessConfig
from tracker.service.cluster.joining import Newcomer
from tracker.service.config import ServerConfig
from tracker.service.run import configure_logging
from tracker.service.server import TrackerServer
from tracker.store import MemoryStore, Store

START_TIMEOUT_S = 30.0
START_ATTEMPTS = 5
GRACE_S = 0.1
"""How long calls may go on when a shard stops: its clients are those of one test or notebook."""


class EmbeddedTracker(Closing):
    """A tracker of some shards, until it is closed. Use `lowmark.embedded()`."""

    def __init__(
        self,
        shards: int = 1,
        store: str = "memory:",
        block_slots: int = 64,
        process: ProcessConfig | None = None,
        address: str = "",
    ) -> None:
        """address: host:port of the only shard, instead of any that are free. Raises OSError if it is taken,
        StoreError where the store can't be used."""
        if address and shards != 1:
            raise ValueError(f"address {address} is of one shard, and there are to be {shards}")
        if not structlog.is_configured():
            configure_logging("warning")  # a notebook or a test run wants to hear of trouble alone
        self.addresses: tuple[str, ...] = ()
        self._configs: dict[int, ServerConfig] = {}
        self._memory: dict[int, Store] = {}
        """What the shards have stored, by number, where that is in memory."""
        self.servers: dict[int, TrackerServer] = {}
        """The shards that run, by number: for tests that look into them, in their loop (`run`)."""
        self._looking: dict[int, asyncio.Future[None]] = {}
        self._closing: list[NodeClient | Subscriber | Admin] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="lowmark-embedded", daemon=True
        )
        self._thread.start()
        try:
            self._start(shards, store, block_slots, process or ProcessConfig(), address)
        except BaseException:
            self.close()
            raise

    def _start(
        self, shards: int, store: str, block_slots: int, process: ProcessConfig, address: str
    ) -> None:
        attempts = 1 if address else START_ATTEMPTS
        for attempt in range(attempts):
            self.addresses = (
                (address,) if address else tuple(f"127.0.0.1:{port}" for port in free_ports(shards))
            )
            self._configs = {
                shard: ServerConfig(
                    shard,
                    self.addresses,
                    store,
                    block_slots=block_slots,
                    grace_s=GRACE_S,
                    process=process,
                )
                for shard in range(shards)
            }
            if store == "memory:":
                self._memory = {shard: MemoryStore() for shard in range(shards)}
            try:
                for shard in range(shards):
                    self.start_shard(shard)
                return
            except OSError:  # somebody took a port since it was free
                for shard in list(self.servers):
                    self.stop_shard(shard)
                if attempt == attempts - 1:
                    raise

    @property
    def target(self) -> str:
        """Where it listens, for clients: host:port, with commas if there are several."""
        return ",".join(self.addresses)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Returns when work is done, which runs in the loop of the shards."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result(START_TIMEOUT_S)

    def start_shard(self, shard: int) -> None:
        """Starts a shard, or starts it again; it recovers from what it had made durable."""

        async def start() -> None:
            await self._serve(TrackerServer(self._configs[shard], self._memory.get(shard)))

        self.run(start())

    async def _serve(self, server: TrackerServer) -> None:
        shard = server.config.shard
        await server.start()
        self.servers[shard] = server
        self._looking[shard] = asyncio.ensure_future(self._look_after(shard, server))

    def rescale(
        self, shards: int, *, evacuate: bool = False, without: Sequence[int] = ()
    ) -> RoutingInfo:
        """Lets so many shards own the slots to come, while ticks flow; starts those that there are not yet. Those
        that are to go (`without`, and those with the highest numbers) end when nothing is open there, or hand that over at
        once (`evacuate`). Returns when that is done. Raises RefusedError if it cannot be, UnavailableError where something
        stays open there for 30 s."""
        while len(self._configs.keys() - {*without}) < shards:
            self.run(self._join(f"127.0.0.1:{free_ports(1)[0]}"))
        with Admin(self.target) as admin:
            routing = admin.rescale(shards, evacuate=evacuate, without=without)
        there = {shard.state.shard for shard in routing.shards}
        self.run(self._looked_after(self._looking.keys() - there))
        return routing

    async def _join(self, address: str) -> None:
        """Another process becomes a shard, which owns nothing before the tracker is rescaled."""
        config = replace(
            next(iter(self._configs.values())),
            shard=0,
            addresses=(),
            join=self.addresses,
            address=address,
            listen=address,
        )
        owned = await Newcomer(config).own(asyncio.Event())
        assert owned is not None, "nobody tells it to stop"
        self._configs[owned.shard] = replace(config, shard=owned.shard)
        if config.store == "memory:":
            self._memory[owned.shard] = owned.store
        self.addresses = (*self.addresses, address)
        await self._serve(TrackerServer(self._configs[owned.shard], owned.store, owned.epoch))

    async def _look_after(self, shard: int, server: TrackerServer) -> None:
        """Ends a shard that has left, as its process would."""
        await server.wait()
        if server.left and self.servers.get(shard) is server:
            del self.servers[shard]
            gone = self._configs.pop(shard).own_address
            self.addresses = tuple(each for each in self.addresses if each != gone)
            await server.stop()

    def kill_shard(self, shard: int) -> None:
        """Ends a shard as a crash would."""
        self.run(self.servers.pop(shard).kill())

    def stop_shard(self, shard: int) -> None:
        """Ends a shard in good order."""
        self.run(self.servers.pop(shard).stop())

    def snapshot_shard(self, shard: int) -> None:
        """Lets a shard write a snapshot now, as it does by itself when its log has grown."""
        self.run(self.servers[shard].engine.write_snapshot())

    def register(self, spec: PipelineSpec) -> PipelineSpec:
        """Registers a pipeline; returns it as registered."""
        with Admin(self.target) as admin:
            return admin.register(spec)[0]

    def admin(self) -> Admin:
        """Closed with the tracker."""
        return self._keep(Admin(self.target))

    def node(self, pipeline: str, node_id: str, kind: str = NodeKind.OTHER) -> NodeClient:
        """A node that has not joined; closed with the tracker."""
        return self._keep(NodeClient(self.target, pipeline, node_id, kind))

    def subscriber(self, pipeline: str, segments: Sequence[str] | None = None) -> Subscriber:
        """Closed with the tracker."""
        return self._keep(Subscriber(self.target, pipeline, segments))

    def _keep(self, client: Any) -> Any:
        self._closing.append(client)
        return client

    def close(self) -> None:
        """Ends the clients made here, then the shards."""
        for client in reversed(self._closing):
            client.close()
        self._closing.clear()
        for shard in list(self.servers):
            self.stop_shard(shard)
        self.run(self._looked_after(self._looking.keys()))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _looked_after(self, shards: Iterable[int]) -> None:
        """Those have ended."""
        await asyncio.gather(*(self._looking[shard] for shard in list(shards)))


embedded = EmbeddedTracker
"""Starts a tracker in this process: `with lowmark.embedded() as t: ... t.target ...`."""
