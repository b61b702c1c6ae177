"""The embedded store: one SQLite file a shard, write-ahead log, synced at each commit.

SQLite's own lock keeps two processes from writing together, and the epoch in the file tells a replaced
owner from the present one within the same transaction. Leases are renewed on a connection of their
own, so that a long write does not end one.

What SQLite does not notice is noticed here: a write-ahead log that is damaged, before SQLite drops what is
behind the damage (`tracker.store.wal`); a log that ends before its mark (`tracker.store.mark`); and files
that are others than those that were opened. A store that has lost records is left as it is: nothing is
written to it before they are back, or somebody has accepted the loss.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import chain
from pathlib import Path

from tracker.core.model.levels import OLDEST_LEVEL
from tracker.store.format import OLDEST_FORMAT, check_format
from tracker.store.interface import (
    Fenced,
    Lease,
    LogShortened,
    Stored,
    StoreDamaged,
    StoreError,
    StoreUnavailable,
    follow_one_another,
    lease_left_ms,
    next_epoch,
    shortened_text,
)
from tracker.store.mark import Mark, OpenMark, make_mark, mark_path, new_identity, read_mark
from tracker.store.missing import (
    ADVICE,
    LAST,
    behind_mark,
    connect_to_read,
    has_tables,
    meta,
    meta_or,
    missing_records,
)

_APPLICATION_ID = 0x4C4F574D  # "LOWM"
_BUSY_TIMEOUT_MS = 5_000
_RENEWALS_PER_LEASE = 8
"""A commit renews the lease after one part in so many of its length."""
_WAL_BYTES = 4 * 1024 * 1024 + 64 * 1024
"""How large the write-ahead log grows before SQLite begins it anew: a thousand pages of 4 KiB."""

_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE log (position INTEGER PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE snapshot (only INTEGER PRIMARY KEY CHECK (only = 1), position INTEGER, data BLOB);
"""
_WRITE_VERSION_AT, _NEWEST_WRITE_VERSION = 18, b"\2"
"""In the header of a file (https://www.sqlite.org/fileformat.html)."""
_ROW_BYTES = 1024
"""What a row takes beside the one large value in it, at most: both have the limit of a value together."""
_ROWS = 64
"""Records that one statement writes, at most."""


def _values(rows: int) -> str:
    return ", ".join(["(?, ?)"] * rows)


_INSERT = [f"INSERT INTO log VALUES {_values(rows)}" for rows in range(_ROWS + 1)]
_APPEND = [
    f"INSERT INTO log SELECT column1, column2 FROM (VALUES {_values(rows)})"
    " WHERE (SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'epoch') = ?"
    f" AND ({LAST}) = ?"
    for rows in range(_ROWS + 1)
]
_NO_OWNER = {"epoch": 0, "owner": "", "address": "", "lease_ms": 0, "lease_until_ms": 0}


