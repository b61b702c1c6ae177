"""Between the contract's messages and the core's plain data: the only place that knows both.

Everything that comes from outside is checked here for form: packed arrays of unequal length or broken
size, unknown enum values and missing parts are refused before the core sees them. Whether it may be
honoured is the core's to judge.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acker.v1 import node_service_pb2 as node_pb
from acker.v1 import peer_service_pb2 as peer_pb
from acker.v1 import pipeline_service_pb2 as pipeline_pb
from acker.v1 import shards_pb2 as shards_pb
from acker.v1 import types_pb2 as pb
from tracker import convert_shards
from tracker.core import messages as m
from tracker.core.describe import (
    FrontDescription,
    NodeDescription,
    PipelineDescription,
    SegmentDescription,
)
from tracker.core.model import (
    Batch,
    Cells,
    Edge,
    FrontJoin,
    FrontPolicy,
    Heartbeat,
    Limits,
    NodeKey,
    PipelineSpec,
    Refusal,
    RefusalCode,
    Refused,
    SilentFront,
    StagedContribution,
    Tick,
    TickContent,
    TimeKind,
    Unit,
)
from tracker.core.slots import DEFAULT_SLACK_NS, LOWEST_SLOT
from tracker.core.waits import WaitCause, WaitKind

REFUSAL_KEY = "lowmark-refusal-bin"
"""Trailing metadata of a refused call: a serialised `Refusal`."""

_SILENT = {
    pb.SILENT_FRONT_UNSPECIFIED: SilentFront.HOLD,
    pb.SILENT_FRONT_HOLD: SilentFront.HOLD,
    pb.SILENT_FRONT_EVICT: SilentFront.EVICT,
}
_SILENT_OUT = {
    SilentFront.HOLD: pb.SILENT_FRONT_HOLD,
    SilentFront.EVICT: pb.SILENT_FRONT_EVICT,
}
_TIME = {
    pb.TIME_KIND_UNSPECIFIED: TimeKind.ARRIVAL,
    pb.TIME_KIND_ARRIVAL: TimeKind.ARRIVAL,
    pb.TIME_KIND_EVENT: TimeKind.EVENT,
    pb.TIME_KIND_NUMBER: TimeKind.NUMBER,
}
_TIME_OUT = {
    TimeKind.ARRIVAL: pb.TIME_KIND_ARRIVAL,
    TimeKind.EVENT: pb.TIME_KIND_EVENT,
    TimeKind.NUMBER: pb.TIME_KIND_NUMBER,
}


def _invalid(message: str) -> Refused:
    return Refused(RefusalCode.INVALID, message)


_I4, _I8, _U8 = np.dtype("<i4"), np.dtype("<i8"), np.dtype("<u8")

# --- cells ----------------------------------------------------------------------------------------


def cells_to_pb(cells: Cells) -> pb.Cells:
    """Packs the arrays as little-endian bytes."""
    message = pb.Cells()
    if len(cells):
        _pack(cells, message)
    return message


def _pack(cells: Cells, message: pb.Cells) -> None:
    message.segments = _bytes(cells.segments, _I4)
    message.slots = _bytes(cells.slots, _I8)
    message.checksums = _bytes(cells.checksums, _U8)
    message.counts = _bytes(cells.counts, _I8)


def _bytes(array: NDArray[Any], packed: np.dtype[Any]) -> bytes:
    if array.dtype is not packed:  # another number format, or an equal description of this one
        array = array.astype(packed, copy=False)
    return array.tobytes()


def cells_from_pb(cells: pb.Cells) -> Cells:
    """Reads packed arrays without a loop. Raises Refused(INVALID) if their lengths do not agree."""
    # Each access of a field copies its bytes.
    segments, slots = cells.segments, cells.slots
    checksums, counts = cells.checksums, cells.counts
    lengths = (len(segments), len(slots), len(checksums), len(counts))
    if not any(lengths):
        return Cells.empty()
    count = lengths[1] // 8
    if lengths != (4 * count, 8 * count, 8 * count, 8 * count):
        raise _invalid(
            f"packed cells of {lengths[0]} bytes of segments (4 each), {lengths[1]} of slots, "
            f"{lengths[2]} of checksums and {lengths[3]} of counts (8 each) are not four arrays of "
            "one length"
        )
    return Cells(
        np.frombuffer(segments, _I4),
        np.frombuffer(slots, _I8),
        np.frombuffer(checksums, _U8),
        np.frombuffer(counts, _I8),
    )


# --- keys, batches, units, ticks ------------------------------------------------------------------


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
    _write_content(content, message)
    return message


def _write_content(content: TickContent, message: pb.TickContent) -> None:
    if len(content.created):
        _pack(content.created, message.created)
    if len(content.consumed):
        _pack(content.consumed, message.consumed)
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


def content_from_pb(message: pb.TickContent) -> TickContent:
    """Raises Refused(INVALID) where packed cells are malformed."""
    # Most ticks have few of these: what is not there costs no loop.
    heartbeats, joins, leaves = message.heartbeats, message.joins, message.leaves
    created, consumed = message.units_created, message.units_consumed
    return TickContent(
        created=cells_from_pb(message.created) if message.HasField("created") else Cells.empty(),
        consumed=cells_from_pb(message.consumed) if message.HasField("consumed") else Cells.empty(),
        heartbeats=tuple([Heartbeat(h.front, h.slot) for h in heartbeats]) if heartbeats else (),
        joins=tuple([FrontJoin(j.front, j.segment) for j in joins]) if joins else (),
        leaves=tuple(leaves) if leaves else (),
        batch=batch_from_pb(message.batch) if message.HasField("batch") else None,
        units_created=tuple([unit_from_pb(unit) for unit in created]) if created else (),
        units_consumed=tuple([unit_from_pb(unit) for unit in consumed]) if consumed else (),
    )


# --- pipelines ------------------------------------------------------------------------------------


def spec_to_pb(spec: PipelineSpec) -> pb.PipelineSpec:
    return pb.PipelineSpec(
        name=spec.name,
        segments=spec.segments,
        edges=[pb.Edge(source=e.source, target=e.target, delay=e.delay) for e in spec.edges],
        fronts=spec.fronts,
        front_count=spec.front_count,
        open=spec.open,
        start_slot=spec.start_slot,
        slack_ns=spec.slack_ns,
        horizon_slots=spec.horizon_slots,
        silent_front=_SILENT_OUT[spec.silent_front],
        evict_after_ms=spec.evict_after_ms,
        max_open_cells=spec.max_open_cells,
        max_open_units=spec.max_open_units,
        max_nodes=spec.max_nodes,
        max_staged=spec.max_staged,
        front_policies=[
            pb.FrontPolicy(
                front=policy.front,
                silent_front=_SILENT_OUT[policy.silent_front],
                evict_after_ms=policy.evict_after_ms,
            )
            for policy in spec.front_policies
        ],
        time=_TIME_OUT[spec.time],
        lateness_slots=spec.lateness_slots,
    )


def spec_from_pb(message: pb.PipelineSpec) -> PipelineSpec:
    """A pipeline; limits that are 0 take their defaults. Raises Refused(INVALID)."""
    if message.silent_front not in _SILENT:
        raise _invalid(f"pipeline {message.name!r}: silent_front {message.silent_front} is unknown")
    for policy in message.front_policies:
        if policy.silent_front not in _SILENT:
            raise _invalid(
                f"pipeline {message.name!r}: silent_front {policy.silent_front} of front "
                f"{policy.front!r} is unknown"
            )
    if message.time not in _TIME:
        raise _invalid(f"pipeline {message.name!r}: time {message.time} is unknown")
    limits = {
        name: getattr(message, name)
        for name in (
            "horizon_slots",
            "max_open_cells",
            "max_open_units",
            "max_nodes",
            "max_staged",
        )
        if getattr(message, name)
    }
    return PipelineSpec(
        name=message.name,
        segments=tuple(message.segments),
        edges=tuple(Edge(e.source, e.target, e.delay) for e in message.edges),
        fronts=tuple(message.fronts),
        front_count=message.front_count,
        open=message.open,
        start_slot=message.start_slot,
        slack_ns=message.slack_ns or DEFAULT_SLACK_NS,
        silent_front=_SILENT[message.silent_front],
        evict_after_ms=message.evict_after_ms,
        front_policies=tuple(
            FrontPolicy(p.front, _SILENT[p.silent_front], p.evict_after_ms)
            for p in message.front_policies
        ),
        time=_TIME[message.time],
        lateness_slots=message.lateness_slots,
        **limits,
    )


def state_to_pb(state: PipelineDescription) -> pipeline_pb.PipelineState:
    message = pipeline_pb.PipelineState(
        min_time=state.min_time,
        complete=state.complete,
        begun=state.begun,
        late_items=state.late_items,
        written_off_items=state.written_off_items,
        generation=state.generation,
    )
    for segment in state.segments:
        message.segments.add(
            segment=segment.segment,
            min_time=segment.min_time,
            low=segment.low,
            open_slots=segment.open_slots,
            open_items=segment.open_items,
        )
    for front in state.fronts:
        message.fronts.add(
            node_id=front.node_id,
            front=front.front,
            segment=front.segment,
            heartbeat=front.heartbeat,
            silent_ms=front.silent_ms,
            settled=front.settled,
        )
    for node in state.nodes:
        message.nodes.add(key=key_to_pb(node.key), node_time=node.node_time)
    return message


def state_from_pb(message: pipeline_pb.PipelineState) -> PipelineDescription:
    return PipelineDescription(
        min_time=message.min_time,
        complete=message.complete,
        begun=message.begun,
        segments=tuple(
            SegmentDescription(s.segment, s.min_time, s.low, s.open_slots, s.open_items)
            for s in message.segments
        ),
        fronts=tuple(
            FrontDescription(f.node_id, f.front, f.segment, f.heartbeat, f.silent_ms, f.settled)
            for f in message.fronts
        ),
        nodes=tuple(NodeDescription(key_from_pb(n.key), n.node_time) for n in message.nodes),
        late_items=message.late_items,
        written_off_items=message.written_off_items,
        generation=message.generation,
    )


# --- nodes ----------------------------------------------------------------------------------------


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


def limits_to_pb(limits: Limits) -> pb.PipelineLimits:
    return pb.PipelineLimits(**asdict(limits))


def limits_from_pb(message: pb.PipelineLimits) -> Limits:
    return Limits(
        message.horizon_slots,
        message.max_open_cells,
        message.max_open_units,
        message.max_nodes,
        message.max_staged,
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


def contribution_to_pb(contribution: StagedContribution) -> pb.StagedContribution:
    c = contribution
    return pb.StagedContribution(
        query=c.query,
        run=c.run,
        batch=c.batch,
        execution=c.execution,
        operator=c.operator,
        stage=c.stage,
        partition=c.partition,
        attempt=c.attempt,
        created=cells_to_pb(c.created),
        consumed=cells_to_pb(c.consumed),
    )


def contribution_from_pb(message: pb.StagedContribution) -> StagedContribution:
    """Raises Refused(INVALID) where packed cells are malformed."""
    return StagedContribution(
        message.query,
        message.run,
        message.batch,
        message.execution,
        message.operator,
        message.stage,
        message.partition,
        message.attempt,
        cells_from_pb(message.created),
        cells_from_pb(message.consumed),
    )


def refusal_to_pb(refusal: Refusal, home_address: str = "") -> pb.Refusal:
    return pb.Refusal(
        code=refusal.code.value,
        message=refusal.message,
        home=refusal.home,
        home_address=home_address,
        expected=refusal.expected,
    )


def refusal_from_pb(message: pb.Refusal) -> Refusal:
    """A refusal; a code that this version does not know reads as INVALID."""
    try:
        code = RefusalCode(message.code)
    except ValueError:
        code = RefusalCode.INVALID
    return Refusal(code, message.message, message.home, message.expected)


# --- entries and frames ---------------------------------------------------------------------------


def entry_to_pb(entry: m.Entry) -> peer_pb.Entry:
    match entry:
        case m.KeyTick(tick, late):
            message = peer_pb.Entry()
            _write_tick(tick, late, message)
            return message
        case m.KeyOpened(pipeline, key, kind, restart, owner):
            opened = peer_pb.KeyOpened(
                pipeline=pipeline, key=key_to_pb(key), kind=kind, owner=owner
            )
            if restart is not None:
                opened.restart.CopyFrom(restart_to_pb(restart))
            return peer_pb.Entry(opened=opened)
        case m.KeyClosed(pipeline, key, last, evicted, retired):
            closed = peer_pb.KeyClosed(
                pipeline=pipeline,
                key=key_to_pb(key),
                last_number=last,
                evicted=evicted,
                retired=retired,
            )
            return peer_pb.Entry(closed=closed)
        case m.KeyDropped(pipeline, key):
            return peer_pb.Entry(dropped=peer_pb.KeyDropped(pipeline=pipeline, key=key_to_pb(key)))
        case m.WrittenOff(pipeline, node_id, cells, at_ms, generation):
            written_off = peer_pb.WrittenOff(
                pipeline=pipeline,
                node_id=node_id,
                cells=cells_to_pb(cells),
                at_ms=at_ms,
                generation=generation,
            )
            return peer_pb.Entry(written_off=written_off)
        case m.LimitsChanged(pipeline, number, limits):
            changed = peer_pb.LimitsChanged(
                pipeline=pipeline, number=number, limits=limits_to_pb(limits)
            )
            return peer_pb.Entry(limits_changed=changed)
        case m.PipelineRestarted(pipeline, restart):
            restarted = peer_pb.PipelineRestarted(pipeline=pipeline, restart=restart_to_pb(restart))
            return peer_pb.Entry(restarted=restarted)
        case m.PipelineCompleted(pipeline, generation, at_ms):
            completed = peer_pb.PipelineCompleted(
                pipeline=pipeline, generation=generation, at_ms=at_ms
            )
            return peer_pb.Entry(completed=completed)
        case m.PipelineRegistered(spec):
            return peer_pb.Entry(register=spec_to_pb(spec))
        case _:
            return peer_pb.Entry(step=convert_shards.step_to_pb(entry))


def write_entry(entry: m.Entry, message: peer_pb.Entry) -> None:
    """Writes an entry into a message that is a part of another one: a tick without a copy in between."""
    if isinstance(entry, m.KeyTick):
        _write_tick(entry.tick, entry.late, message)
    else:
        message.CopyFrom(entry_to_pb(entry))


def _write_tick(tick: Tick, late: Cells, message: peer_pb.Entry) -> None:
    written = message.tick
    written.pipeline = tick.pipeline
    written.key.node_id = tick.key.node_id
    written.key.incarnation = tick.key.incarnation
    written.number = tick.number
    written.content.SetInParent()
    _write_content(tick.content, written.content)
    if len(late):
        _pack(late, written.late)


def entry_from_pb(message: peer_pb.Entry) -> m.Entry:
    """Raises Refused(INVALID) for an entry that says nothing or is malformed."""
    match message.WhichOneof("entry"):
        case "tick":
            t = message.tick
            tick = Tick(t.pipeline, key_from_pb(t.key), t.number, content_from_pb(t.content))
            return m.KeyTick(tick, cells_from_pb(t.late))
        case "opened":
            o = message.opened
            restart = restart_from_pb(o.restart) if o.HasField("restart") else None
            return m.KeyOpened(o.pipeline, key_from_pb(o.key), o.kind, restart, o.owner)
        case "closed":
            c = message.closed
            return m.KeyClosed(c.pipeline, key_from_pb(c.key), c.last_number, c.evicted, c.retired)
        case "dropped":
            return m.KeyDropped(message.dropped.pipeline, key_from_pb(message.dropped.key))
        case "written_off":
            w = message.written_off
            cells = cells_from_pb(w.cells)
            return m.WrittenOff(w.pipeline, w.node_id, cells, w.at_ms, w.generation)
        case "restarted":
            begun = restart_from_pb(message.restarted.restart)
            return m.PipelineRestarted(message.restarted.pipeline, begun)
        case "completed":
            done = message.completed
            return m.PipelineCompleted(done.pipeline, done.generation, done.at_ms)
        case "limits_changed":
            changed = message.limits_changed
            limits = limits_from_pb(changed.limits)
            return m.LimitsChanged(changed.pipeline, changed.number, limits)
        case "register":
            return m.PipelineRegistered(spec_from_pb(message.register))
        case "step":
            return convert_shards.step_from_pb(message.step)
    raise _invalid("an entry of a home log says nothing; is the other process of a newer version?")


def restart_to_pb(restart: m.Restart) -> shards_pb.Restart:
    return shards_pb.Restart(
        generation=restart.generation, from_slot=restart.from_slot, at_ms=restart.at_ms
    )


def restart_from_pb(message: shards_pb.Restart) -> m.Restart:
    """Raises Refused(INVALID) for a generation that cannot begin by a restart."""
    if message.generation < 1:
        raise _invalid(f"a restart begins generation {message.generation}; they count from 1")
    return m.Restart(message.generation, message.from_slot, message.at_ms)


def frame_to_pb(frame: m.Frame) -> peer_pb.ExchangeRequest:
    message = peer_pb.ExchangeRequest()
    write_frame(frame, message)
    return message


def write_frame(frame: m.Frame, message: peer_pb.ExchangeRequest) -> None:
    """Writes a frame into an empty message."""
    message.from_shard, message.epoch = frame.shard, frame.epoch
    body = frame.body
    match body:
        case m.Entries():
            message.entries.first = body.first
            for entry in body.entries:
                write_entry(entry, message.entries.entries.add())
        case m.EntriesReceived():
            message.received.number = body.number
            message.received.again = body.again
        case m.ShardReport():
            message.report.CopyFrom(_report_to_pb(body))
        case m.ReportWanted():
            message.report_wanted.SetInParent()


def frame_from_pb(message: peer_pb.ExchangeRequest) -> m.Frame:
    """Raises Refused(INVALID) for a frame that says nothing or is malformed."""
    body: m.FrameBody
    match message.WhichOneof("frame"):
        case "entries":
            entries = tuple(entry_from_pb(entry) for entry in message.entries.entries)
            body = m.Entries(message.entries.first, entries)
        case "received":
            body = m.EntriesReceived(message.received.number, message.received.again)
        case "report":
            body = _report_from_pb(message.report)
        case "report_wanted":
            body = m.ReportWanted()
        case _:
            raise _invalid("a frame says nothing; is the other process of a newer version?")
    return m.Frame(message.from_shard, message.epoch, body)


def positions_to_pb(positions: Iterable[tuple[int, int]]) -> list[shards_pb.HomePosition]:
    return [shards_pb.HomePosition(home=home, number=number) for home, number in positions]


def positions_from_pb(positions: Iterable[shards_pb.HomePosition]) -> tuple[tuple[int, int], ...]:
    return tuple((p.home, p.number) for p in positions)


def slots_to_pb(slots: Iterable[tuple[int, int]]) -> list[peer_pb.SegmentSlot]:
    return [peer_pb.SegmentSlot(segment=segment, slot=slot) for segment, slot in slots]


def slots_from_pb(slots: Iterable[peer_pb.SegmentSlot]) -> tuple[tuple[int, int], ...]:
    return tuple((s.segment, s.slot) for s in slots)


def run_to_pb(run: m.TouchedRun) -> peer_pb.TouchedRun:
    return peer_pb.TouchedRun(home=run.home, last=run.last, touched=slots_to_pb(run.touched))


def run_from_pb(run: peer_pb.TouchedRun) -> m.TouchedRun:
    return m.TouchedRun(run.home, run.last, slots_from_pb(run.touched))


def _report_to_pb(report: m.ShardReport) -> peer_pb.ShardReport:
    return peer_pb.ShardReport(
        number=report.number,
        whole=report.whole,
        applied=positions_to_pb(report.applied),
        cut=positions_to_pb(report.cut),
        pipelines=[_pipeline_report_to_pb(pipeline) for pipeline in report.pipelines],
    )


def _report_from_pb(message: peer_pb.ShardReport) -> m.ShardReport:
    return m.ShardReport(
        message.number,
        message.whole,
        positions_from_pb(message.applied),
        tuple(_pipeline_report_from_pb(pipeline) for pipeline in message.pipelines),
        positions_from_pb(message.cut),
    )


def _pipeline_report_to_pb(report: m.PipelineReport) -> peer_pb.PipelineReport:
    message = peer_pb.PipelineReport(
        pipeline=report.pipeline,
        runs=[run_to_pb(run) for run in report.runs],
        announced=slots_to_pb(report.announced),
        generation=report.generation,
    )
    for low in report.lows:
        message.lows.add(
            segment=low.segment,
            slot=low.slot,
            open_slots=low.open_slots,
            open_items=low.open_items,
            late_items=low.late_items,
            written_off_items=low.written_off_items,
        )
    for front in report.fronts:
        message.fronts.add(
            node_id=front.node_id,
            front=front.front,
            segment=front.segment,
            pin=front.pin,
            heartbeat=front.heartbeat,
            incarnation=front.incarnation,
            number=front.number,
        )
    for node_id, name, incarnation, number in report.left:
        message.left.add(node_id=node_id, front=name, incarnation=incarnation, number=number)
    return message


def _pipeline_report_from_pb(message: peer_pb.PipelineReport) -> m.PipelineReport:
    return m.PipelineReport(
        pipeline=message.pipeline,
        lows=tuple(
            m.SegmentLow(
                low.segment,
                low.slot,
                low.open_slots,
                low.open_items,
                low.late_items,
                low.written_off_items,
            )
            for low in message.lows
        ),
        fronts=tuple(
            m.FrontReport(
                f.node_id, f.front, f.segment, f.pin, f.heartbeat, f.incarnation, f.number
            )
            for f in message.fronts
        ),
        left=tuple(
            (left.node_id, left.front, left.incarnation, left.number) for left in message.left
        ),
        runs=tuple(run_from_pb(run) for run in message.runs),
        announced=slots_from_pb(message.announced),
        generation=message.generation,
    )
