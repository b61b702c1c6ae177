"""PipelineService: registering pipelines and looking at them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import asdict, replace
from typing import Any, Protocol

from acker.v1 import pipeline_service_pb2 as pipeline_pb
from tracker.core import log as m
from tracker.core.home.home import MAX_NAME_CHARACTERS
from tracker.core.insight.freshness import MAX_POINTS
from tracker.core.model import Refusal, RefusalCode, Refused
from tracker.core.model.placements import Placement
from tracker.core.process import ProcessConfig
from tracker.service.engine import Engine
from tracker.service.rpc.access import caller_knows
from tracker.service.rpc.budgets import Budgets
from tracker.service.rpc.errors import Context
from tracker.service.rpc.standbys import Standbys
from tracker.service.sampling import Sampler
from tracker.wire.cells import cells_from_pb
from tracker.wire.explanations import explanation_to_pb, query_from_pb
from tracker.wire.freshness import freshness_to_pb
from tracker.wire.grpc_options import MAX_TICK_BYTES
from tracker.wire.lost import report_to_pb
from tracker.wire.pipelines import spec_from_pb, spec_to_pb, state_to_pb
from tracker.wire.refusals import invalid
from tracker.wire.shards import shard_to_pb

MAX_RESCALE_WAIT_MS = 60_000
"""How long a rescale, or a declaration that shards are lost, is waited for by one call."""
MAX_PAGE_PIPELINES = 1_000
MAX_PAGE_BYTES = 4 * 1024 * 1024
"""Of the pipelines of a page, unless one by itself, without nodes and fronts, is larger."""


class Groups(Protocol):
    """Where names of pipelines belong."""

    @property
    def group(self) -> int:
        """The number of the own group."""

    def placing(
        self, name: str, asked: int | None, *, check_only: bool
    ) -> AbstractAsyncContextManager[Placement | None]:
        """While a pipeline is registered: the placement by which it may be; None where it needs none. Raises Refused where it may
        not be here. The name of one that is new, and refused for good, is given back."""

    def elsewhere(self) -> list[str]:
        """host:port of processes of the other groups."""

    def address(self, group: int) -> str:
        """host:port of a process of a group; nothing where none is known."""

    async def give_back(self, name: str, placed: int, ended: int) -> None:
        """A pipeline that was here by this placement was deleted, by the generation `ended`: its name is free for every group, as
        far as nobody has claimed it since."""


class PipelineServicer:
    """Registers at the shard that decides on a pipeline's name; tells what this process sees."""

    def __init__(
        self,
        engine: Engine,
        addresses: Mapping[int, str],
        sampler: Sampler,
        budgets: Budgets | None = None,
        releases: Mapping[int, str] | None = None,
        standbys: Standbys | None = None,
        groups: Groups | None = None,
    ) -> None:
        """releases: of the processes of shards, as far as they are known, for people; standbys: who waits for a shard; groups: the
        other ones of the deployment."""
        self._groups = groups
        self._standbys = Standbys() if standbys is None else standbys
        self._releases = {} if releases is None else releases
        self._budgets = budgets or Budgets(engine.process, ProcessConfig())
        self._engine = engine
        self._sampler = sampler
        self._addresses = addresses
        self._asked: dict[tuple[object, ...], asyncio.Future[Any]] = {}
        """What changes the shards and is under way, by what was asked: little, since one change is allowed at a time."""

    async def RegisterPipeline(
        self, request: pipeline_pb.RegisterPipelineRequest, context: Context
    ) -> pipeline_pb.RegisterPipelineResponse:
        if request.ByteSize() > MAX_TICK_BYTES:
            raise invalid(
                f"pipeline {request.spec.name[:60]!r} takes {request.ByteSize()} bytes, the limit "
                f"is {MAX_TICK_BYTES}; use shorter names",
            )
        spec = spec_from_pb(request.spec)
        known = {spec.name: spec for spec in self._engine.process.pipelines()}
        group = request.group if request.HasField("group") else None
        placing: Any = nullcontext()
        if self._groups is not None:
            placing = self._groups.placing(spec.name, group, check_only=request.check_only)
        async with placing as by:
            placed, above = (0, 0) if by is None else (by.version, by.above)
            decided_on = request.decided_on if request.HasField("decided_on") else None
            wish = m.RegisterPipeline(
                object(), spec, request.change, request.check_only, placed, above, decided_on
            )
            with self._budgets.registers(spec, change=request.change):
                registered = await self._engine.ask(wish)
        before = known.get(spec.name)
        changed = before is not None and before != registered
        return pipeline_pb.RegisterPipelineResponse(
            spec=spec_to_pb(registered),
            created=before is None,
            before=spec_to_pb(before) if before and changed else None,
        )

    async def GetPipeline(
        self, request: pipeline_pb.GetPipelineRequest, context: Context
    ) -> pipeline_pb.GetPipelineResponse:
        return self._describe(request.pipeline)

    async def ListPipelines(
        self, request: pipeline_pb.ListPipelinesRequest, context: Context
    ) -> pipeline_pb.ListPipelinesResponse:
        size, token = request.page_size, request.page_token
        if size < 0 or len(token) > MAX_NAME_CHARACTERS:
            raise invalid(
                f"page_size is {size}, and page_token has {len(token)} characters; a page has 1 to "
                f"{MAX_PAGE_PIPELINES} pipelines (0: as many as there may be), and a token is that of the page before"
            )
        most = min(size or MAX_PAGE_PIPELINES, MAX_PAGE_PIPELINES)
        answer, answer_bytes = pipeline_pb.ListPipelinesResponse(), 0
        for spec in self._engine.process.pipelines():
            if spec.name < token or not caller_knows(spec.name):
                continue
            try:
                described = self._describe(spec.name)
            except Refused:
                continue  # it was deleted, or has gone to another group, since the list was begun
            _fit(described)
            described_bytes = described.ByteSize()
            full = answer_bytes + described_bytes > MAX_PAGE_BYTES and answer_bytes > 0
            if full or len(answer.pipelines) >= most:
                answer.next_page_token = spec.name
                break
            answer.pipelines.append(described)
            answer_bytes += described_bytes
            await asyncio.sleep(0)  # others are served meanwhile
        return answer

    def _describe(self, name: str) -> pipeline_pb.GetPipelineResponse:
        process = self._engine.process
        return pipeline_pb.GetPipelineResponse(
            spec=spec_to_pb(process.spec(name)),
            state=state_to_pb(process.describe(name, time.monotonic_ns())),
            group=0 if self._groups is None else self._groups.group,
            changes=process.changes(name),
        )

    async def ListShards(
        self, request: pipeline_pb.ListShardsRequest, context: Context
    ) -> pipeline_pb.ListShardsResponse:
        self._need_group(request)
        process = self._engine.process
        if request.pipeline and caller_knows(request.pipeline):
            process.spec(request.pipeline)  # raises where it lives in another group
        routing = process.describe_routing()
        return pipeline_pb.ListShardsResponse(
            version=routing.version,
            asked=routing.asked,
            changing=routing.changing,
            level=routing.level,
            standbys=[
                pipeline_pb.StandbyState(address=s.address, speaks=s.speaks, release=s.release)
                for s in self._standbys.waiting(self._addresses.values())
            ],
            shards=[
                shard_to_pb(
                    shard,
                    self._addresses.get(shard.shard, ""),
                    self._releases.get(shard.shard, ""),
                )
                for shard in process.describe_shards()
            ],
            elsewhere=[] if self._groups is None else self._groups.elsewhere(),
            group=0 if self._groups is None else self._groups.group,
        )

    def _need_group(self, request: Any) -> None:
        """Raises Refused, with where that is reached, where the shards of another group are meant: whoever asks was here before, or
        comes as who was asked before does not answer."""
        if self._groups is None or not request.HasField("group"):
            return
        if request.group != self._groups.group:
            message = f"this is a process of group {self._groups.group}; the shards of group {request.group} are meant"
            address = self._groups.address(request.group)
            raise Refused.of(Refusal(RefusalCode.NOT_HOME, message, address=address))

    async def FinishUpgrade(
        self, request: pipeline_pb.FinishUpgradeRequest, context: Context
    ) -> pipeline_pb.FinishUpgradeResponse:
        self._need_group(request)
        if request.level > self._engine.process.membership.level:
            self._standbys.check_speak(request.level, self._addresses.values())
        await self._engine.ask(m.FinishUpgrade(object(), request.level))
        return pipeline_pb.FinishUpgradeResponse(level=self._engine.process.membership.level)

    async def RescaleShards(
        self, request: pipeline_pb.RescaleShardsRequest, context: Context
    ) -> pipeline_pb.RescaleShardsResponse:
        self._need_group(request)
        _check_wait(request.wait_ms)
        wish = m.RescaleShards(object(), request.shards, request.evacuate, tuple(request.without))
        in_force = await self._within(request.wait_ms, wish) is not None
        version = self._engine.process.routing.version
        return pipeline_pb.RescaleShardsResponse(in_force=in_force, version=version)

    async def _within(self, wait_ms: int, event: m.RescaleShards | m.DeclareLost) -> Any:
        """The answer to what changes the shards, or None if there is none within the time given. All who ask for the
        same wait for one answer. Raises Refused."""
        wish = (
            type(event),
            *(v for k, v in asdict(event).items() if k not in ("request", "at_ms")),
        )
        asking = self._asked.get(wish)
        if asking is None:
            asking = asyncio.ensure_future(self._engine.ask(event))
            self._asked[wish] = asking
            asking.add_done_callback(lambda _: self._asked.pop(wish))
        await asyncio.wait((asking,), timeout=wait_ms / 1000)
        return asking.result() if asking.done() else None  # or raises what it was refused for

    async def DeclareLost(
        self, request: pipeline_pb.DeclareLostRequest, context: Context
    ) -> pipeline_pb.DeclareLostResponse:
        self._need_group(request)
        _check_wait(request.wait_ms)
        at_ms = time.time_ns() // 1_000_000
        wish = m.DeclareLost(object(), tuple(request.shards), request.write_off, at_ms)
        report = await self._within(request.wait_ms, wish)
        if report is not None:
            return report_to_pb(report)
        return pipeline_pb.DeclareLostResponse(waits_for=self._engine.process.loss_waits_for)

    async def ExplainPipeline(
        self, request: pipeline_pb.ExplainPipelineRequest, context: Context
    ) -> pipeline_pb.ExplainPipelineResponse:
        process = self._engine.process
        spec = process.spec(request.pipeline)
        query = query_from_pb(request, spec)
        explanation = process.explain(spec.name, query, time.monotonic_ns())
        explanation = replace(explanation, store=self._engine.store_state)
        addresses = dict(self._addresses)
        return explanation_to_pb(explanation, spec, addresses)

    async def GetFreshness(
        self, request: pipeline_pb.GetFreshnessRequest, context: Context
    ) -> pipeline_pb.GetFreshnessResponse:
        if request.within_ms < 0:
            raise invalid(
                f"within_ms is {request.within_ms}; it must not be negative",
            )
        if not 0 <= request.points <= MAX_POINTS:
            raise invalid(f"points is {request.points}; it must be 0 to {MAX_POINTS}")
        segments = self._sampler.read(request.pipeline, request.within_ms, request.points)
        return freshness_to_pb(segments)

    async def RetireNode(
        self, request: pipeline_pb.RetireNodeRequest, context: Context
    ) -> pipeline_pb.RetireNodeResponse:
        cells = cells_from_pb(request.write_off)
        at_ms = time.time_ns() // 1_000_000
        event = m.RetireNode(
            object(),
            request.pipeline,
            request.node_id,
            cells,
            at_ms,
            request.incarnation if request.HasField("incarnation") else None,
            request.generation if request.HasField("generation") else None,
        )
        await self._engine.ask(event)
        return pipeline_pb.RetireNodeResponse()

    async def RestartPipeline(
        self, request: pipeline_pb.RestartPipelineRequest, context: Context
    ) -> pipeline_pb.RestartPipelineResponse:
        from_slot = request.from_slot if request.HasField("from_slot") else None
        at_ms = time.time_ns() // 1_000_000
        restart = await self._engine.ask(
            m.RestartPipeline(object(), request.pipeline, request.generation, from_slot, at_ms)
        )
        return pipeline_pb.RestartPipelineResponse(
            generation=restart.generation, from_slot=restart.from_slot
        )

    async def DeletePipeline(
        self, request: pipeline_pb.DeletePipelineRequest, context: Context
    ) -> pipeline_pb.DeletePipelineResponse:
        name, at_ms = request.pipeline, time.time_ns() // 1_000_000
        placed = self._engine.process.placed_last(name)
        ended = await self._engine.ask(
            m.DeletePipeline(object(), name, request.generation, request.drop_open, at_ms)
        )
        if placed and self._groups is not None:
            await self._groups.give_back(name, placed, ended.generation)
        return pipeline_pb.DeletePipelineResponse()


def _check_wait(wait_ms: int) -> None:
    if not 0 <= wait_ms <= MAX_RESCALE_WAIT_MS:
        raise invalid(f"wait_ms is {wait_ms}; it lies within 0 and {MAX_RESCALE_WAIT_MS}")


def _fit(described: pipeline_pb.GetPipelineResponse) -> None:
    """Leaves out the nodes and fronts of a pipeline that is larger than a page by them: it keeps no other from
    being listed."""
    if described.ByteSize() > MAX_PAGE_BYTES:
        described.omitted = len(described.state.nodes) + len(described.state.fronts)
        described.state.ClearField("nodes")
        described.state.ClearField("fronts")
