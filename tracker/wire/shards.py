"""The messages by which shards come and go: the core's steps, tables, and snapshots of nodes."""

from __future__ import annotations

from acker.v1 import pipeline_service_pb2 as pipeline_pb
from acker.v1 import shards_pb2 as pb
from tracker.core.insight.describe import ShardDescription, ShardRole
from tracker.core.log import losses as x
from tracker.core.log import steps as r
from tracker.core.membership.loss import Loss
from tracker.core.membership.membership import Membership
from tracker.core.model import DroppedCells, FrontPin, Held, Restart, WrittenOffCell
from tracker.core.model.levels import OLDEST_LEVEL
from tracker.core.model.nodes import NodeSnapshot
from tracker.core.model.routing import RoutingRule, RoutingTable
from tracker.wire.cells import CELLS
from tracker.wire.codec import Codec, bare, choice, derived
from tracker.wire.pipelines import SPEC
from tracker.wire.placements import PLACEMENT
from tracker.wire.refusals import invalid
from tracker.wire.ticks import BATCH, CONTRIBUTION, HELD, KEY, UNIT

# --- what people are shown ------------------------------------------------------------------------


def _role_from_pb(role: pipeline_pb.ShardRole.ValueType) -> ShardRole:
    """What this version does not know, a process of another one has reported: it counts as an owner."""
    name = pipeline_pb.ShardRole.Name(role).removeprefix("SHARD_ROLE_")
    return ShardRole.__members__.get(name, ShardRole.OWNER)


def shard_to_pb(shard: ShardDescription, address: str, release: str = "") -> pipeline_pb.ShardState:
    return pipeline_pb.ShardState(
        shard=shard.shard,
        address=address,
        connected=shard.connected,
        entries_behind=shard.entries_behind,
        role=pipeline_pb.ShardRole.Value(f"SHARD_ROLE_{shard.role.name}"),
        open_slots=shard.open_slots,
        speaks=shard.speaks,
        release=release,
    )


def shard_from_pb(s: pipeline_pb.ShardState) -> ShardDescription:
    role = _role_from_pb(s.role)
    return ShardDescription(
        s.shard, s.connected, s.entries_behind, role, s.open_slots, s.speaks, s.release
    )


# --- feature levels ---------------------------------------------------------------------------------


def level_from_pb(level: int) -> int:
    """A feature level as a process states it: releases from before there were such levels state none."""
    return max(level, OLDEST_LEVEL)


# --- restarts and tables --------------------------------------------------------------------------

_RESTART = derived(Restart, pb.Restart)


def _restart_from_pb(message: pb.Restart) -> Restart:
    if message.generation < 1:
        raise invalid(f"a restart begins generation {message.generation}; they count from 1")
    return _RESTART.from_pb(message)


RESTART = Codec(Restart, pb.Restart, _RESTART.to_pb, _restart_from_pb)
_RULE = derived(RoutingRule, pb.RoutingEntry)


def _table_to_pb(table: RoutingTable) -> pb.RoutingTable:
    return pb.RoutingTable(
        version=table.version,
        entries=map(_RULE.to_pb, table.entries),
        pipelines=[
            pb.PipelineRouting(pipeline=name, entries=map(_RULE.to_pb, entries))
            for name, entries in table.pipelines.items()
        ],
    )


def _table_from_pb(message: pb.RoutingTable) -> RoutingTable:
    """Raises Refused(INVALID) for a table that leaves slots without an owner."""
    try:
        return RoutingTable(
            map(_RULE.from_pb, message.entries),
            version=message.version,
            pipelines={p.pipeline: map(_RULE.from_pb, p.entries) for p in message.pipelines},
        )
    except ValueError as error:
        raise invalid(f"a routing table is malformed: {error}") from None


TABLE = Codec(RoutingTable, pb.RoutingTable, _table_to_pb, _table_from_pb)

# --- steps, and what they carry -------------------------------------------------------------------

PIN = derived(FrontPin, pb.PinRecord)
NODE = derived(NodeSnapshot, pb.NodeSnapshot, KEY, BATCH, PIN, HELD)
WRITTEN_OFF = derived(WrittenOffCell, pb.WrittenOffSnapshot)
LATE = derived(r.LateEntry, pb.LateSnapshot)
DROPPED = derived(DroppedCells, pb.DroppedSnapshot)
HELD_BY_LOSS = derived(Held, pb.HeldSnapshot, DROPPED)
_DECLARED = derived(x.LossDeclared, pb.LossDeclared)
_KNOWN = derived(x.PipelineKnown, pb.PipelineKnown, SPEC, RESTART, DROPPED)
_MOVE = derived(x.Move, pb.Move)
_SHARDS_KNOWN = derived(x.ShardsKnown, pb.ShardsKnown, _MOVE)
_WITHOUT_LOST = derived(x.WithoutLost, pb.WithoutLost, TABLE, _MOVE)
_SUMMARY = derived(r.DepartureSummary, pb.LastWords, RESTART, LATE, announced="said")
_ASKED = derived(r.RescaleProposed, pb.SlotsAsked)
_HIGHEST = derived(r.SlotBounds, pb.HighestSlots)

