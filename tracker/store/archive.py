"""Stores as one file, to be kept or carried to a store of another kind: a shard, or all of a tracker.

The file of a shard holds a line of JSON that says what follows and in which format, the snapshot, the
records (position and length before each), and a hash of all that. The file of a tracker holds a line that
says how many shards it has, the same of each of them, and one hash. A file is read to its end and checked
before anything is written.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

from tracker.store.format import FORMAT, check_format
from tracker.store.interface import Store, StoreError

LEASE_MS = 60_000
RECORDS_PER_COMMIT = 2_000
RECORDS_PER_RENEWAL = 50_000
_SHARD, _TRACKER = "lowmark-shard", "lowmark-tracker"
_HASH_BYTES = 32
_HEAD = struct.Struct(">QI")  # position and length of a record
_MOST_HEADER_BYTES = 10_000
_CHUNK_BYTES = 1 << 20
_BEYOND_NUMBERS = 1 << 62


@dataclass(frozen=True, slots=True)
class Contents:
    """What an archive holds of a shard: its number, its last epoch, the position of its snapshot (0:
    there is none) and the number of records after it."""

    shard: int
    epoch: int
    snapshot_position: int
    snapshot_bytes: int
    records: int


@dataclass(frozen=True, slots=True)
class _Owned:
    """Shards that are owned together, so that none goes on while another is read or filled, and the epoch
    of each."""

    stores: Sequence[Store]
    epochs: list[int]

    def renew(self) -> None:
        for store, epoch in zip(self.stores, self.epochs, strict=True):
            store.renew(epoch, LEASE_MS)


@contextmanager
def _owned(stores: Sequence[Store], owner: str, least: Sequence[int]) -> Iterator[_Owned]:
    """`least`: the least epoch that each store is to give."""
    with ExitStack() as held:
        owned = _Owned(stores, [])
        for store, least_epoch in zip(stores, least, strict=True):
            epoch = store.acquire(owner, lease_ms=LEASE_MS, least_epoch=least_epoch)
            held.callback(store.release, epoch)
            owned.epochs.append(epoch)
        yield owned


# --- writing ---------------------------------------------------------------------------------------


def export_shard(store: Store, shard: int, path: Path) -> Contents:
    """Writes a shard to a file. Nobody may own the shard meanwhile. Raises StoreError: Held while
    its process runs; or if the file is there already, or cannot be written."""
    with _new_file(path) as file, _owned([store], "lowmark store copy", [1]) as owned:
        return _write_shard(file, store, shard, owned.epochs[0], owned)


def export_tracker(stores: Sequence[Store], path: Path) -> list[Contents]:
    """Writes all shards of a tracker to one file, by their numbers. All are owned before one is read:
    what the file holds is of one moment. Else as `export_shard`."""
    least = [1] * len(stores)
    with _new_file(path) as file, _owned(stores, "lowmark store copy", least) as owned:
        file.write(_line({_TRACKER: FORMAT, "shards": len(stores)}))
        return [
            _write_shard(file, store, shard, owned.epochs[shard], owned)
            for shard, store in enumerate(stores)
        ]


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
    """A file that appears under its name when it is whole and durable."""
    if path.exists():
        raise StoreError(f"{path} exists; name a file that does not")
    unfinished = path.with_name(path.name + ".unfinished")
    try:
        with open(unfinished, "xb") as file:
            hashed = _Hashed(file)
            yield hashed
            hashed.end()
        os.replace(unfinished, path)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def _write_shard(file: _Hashed, store: Store, shard: int, epoch: int, owned: _Owned) -> Contents:
    owned.renew()
    stored = store.load(epoch)
    snapshot_position, snapshot = stored.snapshot or (0, b"")
    records = list(stored.records)
    contents = Contents(shard, epoch, snapshot_position, len(snapshot), len(records))
    fields = {name: getattr(contents, name) for name in Contents.__slots__}
    file.write(_line({_SHARD: stored.format, **fields}))
    file.write(snapshot)
    for number, (position, record) in enumerate(records):
        file.write(_HEAD.pack(position, len(record)) + record)
        if number % RECORDS_PER_RENEWAL == 0:
            owned.renew()
    return contents


def _line(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields).encode() + b"\n"


# --- reading ---------------------------------------------------------------------------------------


def import_shard(store: Store, shard: int, path: Path) -> Contents:
    """Fills an empty store from a file. Raises StoreError if the store is not empty, or the file is
    damaged, of another shard or of another version; then nothing has been written."""
    with _whole_file(path) as file:
        fields = _fields(file, path)
        if _TRACKER in fields:
            raise StoreError(
                f"{path} holds all {fields['shards']} shards of a tracker; import it with "
                f"--shards {fields['shards']}"
            )
        contents = _contents(fields, path)
        if contents.shard != shard:
            raise StoreError(f"{path} holds shard {contents.shard}, not shard {shard}")
        begin = file.tell()
        _skip(file, contents, path)
        _check_end(file, path)
        file.seek(begin)
        with _owned([store], "lowmark store copy", [contents.epoch + 1]) as owned:
            _need_empty(store, owned.epochs[0], shard)
            _fill(store, owned.epochs[0], contents, file, owned)
        return contents


def import_tracker(stores: Sequence[Store], path: Path) -> list[Contents]:
    """Fills the empty stores of all shards from the file of a tracker. Raises StoreError as
    `import_shard`; also if the file has another number of shards."""
    with _whole_file(path) as file:
        fields = _fields(file, path)
        if _TRACKER not in fields:
            raise StoreError(f"{path} holds one shard, not a tracker; import it with --shard")
        _check_format(fields[_TRACKER], path)
        if fields["shards"] != len(stores):
            raise StoreError(
                f"{path} holds {fields['shards']} shards, not {len(stores)}: a shard's records say "
                "nothing without those of the others"
            )
        begin = file.tell()
        found = []
        for shard in range(len(stores)):
            found.append(_contents(_fields(file, path), path))
            if found[-1].shard != shard:
                raise StoreError(
                    f"{path} holds shard {found[-1].shard} in the place of shard {shard}"
                )
            _skip(file, found[-1], path)
        _check_end(file, path)
        file.seek(begin)
        epochs = [contents.epoch + 1 for contents in found]
        with _owned(stores, "lowmark store copy", epochs) as owned:
            for shard, store in enumerate(stores):
                _need_empty(store, owned.epochs[shard], shard)
            for store, epoch, contents in zip(stores, owned.epochs, found, strict=True):
                file.readline(_MOST_HEADER_BYTES)
                _fill(store, epoch, contents, file, owned)
        return found


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


def _fields(file: BinaryIO, path: Path) -> dict[str, Any]:
    """The line that says what follows."""
    try:
        fields = json.loads(file.readline(_MOST_HEADER_BYTES))
    except (RecursionError, ValueError):
        fields = None
    if not isinstance(fields, dict) or not fields.keys() & {_SHARD, _TRACKER}:
        raise StoreError(f"{path} is no export; name the file that `lowmark store copy --to` wrote")
    return fields


def _check_format(found: object, path: Path) -> None:
    check_format(str(path), found if isinstance(found, int) else 0)


def _contents(fields: dict[str, Any], path: Path) -> Contents:
    _check_format(fields.pop(_SHARD, None), path)
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


def _need_empty(store: Store, epoch: int, shard: int) -> None:
    stored = store.load(epoch)
    if stored.snapshot is not None or next(stored.records, None) is not None:
        raise StoreError(
            f"the store of shard {shard} is not empty: name another directory or namespace"
        )


def _fill(store: Store, epoch: int, contents: Contents, file: BinaryIO, owned: _Owned) -> None:
    snapshot = file.read(contents.snapshot_bytes)
    if contents.snapshot_position:
        store.write_snapshot(epoch, contents.snapshot_position, snapshot)
    batch: list[tuple[int, bytes]] = []
    for number in range(contents.records):
        position, length = _HEAD.unpack(file.read(_HEAD.size))
        batch.append((position, file.read(length)))
        if len(batch) == RECORDS_PER_COMMIT or number == contents.records - 1:
            store.commit(epoch, batch)
            owned.renew()
            batch = []
