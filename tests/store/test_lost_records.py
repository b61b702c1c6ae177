"""A SQLite store that has lost what was acknowledged is refused and left as it is, until the records are back
or somebody has accepted the loss."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.waits import HANG_S
from tracker.cli.app import app
from tracker.store import LogShortened, SqliteStore, StoreDamaged, StoreError
from tracker.store.mark import mark_path, read_mark
from tracker.store.wal import find_damage

COMMITS = 60
NAMES = ("s.db", "s.db-wal", "s.db-mark")


def record(position: int) -> tuple[int, bytes]:
    """Some are as large as several pages."""
    return position, bytes([position % 251]) * (37 * position % 9_000 + 1)


def write(store: SqliteStore, epoch: int, first: int, last: int) -> None:
    for position in range(first, last + 1):
        store.commit(epoch, [record(position)])


def copy(source: Path, target: Path) -> Path:
    """The files of a store as they are now: what a killed process leaves, if one has it open."""
    target.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        (target / name).unlink(missing_ok=True)
        if (source / name).exists():
            shutil.copy(source / name, target / name)
    return target


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """The directory of a store whose process was killed after its last commit."""
    store = SqliteStore(tmp_path / "alive" / "s.db", 0)
    write(store, store.acquire("a"), 1, COMMITS)
    left = copy(tmp_path / "alive", tmp_path / "killed")
    store.close()
    return left


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name in NAMES}


def refused(directory: Path) -> str:
    """What is said of a store that has lost records; nothing of it is changed."""
    before = contents(directory)
    store = SqliteStore(directory / "s.db", 0)
    with pytest.raises(LogShortened, match="lowmark store accept-loss") as said:
        store.acquire("next")
    store.close()
    assert contents(directory) == before
    return str(said.value)


def positions(directory: Path, owner: str = "next") -> list[int]:
    """Of the records that the next owner finds, each as it was."""
    store = SqliteStore(directory / "s.db", 0)
    found = list(store.load(store.acquire(owner)).records)
    store.close()
    assert found == [record(position) for position, _ in found]
    return [position for position, _ in found]


def written_frames(wal: Path) -> int:
    """How many bytes of a log its process has written since it was begun."""
    data = wal.read_bytes()
    salts, frame = data[16:24], 24 + 4096
    return 32 + frame * sum(
        data[at + 8 : at + 16] == salts for at in range(32, len(data) - frame, frame)
    )


def test_a_byte_that_is_flipped_anywhere_in_the_write_ahead_log_is_noticed(killed: Path) -> None:
    wal, chance = killed / "s.db-wal", random.Random(10)
    whole, written = wal.read_bytes(), written_frames(wal)
    wheres = {"damaged at byte": 0, f"and record {COMMITS} was committed": 0}
    for at in [0, 18, 25, written - 1, *(chance.randrange(written) for _ in range(60))]:
        damaged = bytearray(whole)
        damaged[at] ^= 1 << chance.randrange(8)
        wal.write_bytes(damaged)
        said = refused(killed)
        (where,) = [where for where in wheres if where in said]
        wheres[where] += 1
    assert all(wheres.values()), "in the last commit, and before"
    wal.write_bytes(whole)
    assert positions(killed) == list(range(1, COMMITS + 1))


def emptied(directory: Path) -> None:
    os.truncate(directory / "s.db-wal", 0)


def cut_off(directory: Path) -> None:
    wal = directory / "s.db-wal"
    os.truncate(wal, written_frames(wal) - 100)


def removed(directory: Path) -> None:
    (directory / "s.db-wal").unlink()


def zeroed(directory: Path) -> None:
    (directory / "s.db-wal").write_bytes(bytes((directory / "s.db-wal").stat().st_size))


@pytest.mark.parametrize("damage", [emptied, cut_off, removed, zeroed])
def test_a_write_ahead_log_that_is_shorter_than_its_mark_is_noticed(
    killed: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    right = copy(killed, tmp_path / "right")
    damage(killed)
    assert f"record {COMMITS} was committed" in refused(killed)
    copy(right, killed)
    assert positions(killed) == list(range(1, COMMITS + 1))


@pytest.mark.parametrize("left", ["nothing", "an empty file"])
def test_a_store_that_is_gone_is_not_begun_anew(killed: Path, tmp_path: Path, left: str) -> None:
    right = copy(killed, tmp_path / "right")
    for name in NAMES[:2]:
        (killed / name).unlink()
    if left == "an empty file":
        (killed / "s.db").touch()
    assert f"its mark says that record {COMMITS} was committed" in refused(killed)
    with pytest.raises(StoreError, match=r"nothing left to start with.*remove .*s\.db-mark"):
        SqliteStore(killed / "s.db", 0).accept_loss()
    copy(right, killed)
    assert positions(killed) == list(range(1, COMMITS + 1))


def test_a_log_without_its_database_is_not_thrown_away(killed: Path) -> None:
    for name in ("s.db", "s.db-mark"):
        (killed / name).unlink()
    assert "s.db is empty or not there, and its -wal is not: records are gone" in refused(killed)


@pytest.mark.parametrize("closed", [False, True], ids=["killed", "stopped"])
def test_an_older_copy_is_noticed_by_the_mark(tmp_path: Path, closed: bool) -> None:
    store = SqliteStore(tmp_path / "s.db", 0)
    epoch = store.acquire("a")
    write(store, epoch, 1, 20)
    older = copy(tmp_path, tmp_path / "older")
    write(store, epoch, 21, 50)
    if closed:
        store.close()
    newer = copy(tmp_path, tmp_path / "newer")
    shutil.copy(newer / "s.db-mark", older / "s.db-mark")
    assert "ends at record 20, of epoch 1, and record 50 was committed, by the owner of epoch 1" in refused(
        older
    )  # fmt: skip
    store.close()


def test_an_older_copy_of_which_an_owner_went_on_is_noticed_by_its_epoch(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db", 0)
    write(store, store.acquire("a"), 1, 20)
    older = copy(tmp_path, tmp_path / "older")
    assert store.acquire("b") == 2
    shutil.copy(tmp_path / "s.db-mark", older / "s.db-mark")
    assert "ends at record 20, of epoch 1, and record 20 was committed, by the owner of epoch 2" in refused(
        older
    )  # fmt: skip
    store.close()


def test_another_store_in_the_place_of_one_is_noticed(killed: Path, tmp_path: Path) -> None:
    other = SqliteStore(tmp_path / "other" / "s.db", 0)
    for _ in range(3):
        epoch = other.acquire("another")
    write(other, epoch, 1, COMMITS + 5)
    other.close()
    (killed / "s.db-wal").unlink()
    shutil.copy(tmp_path / "other" / "s.db", killed / "s.db")
    assert "is another one than its mark is of" in refused(killed)


def test_a_mark_that_is_gone_or_damaged_is_said(killed: Path) -> None:
    mark = killed / "s.db-mark"
    whole = mark.read_bytes()
    mark.unlink()
    said = refused(killed)
    assert "has lost its mark s.db-mark" in said and f"it ends at record {COMMITS}" in said
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        mark.write_bytes(damaged)
        assert "s.db-mark is damaged" in refused(killed)
    mark.write_bytes(whole)
    assert positions(killed) == list(range(1, COMMITS + 1))


def test_a_loss_that_is_accepted_is_not_said_again(killed: Path) -> None:
    emptied(killed)
    assert read_mark(killed / "s.db") is not None
    store = SqliteStore(killed / "s.db", 0)
    assert f"record {COMMITS} was committed" in store.accept_loss()
    assert store.acquire("next") == 2, "larger than the epoch that was lost with the records"
    assert list(store.load(2).records) == []
    store.commit(2, [record(1)])
    assert store.accept_loss() == ""
    store.close()
    assert positions(killed) == [1]


def test_a_damaged_log_whose_loss_is_accepted_is_what_is_before_the_damage(killed: Path) -> None:
    wal = killed / "s.db-wal"
    damaged = bytearray(wal.read_bytes())
    damaged[written_frames(wal) // 2] ^= 1
    wal.write_bytes(damaged)
    store = SqliteStore(killed / "s.db", 0)
    assert "damaged at byte" in store.accept_loss()
    store.close()
    left = positions(killed)
    assert left == list(range(1, len(left) + 1)) and 10 < len(left) < COMMITS


def test_a_backup_of_all_files_may_be_restored_on_purpose(tmp_path: Path) -> None:
    """As it was: without a word, for it says itself how far it goes. Who knows more says so then."""
    store = SqliteStore(tmp_path / "s.db", 0)
    epoch = store.acquire("a")
    write(store, epoch, 1, 20)
    backup = copy(tmp_path, tmp_path / "backup")
    write(store, epoch, 21, 30)
    store.close()
    copy(backup, tmp_path)
    assert positions(tmp_path) == list(range(1, 21))


def test_a_process_that_dies_when_it_has_made_the_mark_leaves_a_store_that_opens(
    killed: Path,
) -> None:
    with sqlite3.connect(killed / "s.db") as database:
        database.execute("DELETE FROM meta WHERE name = 'identity'")
    database.close()
    before = read_mark(killed / "s.db")
    assert positions(killed) == list(range(1, COMMITS + 1))
    after = read_mark(killed / "s.db")
    assert before is not None and after is not None and after.identity == before.identity


def test_the_mark_is_never_ahead_of_what_is_durable(tmp_path: Path) -> None:
    """It is written when a commit has returned, whatever became of that."""
    store = SqliteStore(tmp_path / "s.db", 0)
    epoch = store.acquire("a")
    write(store, epoch, 1, 3)
    with pytest.raises(StoreError, match="must continue at position 4"):
        store.commit(epoch, [record(9)])
    mark = read_mark(tmp_path / "s.db")
    assert mark is not None and (mark.epoch, mark.position) == (1, 3)
    store.write_snapshot(epoch, 3, b"all")
    newer = SqliteStore(tmp_path / "s.db", 0)
    newer.commit(newer.acquire("b"), [record(4)])
    with pytest.raises(StoreError, match="newer owner"):
        store.commit(epoch, [record(4)])
    mark = read_mark(tmp_path / "s.db")
    assert mark is not None and (mark.epoch, mark.position) == (2, 4)
    for each in (newer, store):
        each.close()


# --- files that are replaced while they are in use ------------------------------------------------


def replaced_by_older(directory: Path) -> None:
    for name in NAMES:
        os.replace(directory / "older" / name, directory / name)


def database_removed(directory: Path) -> None:
    (directory / "s.db").unlink()


def log_removed(directory: Path) -> None:
    (directory / "s.db-wal").unlink()


@pytest.mark.parametrize("change", [replaced_by_older, database_removed, log_removed])
def test_nothing_is_durable_in_files_that_are_gone(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    store = SqliteStore(tmp_path / "s.db", 0)
    epoch = store.acquire("a", lease_ms=60_000)
    write(store, epoch, 1, 20)
    copy(tmp_path, tmp_path / "older")
    write(store, epoch, 21, 30)
    change(tmp_path)
    before = contents(tmp_path) if change is replaced_by_older else {}
    with pytest.raises(LogShortened, match=r"while it was in use.*up to 31 were committed"):
        store.commit(epoch, [record(31)])
    with pytest.raises(LogShortened, match="while it was in use"):
        store.renew(epoch, 60_000)
    store.release(epoch)
    store.close()
    if change is replaced_by_older:
        assert contents(tmp_path) == before, "what was put there is as it was put there"
    elif change is database_removed:
        assert "its mark says that record 30 was committed" in refused(tmp_path)
    else:
        assert positions(tmp_path, "a") == list(range(1, 32)), (
            "the log was still open, and is in the database"
        )


def test_a_store_whose_files_are_put_back_goes_on_in_the_process_that_waits_for_it(
    killed: Path, tmp_path: Path
) -> None:
    """A standby tries again and again with the store that it has opened."""
    right = copy(killed, tmp_path / "right")
    removed(killed)
    waiting = SqliteStore(killed / "s.db", 0)
    for _ in range(2):
        with pytest.raises(LogShortened):
            waiting.acquire("standby")
    for name in NAMES:
        os.replace(right / name, killed / name)
    epoch = waiting.acquire("standby")
    assert [position for position, _ in waiting.load(epoch).records] == list(range(1, COMMITS + 1))
    waiting.close()


def test_a_store_that_is_put_back_by_and_by_goes_on_in_the_process_that_waits_for_it(
    tmp_path: Path,
) -> None:
    """A standby has it open, and tries while a copy of the database is there in part."""
    store = SqliteStore(tmp_path / "s.db", 0)
    write(store, store.acquire("a"), 1, 200)
    store.close()
    right = copy(tmp_path, tmp_path / "right")
    waiting = SqliteStore(tmp_path / "s.db", 0)
    (tmp_path / "s.db").unlink()
    (tmp_path / "s.db").write_bytes((right / "s.db").read_bytes()[:-5_000])
    with pytest.raises(StoreDamaged, match="malformed"):
        waiting.acquire("standby")
    copy(right, tmp_path)
    epoch = waiting.acquire("standby")
    assert [position for position, _ in waiting.load(epoch).records] == list(range(1, 201))
    waiting.close()


# --- what is no damage ----------------------------------------------------------------------------

DIES = """
import os, sys
from pathlib import Path
from tracker.store import SqliteStore

