"""Between stored bytes and the core's records and snapshots.

What is stored is a message and a checksum of it: a store may give back what a failing disk has changed,
and many a changed byte would still read as a message, of something that never happened.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from acker.v1 import storage_pb2 as storage_pb
from tracker.core import log as m
from tracker.core.cut.history import HistorySnapshot
from tracker.core.model import Dropped, Vacancy
from tracker.core.model.durable import Snapshot
from tracker.core.pipeline.pipelines import Ended
from tracker.core.pipeline.snapshot import PipelineSnapshot
from tracker.core.process.snapshot import ProcessSnapshot
from tracker.core.shard.awaited import Former
from tracker.core.shard.shard import FrontState, KeyState
from tracker.wire.cells import CELLS
from tracker.wire.codec import Codec, choice, derived
from tracker.wire.entries import ENTRY, TOLD, told_entry, write_entry
from tracker.wire.frames import RUN
from tracker.wire.framing import mark_of, number_bytes
from tracker.wire.pipelines import EDGE, SPEC
from tracker.wire.placements import GROUP, PLACEMENT
from tracker.wire.refusals import invalid
from tracker.wire.shards import (
    DROPPED,
    HELD_BY_LOSS,
    LATE,
    MEMBERSHIP,
    NODE,
    PIN,
    RESTART,
    TABLE,
    WRITTEN_OFF,
)
from tracker.wire.ticks import CONTRIBUTION, KEY, UNIT

_CHECKSUM_BYTES = 4


def _sealed(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data + zlib.crc32(data).to_bytes(_CHECKSUM_BYTES, "little")


def _unsealed(message_type: Any, stored: bytes, what: str) -> Any:
    """The message that was stored; raises Refused(INVALID) naming `what` if these bytes never were."""
    data, checksum = stored[:-_CHECKSUM_BYTES], stored[-_CHECKSUM_BYTES:]
    if zlib.crc32(data).to_bytes(_CHECKSUM_BYTES, "little") != checksum:
        raise invalid(
            f"{what} of {len(stored)} bytes is not as it was written: its checksum differs"
        )
    try:
        return message_type.FromString(data)
    except DecodeError as error:
        raise invalid(f"{what} of {len(stored)} bytes cannot be read: {error}") from None


# --- pipelines ------------------------------------------------------------------------------------


def _second_differences(values: array[int]) -> list[int]:
    found: list[int] = np.diff(np.frombuffer(values, np.int64), 2, prepend=(0, 0)).tolist()
    return found


def _of_second_differences(differences: Sequence[int]) -> array[int]:
    return array("q", np.cumsum(np.cumsum(np.array(differences, np.int64))).tobytes())


def _history_to_pb(kept: HistorySnapshot) -> storage_pb.HistorySnapshot:
    return storage_pb.HistorySnapshot(
        segment=kept.segment,
        tier=kept.tier,
        since=kept.since,
        slots=_second_differences(kept.slots),
        at_ms=_second_differences(kept.at_ms),
    )


def _history_from_pb(kept: storage_pb.HistorySnapshot) -> HistorySnapshot:
    slots, at_ms = map(_of_second_differences, (kept.slots, kept.at_ms))
    return HistorySnapshot(kept.segment, kept.tier, kept.since, slots, at_ms)


PIPELINE_FIELDS = {"published": "said", "durable": "reached", "departed_floors": "floors"}
"""By the core's names of what is saved of a pipeline, those in the message that differ."""
_PIPELINE = derived(
    PipelineSnapshot,
    storage_pb.PipelineSnapshot,
    CELLS, CONTRIBUTION, EDGE, LATE, NODE, RUN, SPEC, UNIT, WRITTEN_OFF,
    derived(KeyState, storage_pb.KeySnapshot, KEY),
    derived(FrontState, storage_pb.FrontSnapshot),
    derived(
        Dropped,
        storage_pb.RestartSnapshot,
        RESTART,
        DROPPED,
    ),
    derived(Vacancy, storage_pb.Vacancy),
    derived(Former, storage_pb.FormerSnapshot, SPEC),
    HELD_BY_LOSS,
    Codec(HistorySnapshot, storage_pb.HistorySnapshot, _history_to_pb, _history_from_pb),
    **PIPELINE_FIELDS,
)  # fmt: skip


