"""The hash of an archive says that it is whole, not who wrote it: its heads are checked before a store is filled."""

from __future__ import annotations

import json
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from tracker.store import StoreError, open_store
from tracker.store.archive import export_stores, import_stores


def exported(directory: Path, shards: int) -> Path:
    """An archive of stores with some records each."""
    url, path = f"sqlite:{directory / 'from'}", directory / "archive"
    stores = {shard: open_store(url, shard) for shard in range(shards)}
    for store in stores.values():
        epoch = store.acquire("test", lease_ms=60_000)
        store.commit(epoch, [(1, b"one"), (2, b"two")])
        store.release(epoch)
    export_stores(stores, path)
    for store in stores.values():
        store.close()
    return path


def forge(path: Path, line: int, **fields: Any) -> None:
    """Changes a head, and makes the hash right again."""
    heads = path.read_bytes()[:-32].split(b"\n")
    places = [place for place, head in enumerate(heads) if b"{" in head]
    place = places[line]
    before, brace, head = heads[place].partition(b"{")
    heads[place] = before + json.dumps(json.loads(brace + head) | fields).encode()
    body = b"\n".join(heads)
    path.write_bytes(body + blake2b(body, digest_size=32).digest())


@pytest.mark.parametrize(
    "fields",
    [
        {"records": -1}, {"records": 1}, {"records": 3}, {"records": 2.0}, {"records": True},
        {"snapshot_bytes": -5}, {"snapshot_bytes": 10**30}, {"epoch": "1"}, {"more": 1},
    ],
    ids=str,
)  # fmt: skip
def test_a_hostile_head_fills_nothing(tmp_path: Path, fields: dict[str, Any]) -> None:
    path = exported(tmp_path, 1)
    forge(path, 1, **fields)
    with closing(open_store(f"sqlite:{tmp_path / 'to'}", 0)) as store:
        with pytest.raises(StoreError, match="export it again"):
            import_stores({0: store}, path)
        stored = store.load(store.acquire("test", lease_ms=60_000))
        assert stored.snapshot is None and list(stored.records) == []


def test_a_shard_stands_in_its_own_place(tmp_path: Path) -> None:
    path = exported(tmp_path, 2)
    forge(path, 2, shard=0)
    stores = {shard: open_store(f"sqlite:{tmp_path / 'to'}", shard) for shard in range(2)}
    try:
        with pytest.raises(StoreError, match="holds shard 0 in the place of 1"):
            import_stores(stores, path)
    finally:
        for store in stores.values():
            store.close()


def test_an_honest_one_is_taken(tmp_path: Path) -> None:
    path = exported(tmp_path, 1)
    forge(path, 1)
    with closing(open_store(f"sqlite:{tmp_path / 'to'}", 0)) as store:
        assert import_stores({0: store}, path)[0].records == 2