store = SqliteStore(Path(sys.argv[1]), 0)
epoch = store.acquire("doomed")
store._db.execute("PRAGMA cache_size=2")
store._db.execute("BEGIN IMMEDIATE")
last = store._last()
for number in range(400):
    store._db.execute("INSERT INTO log VALUES (?, ?)", (last + 1 + number, os.urandom(3_000)))
if sys.argv[2] == "rolled back":
    store._db.execute("ROLLBACK")
    store.commit(epoch, [(last + 1, b"a little")])
os._exit(9)
"""


@pytest.mark.parametrize("way", ["killed", "rolled back"])
def test_what_a_half_written_transaction_leaves_is_no_damage(killed: Path, way: str) -> None:
    """Large ones are in the file before they are committed; the next commit writes over some of it."""
    died = subprocess.run(
        [sys.executable, "-c", DIES, str(killed / "s.db"), way], check=False, timeout=HANG_S
    )
    assert died.returncode == 9
    assert find_damage(killed / "s.db-wal") is None
    store = SqliteStore(killed / "s.db", 0)
    records = list(store.load(store.acquire("next")).records)
    assert len(records) == COMMITS + (way == "rolled back")
    store.close()


def test_a_log_that_is_written_while_it_is_looked_at_is_not_damaged(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db", 0)
    epoch, done = store.acquire("a"), threading.Event()

    def go_on() -> None:
        position = 1
        while not done.is_set():
            store.commit(epoch, [record(position)])
            position += 1

    writing = threading.Thread(target=go_on)
    writing.start()
    try:
        assert [find_damage(tmp_path / "s.db-wal") for _ in range(60)] == [None] * 60
    finally:
        done.set()
        writing.join()
    store.close()


def test_a_log_that_has_begun_anew_many_times_is_not_damaged(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db", 0)
    epoch = store.acquire("a")
    for position in range(1, 1_500):
        store.commit(epoch, [(position, bytes(5_000))])
        if position % 100 == 0:
            store.write_snapshot(epoch, position, bytes(100_000))
            assert find_damage(tmp_path / "s.db-wal") is None
    store.close()
    assert mark_path(tmp_path / "s.db").exists()


# --- said and accepted on the command line --------------------------------------------------------


def test_the_loss_of_all_that_a_young_store_has_is_accepted_by_name(killed: Path) -> None:
    """Nothing had left the write-ahead log yet: not even who had owned it."""
    for name in NAMES:
        os.replace(killed / name, killed / name.replace("s.db", "shard-0.db"))
    url = f"sqlite:{killed}"
    (killed / "shard-0.db-wal").unlink()
    runner = CliRunner()
    told = runner.invoke(app, ["store", "accept-loss", "--store", url, "--shard", "0"])
    assert told.exit_code == 0, told.output
    assert "shard 0: accepted: " in told.output and f"record {COMMITS} was committed" in told.output
    told = runner.invoke(app, ["store", "accept-loss", "--store", url, "--shard", "0"])
    assert "shard 0: nothing was missing" in told.output
    none = runner.invoke(app, ["store", "accept-loss", "--store", url, "--shard", "1"])
    assert none.exit_code == 1 and "there is no shard 1" in none.output
