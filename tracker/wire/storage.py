"""Between stored bytes and the core's records and snapshots.

What is stored is a message and a checksum of it: a store may give back what a failing disk has changed,
and many a changed byte would still read as a message, of something that never happened.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

from google.protobuf.message import DecodeError

from acker.v1 import peer_service_pb2 as peer_pb
from acker.v1 import storage_pb2 as storage_pb
from acker.v1 import types_pb2 as pb
from tracker.core import messages as m
from tracker.core import snapshot as s
from tracker.core.model import FrontPin, RefusalCode, Refused
from tracker.core.pipeline import Dropped, DroppedCells
from tracker.core.vacancies import Vacancy
from tracker.wire.cells import cells_from_pb, cells_to_pb
from tracker.wire.entries import entry_from_pb, entry_to_pb, write_entry
from tracker.wire.frames import run_from_pb, run_to_pb, slots_from_pb, slots_to_pb
from tracker.wire.pipelines import limits_from_pb, limits_to_pb, spec_from_pb, spec_to_pb
from tracker.wire.shards import (
    cell_from_pb,
    cell_to_pb,
    late_from_pb,
    late_to_pb,
    membership_from_pb,
    membership_to_pb,
    node_from_pb,
    node_to_pb,
    pin_from_pb,
    pin_to_pb,
    positions_from_pb,
    positions_to_pb,
    restart_from_pb,
    restart_to_pb,
    table_from_pb,
    table_to_pb,
)
from tracker.wire.ticks import (
    contribution_from_pb,
    contribution_to_pb,
    key_from_pb,
    key_to_pb,
    unit_from_pb,
    unit_to_pb,
)

_CHECKSUM_BYTES = 4


def _sealed(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data + zlib.crc32(data).to_bytes(_CHECKSUM_BYTES, "little")


def _unsealed(message_type: Any, stored: bytes, what: str) -> Any:
    """The message that was stored; raises Refused(INVALID) naming `what` if these bytes never were."""
    data, checksum = stored[:-_CHECKSUM_BYTES], stored[-_CHECKSUM_BYTES:]
    if zlib.crc32(data).to_bytes(_CHECKSUM_BYTES, "little") != checksum:
        raise Refused(
            RefusalCode.INVALID,
            f"{what} of {len(stored)} bytes is not as it was written: its checksum differs",
        )
    try:
        return message_type.FromString(data)
    except DecodeError as error:
        raise Refused(
            RefusalCode.INVALID, f"{what} of {len(stored)} bytes cannot be read: {error}"
        ) from None


def record_to_bytes(record: m.Record) -> bytes:
    """A record of a shard's log as it is stored."""
    message = storage_pb.Record()
    match record:
        case m.HomeEntry():
            message.home.number = record.number
            write_entry(record.entry, message.home.entry)
        case m.ReceivedEntries():
            message.received.shard = record.shard
            message.received.first = record.first
            for entry in record.entries:
                write_entry(entry, message.received.entries.add())
        case m.Pinned():
            _pins_to_pb(record.pipeline, record.pins, record.generation, message.pinned)
        case m.FrontsGranted():
            _pins_to_pb(record.pipeline, record.grants, record.generation, message.granted)
        case m.Announcement():
            message.announcement.pipeline = record.pipeline
            message.announcement.generation = record.generation
            message.announcement.at_ms = record.at_ms
            message.announcement.min_times.extend(slots_to_pb(record.min_times))
        case m.Staged():
            message.staged.pipeline = record.pipeline
            message.staged.node_id = record.node_id
            message.staged.generation = record.generation
            message.staged.contributions.extend(contribution_to_pb(c) for c in record.contributions)
        case m.Swept():
            message.swept.pipeline = record.pipeline
            message.swept.segment = record.segment
            message.swept.below = record.below
            message.swept.generation = record.generation
    return _sealed(message)


def _pins_to_pb(
    pipeline: str, pins: Iterable[FrontPin], generation: int, message: storage_pb.PinnedRecord
) -> None:
    message.pipeline, message.generation = pipeline, generation
    message.pins.extend(pin_to_pb(pin) for pin in pins)


def _pins_from_pb(message: storage_pb.PinnedRecord) -> tuple[str, tuple[FrontPin, ...], int]:
    pins = tuple(pin_from_pb(pin) for pin in message.pins)
    return message.pipeline, pins, message.generation


