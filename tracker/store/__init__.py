"""Where a shard keeps its log: one interface, and the stores behind it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from tracker.redacting import redacted
from tracker.store.interface import (
    GONE,
    Fenced,
    Held,
    Lease,
    LogShortened,
    Store,
    Stored,
    StoreDamaged,
    StoreError,
    StoreUnavailable,
)
from tracker.store.memory import MemoryStore
from tracker.store.sqlite import SqliteStore, read_lease

__all__ = [
    "GONE", "Fenced", "Held", "Lease", "Leases", "LogShortened", "MemoryStore", "SqliteStore", "Store",
    "StoreDamaged", "StoreError", "StoreUnavailable", "Stored", "check_store", "open_leases", "open_store", "shown_store",
]  # fmt: skip


class Leases(Protocol):
    """Reads who owns the shards of a store, for processes that own none of them."""

    def read(self, shard: int) -> Lease | None:
        """The shard's lease; None where nothing is known of the shard now."""
        ...

    def shards(self) -> list[int]:
        """The numbers of the shards that have ever had an owner and can be seen now, ascending."""
        ...

    def close(self) -> None: ...


def open_store(url: str, shard: int) -> Store:
    """The store of a shard: `memory:` (gone with the process), `sqlite:DIRECTORY` (one file a shard)
    or a Redis address (see `tracker.store.redis_url`). Raises StoreError for anything else, or a file
    that is not a shard's store."""
    match _kind(url):
        case "memory":
            return MemoryStore()
        case "sqlite":
            return SqliteStore(_path(url, shard), shard)
    from tracker.store.redis import RedisStore

    return RedisStore(url, shard)


def open_leases(url: str) -> Leases:
    """Reads the leases of the shards of a store. Raises StoreError as `open_store` does."""
    match _kind(url):
        case "memory":
            return _NoLeases()
        case "sqlite":
            return _FileLeases(url)
    from tracker.store.redis import RedisLeases

    return RedisLeases(url)


def check_store(url: str) -> None:
    """Raises StoreError for an address of no known kind, and where a server is out of reach or promises less than it
    must. Nothing is changed."""
    if _kind(url) == "redis":
        from tracker.store.redis import RedisStore

        store = RedisStore(url, 0)
        try:
            store.check()
        finally:
            store.close()


def shown_store(url: str) -> str:
    """A store's address for logs: without a password."""
    if not _is_redis(url):
        return url
    _kind(url)  # raises where there is no client for it
    return redacted(url)


def _kind(url: str) -> str:
    """`memory`, `sqlite` or `redis`. Raises StoreError for an address of no known kind."""
    kind, _, rest = url.partition(":")
    if (kind == "memory" and not rest) or (kind == "sqlite" and rest):
        return kind
    if not _is_redis(url):
        raise StoreError(
            f"store {redacted(url)!r} is not known; use memory: or sqlite:DIRECTORY or redis://HOST:PORT"
        )
    if find_spec("redis") is None:
        raise StoreError("a Redis store needs redis: pip install 'lowmark[server]'")
    return "redis"


def _is_redis(url: str) -> bool:
    return url.partition(":")[0].partition("+")[0] in ("redis", "rediss")


def _path(url: str, shard: int) -> Path:
    """The file of a shard in `sqlite:DIRECTORY`."""
    return Path(url.removeprefix("sqlite:")) / f"shard-{shard}.db"


class _NoLeases:
    def read(self, shard: int) -> Lease | None:
        return None

    def shards(self) -> list[int]:
        return []

    def close(self) -> None:
        """Nothing to close."""


class _FileLeases:
    def __init__(self, url: str) -> None:
        self._url = url

    def read(self, shard: int) -> Lease | None:
        return read_lease(_path(self._url, shard))

    def shards(self) -> list[int]:
        files = _path(self._url, 0).parent.glob("shard-*.db")
        numbers = (file.stem.removeprefix("shard-") for file in files)
        return sorted(int(number) for number in numbers if number.isdigit())

    def close(self) -> None:
        """Nothing to close."""
