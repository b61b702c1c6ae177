"""The SQLite store refuses files that are not its own, and survives a crash within a commit."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waits import HANG_S
from tracker.store import SqliteStore, StoreDamaged, StoreError, StoreUnavailable, open_store
from tracker.store import sqlite as sqlite_store
from tracker.store.mark import read_mark

CRASH_IN_COMMIT = """
import os, sys
from pathlib import Path
from tracker.store import SqliteStore

store = SqliteStore(Path(sys.argv[1]), 0)
epoch = store.acquire("doomed")
store.commit(epoch, [(1, b"kept")])
last = 201
store._db.create_function("die", 0, lambda: os._exit(9))
store._db.execute(
    f"CREATE TEMP TRIGGER dies AFTER INSERT ON main.log WHEN NEW.position = {last} BEGIN SELECT die(); END"
)
store.commit(epoch, [(n, b"half") for n in range(2, last + 1)])
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


def test_a_process_that_dies_within_a_commit_of_several_statements_leaves_none_of_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s.db"
    died = subprocess.run(
        [sys.executable, "-c", CRASH_IN_COMMIT, str(path)], check=False, timeout=HANG_S
    )
    assert died.returncode == 9
    store = SqliteStore(path, 0)
    assert list(store.load(store.acquire("next")).records) == [(1, b"kept")]
    store.close()


def test_a_commit_of_few_records_is_one_statement_and_of_many_few(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db", 0)
    epoch = store.acquire("a")
    statements: list[str] = []
    store._db.set_trace_callback(lambda statement: statements.append(statement.split()[0]))
    store.commit(epoch, [(n, b"few") for n in range(1, 65)])
    assert statements == ["INSERT"]
    store.commit(epoch, [(n, b"many") for n in range(65, 265)])
    assert statements.count("INSERT") == 1 + 4
    assert [p for p, _ in store.load(epoch).records] == list(range(1, 265))
    store.close()


def test_a_lease_is_renewed_by_commits_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each renewal writes a page more than the commit by itself."""
    now_ms = 1_000_000
    monkeypatch.setattr(sqlite_store, "_now_ms", lambda: now_ms)
    store = SqliteStore(tmp_path / "s.db", 0)
    epoch = store.acquire("a", lease_ms=800)
    for position, (passed_ms, left_ms) in enumerate([(0, 800), (99, 701), (1, 800), (500, 800)], 1):
        now_ms += passed_ms
        store.commit(epoch, [(position, b"x")])
        lease = sqlite_store.read_lease(tmp_path / "s.db")
        assert lease is not None and lease.remaining_ms == left_ms
    store.close()


def test_an_unknown_kind_of_store_is_refused_by_name() -> None:
    with pytest.raises(StoreError, match=r"'floppy:x' is not known; use memory: or sqlite:"):
        open_store("floppy:x", 0)


FILLS_DISK = """
import resource, sys
from pathlib import Path
from tracker.store import SqliteStore, StoreUnavailable

store = SqliteStore(Path(sys.argv[1]), 0)
epoch = store.acquire("a", lease_ms=1000)
store.commit(epoch, [(1, b"one")])
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, most))
batch = [(2, bytes(500_000)), (3, b"three")]
for _ in range(3):
    try:
        store.commit(epoch, batch)
        raise SystemExit("it was committed without room")
    except StoreUnavailable as error:
        print(error)
try:
    store.write_snapshot(epoch, 1, bytes(500_000))
    raise SystemExit("a snapshot was written without room")
except StoreUnavailable:
    pass
assert [position for position, _ in store.load(epoch).records] == [1]
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
store.commit(epoch, batch)
store.renew(epoch, 1000)
store.release(epoch)
store.close()
"""


def test_a_full_disk_is_survived(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    done = subprocess.run(
        [sys.executable, "-c", FILLS_DISK, str(path)],
        capture_output=True, text=True, check=False, timeout=HANG_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("cannot be written") == 3
    store = SqliteStore(path, 0)
    records = list(store.load(store.acquire("b")).records)
    assert [position for position, _ in records] == [1, 2, 3]
    store.close()


def test_a_log_that_was_given_its_size_is_read_as_far_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    first = SqliteStore(path, 0)
    wal = tmp_path / "s.db-wal"
    assert wal.stat().st_size > 4 << 20
    epoch = first.acquire("first")
    first.commit(epoch, [(1, b"one"), (2, b"two")])
    # Another process opens the file while the first still has it, and then both have crashed.
    second = SqliteStore(path, 0)
    first.commit(epoch, [(3, b"three")])
    for name in ("db", "db-wal", "db-mark"):
        (tmp_path / f"copied.{name}").write_bytes((tmp_path / f"s.{name}").read_bytes())
    for store in (second, first):
        store.close()
    copied = SqliteStore(tmp_path / "copied.db", 0)
    epoch = copied.acquire("third")
    assert list(copied.load(epoch).records) == [(1, b"one"), (2, b"two"), (3, b"three")]
    copied.commit(epoch, [(4, b"four")])
    copied.close()


def test_a_commit_that_could_not_be_looked_at_is_made_again_and_is_there_once(
    tmp_path: Path,
) -> None:
    """It is in the log, and its owner has not heard so: a directory on the way to it was moved away for a moment."""
    folder, aside = tmp_path / "stores", tmp_path / "aside"
    store = SqliteStore(folder / "s.db", 0)
    epoch = store.acquire("a")
    store.commit(epoch, [(1, b"one")])
    folder.rename(aside)
    folder.write_text("in the way")
    with pytest.raises(StoreUnavailable, match="cannot be looked at"):
        store.commit(epoch, [(2, b"two")])
    folder.unlink()
    aside.rename(folder)
    store.commit(epoch, [(2, b"two")])
    store.commit(epoch, [(3, b"three")])
    assert [position for position, _ in store.load(epoch).records] == [1, 2, 3]
    mark = read_mark(folder / "s.db")
    assert mark is not None and mark.position == 3
    store.close()


def test_a_snapshot_that_is_larger_than_sqlite_takes_is_no_damage(tmp_path: Path) -> None:
    """Some thirty million open cells: the log goes on without it, and its owner with the log."""
    store = SqliteStore(tmp_path / "s.db", 0)
    epoch = store.acquire("a")
    store.commit(epoch, [(1, b"one")])
    with pytest.raises(StoreError, match=r"1000000000 bytes.*limit is 999998976") as said:
        store.write_snapshot(epoch, 1, bytes(1_000_000_000))
    assert not isinstance(said.value, StoreDamaged)
    store.commit(epoch, [(2, b"two")])
    assert [position for position, _ in store.load(epoch).records] == [1, 2]
    store.close()
