"""A shard's store as one file, to be kept or carried to a store of another kind.

The file holds a line of JSON that says what follows, the snapshot, the records (position and length
before each), and a hash of all that. It is read to its end and checked before anything is written.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

from tracker.store.interface import Store, StoreError

FORMAT = 1
LEASE_MS = 60_000
RECORDS_PER_COMMIT = 2_000
_NAME = "lowmark-shard"
_HASH_BYTES = 32
_HEAD = struct.Struct(">QI")  # position and length of a record
_MOST_HEADER_BYTES = 10_000
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Contents:
    """What an archive holds: the shard's number, its last epoch, the position of its snapshot (0:
    there is none) and the number of records after it."""

    shard: int
    epoch: int
    snapshot_position: int
    snapshot_bytes: int
    records: int


def export_shard(store: Store, shard: int, path: Path) -> Contents:
    """Writes a shard to a file. Nobody may own the shard meanwhile. Raises StoreError: Held while
    its process runs; or if the file is there already, or cannot be written."""
    if path.exists():
        raise StoreError(f"{path} exists; name a file that does not")
    epoch = store.acquire("lowmark store export", lease_ms=LEASE_MS)
    unfinished = path.with_name(path.name + ".unfinished")
    try:
        stored = store.load(epoch)
        position, snapshot = stored.snapshot or (0, b"")
        records = list(stored.records)
        contents = Contents(shard, epoch, position, len(snapshot), len(records))
        with open(unfinished, "xb") as file:
            digest = blake2b(digest_size=_HASH_BYTES)
            for piece in _pieces(contents, snapshot, records):
                file.write(piece)
                digest.update(piece)
            file.write(digest.digest())
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error}") from error
    finally:
        unfinished.unlink(missing_ok=True)
        store.release(epoch)
    return contents


def _pieces(
    contents: Contents, snapshot: bytes, records: list[tuple[int, bytes]]
) -> Iterator[bytes]:
    fields = {name: getattr(contents, name) for name in Contents.__slots__}
    yield json.dumps({_NAME: FORMAT, **fields}).encode() + b"\n"
    yield snapshot
    for position, record in records:
        yield _HEAD.pack(position, len(record)) + record


def import_shard(store: Store, shard: int, path: Path) -> Contents:
    """Fills an empty store from a file. Raises StoreError if the store is not empty, or the file is
    damaged, of another shard or of another version; then nothing has been written."""
    try:
        with open(path, "rb") as file:
            contents = _check(file, shard, path)
            epoch = store.acquire(
                "lowmark store import", lease_ms=LEASE_MS, least_epoch=contents.epoch + 1
            )
            try:
                stored = store.load(epoch)
                if stored.snapshot is not None or next(stored.records, None) is not None:
                    raise StoreError(
                        f"the store of shard {shard} is not empty: name another directory or namespace"
                    )
                _fill(store, epoch, contents, file)
            finally:
                store.release(epoch)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
    return contents


def _check(file: BinaryIO, shard: int, path: Path) -> Contents:
    """Reads the file to its end; leaves it where the snapshot begins."""
    digest = blake2b(digest_size=_HASH_BYTES)
    header = file.readline(_MOST_HEADER_BYTES)
    digest.update(header)
    left = path.stat().st_size - len(header) - _HASH_BYTES
    while left > 0:
        chunk = file.read(min(_CHUNK_BYTES, left))
        left -= len(chunk)
        digest.update(chunk)
    if left < 0 or file.read() != digest.digest():
        raise StoreError(f"{path} is no export of a shard, or is damaged; export it again")
    fields = json.loads(header)
    if fields.pop(_NAME, None) != FORMAT:
        raise StoreError(f"{path} was written by another version; this one reads format {FORMAT}")
    contents = Contents(**fields)
    if contents.shard != shard:
        raise StoreError(f"{path} holds shard {contents.shard}, not shard {shard}")
    file.seek(len(header))
    return contents


def _fill(store: Store, epoch: int, contents: Contents, file: BinaryIO) -> None:
    snapshot = file.read(contents.snapshot_bytes)
    if contents.snapshot_position:
        store.write_snapshot(epoch, contents.snapshot_position, snapshot)
    batch: list[tuple[int, bytes]] = []
    for number in range(contents.records):
        position, length = _HEAD.unpack(file.read(_HEAD.size))
        batch.append((position, file.read(length)))
        if len(batch) == RECORDS_PER_COMMIT or number == contents.records - 1:
            store.commit(epoch, batch)
            store.renew(epoch, LEASE_MS)
            batch = []
