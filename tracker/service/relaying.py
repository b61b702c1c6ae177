"""A relay: a process without a shard that passes on to any number of subscribers what a tracker announces.

It subscribes to a pipeline once, as any client does, when the first one here asks for it, and lets go of it some time
after the last. What it tells is what one stream of the tracker has said. Where that ends, those that listen here end too: they
come again, to another relay or to this one, as clients of a process that has stopped do. So a relay keeps nothing, on a
disk or otherwise, that could be of another pipeline of the same name. The past it asks the tracker for,
and calls of any other kind are sent there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from typing import Any

import grpc
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc

from acker.v1 import progress_service_pb2 as progress_pb
from acker.v1.progress_service_pb2_grpc import (
    ProgressServiceStub,
    add_ProgressServiceServicer_to_server,
)
from tracker.client import LowmarkError, RefusedError, SecureTarget
from tracker.client.connection import AsyncConnection, Backoff, describe_failure, is_retried
from tracker.client.refusals import refusal_of
from tracker.client.updates import Heard, subscribe_request
from tracker.core.model import PipelineSpec, Refusal, RefusalCode, Refused
from tracker.core.model.slots import FOREVER
from tracker.metrics.latencies import Latencies
from tracker.service.config import ServerConfig
from tracker.service.rpc.errors import Context
from tracker.service.rpc.guards import Guards
from tracker.service.rpc.health import HealthServicer
from tracker.service.rpc.limits import Quotas
from tracker.service.rpc.progress import (
    Announcing,
    Asked,
    Hub,
    add_subscribing,
    check_not_behind,
)
from tracker.service.rpc.redirect import LIVE_SERVICE, Elsewhere
from tracker.service.rpc.security import listen_at
from tracker.service.tasks import end
from tracker.wire.grpc_options import SERVER_OPTIONS, connection_age

log = structlog.get_logger(__name__)

MAX_FOLLOWED = 10_000
"""Pipelines that a relay follows at a time; one more is refused with `full`."""
FIRST_S = 5.0
"""How long who asks for a pipeline waits until the tracker has said something of it; then they are to ask another process."""
LOOK_INTERVAL_S = 30.0
"""How often it is looked which pipelines nobody has asked for since the last look: they are let go of."""
ASKED_TIMEOUT_S = 10.0
"""How long the tracker may take to answer what a relay does not know."""
_FOR_NOW = {RefusalCode.NOT_READY, RefusalCode.FULL}
"""Why the tracker refuses for now: another process may not."""
_ELSEWHERE = Refusal(
    RefusalCode.NOT_READY,
    "this process is a relay: it passes on what is announced, and takes nothing; ask a process of the tracker",
    home=0,
)


@dataclass(frozen=True, slots=True)
class HeardSegment:
    """`unchanged_ns`: since min time was heard to move; None where that was not heard here: it may stand for long."""

    segment: str
    min_time: int
    unchanged_ns: int | None


@dataclass(frozen=True, slots=True)
class HeardPipeline:
    """One pipeline as it was heard here: of what a process of the tracker measures (`PipelineMeasures`), what is announced."""

    pipeline: str
    slack_ns: int
    complete: bool
    generation: int
    segments: tuple[HeardSegment, ...]


class _Followed:
    """What one stream of the tracker says of one pipeline. Another stream is another `_Followed`: between the two the pipeline may
    have been deleted, and one of its name may have begun.

    Invariant: `spec` is set once anything was heard, and `min_times` has the furthest that was heard of each of its segments."""

    def __init__(self, pipeline: str) -> None:
        self.pipeline = pipeline
        self.spec: PipelineSpec | None = None
        self.min_times: tuple[int, ...] = ()
        self.failure: Refusal | None = None
        """Why nothing more is heard."""
        self.is_known = asyncio.Event()
        """Something was heard, or nothing ever will be."""
        self.first_generation = 0
        """The one that was heard first: all from there on are of this pipeline."""
        self.asked_for = True
        """Since the last look."""
        self._heard = Heard(pipeline)
        self._moved_ns: dict[int, int] = {}
        """By number of a segment when its min time was last heard to move."""

    @property
    def generation(self) -> int:
        """The one that the tracker has stated last; 0 where it is of the release before, which states none."""
        return self._heard.generation or 0

    def hear(self, message: progress_pb.SubscribeResponse) -> None:
        heard = self._heard
        heard.hear_removed(message.removed)
        heard.hear(message)
        if self.spec is None:
            self.first_generation = self.generation
        # Segments keep their numbers: those that come are the last.
        spec = PipelineSpec(
            self.pipeline, tuple(heard.names()), slack_ns=heard.slack_ns, rounds=heard.rounds,
            removed=tuple(heard.removed()),
        )  # fmt: skip
        self.spec = self.spec if self.spec == spec else spec
        before, self.min_times = self.min_times, tuple(map(self.furthest, spec.segments))
        for number, (was, reached) in enumerate(zip(before, self.min_times, strict=False)):
            if reached > was:
                self._moved_ns[number] = time.monotonic_ns()
        self.is_known.set()

    def end(self, failure: Refusal) -> None:
        self.failure = failure
        self.is_known.set()

    def furthest(self, segment: str | None) -> int:
        """The furthest that was heard of a segment of `spec`, or of the whole pipeline."""
        found = self._heard.get(segment)
        assert found is not None
        return found

    def measure(self, spec: PipelineSpec, now_ns: int) -> HeardPipeline:
        moved_ns = map(self._moved_ns.get, range(len(spec.segments)))
        segments = tuple(
            HeardSegment(segment, min_time, None if at_ns is None else now_ns - at_ns)
            for segment, min_time, at_ns in zip(
                spec.segments, self.min_times, moved_ns, strict=True
            )
        )
        complete = self.furthest(None) == FOREVER
        return HeardPipeline(self.pipeline, spec.slack_ns, complete, self.generation, segments)


class Relay:
    """The pipelines that are followed, and what was heard of them."""

    def __init__(self, connection: AsyncConnection, hub: Hub) -> None:
        self._connection, self._hub = connection, hub
        self._followed: dict[str, _Followed] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._looking = asyncio.get_running_loop().create_task(self._look())

    async def stop(self) -> None:
        await end(self._looking, *self._tasks.values())

    async def look(self, pipeline: str) -> PipelineSpec:
        """A pipeline, which is followed from now on. Raises Refused: as the tracker does; NOT_READY while that says nothing."""
        followed = self._followed.get(pipeline)
        if followed is None:
            followed = self._follow(pipeline)
        followed.asked_for = True
        try:
            async with asyncio.timeout(FIRST_S):
                await followed.is_known.wait()
        except TimeoutError:
            raise Refused(
                RefusalCode.NOT_READY,
                f"pipeline {pipeline!r}: the tracker behind this relay has not said anything of it for {FIRST_S:g} s; ask "
                "another process, or again",
            ) from None
        if followed.failure is not None:
            raise Refused.of(followed.failure)
        return self.spec(pipeline)

    def _follow(self, pipeline: str) -> _Followed:
        if len(self._followed) >= MAX_FOLLOWED:
            raise Refused(
                RefusalCode.FULL,
                f"this relay follows {len(self._followed)} pipelines, the limit is {MAX_FOLLOWED}; subscribe at another process",
            )
        followed = self._followed[pipeline] = _Followed(pipeline)
        task = asyncio.get_running_loop().create_task(self._hear(followed))
        self._tasks[pipeline] = task
        task.add_done_callback(lambda _: self._over(pipeline, followed))
        return followed

    async def _hear(self, followed: _Followed) -> None:
        """Hears of a pipeline for as long as the first stream lasts that says something of it."""
        name, connection, backoff, suggested = followed.pipeline, self._connection, Backoff(), ""
        request = subscribe_request(name, (), {})
        while True:
            address = suggested or connection.next_target()
            stub: Any = ProgressServiceStub(connection.channel(address))
            call = stub.Subscribe(iter([request]))
            try:
                async for message in call:
                    connection.answered(address)
                    followed.hear(message)
                    self._hub.announced(name)
                suggested = ""
            except grpc.RpcError as error:
                refused = refusal_of(error)
                suggested = refused.home_address if refused is not None else ""
                if refused is not None and refused.refusal.code not in _FOR_NOW:
                    followed.end(refused.refusal)
                elif refused is None and not is_retried(error):
                    followed.end(_cannot_follow(name, f"{address}: {describe_failure(error)}"))
            finally:
                call.cancel()
            if followed.failure is not None:
                return
            if followed.spec is not None:
                followed.end(_cannot_follow(name, f"{address} says nothing more; ask again"))
                return
            await asyncio.sleep(backoff.pause_s())

    def _over(self, pipeline: str, followed: _Followed) -> None:
        """Whoever still listens hears why; who asks next begins anew."""
        del self._followed[pipeline], self._tasks[pipeline]
        if followed.failure is not None:
            self._hub.refuse(pipeline, followed.failure)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_INTERVAL_S)
            self.let_go()

    def let_go(self) -> None:
        """Ends following what nobody listens to, waits for, or has asked for since the last time."""
        for pipeline, followed in self._followed.items():
            is_heard = self._hub.subscribers(pipeline) or pipeline in self._hub.waiting
            if not (is_heard or followed.asked_for):
                # Who comes before the task has ended is not to wait for what nobody hears any more.
                followed.end(_cannot_follow(pipeline, "nobody had asked for it of late; ask again"))
                self._tasks[pipeline].cancel()
            followed.asked_for = False

    # --- what is announced, as of a process of the tracker --------------------------------------------

    def _known(self, pipeline: str) -> tuple[_Followed, PipelineSpec]:
        followed = self._followed.get(pipeline)
        if followed is None or followed.spec is None:
            raise Refused(
                RefusalCode.NOT_READY, f"pipeline {pipeline!r} is not followed here; ask again"
            )
        return followed, followed.spec

    def spec(self, pipeline: str) -> PipelineSpec:
        return self._known(pipeline)[1]

    def min_times(self, pipeline: str) -> Sequence[int]:
        return self._known(pipeline)[0].min_times

    def pipeline_min_time(self, pipeline: str) -> int:
        return self._known(pipeline)[0].furthest(None)

    def generation(self, pipeline: str) -> int:
        return self._known(pipeline)[0].generation

    def first_generation(self, pipeline: str) -> int:
        return self._known(pipeline)[0].first_generation

    # --- what is measured of it -----------------------------------------------------------------------

    @property
    def known(self) -> int:
        """Pipelines of which anything was heard."""
        return sum(followed.spec is not None for followed in self._followed.values())

    def measure(self, limit: int, now_ns: int) -> list[HeardPipeline]:
        """The first of them, up to so many."""
        known = ((each, spec) for each in self._followed.values() if (spec := each.spec))
        return [followed.measure(spec, now_ns) for followed, spec in islice(known, limit)]


def _cannot_follow(pipeline: str, why: str) -> Refusal:
    return Refusal(
        RefusalCode.NOT_READY, f"pipeline {pipeline!r} is not followed by this relay: {why}"
    )


class RelayServicer(Announcing):
    """Serves ProgressService from what was heard."""

    def __init__(
        self, relay: Relay, connection: AsyncConnection, told: Latencies, hub: Hub, quotas: Quotas
    ) -> None:
        super().__init__(lambda: relay, told, hub, quotas)
        self._relay, self._connection = relay, connection

    async def _look(self, asked: Asked) -> PipelineSpec:
        await self._relay.look(asked.pipeline)
        spec = await super()._look(asked)
        if self._relay.spec(asked.pipeline) is not spec:  # since the tracker was asked about it
            raise Refused(
                RefusalCode.NOT_READY,
                f"pipeline {asked.pipeline!r} is followed anew by this relay; ask again",
            )
        return spec

    async def _check_same(self, pipeline: str, generation: int) -> None:
        check_not_behind(pipeline, generation, self._relay.generation(pipeline))
        # Which generations there were before, the tracker knows.
        if generation < self._relay.first_generation(pipeline):
            asked = progress_pb.GetMinTimeRequest(pipeline=pipeline, heard_generation=generation)
            await self._asked(lambda stub: stub.GetMinTime, asked)

    async def GetHistory(
        self, request: progress_pb.GetHistoryRequest, context: Context
    ) -> progress_pb.GetHistoryResponse:
        """As the tracker answers."""
        answer: progress_pb.GetHistoryResponse = await self._asked(
            lambda stub: stub.GetHistory, request
        )
        return answer

    async def _asked(self, method: Callable[[Any], Any], request: Any) -> Any:
        """What the tracker answers. Raises Refused."""
        try:
            answer, _ = await self._connection.ask(
                lambda channel: method(ProgressServiceStub(channel)), request, ASKED_TIMEOUT_S
            )
        except RefusedError as error:
            raise Refused.of(error.refusal) from None
        except LowmarkError as error:
            raise Refused(
                RefusalCode.NOT_READY, f"the tracker behind this relay: {error}"
            ) from None
        return answer


class RelayServer:
    """Starts and stops a relay."""

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self.address = config.own_address
        # It is a client of the tracker, with what a client has.
        self._connection = AsyncConnection(SecureTarget(config.relay, config.security.peer))
        self.hub = Hub(config.limits.max_subscribers)
        self.relay = Relay(self._connection, self.hub)
        self.notifications = Latencies()
        """From hearing of an announcement until it was handed to a subscriber's stream."""
        self._servicer = RelayServicer(
            self.relay, self._connection, self.notifications, self.hub, Quotas(config.limits)
        )
        self._health = HealthServicer()
        self._guards: Guards | None = None
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Raises OSError where it cannot listen, and InvalidError for a file of tokens that cannot be read."""
        config, servicer = self.config, self._servicer
        self._guards = guards = Guards(config.limits, config.security.tokens, {})
        age = connection_age(config.limits.max_connection_age_ms)
        server = grpc.aio.server(interceptors=guards.interceptors, options=(*SERVER_OPTIONS, *age))
        stubbed: Any = servicer  # the types of the stubs know blocking servicers alone
        add_ProgressServiceServicer_to_server(stubbed, server)
        add_subscribing(servicer, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        # To one after the other: whoever is sent to one that is away comes back, and gets on.
        server.add_generic_rpc_handlers(
            (Elsewhere(_ELSEWHERE, partial(next, cycle(config.relay))),)
        )
        try:
            self.address = listen_at(
                server, config.listen or self.address, config.security,
                who="the relay", address=self.address,
            )  # fmt: skip
        except BaseException:
            await guards.stop()
            raise
        await server.start()
        self._server = server
        self.relay.start()
        for name in ("", LIVE_SERVICE):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        log.info("relaying", address=self.address, tracker=",".join(config.relay))

    async def stop(self) -> None:
        """Tells streams and waiting calls that it stops, and lets go of the tracker."""
        assert self._server is not None and self._guards is not None
        await self._health.enter_graceful_shutdown()
        ending = asyncio.ensure_future(self._server.stop(self.config.grace_s))
        await asyncio.sleep(0)  # from here on no call begins
        self.hub.close(-1)
        await ending
        await self.relay.stop()
        await self._connection.close()
        await self._guards.stop()
        log.info("stopped", address=self.address)
