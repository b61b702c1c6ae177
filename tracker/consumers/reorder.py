"""A reorder buffer: takes items in any order, gives them out in the order of their slots, when complete.

    with ReorderBuffer("/data/ordered.db") as buffer:
        buffer.add([(slot, key, payload), ...])        # durable on return, then acknowledge them
        buffer.release(min_time, write)                # write(items) gets all below min time, in order

For a sink that must be ordered. Items of one slot are ordered by their keys. The buffer is durable, so an
item may be acknowledged when it has been added: consumed from the segment that its arrival is tracked in,
whose min time releases it. (An item that stays open while it waits holds back the min time it waits for.)
Each released item has a position, 0, 1, 2, ..., for good: a sink that was killed after `write` and before
the release was recorded is given the same items again, under the same positions.

Whoever keeps more than that beside the items (the barrier does) puts it into the same file, by `transaction`,
so that both are durable together or not at all.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias
from uuid import uuid4

from tracker.consumers.durable import StateFile
from tracker.core.model.slots import FOREVER, HIGHEST_SLOT, LOWEST_SLOT
from tracker.errors import Code, LateError, StateError, UnavailableError

MAX_ITEMS = 10_000_000
"""Items that one buffer may hold, unless another limit is given."""
MAX_BYTES = 1 << 40
"""Bytes of payloads and keys that one buffer may hold, unless another limit is given."""
RELEASE_ITEMS = 10_000
"""Items that are given out at once, at most."""
RELEASE_BYTES = 8 << 20
"""Bytes of payloads and keys that are given out at once, at most, unless one item alone has more."""
_TABLES = """
CREATE TABLE IF NOT EXISTS waiting (slot INTEGER, key TEXT, origin INTEGER, ordinal INTEGER, payload BLOB,
    PRIMARY KEY (slot, key, origin, ordinal)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value INTEGER);
