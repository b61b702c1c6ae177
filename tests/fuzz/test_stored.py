"""Stored records and snapshots: one that is not as it was written is refused by name, and nothing of it
is believed."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import strategies as st

from acker.v1 import storage_pb2 as storage_pb
from tests.core.driver import plain
from tests.fuzz.examples import fuzz
from tests.fuzz.mangling import damaged, sent
from tests.fuzz.wired import lived
from tracker.core.log import PartKept
from tracker.core.model import RefusalCode, Refused
from tracker.service.config import ServerConfig
from tracker.service.server import TrackerServer
from tracker.store import MemoryStore, StoreError
from tracker.wire.storage import (
    record_from_bytes,
    record_to_bytes,
    snapshot_from_bytes,
    snapshot_to_bytes,
)

LIVED = lived(0)
RECORDS = [data for shard in (0, 1) for _, data in LIVED.log(shard)]
RECORDS += [
    record_to_bytes(PartKept("moving", 7, 1, 3, part))
    for part in LIVED.processes[0].snapshot().pipelines
]
SNAPSHOTS = [snapshot_to_bytes(LIVED.processes[shard].snapshot()) for shard in (0, 1)]
CHECKSUM_BYTES = 4


@dataclass(frozen=True)
class Kind:
    """What is stored, and how it is read and written."""

    name: str
    message: type[Message]
    read: Callable[[bytes], Any]
    write: Callable[[Any], bytes]
    examples: list[bytes]


KINDS = [
    Kind("a stored record", storage_pb.Record, record_from_bytes, record_to_bytes, RECORDS),
    Kind(
        "a stored snapshot", storage_pb.Snapshot, snapshot_from_bytes, snapshot_to_bytes, SNAPSHOTS
    ),
]
kinds = st.sampled_from(KINDS)
stored = kinds.flatmap(lambda kind: st.tuples(st.just(kind), st.sampled_from(kind.examples)))


def test_every_kind_of_record_is_among_the_examples() -> None:
    kinds = {message_of(storage_pb.Record, data).WhichOneof("record") for data in RECORDS}
    known = storage_pb.Record.DESCRIPTOR.oneofs_by_name["record"].fields
    assert kinds == {field.name for field in known} - {"swept"}, "what is swept needs a slow shard"


def message_of(kind: Any, stored: bytes) -> Any:
    return kind.FromString(stored[:-CHECKSUM_BYTES])


def refused(kind: Kind, data: bytes) -> None:
    with pytest.raises(Refused, match=f"^{kind.name} of {len(data)} bytes") as caught:
        kind.read(data)
    assert caught.value.refusal.code is RefusalCode.INVALID


@fuzz(stored.flatmap(lambda pair: st.tuples(st.just(pair), damaged(pair[1]))), share=2)
def test_what_was_changed_is_refused(changed: tuple[tuple[Kind, bytes], bytes]) -> None:
    (kind, written), found = changed
    if found == written:
        assert kind.write(kind.read(found)) == written
    else:
        refused(kind, found)


@fuzz(kinds, st.binary(max_size=300))
def test_bytes_of_something_else_are_refused(kind: Kind, data: bytes) -> None:
    refused(kind, data)


@fuzz(
    stored.flatmap(
        lambda pair: st.tuples(
            st.just(pair[0]),
            sent(message_of(pair[0].message, pair[1])).map(lambda m: m.SerializeToString())
            | st.binary(max_size=100),
        )
    ),
    share=2,
)
def test_what_another_version_has_written_is_read_or_refused(pair: tuple[Kind, bytes]) -> None:
    """It is as it was written, but this version may not know what it says."""
    kind, data = pair
    try:
        again = kind.read(data + zlib.crc32(data).to_bytes(CHECKSUM_BYTES, "little"))
    except Refused as caught:
        assert caught.refusal.code is RefusalCode.INVALID
        return
    assert plain(kind.read(kind.write(again))) == plain(again)


@pytest.mark.parametrize("number", [0, -1, -(2**63)])
def test_an_entry_that_no_home_log_can_have_is_refused(number: int) -> None:
    message = storage_pb.Record()
    message.home.number = number
    message.home.entry.over.SetInParent()
    data = message.SerializeToString()
    with pytest.raises(Refused, match=f"entry {number} of a home log; they count from 1"):
        record_from_bytes(data + zlib.crc32(data).to_bytes(CHECKSUM_BYTES, "little"))


LOG = LIVED.log(0)


@fuzz(
    st.integers(0, len(LOG) - 1).flatmap(
        lambda place: st.tuples(st.just(place), damaged(LOG[place][1]))
    ),
    share=0.3,
)
def test_a_process_does_not_start_from_a_damaged_log(damage: tuple[int, bytes]) -> None:
    place, data = damage
    position = LOG[place][0]
    log = [*LOG[:place], (position, data), *LOG[place + 1 :]]

    async def start() -> None:
        store = MemoryStore()
        store.commit(store.acquire("somebody"), log)
        server = TrackerServer(
            ServerConfig(0, ("127.0.0.1:0", "127.0.0.1:1"), block_slots=2), store
        )
        if log == LOG:
            await server.start()
            await server.stop()
            return
        with pytest.raises(StoreError, match=f"record {position} of shard 0 is damaged.*backup"):
            await server.start()
        again = store.load(store.acquire("somebody else"))
        assert (again.snapshot, list(again.records)) == (None, log), "it was left alone"

    asyncio.run(start())
