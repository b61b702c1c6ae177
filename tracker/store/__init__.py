"""Where a shard keeps its log: one interface, and the stores behind it."""

from __future__ import annotations

from pathlib import Path

from tracker.store.interface import Fenced, Store, Stored, StoreError
from tracker.store.memory import MemoryStore
from tracker.store.sqlite import SqliteStore

__all__ = ["Fenced", "MemoryStore", "SqliteStore", "Store", "StoreError", "Stored", "open_store"]


def open_store(url: str, shard: int) -> Store:
    """The store of a shard: `memory:` (gone with the process) or `sqlite:DIRECTORY` (one file a
    shard). Raises StoreError for anything else, or a file that is not a shard's store."""
    kind, _, rest = url.partition(":")
    if kind == "memory" and not rest:
        return MemoryStore()
    if kind == "sqlite" and rest:
        return SqliteStore(Path(rest) / f"shard-{shard}.db", shard)
    raise StoreError(f"store {url!r} is not known; use memory: or sqlite:DIRECTORY")
