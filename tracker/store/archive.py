"""Stores as one file, to be kept or carried to stores of another kind: of some shards, or of all of a tracker.

The file holds a line of JSON with the numbers of its shards; of each of them a line that states what follows and in
which format, the snapshot, and the records (position and length before each); and a hash of all that. It is read to
its end and checked before anything is written.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

from tracker.store.format import OLDEST_FORMAT, check_format
from tracker.store.interface import Store, StoreError, follow_one_another
from tracker.store.mark import sync_names

LEASE_MS = 60_000
FILLING_LEASE_MS = 100 * 365 * 86_400_000
"""While stores are filled, and for good where that broke off: no process is to begin with a part of what was acknowledged."""
_READS = "lowmark store copy"
_FILLS = "lowmark store copy --from (if that broke off, begin it anew in an empty store), attempt"
RECORDS_PER_COMMIT = 2_000
BYTES_PER_COMMIT = 64 * 1024 * 1024
"""A Redis server ends the connection by which more than a gibibyte comes at once: a commit of so many bytes takes no more records."""
RECORDS_PER_RENEWAL = 50_000
_FILE, _SHARD = "lowmark-stores", "lowmark-shard"
_HASH_BYTES = 32
_HEAD = struct.Struct(">QI")  # position and length of a record
_MOST_HEADER_BYTES = 10_000
_CHUNK_BYTES = 1 << 20
_BEYOND_NUMBERS = 1 << 62


@dataclass(frozen=True, slots=True)
class Contents:
    """What an archive holds of a shard: its number, its last epoch, the position of its snapshot (0: before the first
    record) and its length (0: there is none), and the number of records after it."""

    shard: int
    epoch: int
    snapshot_position: int
    snapshot_bytes: int
    records: int
    format: int
    """The number that its store carries, and the one that it is copied to."""


@dataclass(slots=True)
class _Owned:
    """Shards that are owned together, so that none goes on while another is read or filled, by their numbers;
    and the epoch of each."""

    stores: Mapping[int, Store]
    epochs: dict[int, int]
    lease_ms: int = LEASE_MS

    def renew(self) -> None:
        for shard, store in self.stores.items():
            store.renew(self.epochs[shard], self.lease_ms)

    @contextmanager
    def filling(self) -> Iterator[None]:
        """While they are filled. Where that breaks off, nobody else is to own them any more."""
        self.lease_ms = FILLING_LEASE_MS
        self.renew()
        yield
        self.lease_ms = LEASE_MS

    def release(self, shard: int) -> None:
        if self.lease_ms == LEASE_MS:
            self.stores[shard].release(self.epochs[shard])


@contextmanager
def _owned(stores: Mapping[int, Store], owner: str, least: Mapping[int, int]) -> Iterator[_Owned]:
    """`least`: the least epoch that a store is to give, if it is not any."""
    with ExitStack() as held:
        owned = _Owned(stores, {})
        for shard, store in stores.items():
            least_epoch = least.get(shard, 1)
            owned.epochs[shard] = store.acquire(owner, lease_ms=LEASE_MS, least_epoch=least_epoch)
            held.callback(owned.release, shard)
        yield owned


# --- writing ---------------------------------------------------------------------------------------


def export_stores(stores: Mapping[int, Store], path: Path) -> list[Contents]:
    """Writes shards, by their numbers, to one file. All are owned before one is read: what the file holds is of one
    moment. Raises StoreError: Held while a process of theirs runs; or if the file is there already, or cannot be
    written."""
    with _new_file(path) as file, _owned(stores, _READS, {}) as owned:
        file.write(_line({_FILE: OLDEST_FORMAT, "shards": list(stores)}))
        found = [_write_shard(file, shard, owned) for shard in stores]
        owned.renew()  # whoever has taken a shard over meanwhile may have gone on
        return found


class _Hashed:
    """A file that is written, and the hash of what has been."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._digest = file, blake2b(digest_size=_HASH_BYTES)

    def write(self, piece: bytes) -> None:
        self._file.write(piece)
        self._digest.update(piece)

    def end(self) -> None:
        self._file.write(self._digest.digest())
        self._file.flush()
        os.fsync(self._file.fileno())


@contextmanager
def _new_file(path: Path) -> Iterator[_Hashed]:
    """A file that appears under its name when it is whole and durable. Of two that write one at once, each writes its own."""
    if path.exists():
        raise StoreError(f"{path} exists; name a file that does not")
    unfinished = path.with_name(f"{path.name}.{uuid4().hex}.unfinished")
    try:
        with open(unfinished, "xb") as file:
            hashed = _Hashed(file)
            yield hashed
            hashed.end()
        os.replace(unfinished, path)
        sync_names(path.parent)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def _write_shard(file: _Hashed, shard: int, owned: _Owned) -> Contents:
    owned.renew()
    epoch = owned.epochs[shard]
    stored = owned.stores[shard].load(epoch)
    snapshot_position, snapshot = stored.snapshot or (0, b"")
    records = list(stored.records)
    if not follow_one_another(records, snapshot_position + 1):
        raise StoreError(
            f"the store of shard {shard} is damaged: of the records after {snapshot_position} some are missing; a copy would "
            "be of no use"
        )
    contents = Contents(shard, epoch, snapshot_position, len(snapshot), len(records), stored.format)
    fields = asdict(contents)
    file.write(_line({_SHARD: fields.pop("format"), **fields}))
    file.write(snapshot)
    for number, (position, record) in enumerate(records):
        file.write(_HEAD.pack(position, len(record)) + record)
        if number % RECORDS_PER_RENEWAL == 0:
            owned.renew()
    return contents


