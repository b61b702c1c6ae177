"""Entries of home logs."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from acker.v1 import peer_service_pb2 as peer_pb
from tracker.core import log as m
from tracker.core.model import Cells, Heartbeat, NodeKey, Tick
from tracker.wire.cells import CELLS, cells_from_pb, write_cells
from tracker.wire.codec import Codec, bare, choice, derived
from tracker.wire.framing import mark_of, number_bytes
from tracker.wire.pipelines import SPEC
from tracker.wire.placements import GROUP, PLACEMENT
from tracker.wire.shards import RESTART, STEP
from tracker.wire.ticks import KEY, content_from_pb, key_from_pb, key_to_pb, write_content

MAX_KNOWN_KEYS = 4_096
"""Keys of nodes for which the beginning of their ticks is kept as bytes, those used last."""


def _write_tick(tick: Tick, late: Cells, written: peer_pb.KeyTick) -> None:
    written.pipeline = tick.pipeline
    written.key.node_id = tick.key.node_id
    written.key.incarnation = tick.key.incarnation
    written.number = tick.number
    written.content.SetInParent()
    write_content(tick.content, written.content)
    if len(late):
        write_cells(late, written.late)


_NUMBER, _CONTENT = (mark_of(peer_pb.KeyTick, field) for field in ("number", "content"))
_TICK = mark_of(peer_pb.Entry, "tick")


@lru_cache(maxsize=MAX_KNOWN_KEYS)
def _whose(pipeline: str, node_id: str, incarnation: int) -> bytes:
    """What every tick of a key begins with, and the mark of its number behind it."""
    key = key_to_pb(NodeKey(node_id, incarnation))
    return peer_pb.KeyTick(pipeline=pipeline, key=key).SerializeToString() + _NUMBER


def told_entry(entry: m.Entry) -> bytes | None:
    """The bytes of an entry that holds a tick as it was told, and nothing beside; None of any other."""
    if not isinstance(entry, m.KeyTick) or entry.tick.content.told is None or entry.late.size:
        return None
    tick, content = entry.tick, entry.tick.content.told
    whose = _whose(tick.pipeline, tick.key.node_id, tick.key.incarnation)
    number, length = number_bytes(tick.number), number_bytes(len(content))
    size = len(whose) + len(number) + len(_CONTENT) + len(length) + len(content)
    return b"".join((_TICK, number_bytes(size), whose, number, _CONTENT, length, content))


def _tick_to_pb(entry: m.KeyTick) -> peer_pb.KeyTick:
    message = peer_pb.KeyTick()
    _write_tick(entry.tick, entry.late, message)
    return message


def _tick_from_pb(t: peer_pb.KeyTick) -> m.KeyTick:
    tick = Tick(t.pipeline, key_from_pb(t.key), t.number, content_from_pb(t.content))
    return m.KeyTick(tick, cells_from_pb(t.late))


def _write_run(run: m.TickRun, message: peer_pb.TickRun) -> None:
    message.count = run.count
    for progress in run.keys:
        key = message.keys.add(pipeline=progress.pipeline, number=progress.number)
        key.key.node_id, key.key.incarnation = progress.key.node_id, progress.key.incarnation
        for heartbeat in progress.heartbeats:
            key.heartbeats.add(front=heartbeat.front, slot=heartbeat.slot)
    for columns in run.columns:
        _write_columns(columns, message.columns.add())
    for place, part in run.parts:
        written = message.parts.add(place=place)
        _write_tick(part.tick, part.late, written.tick)


def _write_columns(columns: m.TickColumns, message: peer_pb.TickColumns) -> None:
    message.pipeline = columns.pipeline
    message.places.extend(columns.places)
    message.keys.extend(columns.keys)
    message.numbers.extend(columns.numbers)
    message.created_ends.extend(columns.created_ends)
    message.consumed_ends.extend(columns.consumed_ends)
    if len(columns.created):
        write_cells(columns.created, message.created)
    if len(columns.consumed):
        write_cells(columns.consumed, message.consumed)


def _columns_from_pb(columns: peer_pb.TickColumns) -> m.TickColumns:
    return m.TickColumns(
        columns.pipeline,
        tuple(columns.places),
        tuple(columns.keys),
        tuple(columns.numbers),
        cells_from_pb(columns.created),
        tuple(columns.created_ends),
        cells_from_pb(columns.consumed),
        tuple(columns.consumed_ends),
    )


def _run_to_pb(run: m.TickRun) -> peer_pb.TickRun:
    message = peer_pb.TickRun()
    _write_run(run, message)
    return message


def _run_from_pb(run: peer_pb.TickRun) -> m.TickRun:
    return m.TickRun(
        run.count,
        tuple(
            [
                m.KeyProgress(
                    each.pipeline,
                    key_from_pb(each.key),
                    each.number,
                    tuple([Heartbeat(h.front, h.slot) for h in each.heartbeats]),
                )
                for each in run.keys
            ]
        ),
        tuple([_columns_from_pb(columns) for columns in run.columns]),
        tuple([(part.place, _tick_from_pb(part.tick)) for part in run.parts]),
    )


_EMPTY = "an entry of a home log says nothing; is the other process of a newer version?"
_ARMS: dict[str, Codec[Any, Any]] = {
    "register": derived(m.PipelineRegistered, peer_pb.PipelineRegistered, SPEC, RESTART),
    "opened": derived(m.KeyOpened, peer_pb.KeyOpened, KEY, RESTART),
    "tick": Codec(m.KeyTick, peer_pb.KeyTick, _tick_to_pb, _tick_from_pb),
    "closed": derived(m.KeyClosed, peer_pb.KeyClosed, KEY),
    "dropped": derived(m.KeyDropped, peer_pb.KeyDropped, KEY),
    "written_off": derived(m.WrittenOff, peer_pb.WrittenOff, CELLS),
    "restarted": derived(m.PipelineRestarted, peer_pb.PipelineRestarted, RESTART),
    "step": STEP,
    "changed": derived(m.PipelineChanged, peer_pb.PipelineChanged, SPEC),
    "completed": derived(m.PipelineCompleted, peer_pb.PipelineCompleted),
    "deleted": derived(m.PipelineDeleted, peer_pb.PipelineDeleted, RESTART),
    "over": derived(m.PipelinesOver, peer_pb.PipelinesOver),
    "placed": bare(m.Placed, PLACEMENT),
    "group_known": bare(m.GroupKnown, GROUP),
}
ENTRY: Codec[m.Entry, peer_pb.Entry] = choice(m.Entry, peer_pb.Entry, "entry", _EMPTY, **_ARMS)
"""Of a process's own log."""
_RUN = Codec(m.TickRun, peer_pb.TickRun, _run_to_pb, _run_from_pb)
TOLD: Codec[m.Told, peer_pb.Entry] = choice(
    m.Told, peer_pb.Entry, "entry", _EMPTY, **_ARMS, run=_RUN
)
"""As another home tells it."""
entry_to_pb, entry_from_pb = TOLD.to_pb, TOLD.from_pb


def write_entry(entry: m.Told, message: peer_pb.Entry) -> None:
    """Writes an entry into a message that is a part of another one: ticks without a copy in between."""
    if isinstance(entry, m.KeyTick):
        _write_tick(entry.tick, entry.late, message.tick)
    elif isinstance(entry, m.TickRun):
        _write_run(entry, message.run)
    else:
        message.CopyFrom(entry_to_pb(entry))
