"""A reorder buffer: takes items in any order, gives them out in the order of their slots, when complete.

    with ReorderBuffer("/data/ordered.db") as buffer:
        buffer.add([(slot, key, payload), ...])        # durable on return, then acknowledge them
        buffer.release(min_time, write)                # write(items) gets all below min time, in order

For a sink that must be ordered. Items of one slot are ordered by their keys. The buffer is durable, so an
item may be acknowledged when it has been added: consumed from the segment that its arrival is tracked in,
whose min time releases it. (An item that stays open while it waits holds back the min time it waits for.)
Each released item has a position, 0, 1, 2, ..., for good: a sink that was killed after `write` and before
the release was recorded is given the same items again, under the same positions.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tracker.client.errors import LowmarkError
from tracker.consumers.durable import StateFile
from tracker.core.model.slots import FOREVER, HIGHEST_SLOT, LOWEST_SLOT

MAX_ITEMS = 10_000_000
"""Items that one buffer may hold, unless another limit is given."""
RELEASE_ITEMS = 10_000
"""Items that are given out at once."""
_TABLES = """
CREATE TABLE IF NOT EXISTS items (slot INTEGER, key TEXT, payload BLOB, PRIMARY KEY (slot, key))
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value INTEGER);
"""


class LateItemError(LowmarkError):
    """An item below what has been released: giving it out would break the order."""


class BufferFullError(LowmarkError):
    """The buffer holds as many items as it may; nothing of what was to be added is in it."""


@dataclass(frozen=True, slots=True)
class Released:
    """An item in its place. position: how many were released before it."""

    position: int
    slot: int
    key: str
    payload: bytes


class ReorderBuffer:
    """A buffer in a local file of its own. One process and one thread at a time."""

    def __init__(self, path: str | os.PathLike[str], max_items: int = MAX_ITEMS) -> None:
        self.max_items = max_items
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
        return self

    def __exit__(self, *_: object) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
        self._lock.release()

    def __len__(self) -> int:
        """How many items wait."""
        return int(self._open.execute("SELECT COUNT(*) FROM items").fetchone()[0])

    @property
    def released_below(self) -> int:
        """The min time up to which items have been released."""
        return self._state("released_below", LOWEST_SLOT)

    def add(self, items: Iterable[tuple[int, str, bytes]]) -> None:
        """Adds items, all or none: (slot, key, payload). One whose slot and key are there already is the
        same item again. Durable on return.

        Raises LateItemError if one lies below what was released: unless a front was evicted, it was
        released and is told again, or its segment's min time was not the one that released. Raises
        BufferFullError, and sqlite3.Error where the disk fails.
        """
        rows = list(items)
        floor = self.released_below
        late = next((row for row in rows if row[0] < floor), None)
        if late is not None:
            raise LateItemError(
                f"item {late[1]!r} has slot {late[0]}, and everything below {floor} has been released; "
                "leave it out if it was told before, or write it beside the ordered output"
            )
        beyond = next((row for row in rows if row[0] > HIGHEST_SLOT), None)
        if beyond is not None:
            raise ValueError(
                f"item {beyond[1]!r} has slot {beyond[0]}; the largest is {HIGHEST_SLOT}"
            )
        with self._open as database:
            database.execute("BEGIN IMMEDIATE")
            database.executemany("INSERT OR IGNORE INTO items VALUES (?, ?, ?)", rows)
            held = len(self)
            if held > self.max_items:
                raise BufferFullError(
                    f"{self._lock.path} would hold {held} items, the limit max_items is {self.max_items}; "
                    "find out what holds min time back, or allow more"
                )

    def release(self, min_time: int, write: Callable[[Sequence[Released]], object]) -> int:
        """Gives out all items below a min time, in order, in pieces of at most RELEASE_ITEMS; returns how
        many. What `write` raises is raised here: its items are given out again by the next call, the same
        in the same places. A lower min time than before releases nothing."""
        count = 0
        while True:
            position = self._state("position", 0)
            found = self._open.execute(
                "SELECT slot, key, payload FROM items WHERE slot < ? ORDER BY slot, key LIMIT ?",
                (min_time, RELEASE_ITEMS),
            ).fetchall()
            if not found:
                break
            # What is given out again must be the same: nothing may get in between any more.
            self._put("released_below", max(self.released_below, min_time))
            write([Released(position + index, *row) for index, row in enumerate(found)])
            with self._open as database:
                database.execute("BEGIN IMMEDIATE")
                database.executemany(
                    "DELETE FROM items WHERE slot = ? AND key = ?", [row[:2] for row in found]
                )
                self._put("position", position + len(found))
            count += len(found)
        if min_time > self.released_below:
            self._put("released_below", min(min_time, FOREVER))
        return count

    @property
    def _open(self) -> sqlite3.Connection:
        if self._database is None:
            raise LowmarkError(f"{self._lock.path} is not open: use the buffer in a with block")
        return self._database

    def _state(self, name: str, default: int) -> int:
        row = self._open.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
        return default if row is None else int(row[0])

    def _put(self, name: str, value: int) -> None:
        self._open.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, value))
