"""The SQLite store refuses files that are not its own, and survives a crash within a commit."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tracker.store import SqliteStore, StoreError, open_store

CRASH_IN_COMMIT = """
import os, sys
from pathlib import Path
from tracker.store import SqliteStore

store = SqliteStore(Path(sys.argv[1]), 0)
epoch = store.acquire("doomed")
store.commit(epoch, [(1, b"kept")])
store._db.set_trace_callback(lambda statement: os._exit(9) if statement == "COMMIT" else None)
store.commit(epoch, [(2, b"half"), (3, b"the other half")])
"""


def test_a_damaged_file_is_refused_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "shard-0.db"
    path.write_bytes(b"this is no database, and long enough to be looked at" * 100)
    with pytest.raises(StoreError, match=r"shard-0\.db is damaged or not SQLite.*backup"):
        SqliteStore(path, 0)
    assert path.read_bytes().startswith(b"this is no database")


def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with sqlite3.connect(path) as theirs:
        theirs.execute("CREATE TABLE mine (x)")
    with pytest.raises(StoreError, match="another program"):
        SqliteStore(path, 0)
    with sqlite3.connect(path) as theirs:
        assert theirs.execute("SELECT name FROM sqlite_master").fetchall() == [("mine",)]


def test_the_file_of_another_shard_is_refused(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "s.db", 1).close()
    with pytest.raises(StoreError, match="belongs to shard 1, not to shard 2"):
        SqliteStore(tmp_path / "s.db", 2)


def test_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "s.db", 0).close()
    with sqlite3.connect(tmp_path / "s.db") as later:
        later.execute("PRAGMA user_version=99")
    with pytest.raises(StoreError, match="has format 99, this version reads format 1"):
        SqliteStore(tmp_path / "s.db", 0)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db", 0)
    epoch = store.acquire("a")
    store.commit(epoch, [(n, bytes(1000)) for n in range(1, 200)])
    store.close()
    os.truncate(tmp_path / "s.db", 5000)
    with pytest.raises(StoreError, match="backup"):
        damaged = SqliteStore(tmp_path / "s.db", 0)
        list(damaged.load(damaged.acquire("b")).records)


def test_damage_in_the_middle_of_the_log_is_noticed_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = SqliteStore(path, 0)
    store.commit(store.acquire("a"), [(n, bytes(1000)) for n in range(1, 200)])
    store.close()
    with path.open("r+b") as file:
        file.seek(20 * 4096)
        file.write(b"\xff" * (10 * 4096))
    damaged = SqliteStore(path, 0)
    with pytest.raises(StoreError, match=r"s\.db cannot be read.*backup"):
        list(damaged.load(damaged.acquire("b")).records)
    damaged.close()


def test_a_process_that_dies_within_a_commit_leaves_none_of_it(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    died = subprocess.run(
        [sys.executable, "-c", CRASH_IN_COMMIT, str(path)], check=False, timeout=60
    )
    assert died.returncode == 9
    store = SqliteStore(path, 0)
    assert list(store.load(store.acquire("next")).records) == [(1, b"kept")]
    store.close()


def test_an_unknown_kind_of_store_is_refused_by_name() -> None:
    with pytest.raises(StoreError, match=r"'floppy:x' is not known; use memory: or sqlite:"):
        open_store("floppy:x", 0)
