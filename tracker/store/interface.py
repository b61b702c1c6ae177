"""What a store promises: what `commit` has returned for is there after any crash.

A shard's log is a sequence of records at positions 1, 2, 3, ...; a snapshot stands for all records up
to its position. The store has one owner at a time: whoever acquires it gets an epoch, larger than
every one before, and whatever an older owner still tries to write is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol


class StoreError(Exception):
    """A store cannot be used: it says what, and what to do."""


class Fenced(StoreError):
    """The store has a newer owner: this one must stop."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What a store holds: the newest snapshot as (position, bytes), and the records after it by
    position, ascending and without gaps."""

    snapshot: tuple[int, bytes] | None
    records: Iterator[tuple[int, bytes]]


class Store(Protocol):
    """The log of one shard. Calls block; the service makes them in a thread of its own."""

    def acquire(self, owner: str) -> int:
        """Makes `owner` (for people) the owner; returns its epoch, from 1."""
        ...

    def load(self, epoch: int) -> Stored:
        """Raises Fenced if the epoch is not the newest."""
        ...

    def commit(self, epoch: int, records: Sequence[tuple[int, bytes]]) -> None:
        """One group commit: all of the records are durable when it returns, or none is there.
        Positions continue those before. Raises Fenced; StoreError if the write failed."""
        ...

    def write_snapshot(self, epoch: int, position: int, snapshot: bytes) -> None:
        """Replaces the snapshot and drops the records up to its position, in one step."""
        ...

    def close(self) -> None: ...