def _line(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields).encode() + b"\n"


# --- reading ---------------------------------------------------------------------------------------


def import_stores(stores: Mapping[int, Store], path: Path) -> list[Contents]:
    """Fills empty stores from a file with just these shards. Raises StoreError if one is not empty, or the file is
    damaged, of other shards or of another version; then nothing has been written. What is filled in part, where it breaks
    off, belongs to nobody who could serve it."""
    with _whole_file(path) as file:
        there = _fields(file, path, _FILE)
        if there.get("shards") != list(stores):
            raise StoreError(
                f"{path} holds {_named(there.get('shards'))}, not {_named(list(stores))}: name those that it holds, by "
                "--shards, or --shard for one"
            )
        begin, found = file.tell(), dict[int, Contents]()
        for shard in stores:
            found[shard] = contents = _contents(_fields(file, path, _SHARD), path)
            if contents.shard != shard:
                raise StoreError(f"{path} holds shard {contents.shard} in the place of {shard}")
            _skip(file, contents, path)
        _check_end(file, path)
        file.seek(begin)
        epochs = {shard: contents.epoch + 1 for shard, contents in found.items()}
        with _owned(stores, f"{_FILLS} {uuid4().hex}", epochs) as owned:
            for shard in stores:
                _need_empty(shard, owned)
            with owned.filling():
                for contents in found.values():
                    file.readline(_MOST_HEADER_BYTES)
                    _fill(contents, file, owned)
        return list(found.values())


def _named(shards: Any) -> str:
    """For people, as far as these are numbers of shards."""
    several = isinstance(shards, list) and len(shards) > 1
    text = ", ".join(map(str, shards)) if isinstance(shards, list) else str(shards)
    return f"shard{'s' if several else ''} {text}"


@contextmanager
def _whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file whose hash is right, at its begin."""
    try:
        with open(path, "rb") as file:
            digest = blake2b(digest_size=_HASH_BYTES)
            left = path.stat().st_size - _HASH_BYTES
            while left > 0:
                chunk = file.read(min(_CHUNK_BYTES, left))
                if not chunk:
                    break
                left -= len(chunk)
                digest.update(chunk)
            if left != 0 or file.read() != digest.digest():
                raise StoreError(f"{path} is no export, or is damaged; export it again")
            file.seek(0)
            yield file
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error}") from error


def _fields(file: BinaryIO, path: Path, kind: str) -> dict[str, Any]:
    """The line that states what follows, and its format, which this version reads."""
    try:
        fields = json.loads(file.readline(_MOST_HEADER_BYTES))
    except (RecursionError, ValueError):
        fields = None
    if not isinstance(fields, dict) or kind not in fields:
        raise StoreError(f"{path} is no export; name the file that `lowmark store copy --to` wrote")
    found = fields.pop(kind)
    check_format(str(path), found if isinstance(found, int) else 0)
    return {**fields, "format": found}


def _contents(fields: dict[str, Any], path: Path) -> Contents:
    numbers = fields.values()
    if fields.keys() != set(Contents.__slots__) or not all(
        type(number) is int and 0 <= number < _BEYOND_NUMBERS for number in numbers
    ):
        raise StoreError(f"{path} has a head that no export has; export it again")
    return Contents(**fields)


def _skip(file: BinaryIO, contents: Contents, path: Path) -> None:
    """Goes to the end of a shard, which is within the file. Raises StoreError."""
    file.seek(contents.snapshot_bytes, os.SEEK_CUR)
    for _ in range(contents.records):
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            raise StoreError(
                f"{path} ends before the records that its head counts; export it again"
            )
        file.seek(_HEAD.unpack(head)[1], os.SEEK_CUR)


def _check_end(file: BinaryIO, path: Path) -> None:
    """What the heads count is all that the file holds, but for its hash. Raises StoreError."""
    if file.tell() != path.stat().st_size - _HASH_BYTES:
        raise StoreError(f"{path} holds something else than its head counts; export it again")


def _need_empty(shard: int, owned: _Owned) -> None:
    stored = owned.stores[shard].load(owned.epochs[shard])
    if stored.snapshot is not None or next(stored.records, None) is not None:
        raise StoreError(
            f"the store of shard {shard} is not empty: name another directory or namespace"
        )


def _fill(contents: Contents, file: BinaryIO, owned: _Owned) -> None:
    store, epoch = owned.stores[contents.shard], owned.epochs[contents.shard]
    snapshot = file.read(contents.snapshot_bytes)
    if contents.snapshot_bytes:
        store.write_snapshot(epoch, contents.snapshot_position, snapshot, contents.format)
    batch: list[tuple[int, bytes]] = []
    size = 0
    for number in range(contents.records):
        position, length = _HEAD.unpack(file.read(_HEAD.size))
        batch.append((position, file.read(length)))
        size += length
        is_full = len(batch) == RECORDS_PER_COMMIT or size >= BYTES_PER_COMMIT
        if is_full or number == contents.records - 1:
            store.commit(epoch, batch, contents.format)
            owned.renew()
            batch, size = [], 0
