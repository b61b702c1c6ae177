"""Between the messages by which shards come and go and the core's steps, tables and snapshots of nodes."""

from __future__ import annotations

from collections.abc import Iterable

from acker.v1 import pipeline_service_pb2 as pipeline_pb
from acker.v1 import shards_pb2 as pb
from tracker.core import messages as m
from tracker.core import rescaling as r
from tracker.core.describe import ShardRole
from tracker.core.membership import Membership
from tracker.core.model import FrontPin, RefusalCode, Refused
from tracker.core.routing import RoutingEntry, RoutingTable
from tracker.core.written_off import WrittenOffCell
from tracker.wire.cells import cells_from_pb, cells_to_pb
from tracker.wire.ticks import (
    batch_from_pb,
    batch_to_pb,
    contribution_from_pb,
    contribution_to_pb,
    key_from_pb,
    key_to_pb,
    unit_from_pb,
    unit_to_pb,
)


def step_to_pb(step: r.RoutingEntry) -> pb.ShardStep:
    message = pb.ShardStep()
    match step:
        case r.ShardJoining():
            message.joining.shard = step.shard
            message.joining.address = step.address
        case r.ShardJoined():
            message.joined = step.shard
        case r.ShardRemoved():
            message.removed = step.shard
        case r.SlotsAsked():
            message.slots_asked.CopyFrom(_asked_to_pb(step))
        case r.HighestSlots():
            message.highest_slots.CopyFrom(_highest_to_pb(step))
        case r.RoutingChanged():
            message.changed.CopyFrom(table_to_pb(step.table))
        case r.NodesMoved():
            message.nodes_moved.CopyFrom(_nodes_to_pb(step))
        case r.RoutingAdopted():
            message.adopted.version = step.version
            message.adopted.next_incarnation = step.next_incarnation
        case r.CellsMoved():
            message.cells_moved.CopyFrom(_cells_to_pb(step))
        case r.RoutingDone():
            message.done = step.version
        case r.ShardLeaving():
            message.leaving = step.shard
        case r.ShardSaid():
            message.said.pipelines.extend(map(_words_to_pb, step.pipelines))
        case r.ShardLeft():
            message.left.CopyFrom(_left_to_pb(step))
    return message


def step_from_pb(message: pb.ShardStep) -> r.RoutingEntry:
    """Raises Refused(INVALID) for a step that says nothing or is malformed."""
    match message.WhichOneof("step"):
        case "joining":
            return r.ShardJoining(message.joining.shard, message.joining.address)
        case "joined":
            return r.ShardJoined(message.joined)
        case "removed":
            return r.ShardRemoved(message.removed)
        case "slots_asked":
            return _asked_from_pb(message.slots_asked)
        case "highest_slots":
            return _highest_from_pb(message.highest_slots)
        case "changed":
            return r.RoutingChanged(table_from_pb(message.changed))
        case "nodes_moved":
            return _nodes_from_pb(message.nodes_moved)
        case "adopted":
            return r.RoutingAdopted(message.adopted.version, message.adopted.next_incarnation)
        case "cells_moved":
            return _cells_from_pb(message.cells_moved)
        case "done":
            return r.RoutingDone(message.done)
        case "leaving":
            return r.ShardLeaving(message.leaving)
        case "said":
            return r.ShardSaid(tuple(map(_words_from_pb, message.said.pipelines)))
        case "left":
            return _left_from_pb(message.left)
    raise Refused(
        RefusalCode.INVALID,
        "a step of shards says nothing; is the other process of a newer version?",
    )


# --- what people are shown ------------------------------------------------------------------------


def role_to_pb(role: ShardRole) -> pipeline_pb.ShardRole.ValueType:
    return pipeline_pb.ShardRole.Value(f"SHARD_ROLE_{role.name}")


def role_from_pb(role: pipeline_pb.ShardRole.ValueType) -> ShardRole:
    """What this version does not know, a process of another one has said: it counts as an owner."""
    name = pipeline_pb.ShardRole.Name(role).removeprefix("SHARD_ROLE_")
    return ShardRole.__members__.get(name, ShardRole.OWNER)


# --- restarts, and places in home logs ------------------------------------------------------------


def restart_to_pb(restart: m.Restart) -> pb.Restart:
    return pb.Restart(
        generation=restart.generation, from_slot=restart.from_slot, at_ms=restart.at_ms
    )


def restart_from_pb(message: pb.Restart) -> m.Restart:
    """Raises Refused(INVALID) for a generation that cannot begin by a restart."""
    if message.generation < 1:
        raise Refused(
            RefusalCode.INVALID,
            f"a restart begins generation {message.generation}; they count from 1",
        )
    return m.Restart(message.generation, message.from_slot, message.at_ms)


def positions_to_pb(positions: Iterable[tuple[int, int]]) -> list[pb.HomePosition]:
    return [pb.HomePosition(home=home, number=number) for home, number in positions]