STEP = choice(
    r.MembershipStep,
    pb.ShardStep,
    "step",
    "a step of shards says nothing; is the other process of a newer version?",
    joining=derived(r.ShardJoining, pb.ShardJoining),
    joined=bare(r.ShardJoined, int),
    removed=bare(r.ShardRemoved, int),
    slots_asked=_ASKED,
    highest_slots=_HIGHEST,
    changed=bare(r.RoutingChanged, TABLE),
    nodes_moved=derived(r.NodesMoved, pb.NodesMoved, RESTART, NODE, CONTRIBUTION),
    adopted=derived(r.RoutingActivated, pb.RoutingAdopted),
    cells_moved=derived(r.CellsMoved, pb.CellsMoved, CELLS, UNIT, WRITTEN_OFF),
    done=bare(r.HandoverFinished, int),
    leaving=bare(r.ShardLeaving, int),
    said=derived(r.DepartureSummarized, pb.ShardSaid, _SUMMARY),
    left=derived(r.ShardLeft, pb.ShardLeft, _SUMMARY),
    sequencer_moved=derived(r.SequencerMoved, pb.SequencerMoved),
    sequencer_begun=derived(r.SequencerBegun, pb.SequencerBegun),
    level_raised=derived(r.FeatureLevelRaised, pb.FeatureLevelRaised),
    loss_declared=_DECLARED,
    loss_heard=derived(x.LossHeard, pb.LossHeard, _KNOWN, _SHARDS_KNOWN, PLACEMENT),
    lost=derived(x.ShardLost, pb.ShardLost, _KNOWN, _WITHOUT_LOST, PLACEMENT),
    move_begun=derived(r.MoveBegun, pb.MoveBegun),
    move_ready=derived(r.MoveReady, pb.MoveReady),
    move_ended=derived(r.MoveEnded, pb.MoveEnded),
)

# --- what a process has heard ---------------------------------------------------------------------


def _loss_to_pb(loss: Loss) -> pb.Loss:
    message = pb.Loss(
        declared=_DECLARED.to_pb(loss.declared),
        leader=loss.leader,
        number=loss.number,
        pipelines=map(_KNOWN.to_pb, loss.pipelines),
        placed=map(PLACEMENT.to_pb, loss.placed.values()),
        heard_before=sorted(loss.heard_before),
    )
    for home, (number, shards) in loss.heard.items():
        message.heard.add(home=home, number=number, shards=_SHARDS_KNOWN.to_pb(shards))
    for name, generation in loss.ended.items():
        message.ended.add(pipeline=name, generation=generation)
    return message


def _loss_from_pb(message: pb.Loss) -> Loss:
    return Loss(
        _DECLARED.from_pb(message.declared),
        message.leader,
        message.number,
        {h.home: (h.number, _SHARDS_KNOWN.from_pb(h.shards)) for h in message.heard},
        [*map(_KNOWN.from_pb, message.pipelines)],
        {each.pipeline: each.generation for each in message.ended},
        {each.pipeline: PLACEMENT.from_pb(each) for each in message.placed},
        frozenset(message.heard_before),
    )


def _membership_to_pb(known: Membership) -> pb.Membership:
    message = pb.Membership(
        table=TABLE.to_pb(known.table),
        members=sorted(known.members),
        previous=None if known.previous is None else TABLE.to_pb(known.previous),
        next_shard=known.next_shard,
        asked=None if known.asked is None else _ASKED.to_pb(known.asked),
        draining=sorted(known.draining),
        leaving=known.leaving,
        sequencer=known.sequencer,
        moves=known.moves,
        begun=known.begun,
        level=known.level if known.level > OLDEST_LEVEL else 0,
        loss=None if known.loss is None else _loss_to_pb(known.loss),
        moving=map(_MOVE.to_pb, known.moving.values()),
        moved=known.moved,
    )
    for shard, at_ms in known.lost.items():
        message.lost.add(shard=shard, at_ms=at_ms)
    for shard, (address, number) in known.joining.items():
        message.joining.add(shard=shard, address=address, number=number)
    for shard, address in sorted(known.addresses.items()):
        message.addresses.add(shard=shard, address=address)
    for home, number in known.former.items():
        message.former.add(home=home, number=number)
    for home, told in known.highest.items():
        message.highest.add(home=home, slots=_HIGHEST.to_pb(told))
    for version, homes in known.adopted.items():
        for home, number in homes.items():
            message.adopted.add(version=version, home=home, number=number)
    for version, shards in known.done.items():
        message.done.add(version=version, shards=sorted(shards))
    return message


def _membership_from_pb(message: pb.Membership) -> Membership:
    """Raises Refused(INVALID) for a malformed table."""
    known = Membership(
        TABLE.from_pb(message.table),
        set(message.members),
        TABLE.from_pb(message.previous) if message.HasField("previous") else None,
        message.next_shard,
        {j.shard: (j.address, j.number) for j in message.joining},
        {a.shard: a.address for a in message.addresses},
        {f.home: f.number for f in message.former},
        _ASKED.from_pb(message.asked) if message.HasField("asked") else None,
        {told.home: _HIGHEST.from_pb(told.slots) for told in message.highest},
        draining=set(message.draining),
        leaving=message.leaving if message.HasField("leaving") else None,
        sequencer=message.sequencer,
        moves=message.moves,
        begun=message.begun,
        level=level_from_pb(message.level),
        lost={each.shard: each.at_ms for each in message.lost},
        loss=_loss_from_pb(message.loss) if message.HasField("loss") else None,
        moved=message.moved,
        moving={each.pipeline: _MOVE.from_pb(each) for each in message.moving},
    )
    for told in message.adopted:
        known.adopted.setdefault(told.version, {})[told.home] = told.number
    for done in message.done:
        known.done[done.version] = set(done.shards)
    return known


MEMBERSHIP = Codec(Membership, pb.Membership, _membership_to_pb, _membership_from_pb)