class SqliteStore:
    """A shard's log in one file, created where there is none."""

    _db: sqlite3.Connection

    def __init__(self, path: Path, shard: int) -> None:
        self.path, self._shard = path, shard
        self._leasing: sqlite3.Connection | None = None
        self._leasing_lock = threading.Lock()
        self._lease_ms = self._renew_from_ms = 0
        self._format = 0
        """The format of the store when this process has acquired it, or has raised it since."""
        self._known_last = 0
        """The last position that this process has seen in the log; durable there."""
        self._mark: OpenMark | None = None
        self._files: dict[str, tuple[int, int]] = {}
        """The device and inode of each file that is open, by its name; empty while the store is closed."""
        self._open_whole()

    def _open_whole(self) -> None:
        """Opens the store, unless records are missing from it: then it stays closed, and untouched."""
        self._lost = missing_records(self.path)
        if not self._lost:
            self._open()

    def _open(self) -> None:
        path = self.path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = _connect(path)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"store {path} cannot be opened: {error}") from error
        try:
            with self._errors("opened"):
                self._prepare(self._shard)
                self._files = {name: _inode(name) for name in (str(path), f"{path}-wal")}
        except StoreError:
            self._db.close()
            raise

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Errors of SQLite and of the disk as the store's."""
        with _as_store_errors(self.path, what):
            yield

    def _pragma(self, name: str) -> int:
        return int(self._db.execute(f"PRAGMA {name}").fetchone()[0])

    def _checked_format(self) -> int:
        """The store's format now. Raises StoreError if this version does not read it."""
        found = self._pragma("user_version")
        check_format(f"store {self.path}", found)
        return found

    def _prepare(self, shard: int) -> None:
        if self._pragma("application_id") != _APPLICATION_ID:
            if self._pragma("schema_version") != 0:
                raise StoreError(
                    f"store {self.path} is a database of another program; name another directory"
                )
            self._create(shard)
        self._checked_format()
        kept = self._meta("shard")
        if kept != str(shard):
            raise StoreError(
                f"store {self.path} belongs to shard {kept}, not to shard {shard}; "
                "name the directory of this shard"
            )
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._fill_wal()

    def _create(self, shard: int) -> None:
        with _transaction(self._db):
            if self._pragma("schema_version") != 0:
                return  # another process has made it meanwhile
            for statement in _SCHEMA.strip().split(";\n"):
                self._db.execute(statement)
            self._set(shard=shard, missing="", **_NO_OWNER)
            self._db.execute(f"PRAGMA user_version={OLDEST_FORMAT}")
            self._db.execute(f"PRAGMA application_id={_APPLICATION_ID}")

    def _fill_wal(self) -> None:
        """Gives the write-ahead log its size at once, by zeros behind what is in it, which SQLite takes
        for no page: a commit that makes a file longer waits for the disk several times as long as one
        that writes over it. Nobody else writes meanwhile. Without room on the disk it just stays small."""
        path = Path(f"{self.path}-wal")
        with suppress(OSError), _transaction(self._db), path.open("r+b") as wal:
            missing = _WAL_BYTES - wal.seek(0, os.SEEK_END)
            if missing > 0:
                wal.write(bytes(missing))
                wal.flush()
                os.fsync(wal.fileno())

    def _set(self, **values: object) -> None:
        _set_meta(self._db, values)

    def _meta(self, name: str) -> str:
        return meta(self._db, self.path, name)

    @contextmanager
    def _write(self, epoch: int, level: int) -> Iterator[None]:
        """A transaction of the owner of `epoch`, which renews its lease with it. level: of what it writes."""
        with self._errors("written"), _transaction(self._db):
            _check(self._db, self.path, epoch)
            if level > self._format:
                self._db.execute(f"PRAGMA user_version={level}")
            yield
            now_ms = _now_ms()
            if self._lease_ms:
                self._set(lease_until_ms=now_ms + self._lease_ms)
        self._format = max(self._format, level)
        self._renew_from_ms = now_ms + self._lease_ms // _RENEWALS_PER_LEASE

    def acquire(
        self, owner: str, *, lease_ms: int = 0, replaces: int = 0, least_epoch: int = 1
    ) -> int:
        # Perhaps the right files have been put back since; or it is closed, since they could not be opened then.
        if self._lost or not self._files or self._foreign():
            self.close()
            self._open_whole()
        if self._lost:
            raise LogShortened(self._lost)
        with self._errors("acquired"), _transaction(self._db):
            # An owner of a newer version may have raised it.
            self._format = self._checked_format()
            missing = self._meta("missing") or behind_mark(self._db, self.path)
            if missing:
                raise LogShortened(missing)
            lease = _lease(self._db, self.path)
            epoch = next_epoch(f"store {self.path}", lease, owner, replaces, least_epoch)
            until_ms = _now_ms() + lease_ms
            self._set(
                epoch=epoch, owner=owner, address="", lease_ms=lease_ms, lease_until_ms=until_ms
            )
            self._known_last, self._lease_ms = self._last(), lease_ms
            identity = self._identify()
        self._open_mark(identity)
        self._move_mark(epoch, self._known_last, sync=True)
        return epoch

    def _identify(self) -> str:
        """The name of this store, in it and in its mark; one that has none yet gets one. The mark comes
        first: a store with a name and no mark has lost it."""
        identity = meta_or(self._db, "identity")
        if not identity:
            mark = read_mark(self.path)
            identity = new_identity() if mark is None else mark.identity
            if mark is None:
                make_mark(self.path, Mark(identity, 0, 0))
            self._set(identity=identity)
        return identity

    def _open_mark(self, identity: str) -> None:
        if self._mark is not None:
            self._mark.close()
        try:
            self._mark = OpenMark(self.path, identity)
        except OSError as error:
            self._mark = None
            raise StoreUnavailable(
                f"the mark of store {self.path} cannot be opened: {error}"
            ) from error

    def _move_mark(self, epoch: int, last: int, *, sync: bool = False) -> None:
        """What was committed, up to `last`, is durable, where whoever opens the store next will look for it. Raises
        LogShortened if it is not; StoreUnavailable if that cannot be told: then it is not known here either."""
        if foreign := self._foreign():
            raise LogShortened(
                f"{foreign} Records up to {last} were committed to what is gone. {ADVICE}"
            )
        self._known_last = last
        if self._mark is not None:
            self._mark.move(epoch, last)
            if sync:
                self._mark.sync()

    def _foreign(self) -> str:
        """What has become of a file that is open here and was removed or replaced; empty if none was."""
        for name, inode in self._files.items():
            try:
                now = _inode(name)
            except FileNotFoundError:
                return f"{name} was removed while it was in use."
            except OSError as error:
                raise StoreUnavailable(f"store {self.path} cannot be looked at: {error}") from error
            if now != inode:
                return f"{name} was replaced by another file while it was in use."
        return ""

    def renew(self, epoch: int, lease_ms: int, address: str | None = None) -> None:
        with self._leasing_lock:
            if foreign := self._foreign():
                raise LogShortened(f"{foreign} {ADVICE}")
            values: dict[str, object] = {"lease_ms": lease_ms}
            if address is not None:
                values["address"] = address
            with _as_store_errors(self.path, "renewed in its lease"):
                if self._leasing is None:
                    self._leasing = _connect(self.path)
                    # Renewals are synced, though a lease that a crash of the machine takes back has ended
                    # anyway: a commit upon a renewal that was lost would look like damage.
                    self._leasing.execute("PRAGMA synchronous=FULL")
                    self._leasing.execute("PRAGMA wal_autocheckpoint=0")
                with _transaction(self._leasing):
                    _check(self._leasing, self.path, epoch)
                    _set_meta(self._leasing, {**values, "lease_until_ms": _now_ms() + lease_ms})

    def release(self, epoch: int) -> None:
        with suppress(Fenced, LogShortened):
            self.renew(epoch, 0)

    def load(self, epoch: int) -> Stored:
        try:
            _check(self._db, self.path, epoch)
            found = self._checked_format()
            snapshot = self._db.execute("SELECT position, data FROM snapshot").fetchone()
        except sqlite3.Error as error:
            raise self._unreadable(error) from error
        return Stored(snapshot, self._records(snapshot[0] if snapshot else 0), found)

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

    def commit(
        self, epoch: int, records: Sequence[tuple[int, bytes]], level: int = OLDEST_LEVEL
    ) -> None:
        batch = list(records)
        if not batch:
            return
        if level > self._format or not self._append_at_once(epoch, batch):
            self._append(epoch, batch, level)
        self._move_mark(epoch, batch[-1][0])

    def _append_at_once(self, epoch: int, batch: list[tuple[int, bytes]]) -> bool:
        """A group commit of few records as one statement, which is a transaction by itself and writes
        nothing unless all is as it should be. False if it is not, if there are many, or if it is time
        to renew the lease with them.

        Each statement gives up the interpreter's lock, and has to wait until the loop gives it back:
        that costs a busy process more than the writing."""
        count, last = len(batch), self._known_last
        if count > _ROWS or self._renews_with_next() or not follow_one_another(batch, last + 1):
            return False
        values = chain.from_iterable(batch)
        with self._errors("written"):
            return self._db.execute(_APPEND[count], (*values, epoch, last)).rowcount == count

    def _append(self, epoch: int, batch: list[tuple[int, bytes]], level: int) -> None:
        """The same, step by step: says what is wrong, knows a batch that is there already, and renews
        the lease."""
        shortened = ""
        with self._write(epoch, level):
            last = self._last()
            if last < self._known_last:
                shortened = shortened_text(f"store {self.path}", last, self._known_last)
                self._set(missing=shortened)
            elif not self._is_repeated(batch, last):
                if not follow_one_another(batch, last + 1):
                    raise StoreError(
                        f"store {self.path}: records must continue at position {last + 1}"
                    )
                for at in range(0, len(batch), _ROWS):
                    rows = batch[at : at + _ROWS]
                    self._db.execute(_INSERT[len(rows)], [*chain.from_iterable(rows)])
        if shortened:
            raise LogShortened(shortened)

    def _renews_with_next(self) -> bool:
        return bool(self._lease_ms) and _now_ms() >= self._renew_from_ms

    def _is_repeated(self, batch: list[tuple[int, bytes]], last: int) -> bool:
        """Whether the log ends with just these records: an earlier attempt of this owner whose
        answer was an error."""
        if batch[-1][0] != last or self._known_last >= last:
            return False
        rows = self._db.execute(
            "SELECT position, record FROM log WHERE position >= ? ORDER BY position", (batch[0][0],)
        )
        return [(int(position), bytes(record)) for position, record in rows] == batch

    def _last(self) -> int:
        """Position of the last record, kept or replaced by the snapshot."""
        return int(self._db.execute(LAST).fetchone()[0])

    def write_snapshot(
        self, epoch: int, position: int, snapshot: bytes, level: int = OLDEST_LEVEL
    ) -> None:
        most = self._db.getlimit(sqlite3.SQLITE_LIMIT_LENGTH) - _ROW_BYTES
        if len(snapshot) > most:
            raise StoreError(
                f"store {self.path}: a snapshot of {len(snapshot)} bytes is not written, SQLite's limit is {most}; the log "
                "grows without it: let fewer pipelines share a tracker, or add shards"
            )
        with self._write(epoch, level):
            self._db.execute(
                "INSERT OR REPLACE INTO snapshot VALUES (1, ?, ?)", (position, snapshot)
            )
            self._db.execute("DELETE FROM log WHERE position <= ?", (position,))
        self._move_mark(epoch, max(self._known_last, position), sync=True)

    def weakened(self) -> str:
        return ""

    def accept_loss(self) -> str:
        if self._lost:
            if not has_tables(self.path):
                raise StoreError(
                    f"store {self.path} has nothing left to start with; to begin with an empty one, remove "
                    f"{mark_path(self.path)} and what else is left of it"
                )
            self._open()
        with self._errors("written"), _transaction(self._db):
            behind = self._lost or behind_mark(self._db, self.path)
            missing = behind or self._meta("missing")
            self._set(missing="")
            if behind:
                self._mark_anew()
        self._lost = ""
        return missing

    def _mark_anew(self) -> None:
        """Declares the store as it is now the right one. No owner gets an epoch that an owner before had."""
        with suppress(StoreError):
            mark = read_mark(self.path)
            if mark is not None and mark.epoch > int(self._meta("epoch")):
                self._set(epoch=mark.epoch)
        identity = new_identity()
        make_mark(self.path, Mark(identity, int(self._meta("epoch")), self._last()))
        self._set(identity=identity)

    def close(self) -> None:
        """Closes the store. Files of other stores that lie at its path by now stay as they are."""
        with self._leasing_lock, _kept(Path(f"{self.path}-wal"), self._files):
            if self._leasing is not None:
                self._leasing.close()
                self._leasing = None
            if self._files:
                self._db.close()
                self._files = {}
        if self._mark is not None:
            self._mark.close()
            self._mark = None