def positions_from_pb(positions: Iterable[pb.HomePosition]) -> tuple[tuple[int, int], ...]:
    return tuple((p.home, p.number) for p in positions)


# --- tables ---------------------------------------------------------------------------------------


def table_to_pb(table: RoutingTable) -> pb.RoutingTable:
    return pb.RoutingTable(
        version=table.version,
        entries=_entries_to_pb(table.entries),
        pipelines=[
            pb.PipelineRouting(pipeline=name, entries=_entries_to_pb(entries))
            for name, entries in table.pipelines.items()
        ],
    )


def table_from_pb(message: pb.RoutingTable) -> RoutingTable:
    """Raises Refused(INVALID) for a table that leaves slots without an owner."""
    try:
        return RoutingTable(
            _entries_from_pb(message.entries),
            version=message.version,
            pipelines={p.pipeline: _entries_from_pb(p.entries) for p in message.pipelines},
        )
    except ValueError as error:
        raise Refused(RefusalCode.INVALID, f"a routing table is malformed: {error}") from None


def _entries_to_pb(entries: Iterable[RoutingEntry]) -> list[pb.RoutingEntry]:
    return [
        pb.RoutingEntry(from_slot=e.from_slot, block_slots=e.block_slots, shards=e.shards)
        for e in entries
    ]


def _entries_from_pb(messages: Iterable[pb.RoutingEntry]) -> list[RoutingEntry]:
    return [RoutingEntry(e.from_slot, e.block_slots, tuple(e.shards)) for e in messages]


# --- what steps carry -----------------------------------------------------------------------------


def _asked_to_pb(step: r.SlotsAsked) -> pb.SlotsAsked:
    return pb.SlotsAsked(version=step.version, shards=step.shards, evacuate=step.evacuate)


def _asked_from_pb(message: pb.SlotsAsked) -> r.SlotsAsked:
    return r.SlotsAsked(message.version, tuple(message.shards), message.evacuate)


def _highest_to_pb(step: r.HighestSlots) -> pb.HighestSlots:
    slots = [pb.HighestSlot(pipeline=name, slot=slot) for name, slot in step.slots]
    return pb.HighestSlots(version=step.version, slots=slots)


def _highest_from_pb(message: pb.HighestSlots) -> r.HighestSlots:
    return r.HighestSlots(message.version, tuple((s.pipeline, s.slot) for s in message.slots))


def pin_to_pb(pin: FrontPin) -> pb.PinRecord:
    return pb.PinRecord(
        node_id=pin.node_id,
        front=pin.front,
        slot=pin.slot,
        incarnation=pin.incarnation,
        number=pin.number,
    )


def pin_from_pb(p: pb.PinRecord) -> FrontPin:
    return FrontPin(p.node_id, p.front, p.slot, p.incarnation, p.number)


def node_to_pb(node: r.NodeSnapshot) -> pb.NodeSnapshot:
    return pb.NodeSnapshot(
        key=key_to_pb(node.key),
        kind=node.kind,
        durable=node.durable,
        previous_node_time=node.previous_node_time,
        evicted=node.evicted,
        batches=[batch_to_pb(batch) for batch in node.batches],
        retired=node.retired,
        consumes=node.consumes,
        creates=node.creates,
        owner=node.owner,
        grants=[pin_to_pb(grant) for grant in node.grants],
    )


def node_from_pb(n: pb.NodeSnapshot) -> r.NodeSnapshot:
    return r.NodeSnapshot(
        key_from_pb(n.key),
        n.kind,
        n.durable,
        n.previous_node_time,
        n.evicted,
        tuple(batch_from_pb(batch) for batch in n.batches),
        n.retired,
        tuple(n.consumes),
        tuple(n.creates),
        n.owner,
        tuple(pin_from_pb(grant) for grant in n.grants),
    )


def _nodes_to_pb(step: r.NodesMoved) -> pb.NodesMoved:
    message = pb.NodesMoved(
        version=step.version,
        pipeline=step.pipeline,
        home=step.home,
        nodes=[node_to_pb(node) for node in step.nodes],
    )
    if step.restart is not None:
        message.restart.CopyFrom(restart_to_pb(step.restart))
    for node_id, contribution in step.staged:
        message.staged.add(node_id=node_id, contribution=contribution_to_pb(contribution))
    return message


def _nodes_from_pb(message: pb.NodesMoved) -> r.NodesMoved:
    return r.NodesMoved(
        message.version,
        message.pipeline,
        message.home,
        restart_from_pb(message.restart) if message.HasField("restart") else None,
        tuple(node_from_pb(node) for node in message.nodes),
        tuple((s.node_id, contribution_from_pb(s.contribution)) for s in message.staged),
    )


def cell_to_pb(cell: WrittenOffCell) -> pb.WrittenOffSnapshot:
    return pb.WrittenOffSnapshot(
        segment=cell.segment,
        slot=cell.slot,
        checksum=cell.checksum,
        items=cell.items,
        node_id=cell.node_id,
        at_ms=cell.at_ms,
        came_back=cell.came_back,
        watched=cell.watched,
    )


