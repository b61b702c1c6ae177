"""Whether records are missing from a SQLite store: looked for before anything is written to it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from tracker.store.interface import StoreError
from tracker.store.mark import mark_path, read_mark
from tracker.store.wal import find_damage, has_frames

ADVICE = (
    "Put back the copy that has them, with its -wal and -mark, or accept the loss with: lowmark store "
    "accept-loss"
)
LAST = (
    "SELECT max((SELECT ifnull(max(position), 0) FROM log),"
    " (SELECT ifnull(max(position), 0) FROM snapshot))"
)


def missing_records(path: Path) -> str:
    """What is missing from the store at a path, seen without a change to it: empty if nothing is, as far
    as it tells."""
    wal = Path(f"{path}-wal")
    damage = find_damage(wal)
    if damage is not None:
        return f"store {path}: its write-ahead log is {damage}: acknowledged records are gone. {ADVICE}"
    try:
        if path.stat().st_size:
            return _compared(path, wal)
    except FileNotFoundError:
        pass
    try:
        mark = read_mark(path)
    except StoreError as error:
        return str(error)
    if mark is not None:
        return (
            f"store {path} is empty or not there, and its mark says that record {mark.position} was "
            f"committed, by the owner of epoch {mark.epoch}: acknowledged records are gone. {ADVICE}"
        )
    if has_frames(wal):
        return (
            f"store {path} is empty or not there, and its -wal is not: records are gone. {ADVICE}"
        )
    return ""


def _compared(path: Path, wal: Path) -> str:
    """What the store at a path lacks of what its mark says. Without a write-ahead log the file is all there
    is, and is read as such: else SQLite would make one."""
    alone = not wal.exists()
    try:
        with closing(connect_to_read(path, alone=alone)) as db:
            found = behind_mark(db, path)
        if found and alone and wal.exists():  # somebody has begun one meanwhile
            with closing(connect_to_read(path)) as db:
                found = behind_mark(db, path)
    except (sqlite3.Error, StoreError):
        return ""  # refused by name when it is opened
    return found


def behind_mark(db: sqlite3.Connection, path: Path) -> str:
    """What a store lacks of what its mark says; empty if nothing."""
    try:
        mark = read_mark(path)
    except StoreError as error:
        return str(error)
    epoch, last = int(meta(db, path, "epoch")), int(db.execute(LAST).fetchone()[0])
    identity = meta_or(db, "identity")
    if mark is None:
        return identity and (
            f"store {path} has lost its mark {mark_path(path).name}, so nobody knows whether it is the newest "
            f"copy; it ends at record {last}, of epoch {epoch}. {ADVICE}"
        )
    if identity and identity != mark.identity:
        return (
            f"store {path} is another one than its mark is of, which says that record {mark.position} was "
            f"committed by the owner of epoch {mark.epoch}; this one ends at record {last}, of epoch "
            f"{epoch}: acknowledged records are gone. {ADVICE}"
        )
    if last < mark.position or epoch < mark.epoch:
        return (
            f"store {path} ends at record {last}, of epoch {epoch}, and record {mark.position} was "
            f"committed, by the owner of epoch {mark.epoch}: acknowledged records are gone. {ADVICE}"
        )
    return ""


def has_tables(path: Path) -> bool:
    """Whether the file at a path is a store, of any format."""
    try:
        with closing(connect_to_read(path)) as db:
            return bool(meta_or(db, "shard"))
    except sqlite3.Error:
        return False


def connect_to_read(path: Path, *, alone: bool = False) -> sqlite3.Connection:
    """A connection that changes nothing of what is there: not even when it is closed. alone: nobody else
    has the file open."""
    options = "?mode=ro&immutable=1" if alone else "?mode=ro"
    return sqlite3.connect(f"{path.absolute().as_uri()}{options}", uri=True)


def meta(db: sqlite3.Connection, path: Path, name: str) -> str:
    row = db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    if row is None:
        raise StoreError(f"store {path} lacks {name}; restore it from a backup")
    return str(row[0])


def meta_or(db: sqlite3.Connection, name: str) -> str:
    """The value of that name; empty where the store has none."""
    row = db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return "" if row is None else str(row[0])
