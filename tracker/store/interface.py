"""What a store promises: what `commit` has returned for is there after any crash.

A shard's log is a sequence of records at positions 1, 2, 3, ...; a snapshot stands for all records up
to its position. The store has one owner at a time: whoever acquires it gets an epoch, larger than
every one before, and whatever an older owner still tries to write is refused. That alone keeps the
log right. A lease says when another may try: it runs by the store's own clock, and nothing but the
time of a take-over depends on that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from tracker.core.model.levels import OLDEST_LEVEL

GONE = "-"
"""The owner of a store whose shard has left its tracker, or never became one: nobody takes it over."""


class StoreError(Exception):
    """A store cannot be used: it says what, and what to do."""


class StoreUnavailable(StoreError):
    """The store does not answer, or cannot write now: another attempt may succeed."""


class StoreDamaged(StoreError):
    """What the store keeps cannot be read as what was written: no other attempt succeeds before somebody has
    restored it. Its owner stops."""


class Fenced(StoreError):
    """The store has a newer owner: this one must stop."""


class LogShortened(StoreError):
    """The log ends before what was committed: acknowledged records are gone. It says so until
    somebody has restored them, or accepted the loss."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Who owns a shard: the epoch (0: nobody ever has), the owner's name, its address once it is
    known to serve there, and for how long nobody else may take its place (0: it is free)."""

    epoch: int
    owner: str
    address: str
    remaining_ms: int


class Held(StoreError):
    """Another owner's lease runs: wait until it ends."""

    def __init__(self, where: str, lease: Lease) -> None:
        super().__init__(
            f"{where} belongs to {lease.owner} for {lease.remaining_ms} ms more, unless it renews "
            "its lease"
        )
        self.lease = lease


@dataclass(frozen=True, slots=True)
class Stored:
    """What a store holds: the newest snapshot as (position, bytes), and the records after it by
    position, ascending and without gaps. format: the number of their form (`tracker.store.format`)."""

    snapshot: tuple[int, bytes] | None
    records: Iterator[tuple[int, bytes]]
    format: int


class Store(Protocol):
    """The log of one shard. Calls block; the service makes them in a thread of its own, but for
    `renew`, which it may call while another call is under way."""

    def acquire(
        self, owner: str, *, lease_ms: int = 0, replaces: int = 0, least_epoch: int = 1
    ) -> int:
        """Makes `owner` the owner for so long; returns its epoch, which is larger than every one before
        and at least `least_epoch`. It has no address before it renews the lease with one. Raises Held while
        the lease of an owner of another name runs, but for the one of epoch `replaces`, which is known to
        be gone; LogShortened if records were found missing before, and that loss was not accepted."""
        ...

    def renew(self, epoch: int, lease_ms: int, address: str | None = None) -> None:
        """The owner's lease runs for so long from now on; it is reached at `address` from now on, if
        that is given. Raises Fenced, StoreUnavailable."""
        ...

    def release(self, epoch: int) -> None:
        """Ends the owner's lease now, if it still is the owner."""
        ...

    def load(self, epoch: int) -> Stored:
        """Raises Fenced if the epoch is not the newest."""
        ...

    def commit(
        self, epoch: int, records: Sequence[tuple[int, bytes]], level: int = OLDEST_LEVEL
    ) -> None:
        """One group commit: all of the records are durable when it returns, or none is there.
        Positions continue those before. level: the feature level that it takes to read them; the store's format is that
        number from then on, in the same step, unless it is higher. Raises Fenced; LogShortened if records before these are
        gone; StoreDamaged; StoreUnavailable or another StoreError if the write failed. Then the records may be
        there or not: the owner commits the same ones again, and they are there once."""
        ...

    def write_snapshot(
        self, epoch: int, position: int, snapshot: bytes, level: int = OLDEST_LEVEL
    ) -> None:
        """Replaces the snapshot and drops the records up to its position, in one step. level: as with `commit`."""
        ...

    def weakened(self) -> str:
        """What the store promises less now than an owner asks for, for people; empty if nothing. While it says
        something, commits raise StoreUnavailable: nothing is acknowledged that would not be durable. May be
        called while another call is under way. Raises StoreUnavailable."""
        ...

    def accept_loss(self) -> str:
        """Forgets that records were found missing, so that the shard may start with what is left.
        Returns what was missing; empty if nothing was."""
        ...

    def close(self) -> None: ...


def lease_left_ms(until_ms: int, now_ms: int, lease_ms: int) -> int:
    """For how long a lease of `lease_ms` runs that ends at `until_ms`. One that seems to run longer than twice what it was
    given for was written by a clock that has been set back since by more than that: it counts as over."""
    left = until_ms - now_ms
    return left if 0 < left <= 2 * lease_ms else 0


def next_epoch(where: str, lease: Lease, owner: str, replaces: int, least_epoch: int) -> int:
    """The epoch that `owner` gets where a shard's lease is this one. Raises Held as `Store.acquire`."""
    if lease.remaining_ms and lease.owner != owner and lease.epoch != replaces:
        raise Held(where, lease)
    return max(lease.epoch + 1, least_epoch)


def follow_one_another(records: Sequence[tuple[int, bytes]], first: int) -> bool:
    """Whether the positions of records are `first` and on, without gaps."""
    return [position for position, _ in records] == [*range(first, first + len(records))]


def shortened_text(where: str, last: int, committed: int) -> str:
    """What has become of a log that ends before what was committed."""
    return (
        f"{where} ends at record {last}, and record {committed} was committed: acknowledged records are "
        "gone. Restore a copy that has them, or accept the loss with: lowmark store accept-loss"
    )
