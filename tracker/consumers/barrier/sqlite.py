"""Rows in order in a table of an SQLite file: the smallest sink there is, for one machine."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing

from tracker.consumers.barrier.sink import (
    Position,
    check_buffer,
    check_epoch,
    check_name,
    check_write,
    epoch_and_position,
)
from tracker.consumers.reorder import Released
from tracker.errors import Code, UnavailableError

WAIT_S = 30.0
"""How long another writer of the file is waited for."""
_TABLES = """
CREATE TABLE IF NOT EXISTS ordered_rows (barrier TEXT, position INTEGER, slot INTEGER, key TEXT, payload BLOB,
    PRIMARY KEY (barrier, position)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS lowmark_barrier (barrier TEXT PRIMARY KEY, buffer TEXT, epoch INTEGER,
    next INTEGER, slot INTEGER, key TEXT);
"""


class SqliteSink:
    """Rows in the table `ordered_rows`, by barrier and position; the positions in `lowmark_barrier`."""

    interval_ms = 0.0

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.path.abspath(path)
        self._database: sqlite3.Connection | None = None
        self._epoch: int | None = None
        self._held: Position | None = None
        self._barrier = ""

    @property
    def name(self) -> str:
        return f"the SQLite file {self._path}"

    def open(self, barrier: str, buffer: str) -> Position | None:
        check_name(barrier)
        self.close()
        self._barrier = barrier
        try:
            self._database = sqlite3.connect(self._path, timeout=WAIT_S, isolation_level=None)
            self._database.execute("PRAGMA synchronous=FULL")
            self._database.executescript(_TABLES)
            with self._database as database:
                database.execute("BEGIN IMMEDIATE")
                epoch, self._held = self._read(database)
                check_epoch(self.name, barrier, epoch, self._epoch)
                check_buffer(self.name, barrier, self._held, buffer)
                database.execute(
                    "INSERT INTO lowmark_barrier (barrier, buffer, epoch, next) VALUES (?, ?, 1, 0) "
                    "ON CONFLICT (barrier) DO UPDATE SET epoch = epoch + 1, buffer = excluded.buffer",
                    (barrier, buffer),
                )
                self._epoch = epoch + 1
        except sqlite3.Error as error:
            raise UnavailableError(f"{self.name}: {error}", Code.UNAVAILABLE_SINK) from error
        return self._held

    def write(self, rows: Sequence[Released], position: Position) -> None:
        check_write(self._held, rows, position)
        if self._database is None:
            raise UnavailableError(f"{self.name} is not open", Code.UNAVAILABLE_SINK)
        try:
            with self._database as database:
                database.execute("BEGIN IMMEDIATE")
                epoch, _ = self._read(database)
                check_epoch(self.name, self._barrier, epoch, self._epoch)
                database.executemany(
                    "INSERT INTO ordered_rows VALUES (?, ?, ?, ?, ?)",
                    [(self._barrier, r.position, r.slot, r.key, r.payload) for r in rows],
                )
                database.execute(
                    "UPDATE lowmark_barrier SET next = ?, slot = ?, key = ? WHERE barrier = ?",
                    (position.next, position.slot, position.key, self._barrier),
                )
        except sqlite3.Error as error:
            raise UnavailableError(f"{self.name}: {error}", Code.UNAVAILABLE_SINK) from error
        self._held = position

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def _read(self, database: sqlite3.Connection) -> tuple[int, Position | None]:
        """The epoch of the barrier's newest writer, 0 before the first, and the position."""
        found = database.execute(
            "SELECT epoch, buffer, next, slot, key FROM lowmark_barrier WHERE barrier = ?",
            (self._barrier,),
        ).fetchone()
        return epoch_and_position(found)


def ordered_rows(path: str | os.PathLike[str], barrier: str) -> list[Released]:
    """The rows of a barrier in a file, in order."""
    with closing(sqlite3.connect(path)) as database:
        found = database.execute(
            "SELECT position, slot, key, payload FROM ordered_rows WHERE barrier = ? ORDER BY position",
            (barrier,),
        )
        return [Released(*row) for row in found]