def record_from_bytes(data: bytes) -> m.Record:
    """Raises Refused(INVALID) for bytes that are no record of this version."""
    message = _unsealed(storage_pb.Record, data, "a stored record")
    match message.WhichOneof("record"):
        case "home":
            return m.HomeEntry(message.home.number, entry_from_pb(message.home.entry))
        case "received":
            r = message.received
            entries = tuple(entry_from_pb(entry) for entry in r.entries)
            return m.ReceivedEntries(r.shard, r.first, entries)
        case "pinned":
            return m.Pinned(*_pins_from_pb(message.pinned))
        case "granted":
            return m.FrontsGranted(*_pins_from_pb(message.granted))
        case "announcement":
            a = message.announcement
            return m.Announcement(a.pipeline, slots_from_pb(a.min_times), a.generation, a.at_ms)
        case "staged":
            st = message.staged
            contributions = tuple(contribution_from_pb(c) for c in st.contributions)
            return m.Staged(st.pipeline, st.node_id, contributions, st.generation)
        case "swept":
            w = message.swept
            return m.Swept(w.pipeline, w.segment, w.below, w.generation)
    raise Refused(
        RefusalCode.INVALID,
        "a stored record says nothing that this version knows; was the store written by a newer one?",
    )


def snapshot_to_bytes(snapshot: s.ProcessSnapshot) -> bytes:
    """A process's snapshot as it is stored."""
    message = storage_pb.Snapshot(
        position=snapshot.position,
        home_last=snapshot.home_last,
        next_incarnation=snapshot.next_incarnation,
        outbox=[entry_to_pb(entry) for entry in snapshot.outbox],
        confirmed=positions_to_pb(snapshot.confirmed),
        received=positions_to_pb(snapshot.received),
        cut=positions_to_pb(snapshot.cut),
        pipelines=[_pipeline_to_pb(pipeline) for pipeline in snapshot.pipelines],
    )
    for number, pipeline, key in snapshot.closed:
        message.closed.add(number=number, pipeline=pipeline, key=key_to_pb(key))
    if snapshot.membership is not None:
        message.membership.CopyFrom(membership_to_pb(snapshot.membership))
    for first, table in snapshot.tables:
        message.tables.add(first=first, table=table_to_pb(table))
    return _sealed(message)


def snapshot_from_bytes(data: bytes) -> s.ProcessSnapshot:
    """Raises Refused(INVALID) for bytes that are no snapshot."""
    message = _unsealed(storage_pb.Snapshot, data, "a stored snapshot")
    return s.ProcessSnapshot(
        position=message.position,
        home_last=message.home_last,
        next_incarnation=message.next_incarnation,
        outbox=tuple(entry_from_pb(entry) for entry in message.outbox),
        confirmed=positions_from_pb(message.confirmed),
        received=positions_from_pb(message.received),
        closed=tuple((c.number, c.pipeline, key_from_pb(c.key)) for c in message.closed),
        cut=positions_from_pb(message.cut),
        pipelines=tuple(_pipeline_from_pb(pipeline) for pipeline in message.pipelines),
        membership=(
            membership_from_pb(message.membership) if message.HasField("membership") else None
        ),
        tables=tuple((t.first, table_from_pb(t.table)) for t in message.tables),
    )


