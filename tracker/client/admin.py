"""Registering pipelines and looking at the tracker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc

from acker.v1 import pipeline_service_pb2 as pipeline_pb
from acker.v1 import pipeline_service_pb2_grpc as pipeline_grpc
from tracker import convert
from tracker.client.connection import Connection
from tracker.core.describe import PipelineDescription, ShardDescription
from tracker.core.model import PipelineSpec

Answer = TypeVar("Answer")

TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class PipelineInfo:
    """A pipeline as registered, and its state as one process of the tracker sees it."""

    spec: PipelineSpec
    state: PipelineDescription


@dataclass(frozen=True, slots=True)
class ShardInfo:
    """A shard as another process sees it, and where it listens (host:port)."""

    state: ShardDescription
    address: str


class Admin:
    """A tracker, for those who set it up. target: host:port of one process of it or of several (with
    commas, or a sequence); it stays with the one that answered last. All methods raise RefusedError,
    and UnavailableError when no process has answered within `timeout_s` seconds."""

    def __init__(self, target: str | Sequence[str], timeout_s: float = TIMEOUT_S) -> None:
        self._connection = Connection(target)
        self._timeout_s = timeout_s
        self._last: str | None = None

    def register(self, spec: PipelineSpec) -> tuple[PipelineSpec, bool]:
        """Registers a pipeline with every shard; returns it as registered, and whether it is new.
        Raises RefusedError if it cannot be, or one of its name differs."""
        request = pipeline_pb.RegisterPipelineRequest(spec=convert.spec_to_pb(spec))
        answer = self._call(
            lambda channel: pipeline_grpc.PipelineServiceStub(channel).RegisterPipeline,
            request,
        )
        return convert.spec_from_pb(answer.spec), answer.created

    def pipeline(self, name: str) -> PipelineInfo:
        """One pipeline. Raises RefusedError if it is unknown."""
        answer = self._call(
            lambda channel: pipeline_grpc.PipelineServiceStub(channel).GetPipeline,
            pipeline_pb.GetPipelineRequest(pipeline=name),
        )
        return _info(answer)

    def pipelines(self) -> list[PipelineInfo]:
        """All pipelines, by name."""
        answer = self._call(
            lambda channel: pipeline_grpc.PipelineServiceStub(channel).ListPipelines,
            pipeline_pb.ListPipelinesRequest(),
        )
        return [_info(pipeline) for pipeline in answer.pipelines]

    def shards(self) -> list[ShardInfo]:
        """All shards, by number."""
        answer = self._call(
            lambda channel: pipeline_grpc.PipelineServiceStub(channel).ListShards,
            pipeline_pb.ListShardsRequest(),
        )
        return [
            ShardInfo(ShardDescription(s.shard, s.connected, s.entries_behind), s.address)
            for s in answer.shards
        ]

    def _call(self, make: Callable[[grpc.Channel], Callable[..., Answer]], request: Any) -> Answer:
        answer, self._last = self._connection.call(
            make, request, self._timeout_s, prefer=self._last
        )
        return answer

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Admin:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _info(answer: pipeline_pb.GetPipelineResponse) -> PipelineInfo:
    return PipelineInfo(convert.spec_from_pb(answer.spec), convert.state_from_pb(answer.state))
