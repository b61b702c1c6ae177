"""Ticks and what they are made of: keys, batches, units, staged contributions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from acker.v1 import types_pb2 as pb
from tracker.core.model import (
    Batch,
    FrontJoin,
    Heartbeat,
    HeldSlot,
    HoldMove,
    NodeKey,
    StagedContribution,
    TickContent,
    Unit,
)
from tracker.wire.cells import CELLS, cells_from_pb, write_cells
from tracker.wire.codec import Codec, derived


def key_to_pb(key: NodeKey) -> pb.NodeKey:
    return pb.NodeKey(node_id=key.node_id, incarnation=key.incarnation)


def key_from_pb(key: pb.NodeKey) -> NodeKey:
    return NodeKey(key.node_id, key.incarnation)


def batch_to_pb(batch: Batch) -> pb.Batch:
    return pb.Batch(scope=batch.scope, id=batch.id, fingerprint=batch.fingerprint)


def batch_from_pb(batch: pb.Batch) -> Batch:
    return Batch(batch.scope, batch.id, batch.fingerprint)


def unit_to_pb(unit: Unit) -> pb.Unit:
    return pb.Unit(segment=unit.segment, name=unit.name, slot=unit.slot)


def unit_from_pb(unit: pb.Unit) -> Unit:
    return Unit(unit.segment, unit.name, unit.slot)


def content_to_pb(content: TickContent) -> pb.TickContent:
    message = pb.TickContent()
    write_content(content, message)
    return message


def write_content(content: TickContent, message: pb.TickContent) -> None:
    """Into an empty message."""
    if content.told is not None:
        message.MergeFromString(content.told)
        return
    if len(content.created):
        write_cells(content.created, message.created)
    if len(content.consumed):
        write_cells(content.consumed, message.consumed)
    for heartbeat in content.heartbeats:
        message.heartbeats.add(front=heartbeat.front, slot=heartbeat.slot)
    for join in content.joins:
        message.joins.add(front=join.front, segment=join.segment)
    if content.leaves:
        message.leaves.extend(content.leaves)
    if content.batch is not None:
        message.batch.CopyFrom(batch_to_pb(content.batch))
    if content.units_created:
        message.units_created.extend(unit_to_pb(unit) for unit in content.units_created)
    if content.units_consumed:
        message.units_consumed.extend(unit_to_pb(unit) for unit in content.units_consumed)
    for move in content.holds:
        message.holds.add(name=move.name, segment=move.segment, slot=move.slot)


def _each(read: Callable[[Any], Any]) -> Callable[[Iterable[Any]], Any]:
    return lambda messages: tuple([read(message) for message in messages])


_READ: dict[str, Callable[[Any], Any]] = {
    "created": cells_from_pb,
    "consumed": cells_from_pb,
    "heartbeats": _each(lambda h: Heartbeat(h.front, h.slot)),
    "joins": _each(lambda j: FrontJoin(j.front, j.segment)),
    "leaves": tuple,
    "batch": batch_from_pb,
    "units_created": _each(unit_from_pb),
    "units_consumed": _each(unit_from_pb),
    "holds": _each(lambda h: HoldMove(h.name, h.segment, h.slot)),
}
"""How each field of a tick's content is read."""


def content_from_pb(message: pb.TickContent) -> TickContent:
    """Drops what a newer version may have added to the message: it is not judged here, and must not be found in
    the log when this process is a newer one. Raises Refused(INVALID) where packed cells are malformed."""
    message.DiscardUnknownFields()
    content = TickContent()
    for field, value in message.ListFields():  # most ticks have few
        name = field.name
        setattr(content, name, _READ[name](value))
    content.told = message.SerializeToString()
    return content


KEY = Codec(NodeKey, pb.NodeKey, key_to_pb, key_from_pb)
BATCH = Codec(Batch, pb.Batch, batch_to_pb, batch_from_pb)
UNIT = Codec(Unit, pb.Unit, unit_to_pb, unit_from_pb)
HELD = derived(HeldSlot, pb.HeldSlot)
CONTRIBUTION = derived(StagedContribution, pb.StagedContribution, CELLS)
contribution_to_pb, contribution_from_pb = CONTRIBUTION.to_pb, CONTRIBUTION.from_pb