def cell_from_pb(c: pb.WrittenOffSnapshot) -> WrittenOffCell:
    return WrittenOffCell(
        c.segment, c.slot, c.checksum, c.items, c.node_id, c.at_ms, c.came_back, c.watched
    )


def _cells_to_pb(step: r.CellsMoved) -> pb.CellsMoved:
    return pb.CellsMoved(
        version=step.version,
        pipeline=step.pipeline,
        generation=step.generation,
        cells=cells_to_pb(step.cells),
        units=[unit_to_pb(unit) for unit in step.units],
        written_off=[cell_to_pb(cell) for cell in step.written_off],
        consumed=[unit_to_pb(unit) for unit in step.consumed],
    )


def _cells_from_pb(message: pb.CellsMoved) -> r.CellsMoved:
    return r.CellsMoved(
        message.version,
        message.pipeline,
        message.generation,
        cells_from_pb(message.cells),
        tuple(unit_from_pb(unit) for unit in message.units),
        tuple(cell_from_pb(cell) for cell in message.written_off),
        tuple(unit_from_pb(unit) for unit in message.consumed),
    )


def late_to_pb(late: r.LateSnapshot) -> pb.LateSnapshot:
    return pb.LateSnapshot(
        segment=late.segment, items=late.items, cells=late.cells, last_slot=late.last_slot
    )


def late_from_pb(message: pb.LateSnapshot) -> r.LateSnapshot:
    return r.LateSnapshot(message.segment, message.items, message.cells, message.last_slot)


def _left_to_pb(step: r.ShardLeft) -> pb.ShardLeft:
    return pb.ShardLeft(
        applied=positions_to_pb(step.applied),
        pipelines=map(_words_to_pb, step.pipelines),
    )


def _left_from_pb(message: pb.ShardLeft) -> r.ShardLeft:
    return r.ShardLeft(
        positions_from_pb(message.applied), tuple(map(_words_from_pb, message.pipelines))
    )


def _words_to_pb(words: r.LastWords) -> pb.LastWords:
    message = pb.LastWords(
        pipeline=words.pipeline,
        said=words.said,
        late=[late_to_pb(late) for late in words.late],
        written_off_items=[
            pb.SegmentItems(segment=segment, items=items)
            for segment, items in words.written_off_items
        ],
    )
    if words.restart is not None:
        message.restart.CopyFrom(restart_to_pb(words.restart))
    return message


def _words_from_pb(words: pb.LastWords) -> r.LastWords:
    return r.LastWords(
        words.pipeline,
        restart_from_pb(words.restart) if words.HasField("restart") else None,
        tuple(words.said),
        tuple(late_from_pb(late) for late in words.late),
        tuple((i.segment, i.items) for i in words.written_off_items),
    )


# --- what a process has heard ---------------------------------------------------------------------


def membership_to_pb(known: Membership) -> pb.Membership:
    message = pb.Membership(
        table=table_to_pb(known.table),
        members=sorted(known.members),
        next_shard=known.next_shard,
        addresses=addresses_to_pb(known.addresses),
        former=positions_to_pb(tuple(known.former.items())),
        draining=sorted(known.draining),
        leaving=known.leaving,
    )
    if known.previous is not None:
        message.previous.CopyFrom(table_to_pb(known.previous))
    for shard, (address, number) in known.joining.items():
        message.joining.add(shard=shard, address=address, number=number)
    if known.asked is not None:
        message.asked.CopyFrom(_asked_to_pb(known.asked))
    for home, told in known.highest.items():
        message.highest.add(home=home, slots=_highest_to_pb(told))
    for version, homes in known.adopted.items():
        for home, number in homes.items():
            message.adopted.add(version=version, home=home, number=number)
    for version, shards in known.done.items():
        message.done.add(version=version, shards=sorted(shards))
    return message


def membership_from_pb(message: pb.Membership) -> Membership:
    """Raises Refused(INVALID) for a malformed table."""
    known = Membership(
        table_from_pb(message.table),
        set(message.members),
        table_from_pb(message.previous) if message.HasField("previous") else None,
        message.next_shard,
        {j.shard: (j.address, j.number) for j in message.joining},
        {a.shard: a.address for a in message.addresses},
        dict(positions_from_pb(message.former)),
        _asked_from_pb(message.asked) if message.HasField("asked") else None,
        {told.home: _highest_from_pb(told.slots) for told in message.highest},
        draining=set(message.draining),
        leaving=message.leaving if message.HasField("leaving") else None,
    )
    for told in message.adopted:
        known.adopted.setdefault(told.version, {})[told.home] = told.number
    for done in message.done:
        known.done[done.version] = set(done.shards)
    return known


def addresses_to_pb(addresses: dict[int, str]) -> list[pb.ShardAddress]:
    return [pb.ShardAddress(shard=s, address=a) for s, a in sorted(addresses.items())]
