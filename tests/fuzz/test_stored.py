"""Stored records and snapshots: one that is not as it was written is refused by name, and nothing of it
is believed."""

from __future__ import annotations

import asyncio
import zlib
from typing import Any

import pytest
from hypothesis import strategies as st

from acker.v1 import storage_pb2 as storage_pb
from tests.core.driver import plain
from tests.fuzz.examples import fuzz
from tests.fuzz.messages import damaged, sent
from tests.fuzz.wired import SPEC, Wired
from tracker.core.log import RetireNode, StageContributions
from tracker.core.model import Batch, Cells, RefusalCode, Refused, StagedContribution, Unit
from tracker.service.config import ServerConfig
from tracker.service.server import TrackerServer
from tracker.store import MemoryStore, StoreError
from tracker.wire.storage import (
    record_from_bytes,
    record_to_bytes,
    snapshot_from_bytes,
    snapshot_to_bytes,
)


def lived() -> Wired:
    """A tracker after a life with every kind of record in it."""
    cluster = Wired()
    node = cluster.node(SPEC, "w")
    node.join_front("G")
    node.commit(
        created=[(0, slot, slot) for slot in range(10, 16)],
        units_created=[Unit(0, "file:///a", 10)],
        batch=Batch("query", 1, b"one"),
    )
    cells = Cells.of([(0, 12, 5, 1)])
    contribution = StagedContribution("query", "run", 2, 1, "op", 2, 3, 4, cells, cells)
    cluster.ask(node.home, StageContributions, "p", "w", (contribution,))
    node.commit(consumed=[(0, 10, 10), (0, 2, 3)], heartbeats={"G": 12}, leaves=["G"])
    lost = cluster.node(SPEC, "lost")
    lost.commit(created=[(1, 41, 9)])
    cluster.ask(lost.home, RetireNode, "p", "lost", Cells.of([(1, 41, 9, 1)]), 1)
    cluster.settle()
    return cluster


LIVED = lived()
RECORDS = [data for shard in (0, 1) for _, data in LIVED.log(shard)]
SNAPSHOTS = [snapshot_to_bytes(LIVED.processes[shard].snapshot()) for shard in (0, 1)]
CHECKSUM_BYTES = 4


def test_every_kind_of_record_is_among_the_examples() -> None:
    kinds = {message_of(storage_pb.Record, data).WhichOneof("record") for data in RECORDS}
    known = storage_pb.Record.DESCRIPTOR.oneofs_by_name["record"].fields
    assert kinds == {field.name for field in known} - {"swept"}, "what is swept needs a slow shard"


def message_of(kind: Any, stored: bytes) -> Any:
    return kind.FromString(stored[:-CHECKSUM_BYTES])


def refused(decode: Any, data: bytes, what: str) -> None:
    with pytest.raises(Refused, match=f"^{what} of {len(data)} bytes") as caught:
        decode(data)
    assert caught.value.refusal.code is RefusalCode.INVALID


@fuzz(st.sampled_from(RECORDS).flatmap(lambda data: st.tuples(st.just(data), damaged(data))))
def test_a_record_that_was_changed_is_refused(pair: tuple[bytes, bytes]) -> None:
    written, read = pair
    if read == written:
        assert record_to_bytes(record_from_bytes(read)) == written
    else:
        refused(record_from_bytes, read, "a stored record")


@fuzz(st.sampled_from(SNAPSHOTS).flatmap(lambda data: st.tuples(st.just(data), damaged(data))))
def test_a_snapshot_that_was_changed_is_refused(pair: tuple[bytes, bytes]) -> None:
    written, read = pair
    if read == written:
        assert snapshot_to_bytes(snapshot_from_bytes(read)) == written
    else:
        refused(snapshot_from_bytes, read, "a stored snapshot")


@fuzz(st.binary(max_size=300))
def test_bytes_of_something_else_are_refused(data: bytes) -> None:
    refused(record_from_bytes, data, "a stored record")
    refused(snapshot_from_bytes, data, "a stored snapshot")


def sealed(data: bytes) -> bytes:
    return data + zlib.crc32(data).to_bytes(CHECKSUM_BYTES, "little")


@fuzz(
    st.sampled_from(RECORDS).flatmap(lambda data: sent(message_of(storage_pb.Record, data)))
    | st.binary(max_size=100)
)
def test_a_record_of_another_version_is_read_or_refused(record: Any) -> None:
    """It is as it was written, but this version may not know what it says."""
    data = sealed(record if isinstance(record, bytes) else record.SerializeToString())
    try:
        again = record_from_bytes(data)
    except Refused as caught:
        assert caught.refusal.code is RefusalCode.INVALID
        return
    assert plain(record_from_bytes(record_to_bytes(again))) == plain(again)


@fuzz(
    st.sampled_from(SNAPSHOTS).flatmap(lambda data: sent(message_of(storage_pb.Snapshot, data)))
    | st.binary(max_size=100)
)
def test_a_snapshot_of_another_version_is_read_or_refused(snapshot: Any) -> None:
    data = sealed(snapshot if isinstance(snapshot, bytes) else snapshot.SerializeToString())
    try:
        again = snapshot_from_bytes(data)
    except Refused as caught:
        assert caught.refusal.code is RefusalCode.INVALID
        return
    assert plain(snapshot_from_bytes(snapshot_to_bytes(again))) == plain(again)


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
