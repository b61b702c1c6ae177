"""Entries of home logs."""

from __future__ import annotations

from acker.v1 import peer_service_pb2 as peer_pb
from tracker.core import messages as m
from tracker.core.model import Cells, Tick
from tracker.wire.cells import cells_from_pb, cells_to_pb, write_cells
from tracker.wire.pipelines import limits_from_pb, limits_to_pb, spec_from_pb, spec_to_pb
from tracker.wire.refusals import invalid
from tracker.wire.shards import restart_from_pb, restart_to_pb, step_from_pb, step_to_pb
from tracker.wire.ticks import content_from_pb, key_from_pb, key_to_pb, write_content


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
            return peer_pb.Entry(step=step_to_pb(entry))


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
    write_content(tick.content, written.content)
    if len(late):
        write_cells(late, written.late)


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
            return step_from_pb(message.step)
    raise invalid("an entry of a home log says nothing; is the other process of a newer version?")