CREATE TABLE IF NOT EXISTS identity (buffer TEXT);
"""
_Row: TypeAlias = tuple[int, str, bytes, int, int]
"""As in _COLUMNS."""
_COLUMNS = "slot, key, payload, origin, ordinal"
_ORDER = "slot, key, origin, ordinal"
_SIZES = "COUNT(*), COALESCE(SUM(LENGTH(payload) + LENGTH(CAST(key AS BLOB))), 0)"


@dataclass(frozen=True, slots=True)
class Released:
    """An item in its place. position: how many were released before it."""

    position: int
    slot: int
    key: str
    payload: bytes


class ReorderBuffer:
    """A buffer in a local file of its own. One process and one thread at a time."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        max_items: int = MAX_ITEMS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.max_items, self.max_bytes = max_items, max_bytes
        self._lock = StateFile(path)
        self._database: sqlite3.Connection | None = None

    def __enter__(self) -> ReorderBuffer:
        """Opens the file. Raises StateError if another process has it, sqlite3.Error."""
        self._lock.hold()
        # Synced with each commit: what was added is acknowledged to the tracker.
        self._database = sqlite3.connect(self._lock.path, isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.executescript(_TABLES)
        with self.transaction() as database:
            if database.execute("SELECT buffer FROM identity").fetchone() is None:
                database.execute("INSERT INTO identity VALUES (?)", (uuid4().hex,))
        return self

    def __exit__(self, *_: object) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
        self._lock.release()

    @property
    def path(self) -> object:
        """The file."""
        return self._lock.path

    @property
    def id(self) -> str:
        """The buffer's own, for good: positions of one buffer mean nothing to another."""
        return str(self._open.execute("SELECT buffer FROM identity").fetchone()[0])

    def __len__(self) -> int:
        """How many items wait."""
        return self._state("items", 0)

    @property
    def held_bytes(self) -> int:
        """Of the payloads and keys of the items that wait."""
        return self._state("bytes", 0)

    @property
    def position(self) -> int:
        """How many items have been released for good."""
        return self._state("position", 0)

    @property
    def released_below(self) -> int:
        """The min time up to which items have been released."""
        return self._state("released_below", LOWEST_SLOT)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All that is done to the file within is durable together at its end, or, where it raises, not done.
        One within another is a part of that."""
        database = self._open
        if database.in_transaction:
            yield database
            return
        with database:
            database.execute("BEGIN IMMEDIATE")
            yield database

    def add(self, items: Iterable[tuple[int, str, bytes]], origin: int = 0, first: int = 0) -> None:
        """Adds items, all or none: (slot, key, payload). Durable on return.

        One whose slot and key are there already is the same item again, unless an origin is given: a number
        other than 0 of what the items come from. Then they are distinguished by it and by their ordinals in it,
        `first`, `first` + 1, ..., by which those of one slot and key are ordered as well.

        Raises LateError if one lies below what was released: unless a front was evicted, it was
        released and is added again, or its segment's min time was not the one that released. Raises
        UnavailableError, and sqlite3.Error where the disk fails.
        """
        rows = [
            (slot, key, origin, first + index if origin else 0, payload)
            for index, (slot, key, payload) in enumerate(items)
        ]
        floor = self.released_below
        late = next((row for row in rows if row[0] < floor), None)
        if late is not None:
            raise LateError(
                f"item {late[1]!r} has slot {late[0]}, and everything below {floor} has been released; "
                "leave it out if it was added before, or write it beside the ordered output"
            )
        beyond = next((row for row in rows if row[0] > HIGHEST_SLOT), None)
        if beyond is not None:
            raise ValueError(
                f"item {beyond[1]!r} has slot {beyond[0]}; the largest is {HIGHEST_SLOT}"
            )
        with self.transaction() as database:
            added = database.executemany(
                "INSERT OR IGNORE INTO waiting VALUES (?, ?, ?, ?, ?)", rows
            )
            if added.rowcount == len(rows):
                self._put("items", len(self) + len(rows))
                self._put("bytes", self.held_bytes + sum(_size(row[1], row[4]) for row in rows))
            elif rows:
                self._count_anew()  # some were there already
            self._check_room()

    def release(self, min_time: int, write: Callable[[Sequence[Released]], object]) -> int:
        """Gives out all items below a min time, in order, in pieces of at most RELEASE_ITEMS and
        RELEASE_BYTES; returns how many. What `write` raises is raised here: its items are given out again by
        the next call, the same in the same places. A lower min time than before releases nothing."""
        count = 0
        while released := self.release_some(min_time, write):
            count += released
        return count

    def release_some(self, min_time: int, write: Callable[[Sequence[Released]], object]) -> int:
        """As `release`, one piece at most; 0 if nothing is left."""
        found = self._first(min_time, RELEASE_ITEMS, RELEASE_BYTES)
        # What is given out again must be the same: nothing may get in between any more.
        if min_time > self.released_below:
            self._put("released_below", min(min_time, FOREVER))
        if not found:
            return 0
        position = self.position
        write([Released(position + index, *row[:3]) for index, row in enumerate(found)])
        self._drop_through(found[-1])
        return len(found)

    def drop(self, where: str, *values: int) -> None:
        """Forgets items that wait: those of which SQL says so. None may have been given out."""
        with self.transaction() as database:
            if database.execute(f"DELETE FROM waiting WHERE {where}", values).rowcount:
                self._count_anew()

    def written(self, position: int, slot: int, key: str) -> int:
        """Lets go of what a sink has already, up to a position that it knows, whose last item has a slot and
        key; returns how many items that were. May be repeated.

        Raises StateError where that is no position of this buffer: the sink has less than was
        released for good, or what this buffer has not given out.
        """
        begin = self.position
        if position < begin:
            raise StateError(
                f"the sink has {position} items, and {self._lock.path} has let go of {begin}, which it had "
                "written: the sink was set back; bring it back to where it was",
                Code.STATE_POSITION,
            )
        if position == begin:
            return 0
        last = self._open.execute(
            f"SELECT {_COLUMNS} FROM waiting WHERE slot < ? ORDER BY {_ORDER} LIMIT 1 OFFSET ?",
            (self.released_below, position - begin - 1),
        ).fetchone()
        if last is None or last[:2] != (slot, key):
            raise StateError(
                f"the sink has {position} items, up to {key!r} at slot {slot}, and {self._lock.path}, which "
                f"is at {begin}, has not given those out: an older buffer was brought back, or another one "
                "has written there; bring back the newest one",
                Code.STATE_POSITION,
            )
        self._drop_through(last)
        return position - begin

    def _first(self, min_time: int, most: int, most_bytes: int) -> list[_Row]:
        """The first items below a min time, in order, as far as there is room."""
        found: list[_Row] = []
        size = 0
        rows = self._open.execute(
            f"SELECT {_COLUMNS} FROM waiting WHERE slot < ? ORDER BY {_ORDER} LIMIT ?",
            (min_time, most),
        )
        for row in rows:
            size += _size(row[1], row[2])
            if found and size > most_bytes:
                break
            found.append(row)
        rows.close()
        return found

    def _drop_through(self, last: _Row) -> None:
        """Lets go of all items up to one; they are released for good."""
        through = (last[0], last[1], *last[3:])
        where = f"FROM waiting WHERE ({_ORDER}) <= (?, ?, ?, ?)"
        with self.transaction() as database:
            items, size = database.execute(f"SELECT {_SIZES} {where}", through).fetchone()
            database.execute(f"DELETE {where}", through)
            self._put("items", len(self) - items)
            self._put("bytes", self.held_bytes - size)
            self._put("position", self.position + items)

    def _check_room(self) -> None:
        for what, held, limit in (
            ("items", len(self), self.max_items), ("bytes", self.held_bytes, self.max_bytes),
        ):  # fmt: skip
            if held > limit:
                raise UnavailableError(
                    f"{self._lock.path} would hold {held} {what}, the limit max_{what} is {limit}; "
                    "find out what holds min time back, or allow more",
                    Code.UNAVAILABLE_ROOM,
                )

    def _count_anew(self) -> None:
        items, size = self._open.execute(f"SELECT {_SIZES} FROM waiting").fetchone()
        self._put("items", items)
        self._put("bytes", size)

    @property
    def _open(self) -> sqlite3.Connection:
        if self._database is None:
            raise StateError(
                f"{self._lock.path} is not open: use the buffer in a with block", Code.STATE_ORDER
            )
        return self._database

    def _state(self, name: str, default: int) -> int:
        row = self._open.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
        return default if row is None else int(row[0])

    def _put(self, name: str, value: int) -> None:
        self._open.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, value))


def _size(key: str, payload: bytes) -> int:
    return len(payload) + len(key.encode())