def read_lease(path: Path) -> Lease | None:
    """The lease in a shard's file; None if there is no file, or it cannot be read now."""
    try:
        with closing(connect_to_read(path)) as db:
            return _lease(db, path)
    except (sqlite3.Error, StoreError):
        return None


def _inode(name: str) -> tuple[int, int]:
    status = os.stat(name)
    return status.st_dev, status.st_ino


@contextmanager
def _kept(wal: Path, files: dict[str, tuple[int, int]]) -> Iterator[None]:
    """Keeps a write-ahead log that somebody has put there meanwhile. SQLite removes the log by its name when
    it closes a file, also where that is not its own."""
    kept = wal.with_name(f"{wal.name}.kept")
    with suppress(OSError):
        if files and _inode(str(wal)) != files[str(wal)]:
            os.link(wal, kept)
    try:
        yield
    finally:
        with suppress(OSError):
            os.replace(kept, wal)


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        path,
        isolation_level=None,
        check_same_thread=False,
        timeout=_BUSY_TIMEOUT_MS / 1000,
        cached_statements=4 * _ROWS,
    )


@contextmanager
def _as_store_errors(path: Path, what: str) -> Iterator[None]:
    """Errors of SQLite and of the disk as a store's: what is damaged stays so, and all else may succeed later,
    when a disk has room again."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        if _is_damage(path, error):
            raise StoreDamaged(
                f"store {path} is damaged or not SQLite ({error}); restore it from a backup, or name "
                "another directory"
            ) from error
        raise StoreUnavailable(f"store {path} cannot be {what}: {error}") from error


def _is_damage(path: Path, error: Exception) -> bool:
    """Whether an error is of what the file holds. SQLite names none where its header asks for a newer version
    than there is: to read it at all, or to write to it."""
    if isinstance(error, OSError) or not isinstance(error, sqlite3.DatabaseError):
        return False
    if not isinstance(error, sqlite3.OperationalError):
        return True
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_READONLY:
        with suppress(OSError), path.open("rb") as file:
            return file.read(_WRITE_VERSION_AT + 1)[-1:] > _NEWEST_WRITE_VERSION
    return code == sqlite3.SQLITE_ERROR


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # some errors, such as a full disk, have ended it already
            db.execute("ROLLBACK")
        raise


def _set_meta(db: sqlite3.Connection, values: Mapping[str, object]) -> None:
    db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())


def _check(db: sqlite3.Connection, path: Path, epoch: int) -> None:
    newest = int(meta(db, path, "epoch"))
    if epoch != newest:
        raise Fenced(f"store {path} has a newer owner: epoch {epoch} has been replaced by {newest}")


def _lease(db: sqlite3.Connection, path: Path) -> Lease:
    lease_ms = int(meta(db, path, "lease_ms"))
    until_ms = int(meta(db, path, "lease_until_ms"))
    return Lease(
        int(meta(db, path, "epoch")),
        meta(db, path, "owner"),
        meta(db, path, "address"),
        lease_left_ms(until_ms, _now_ms(), lease_ms),
    )


def _now_ms() -> int:
    """The clock that all processes of a machine share."""
    return time.time_ns() // 1_000_000
