"""One tracker process as a gRPC server: the parts put together, started and stopped in order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from acker.v1 import (
    group_service_pb2,
    node_service_pb2,
    peer_service_pb2,
    pipeline_service_pb2,
    progress_service_pb2,
)
from acker.v1.group_service_pb2_grpc import add_GroupServiceServicer_to_server
from acker.v1.node_service_pb2_grpc import add_NodeServiceServicer_to_server
from acker.v1.peer_service_pb2_grpc import add_PeerServiceServicer_to_server
from acker.v1.pipeline_service_pb2_grpc import add_PipelineServiceServicer_to_server
from acker.v1.progress_service_pb2_grpc import add_ProgressServiceServicer_to_server
from tracker import __version__
from tracker.core.log import PipelineEnded
from tracker.core.model.routing import RoutingTable
from tracker.errors import InvalidError
from tracker.service.cluster.addresses import Addresses, nobody_reaches
from tracker.service.cluster.links import Links
from tracker.service.cluster.peer_link import GivenUp, PeerLink
from tracker.service.cluster.peers import PeerServicer
from tracker.service.config import ServerConfig
from tracker.service.engine import Engine, Hooks
from tracker.service.groups.deployment import Deployment
from tracker.service.groups.mover import Mover
from tracker.service.groups.servicer import GroupServicer
from tracker.service.rpc.access import Peers
from tracker.service.rpc.budgets import Budgets
from tracker.service.rpc.guards import Guards
from tracker.service.rpc.health import HealthServicer
from tracker.service.rpc.limits import Quotas
from tracker.service.rpc.nodes import NodeServicer
from tracker.service.rpc.pipelines import PipelineServicer
from tracker.service.rpc.progress import Hub, ProgressServicer, add_subscribing
from tracker.service.rpc.redirect import LIVE_SERVICE
from tracker.service.rpc.security import listen_at
from tracker.service.rpc.waiters import WaiterRegistry
from tracker.service.sampling import Sampler
from tracker.service.tasks import end
from tracker.store import Leases, Store, StoreError, open_leases, open_store, shown_store
from tracker.wire.grpc_options import SERVER_OPTIONS, connection_age

log = structlog.get_logger(__name__)
LAST_ANSWERS_S = 0.1
"""How long the answers to calls that are over may be on their way when a process stops."""

_CONTRACT = (
    node_service_pb2, peer_service_pb2, pipeline_service_pb2, progress_service_pb2, group_service_pb2,
)  # fmt: skip
SERVICES = [
    service for module in _CONTRACT for service in module.DESCRIPTOR.services_by_name.values()
]
"""The services of the contract, as their descriptors."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What of a process that serves is measured."""

    engine: Engine
    hub: Hub
    units: WaiterRegistry[tuple[str, int]]
    peers: Mapping[int, PeerLink]
    sampler: Sampler


