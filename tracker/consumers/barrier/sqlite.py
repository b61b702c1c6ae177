"""Rows in order in a table of an SQLite file: the smallest sink there is, for one machine."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing

from tracker.consumers.barrier.sink import OrderedSink, Position, away, writer_and_position
from tracker.consumers.reorder import Released
from tracker.errors import LowmarkError

WAIT_S = 30.0
"""How long another writer of the file is waited for."""
_TABLES = """
CREATE TABLE IF NOT EXISTS ordered_rows (barrier TEXT, position INTEGER, slot INTEGER, key TEXT, payload BLOB,
    PRIMARY KEY (barrier, position)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS lowmark_barrier (barrier TEXT PRIMARY KEY, buffer TEXT, writer INTEGER,
    next INTEGER, slot INTEGER, key TEXT);
"""


class SqliteSink(OrderedSink):
    """Rows in the table `ordered_rows`, by barrier and position; the positions in `lowmark_barrier`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.path.abspath(path)
        super().__init__(f"the SQLite file {self._path}")
        self._database: sqlite3.Connection | None = None

    def take(self, buffer: str) -> Position | None:
        self._database = sqlite3.connect(self._path, timeout=WAIT_S, isolation_level=None)
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.executescript(_TABLES)
        with self._database as database:
            database.execute("BEGIN IMMEDIATE")
            writer, held = self._read(database)
            self.check_writer(writer)
            self.check_buffer(held, buffer)
            database.execute(
                "INSERT INTO lowmark_barrier (barrier, buffer, writer, next) VALUES (?, ?, ?, 0) "
                "ON CONFLICT (barrier) DO UPDATE SET writer = excluded.writer, buffer = excluded.buffer",
                (self.barrier, buffer, self.writer),
            )
        return held

    def append(self, rows: Sequence[Released], position: Position) -> None:
        assert self._database is not None
        with self._database as database:
            database.execute("BEGIN IMMEDIATE")
            self.check_writer(self._read(database)[0])
            database.executemany(
                "INSERT INTO ordered_rows VALUES (?, ?, ?, ?, ?)",
                [(self.barrier, r.position, r.slot, r.key, r.payload) for r in rows],
            )
            database.execute(
                "UPDATE lowmark_barrier SET next = ?, slot = ?, key = ? WHERE barrier = ?",
                (position.next, position.slot, position.key, self.barrier),
            )

    def let_go(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def failed(self, error: Exception) -> LowmarkError | None:
        return away(f"{self.name}: {error}") if isinstance(error, sqlite3.Error) else None

    def _read(self, database: sqlite3.Connection) -> tuple[int | None, Position | None]:
        """Who has opened the sink for the barrier last, and the position."""
        found = database.execute(
            "SELECT writer, buffer, next, slot, key FROM lowmark_barrier WHERE barrier = ?",
            (self.barrier,),
        ).fetchone()
        return writer_and_position(found)


def ordered_rows(path: str | os.PathLike[str], barrier: str) -> list[Released]:
    """The rows of a barrier in a file, in order."""
    with closing(sqlite3.connect(path)) as database:
        found = database.execute(
            "SELECT position, slot, key, payload FROM ordered_rows WHERE barrier = ? ORDER BY position",
            (barrier,),
        )
        return [Released(*row) for row in found]
