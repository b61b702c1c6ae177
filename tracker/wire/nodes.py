"""What a node is told when it joins, and what it says that it waits for."""

from __future__ import annotations

from acker.v1 import node_service_pb2 as node_pb
from acker.v1 import types_pb2 as pb
from tracker.core import log as m
from tracker.core.model import PipelineSpec
from tracker.core.model.slots import LOWEST_SLOT
from tracker.core.model.waits import WaitCause, WaitKind
from tracker.wire.codec import Codec
from tracker.wire.pipelines import spec_from_pb, spec_to_pb
from tracker.wire.ticks import batch_from_pb, batch_to_pb, key_from_pb, key_to_pb


def grant_to_pb(grant: m.Grant, spec: PipelineSpec) -> node_pb.FrontGrant:
    return node_pb.FrontGrant(
        front=grant.front,
        segment=spec.segments[grant.segment],
        slot=grant.slot,
        heartbeat=grant.heartbeat,
        granted=grant.granted,
    )


def grant_from_pb(message: node_pb.FrontGrant, spec: PipelineSpec) -> m.Grant:
    return m.Grant(
        message.front,
        spec.segments.index(message.segment),
        message.slot,
        message.heartbeat,
        message.granted,
    )


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


def joined_to_pb(joined: m.Joined) -> node_pb.JoinNodeResponse:
    return node_pb.JoinNodeResponse(
        key=key_to_pb(joined.key),
        spec=spec_to_pb(joined.spec),
        last_batches=[batch_to_pb(batch) for batch in joined.last_batches],
        previous_node_time=joined.previous_node_time,
        fronts=[grant_to_pb(grant, joined.spec) for grant in joined.fronts],
        generation=joined.generation,
        replay_from=joined.replay_from,
    )


def joined_from_pb(message: node_pb.JoinNodeResponse) -> m.Joined:
    spec = spec_from_pb(message.spec)
    return m.Joined(
        key_from_pb(message.key),
        spec,
        tuple(batch_from_pb(batch) for batch in message.last_batches),
        message.previous_node_time,
        tuple(grant_from_pb(grant, spec) for grant in message.fronts),
        message.generation,
        message.replay_from if message.generation else LOWEST_SLOT,
    )