class TrackerServer:
    """Starts and stops one process; `wait()` returns when it has stopped by itself."""

    def __init__(
        self, config: ServerConfig, store: Store | None = None, epoch: int | None = None
    ) -> None:
        """`store`: instead of opening the one of the configuration; `epoch`: if it is owned
        already."""
        self.config = config
        self.address = config.own_address
        self._epoch = epoch
        self._leases: Leases | None = None
        self.failure: BaseException | None = None
        self.left = False
        """Whether its shard has left the tracker: nothing is to be served any more."""
        self._store = store
        self._hub = Hub(config.limits.max_subscribers)
        self._quotas = Quotas(config.limits)
        self._units: WaiterRegistry[tuple[str, int]] = WaiterRegistry()
        self._health = HealthServicer()
        self._guards: Guards | None = None
        self._server: grpc.aio.Server | None = None
        self._ended = asyncio.Event()
        self.engine: Engine
        self.sampler: Sampler

    def _end_pipeline(self, effect: PipelineEnded) -> None:
        """A pipeline was deleted, or has gone to another group: whoever listens to it or samples it lets go of it."""
        self._deployment.forget(effect.pipeline)
        self._hub.ended(effect.pipeline, moved=effect.moved)
        for pipeline, segment in self._units.names():
            if pipeline == effect.pipeline:
                self._units.news((pipeline, segment))
        self._quotas.forget(effect.pipeline)
        self.engine.stats.pipelines.pop(effect.pipeline, None)
        self.sampler.forget(effect.pipeline)

    async def start(self) -> None:
        """Recovers, listens, dials the other shards. Raises StoreError, LogLost or OSError, with
        nothing left open."""
        config = self.config
        store = self._store or open_store(config.store, config.shard)
        # A shard that has come later finds the table, and where the others are, in its own store.
        routing = RoutingTable.uniform(max(1, len(config.addresses)), config.block_slots)
        self._addresses = addresses = Addresses(dict(enumerate(config.addresses)))
        addresses.set(config.shard, self.address)
        addresses.releases[config.shard] = __version__
        self._links = Links(addresses, config.security.to_peers)
        hooks = Hooks(
            send=self._links.send,
            announced=lambda effect: self._hub.announced(effect.pipeline),
            changed=lambda spec: self._hub.announced(spec.name),
            ended=self._end_pipeline,
            units_arrived=lambda effect: self._units.news((effect.pipeline, effect.segment)),
            members_changed=self._links.members_changed,
            left=self._leave,
            stopped=self._fail,
        )
        try:
            self._leases = await asyncio.to_thread(open_leases, config.store)
            if self._epoch is None:
                self._epoch = await asyncio.to_thread(
                    store.acquire, self.address, lease_ms=config.lease_ms
                )
            self.engine = Engine(
                config.shard, routing, store, self._epoch, hooks, config.process,
                config.lease_ms, config.snapshot_after_records,
            )  # fmt: skip
            self._links.attach(self.engine, self._leases)
            self._deployment = Deployment(
                config.group, config.directory, self.engine, addresses, config.security.to_peers
            )
            self._mover = Mover(self._deployment)
        except BaseException:
            store.close()
            raise
        try:
            await self.engine.start()
            self._check_beginning(routing)
            self._links.find_shards()
            self.sampler = Sampler(self.engine.process)
            if self.failure is not None:  # it was taken over while it recovered
                raise self.failure
            await self._listen()
            await asyncio.to_thread(store.renew, self._epoch, config.lease_ms, self.address)
        except BaseException:
            if self._guards is not None:
                await self._guards.stop()
            if self._server is not None:
                await self._server.stop(None)
            await self.engine.stop()
            await asyncio.to_thread(self._leases.close)
            raise
        self._links.open()
        self.sampler.start()
        self._deployment.start()
        self._mover.start()
        await self._health.set("", health_pb2.HealthCheckResponse.SERVING)
        await self._health.set(LIVE_SERVICE, health_pb2.HealthCheckResponse.SERVING)
        log.info(
            "serving", shard=config.shard, address=self.address, store=shown_store(config.store)
        )

    def _cannot_dial(self) -> str:
        """Why another shard could not be reached, or not reach this one, where it was the only one at its
        start."""
        if nobody_reaches(self.address):
            return (
                f"it was started to listen at {self.address}, and others have to be told another address: "
                "give --address HOST:PORT"
            )
        try:
            self.config.security.check(alone=False)
        except InvalidError as error:
            return str(error)
        return ""

    def _leave(self) -> None:
        """All that this shard has logged is with the others."""
        log.info("has_left", shard=self.config.shard)
        self.left = True
        self._ended.set()

    def _check_beginning(self, routing: RoutingTable) -> None:
        """Another number of shards than before: some of them would be left out of the minimum, and what is
        open there be announced as complete. Raises StoreError."""
        table = self.engine.process.membership.table
        if self.config.addresses and table.version == 0 and table != routing:
            raise StoreError(
                f"the store of shard {self.config.shard} is of a tracker that began with {_dealt(table)}, and "
                f"this process was started for {_dealt(routing)}: start it as it was. Shards come and go by "
                "lowmark serve --join and lowmark shards NUMBER"
            )

    @property
    def parts(self) -> Parts:
        return Parts(self.engine, self._hub, self._units, self._links.by_shard, self.sampler)

    async def _listen(self) -> None:
        engine, addresses, limits = self.engine, self._addresses, self.config.limits
        tokens, locate = self.config.security.tokens, self._deployment.locate
        self._guards = guards = Guards(limits, tokens, addresses, locate)
        self._server = server = grpc.aio.server(
            interceptors=guards.interceptors,
            options=(*SERVER_OPTIONS, *connection_age(limits.max_connection_age_ms)),
        )
        quotas, calls = self._quotas, guards.calls
        by_certificate = bool(self.config.security.tls_ca)
        peers = Peers(addresses.values, by_certificate=by_certificate, calls=calls)
        others_too = Peers(self._deployment.reached, by_certificate=by_certificate, calls=calls)
        groups: Any = GroupServicer(engine, self._deployment, self._mover, others_too)
        self._peer_servicer = PeerServicer(engine, addresses, peers, self._cannot_dial())
        self._peer_servicer.heard_of = self._links.heard_of
        # The types of the stubs know blocking servicers alone.
        budgets = Budgets(engine.process, self.config.process)
        pipelines: Any = PipelineServicer(
            engine,
            addresses,
            self.sampler,
            budgets,
            addresses.releases,
            self._peer_servicer.standbys,
            groups,
        )
        nodes: Any = NodeServicer(engine, self._units, quotas, budgets)
        progress: Any = ProgressServicer(engine, self._hub, quotas)
        others: Any = self._peer_servicer
        add_PipelineServiceServicer_to_server(pipelines, server)
        add_NodeServiceServicer_to_server(nodes, server)
        add_ProgressServiceServicer_to_server(progress, server)
        add_subscribing(progress, server)
        add_PeerServiceServicer_to_server(others, server)
        add_GroupServiceServicer_to_server(groups, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = [service.full_name for service in SERVICES]
        reflection.enable_server_reflection(
            (*names, health.SERVICE_NAME, reflection.SERVICE_NAME), server
        )
        self.address = listen_at(
            server, self.config.listen or self.address, self.config.security,
            who=f"shard {self.config.shard}", address=self.address,
        )  # fmt: skip
        addresses.set(self.config.shard, self.address)
        await server.start()

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        self._ended.set()

    async def wait(self) -> None:
        """Returns when the process has stopped; `failure` says why, if it did so by itself."""
        await self._ended.wait()

    async def stop(self) -> None:
        """Says that it serves no more, tells streams and waiting calls so, lets the other calls end,
        writes what has gathered."""
        await self._health.enter_graceful_shutdown()
        if self._server is not None and self._guards is not None:
            ending = asyncio.ensure_future(self._server.stop(self.config.grace_s))
            await asyncio.sleep(0)  # from here on no call begins
            self.engine.dismiss()
            self._hub.close(self.engine.elsewhere)
            self._units.close()
            self._peer_servicer.close()
            # gRPC waits for connections as well, such as those by which standbys hear of its death.
            over = asyncio.ensure_future(self._guards.ongoing.over())
            await asyncio.wait((ending, over), return_when=asyncio.FIRST_COMPLETED)
            await end(over)
            await self._server.stop(min(self.config.grace_s, LAST_ANSWERS_S))
            await ending
            await self._guards.stop()
        await self._mover.stop()
        await self._deployment.stop()
        await self.sampler.stop()
        await self._links.stop()
        # A shard that is to be nobody's keeps its lease until that stands in its store.
        await self.engine.stop(release=not self.left and not isinstance(self.failure, GivenUp))
        if self._leases is not None:
            await asyncio.to_thread(self._leases.close)
        self._ended.set()
        log.info("stopped", shard=self.config.shard)

    async def kill(self) -> None:
        """Ends as a crash would: nothing more is written, nobody is told. For tests."""
        self.engine.fail(ConnectionAbortedError("killed"))
        await self._mover.stop()
        await self._deployment.stop()
        await self.sampler.stop()
        await self._links.stop()
        if self._server is not None:
            await self._server.stop(None)
        if self._guards is not None:
            await self._guards.stop()
        await self.engine.stop(release=False)


def _dealt(table: RoutingTable) -> str:
    """How slots are dealt by a table of the beginning."""
    count = len(table.shards)
    return f"{count} shard{'s' if count > 1 else ''} and blocks of {table.entries[0].block_slots} slots"
