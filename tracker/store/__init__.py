"""Where a shard keeps its log: one interface, and the stores behind it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from tracker.store.interface import (
    GONE,
    Fenced,
    Held,
    Lease,
    LogShortened,
    Store,
    Stored,
    StoreError,
    StoreUnavailable,
)
from tracker.store.memory import MemoryStore
from tracker.store.redacting import redacted
from tracker.store.sqlite import SqliteStore, read_lease

__all__ = [
    "GONE", "Fenced", "Held", "Lease", "Leases", "LogShortened", "MemoryStore", "SqliteStore", "Store",
    "StoreError", "StoreUnavailable", "Stored", "open_leases", "open_store", "shown_store",
]  # fmt: skip


class Leases(Protocol):
    """Whose the shards of a store are, for those who own none of them."""

    def read(self, shard: int) -> Lease | None:
        """None where nothing is known of the shard now."""
        ...

    def shards(self) -> list[int]:
        """Numbers of the shards that have ever had an owner, ascending; those that are known now."""
        ...

    def close(self) -> None: ...


def open_store(url: str, shard: int) -> Store:
    """The store of a shard: `memory:` (gone with the process), `sqlite:DIRECTORY` (one file a shard)
    or a Redis address (see `tracker.store.redis_url`). Raises StoreError for anything else, or a file
    that is not a shard's store."""
    kind, _, rest = url.partition(":")
    if kind == "memory" and not rest:
        return MemoryStore()
    if kind == "sqlite" and rest:
        return SqliteStore(_path(rest, shard), shard)
    if _is_redis(kind):
        _need_redis()
        from tracker.store.redis import RedisStore

        return RedisStore(url, shard)
    raise _unknown(url)


def open_leases(url: str) -> Leases:
    """Reads the leases of the shards of a store. Raises StoreError as `open_store` does."""
    kind, _, rest = url.partition(":")
    if kind == "memory" and not rest:
        return _NoLeases()
    if kind == "sqlite" and rest:
        return _FileLeases(rest)
    if _is_redis(kind):
        _need_redis()
        from tracker.store.redis import RedisLeases

        return RedisLeases(url)
    raise _unknown(url)


def shown_store(url: str) -> str:
    """A store's address for logs: without a password."""
    if not _is_redis(url.partition(":")[0]):
        return url
    _need_redis()
    from tracker.store.redis_url import shown_url

    return redacted(shown_url(url))


def _path(directory: str, shard: int) -> Path:
    return Path(directory) / f"shard-{shard}.db"


def _files(directory: str) -> list[Path]:
    return list(Path(directory).glob("shard-*.db"))


def _is_redis(kind: str) -> bool:
    return kind.partition("+")[0] in ("redis", "rediss")


def _need_redis() -> None:
    try:
        import redis  # noqa: F401
    except ImportError:
        raise StoreError("a Redis store needs redis: pip install 'lowmark[server]'") from None


def _unknown(url: str) -> StoreError:
    return StoreError(
        f"store {redacted(url)!r} is not known; use memory: or sqlite:DIRECTORY or redis://HOST:PORT"
    )


class _NoLeases:
    def read(self, shard: int) -> Lease | None:
        return None

    def shards(self) -> list[int]:
        return []

    def close(self) -> None:
        """Nothing to close."""


class _FileLeases:
    def __init__(self, directory: str) -> None:
        self._directory = directory

    def read(self, shard: int) -> Lease | None:
        return read_lease(_path(self._directory, shard))

    def shards(self) -> list[int]:
        numbers = (path.stem.removeprefix("shard-") for path in _files(self._directory))
        return sorted(int(number) for number in numbers if number.isdigit())

    def close(self) -> None:
        """Nothing to close."""