def _pipeline_to_pb(pipeline: s.PipelineSnapshot) -> storage_pb.PipelineSnapshot:
    message = storage_pb.PipelineSnapshot(
        spec=spec_to_pb(pipeline.spec),
        said=pipeline.said,
        begun=pipeline.begun,
        joined=[peer_pb.FrontName(node_id=node, front=front) for node, front in pipeline.joined],
        cells=cells_to_pb(pipeline.cells),
        units=[unit_to_pb(unit) for unit in pipeline.units],
        runs=[run_to_pb(run) for run in pipeline.runs],
    )
    for key in pipeline.keys:
        message.keys.add(
            key=key_to_pb(key.key), kind=key.kind, number=key.number, closed=key.closed
        )
    for front in pipeline.fronts:
        message.fronts.add(
            node_id=front.node_id,
            front=front.front,
            segment=front.segment,
            incarnation=front.incarnation,
            number=front.number,
            pin=front.pin,
            promised=front.promised,
        )
    message.late.extend(late_to_pb(late) for late in pipeline.late)
    message.nodes.extend(node_to_pb(node) for node in pipeline.nodes)
    for node_id, contribution in pipeline.staged:
        message.staged.add(node_id=node_id, contribution=contribution_to_pb(contribution))
    message.written_off.extend(cell_to_pb(cell) for cell in pipeline.written_off)
    message.floors.extend(pipeline.floors)
    if pipeline.limits is not None:
        message.limits.CopyFrom(limits_to_pb(pipeline.limits))
        message.limits_number = pipeline.limits_number
    for segment, name in pipeline.early_units:
        message.early_units.add(segment=segment, name=name)
    for place in pipeline.vacancies:
        message.vacancies.add(node_id=place.node_id, front=place.front, segment=place.segment)
    for segment, slot in pipeline.left:
        message.left.add(segment=segment, slot=slot)
    message.reached.extend(pipeline.reached)
    for kept in pipeline.history:
        message.history.add(
            segment=kept.segment,
            tier=kept.tier,
            since=kept.since,
            slots=[slot for slot, _ in kept.steps],
            at_ms=[at_ms for _, at_ms in kept.steps],
        )
    for dropped in pipeline.restarts:
        begun = message.restarts.add(restart=restart_to_pb(dropped.restart), floor=dropped.floor)
        for lost in dropped.cells:
            begun.cells.add(
                segment=lost.segment,
                cells=lost.cells,
                items=lost.items,
                lowest=lost.lowest,
                highest=lost.highest,
            )
    for segment, items in pipeline.written_off_items:
        message.written_off_items.add(segment=segment, items=items)
    return message


def _pipeline_from_pb(message: storage_pb.PipelineSnapshot) -> s.PipelineSnapshot:
    return s.PipelineSnapshot(
        spec=spec_from_pb(message.spec),
        said=tuple(message.said),
        begun=message.begun,
        joined=tuple((front.node_id, front.front) for front in message.joined),
        cells=cells_from_pb(message.cells),
        keys=tuple(
            s.KeySnapshot(key_from_pb(k.key), k.kind, k.number, k.closed) for k in message.keys
        ),
        fronts=tuple(
            s.FrontSnapshot(
                f.node_id,
                f.front,
                f.segment,
                f.incarnation,
                f.number,
                f.pin if f.HasField("pin") else None,
                f.promised if f.HasField("promised") else None,
            )
            for f in message.fronts
        ),
        units=tuple(unit_from_pb(unit) for unit in message.units),
        late=tuple(late_from_pb(entry) for entry in message.late),
        runs=tuple(run_from_pb(run) for run in message.runs),
        nodes=tuple(node_from_pb(node) for node in message.nodes),
        staged=tuple(
            (staged.node_id, contribution_from_pb(staged.contribution)) for staged in message.staged
        ),
        written_off=tuple(cell_from_pb(cell) for cell in message.written_off),
        written_off_items=tuple((i.segment, i.items) for i in message.written_off_items),
        restarts=tuple(
            Dropped(
                restart_from_pb(begun.restart),
                begun.floor,
                tuple(
                    DroppedCells(c.segment, c.cells, c.items, c.lowest, c.highest)
                    for c in begun.cells
                ),
            )
            for begun in message.restarts
        ),
        reached=tuple(message.reached),
        history=tuple(_history_from_pb(kept, message.spec) for kept in message.history),
        floors=tuple(message.floors),
        early_units=tuple((unit.segment, unit.name) for unit in message.early_units),
        limits=limits_from_pb(message.limits) if message.HasField("limits") else None,
        limits_number=message.limits_number,
        vacancies=tuple(Vacancy(v.node_id, v.front, v.segment) for v in message.vacancies),
        left=tuple((left.segment, left.slot) for left in message.left),
    )


def _history_from_pb(
    message: storage_pb.HistorySnapshot, spec: pb.PipelineSpec
) -> s.HistorySnapshot:
    slots = list(message.slots)
    known = 0 <= message.segment < len(spec.segments) and message.tier in (0, 1)
    if not known or len(slots) != len(message.at_ms) or slots != sorted(slots):
        raise Refused(
            RefusalCode.INVALID,
            f"pipeline {spec.name!r}: its history of segment number {message.segment} is damaged",
        )
    steps = tuple(zip(slots, message.at_ms, strict=True))
    return s.HistorySnapshot(message.segment, message.tier, message.since, steps)
