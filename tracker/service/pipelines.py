"""PipelineService: registering pipelines and looking at them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from acker.v1 import pipeline_service_pb2 as pipeline_pb
from tracker import convert, convert_explain, convert_freshness
from tracker.core import messages as m
from tracker.core.model import RefusalCode, Refused
from tracker.grpc_options import MAX_TICK_BYTES
from tracker.service.engine import Engine
from tracker.service.errors import Context, abort
from tracker.service.sampling import Sampler


class PipelineServicer:
    """Registers at the shard that decides on a pipeline's name; tells what this process sees."""

    def __init__(self, engine: Engine, addresses: Sequence[str], sampler: Sampler) -> None:
        self._engine = engine
        self._sampler = sampler
        self._addresses = addresses

    async def RegisterPipeline(
        self, request: pipeline_pb.RegisterPipelineRequest, context: Context
    ) -> pipeline_pb.RegisterPipelineResponse:
        try:
            if request.ByteSize() > MAX_TICK_BYTES:
                raise Refused(
                    RefusalCode.INVALID,
                    f"pipeline {request.spec.name[:60]!r} takes {request.ByteSize()} bytes, the limit "
                    f"is {MAX_TICK_BYTES}; use shorter names",
                )
            spec = convert.spec_from_pb(request.spec)
            known = {spec.name for spec in self._engine.process.pipelines()}
            registered = await self._engine.ask(m.RegisterPipeline(object(), spec))
        except Refused as refused:
            await abort(context, refused.refusal, self._addresses)
        return pipeline_pb.RegisterPipelineResponse(
            spec=convert.spec_to_pb(registered), created=spec.name not in known
        )

    async def GetPipeline(
        self, request: pipeline_pb.GetPipelineRequest, context: Context
    ) -> pipeline_pb.GetPipelineResponse:
        try:
            return self._describe(request.pipeline)
        except Refused as refused:
            await abort(context, refused.refusal, self._addresses)

    async def ListPipelines(
        self, request: pipeline_pb.ListPipelinesRequest, context: Context
    ) -> pipeline_pb.ListPipelinesResponse:
        names = [spec.name for spec in self._engine.process.pipelines()]
        return pipeline_pb.ListPipelinesResponse(pipelines=[self._describe(n) for n in names])

    def _describe(self, name: str) -> pipeline_pb.GetPipelineResponse:
        process = self._engine.process
        return pipeline_pb.GetPipelineResponse(
            spec=convert.spec_to_pb(process.spec(name)),
            state=convert.state_to_pb(process.describe(name, time.monotonic_ns())),
        )

    async def ListShards(
        self, request: pipeline_pb.ListShardsRequest, context: Context
    ) -> pipeline_pb.ListShardsResponse:
        response = pipeline_pb.ListShardsResponse()
        for shard in self._engine.process.describe_shards():
            response.shards.add(
                shard=shard.shard,
                address=self._addresses[shard.shard],
                connected=shard.connected,
                entries_behind=shard.entries_behind,
            )
        return response

    async def ExplainPipeline(
        self, request: pipeline_pb.ExplainPipelineRequest, context: Context
    ) -> pipeline_pb.ExplainPipelineResponse:
        process = self._engine.process
        try:
            spec = process.spec(request.pipeline)
            query = convert_explain.query_from_pb(request, spec)
        except Refused as refused:
            await abort(context, refused.refusal, self._addresses)
        explanation = process.explain(spec.name, query, time.monotonic_ns())
        explanation = replace(explanation, store=self._engine.store_state)
        addresses = dict(enumerate(self._addresses))
        return convert_explain.explanation_to_pb(explanation, spec, addresses)

    async def GetFreshness(
        self, request: pipeline_pb.GetFreshnessRequest, context: Context
    ) -> pipeline_pb.GetFreshnessResponse:
        try:
            if request.within_ms < 0:
                raise Refused(
                    RefusalCode.INVALID,
                    f"within_ms is {request.within_ms}; it must not be negative",
                )
            segments = self._sampler.read(request.pipeline, request.within_ms)
        except Refused as refused:
            await abort(context, refused.refusal, self._addresses)
        return convert_freshness.freshness_to_pb(segments)

    async def RetireNode(
        self, request: pipeline_pb.RetireNodeRequest, context: Context
    ) -> pipeline_pb.RetireNodeResponse:
        try:
            cells = convert.cells_from_pb(request.write_off)
            at_ms = time.time_ns() // 1_000_000
            event = m.RetireNode(object(), request.pipeline, request.node_id, cells, at_ms)
            await self._engine.ask(event)
        except Refused as refused:
            await abort(context, refused.refusal, self._addresses)
        return pipeline_pb.RetireNodeResponse()

    async def RestartPipeline(
        self, request: pipeline_pb.RestartPipelineRequest, context: Context
    ) -> pipeline_pb.RestartPipelineResponse:
        from_slot = request.from_slot if request.HasField("from_slot") else None
        at_ms = time.time_ns() // 1_000_000
        try:
            restart = await self._engine.ask(
                m.RestartPipeline(object(), request.pipeline, request.generation, from_slot, at_ms)
            )
        except Refused as refused:
            await abort(context, refused.refusal, self._addresses)
        return pipeline_pb.RestartPipelineResponse(
            generation=restart.generation, from_slot=restart.from_slot
        )
