"""What a node gets when it joins, and what it reports that it waits for."""

from __future__ import annotations

from functools import lru_cache

from acker.v1 import node_service_pb2 as node_pb
from acker.v1 import types_pb2 as pb
from tracker.core import log as m
from tracker.core.model import PipelineSpec
from tracker.core.model.waits import WaitCause, WaitKind
from tracker.wire.codec import Codec, by_name, derived
from tracker.wire.pipelines import SPEC
from tracker.wire.ticks import BATCH, HELD, KEY


@lru_cache(maxsize=64)
def _grants(segments: tuple[str, ...]) -> Codec[m.Grant, node_pb.FrontGrant]:
    return derived(m.Grant, node_pb.FrontGrant, by_name(segments))


def grant_to_pb(grant: m.Grant, spec: PipelineSpec) -> node_pb.FrontGrant:
    return _grants(spec.segments).to_pb(grant)


def grant_from_pb(message: node_pb.FrontGrant, spec: PipelineSpec) -> m.Grant:
    return _grants(spec.segments).from_pb(message)


def wait_to_pb(wait: WaitCause) -> pb.WaitCause:
    return pb.WaitCause(
        kind=wait.kind.value, text=wait.text, segment=wait.segment, batch=wait.batch
    )


def wait_from_pb(message: pb.WaitCause) -> WaitCause:
    """A kind that this version does not know is something else."""
    known = message.kind in {kind.value for kind in WaitKind}
    kind = WaitKind(message.kind) if known else WaitKind.OTHER
    return WaitCause(kind, message.text, message.segment, message.batch)


WAIT = Codec(WaitCause, pb.WaitCause, wait_to_pb, wait_from_pb)


@lru_cache(maxsize=64)
def _joined(segments: tuple[str, ...]) -> Codec[m.Joined, node_pb.JoinNodeResponse]:
    return derived(m.Joined, node_pb.JoinNodeResponse, KEY, SPEC, BATCH, HELD, _grants(segments))


def joined_to_pb(joined: m.Joined) -> node_pb.JoinNodeResponse:
    return _joined(joined.spec.segments).to_pb(joined)


def joined_from_pb(message: node_pb.JoinNodeResponse) -> m.Joined:
    return _joined(tuple(message.spec.segments)).from_pb(message)
