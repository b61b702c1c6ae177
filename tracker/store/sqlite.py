"""The embedded store: one SQLite file a shard, write-ahead log, synced at each commit.

Opened by one thread at a time; SQLite's own lock keeps two processes from writing together, and the
epoch in the file tells a replaced owner from the present one within the same transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tracker.store.interface import Fenced, Stored, StoreError

_APPLICATION_ID = 0x4C4F574D  # "LOWM"
_VERSION = 1
_BUSY_TIMEOUT_MS = 5_000

_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE log (position INTEGER PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE snapshot (only INTEGER PRIMARY KEY CHECK (only = 1), position INTEGER, data BLOB);
"""


class SqliteStore:
    """A shard's log in one file, created where there is none."""

    def __init__(self, path: Path, shard: int) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(
                path,
                isolation_level=None,
                check_same_thread=False,
                timeout=_BUSY_TIMEOUT_MS / 1000,
            )
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"store {path} cannot be opened: {error}") from error
        try:
            self._prepare(shard)
        except sqlite3.DatabaseError as error:
            self._db.close()
            raise StoreError(
                f"store {path} is damaged or not SQLite ({error}); restore it from a backup, or name "
                "another directory"
            ) from error
        except StoreError:
            self._db.close()
            raise

    def _prepare(self, shard: int) -> None:
        def pragma(name: str) -> int:
            return int(self._db.execute(f"PRAGMA {name}").fetchone()[0])

        if pragma("application_id") != _APPLICATION_ID:
            if pragma("schema_version") != 0:
                raise StoreError(
                    f"store {self.path} is a database of another program; name another directory"
                )
            self._create(shard)
        version = pragma("user_version")
        if version != _VERSION:
            raise StoreError(
                f"store {self.path} has format {version}, this version reads format {_VERSION}; "
                "use the version of Lowmark that wrote it"
            )
        kept = self._meta("shard")
        if kept != shard:
            raise StoreError(
                f"store {self.path} belongs to shard {kept}, not to shard {shard}; "
                "name the directory of this shard"
            )
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")

    def _create(self, shard: int) -> None:
        with self._transaction():
            for statement in _SCHEMA.strip().split(";\n"):
                self._db.execute(statement)
            self._db.executemany(
                "INSERT INTO meta VALUES (?, ?)", [("shard", shard), ("epoch", 0), ("owner", "")]
            )
            self._db.execute(f"PRAGMA user_version={_VERSION}")
            self._db.execute(f"PRAGMA application_id={_APPLICATION_ID}")

    def _meta(self, name: str) -> int:
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise StoreError(f"store {self.path} lacks {name}; restore it from a backup")
        return int(row[0])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    @contextmanager
    def _write(self, epoch: int) -> Iterator[None]:
        """A transaction of the owner of `epoch`; sqlite3's errors become StoreError."""
        try:
            with self._transaction():
                self._check(epoch)
                yield
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise StoreError(f"store {self.path} cannot be written: {error}") from error

    def _check(self, epoch: int) -> None:
        newest = self._meta("epoch")
        if epoch != newest:
            raise Fenced(
                f"store {self.path} has a newer owner: epoch {epoch} has been replaced by {newest}"
            )

    def acquire(self, owner: str) -> int:
        try:
            with self._transaction():
                epoch = self._meta("epoch") + 1
                self._db.execute("UPDATE meta SET value = ? WHERE name = 'epoch'", (epoch,))
                self._db.execute("UPDATE meta SET value = ? WHERE name = 'owner'", (owner,))
        except sqlite3.Error as error:
            raise StoreError(f"store {self.path} cannot be acquired: {error}") from error
        return epoch

    def load(self, epoch: int) -> Stored:
        try:
            self._check(epoch)
            snapshot = self._db.execute("SELECT position, data FROM snapshot").fetchone()
        except sqlite3.Error as error:
            raise self._unreadable(error) from error
        return Stored(snapshot, self._records(snapshot[0] if snapshot else 0))

    def _records(self, after: int) -> Iterator[tuple[int, bytes]]:
        try:
            rows = self._db.execute(
                "SELECT position, record FROM log WHERE position > ? ORDER BY position", (after,)
            )
            for position, record in rows:
                yield int(position), bytes(record)
        except sqlite3.Error as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: sqlite3.Error) -> StoreError:
        return StoreError(f"store {self.path} cannot be read: {error}; restore it from a backup")

    def commit(self, epoch: int, records: Sequence[tuple[int, bytes]]) -> None:
        batch = list(records)
        with self._write(epoch):
            due = self._last() + 1
            if [position for position, _ in batch] != list(range(due, due + len(batch))):
                raise StoreError(f"store {self.path}: records must continue at position {due}")
            self._db.executemany("INSERT INTO log VALUES (?, ?)", batch)

    def _last(self) -> int:
        """Position of the last record, kept or replaced by the snapshot."""
        row = self._db.execute(
            "SELECT max((SELECT ifnull(max(position), 0) FROM log),"
            " (SELECT ifnull(max(position), 0) FROM snapshot))"
        ).fetchone()
        return int(row[0])

    def write_snapshot(self, epoch: int, position: int, snapshot: bytes) -> None:
        with self._write(epoch):
            self._db.execute(
                "INSERT OR REPLACE INTO snapshot VALUES (1, ?, ?)", (position, snapshot)
            )
            self._db.execute("DELETE FROM log WHERE position <= ?", (position,))

    def close(self) -> None:
        self._db.close()