def _pipeline_from_pb(message: storage_pb.PipelineSnapshot) -> PipelineSnapshot:
    spec = message.changed if message.HasField("changed") else message.spec
    for kept in message.history:
        slots = _of_second_differences(kept.slots)
        known = 0 <= kept.segment < len(spec.segments) and kept.tier in (0, 1)
        if not known or len(slots) != len(kept.at_ms) or sorted(slots) != [*slots]:
            raise invalid(
                f"pipeline {message.spec.name!r}: its history of segment number {kept.segment} is damaged"
            )
    return _PIPELINE.from_pb(message)


PIPELINE = Codec(PipelineSnapshot, storage_pb.PipelineSnapshot, _PIPELINE.to_pb, _pipeline_from_pb)
"""A pipeline at a shard, or what another group has sent of it."""
PART = derived(
    m.PartKept,
    storage_pb.PartRecord,
    Codec(Snapshot, storage_pb.PipelineSnapshot, _PIPELINE.to_pb, _pipeline_from_pb),
)

# --- records ---------------------------------------------------------------------------------------

_RECORD = choice(
    m.Record,
    storage_pb.Record,
    "record",
    "a stored record says nothing that this version knows; was the store written by a newer one?",
    home=derived(m.HomeEntry, storage_pb.HomeRecord, ENTRY),
    received=derived(m.ReceivedEntries, storage_pb.ReceivedRecord, TOLD),
    pinned=derived(m.Pinned, storage_pb.PinnedRecord, PIN),
    granted=derived(m.FrontsGranted, storage_pb.PinnedRecord, PIN, grants="pins"),
    announcement=derived(m.Announcement, storage_pb.AnnouncementRecord),
    staged=derived(m.Staged, storage_pb.StagedRecord, CONTRIBUTION),
    swept=derived(m.Swept, storage_pb.SweptRecord),
    part=PART,
)


_HOME = mark_of(storage_pb.Record, "home")
_NUMBER, _ENTRY = (mark_of(storage_pb.HomeRecord, field) for field in ("number", "entry"))


def _told_record(number: int, entry: bytes) -> bytes:
    """An entry of the own home log that is bytes already, as it is stored."""
    count, length = number_bytes(number), number_bytes(len(entry))
    size = len(_NUMBER) + len(count) + len(_ENTRY) + len(length) + len(entry)
    head = b"".join((_HOME, number_bytes(size), _NUMBER, count, _ENTRY, length))
    checksum = zlib.crc32(entry, zlib.crc32(head))
    return b"".join((head, entry, checksum.to_bytes(_CHECKSUM_BYTES, "little")))


def record_to_bytes(record: m.Record) -> bytes:
    """A record of a shard's log as it is stored."""
    if isinstance(record, m.HomeEntry):
        told = told_entry(record.entry)
        if told is not None:
            return _told_record(record.number, told)
    message = storage_pb.Record()
    match record:
        case m.HomeEntry():  # ticks are written without a copy in between
            message.home.number = record.number
            write_entry(record.entry, message.home.entry)
        case m.ReceivedEntries():
            message.received.shard = record.shard
            message.received.first = record.first
            for entry in record.entries:
                write_entry(entry, message.received.entries.add())
        case _:
            message = _RECORD.to_pb(record)
    return _sealed(message)


def record_from_bytes(data: bytes) -> m.Record:
    """Raises Refused(INVALID) for bytes that are no record of this version."""
    record: m.Record = _RECORD.from_pb(_unsealed(storage_pb.Record, data, "a stored record"))
    if isinstance(record, m.HomeEntry) and record.number < 1:
        raise invalid(f"a stored record is entry {record.number} of a home log; they count from 1")
    return record


# --- snapshots ------------------------------------------------------------------------------------

_SNAPSHOT = derived(
    ProcessSnapshot, storage_pb.Snapshot, ENTRY, KEY, MEMBERSHIP, TABLE,
    PIPELINE, PLACEMENT, GROUP, PART,
    derived(Ended, storage_pb.EndedPipeline),
)  # fmt: skip


def snapshot_to_bytes(snapshot: ProcessSnapshot) -> bytes:
    """A process's snapshot as it is stored."""
    return _sealed(_SNAPSHOT.to_pb(snapshot))


def snapshot_from_bytes(data: bytes) -> ProcessSnapshot:
    """Raises Refused(INVALID) for bytes that are no snapshot."""
    return _SNAPSHOT.from_pb(_unsealed(storage_pb.Snapshot, data, "a stored snapshot"))
