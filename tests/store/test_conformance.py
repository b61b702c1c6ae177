"""What every store promises, held against each of them alike."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.redis_server import RedisServer
from tests.waits import HANG_S
from tracker.core.model.levels import NEWEST_LEVEL, OLDEST_LEVEL
from tracker.store import (
    Fenced,
    Held,
    LogShortened,
    MemoryStore,
    SqliteStore,
    Store,
    StoreError,
    StoreUnavailable,
    open_leases,
    open_store,
)

SHARD = 3
LONG_MS = 3_600_000
Reopen = Callable[[], Store]
SURVIVES = pytest.mark.parametrize("kind", ["sqlite", "redis"])
"""For what concerns stores that are there without their process."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis")).start()
    yield server
    server.discard()


@pytest.fixture(params=["memory", "sqlite", "redis"])
def kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture
def url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the store of this test is, for any process."""
    if kind == "redis":
        server: RedisServer = request.getfixturevalue("server")
        with server.client() as client:
            client.flushall()
        return server.url
    return "memory:" if kind == "memory" else f"sqlite:{tmp_path}"


@pytest.fixture
def reopen(kind: str, url: str, request: pytest.FixtureRequest) -> Reopen:
    """Opens the same store again, as a process does that starts after another one died."""
    memory = MemoryStore()
    opened: list[Store] = []

    def open_again() -> Store:
        store = memory if kind == "memory" else open_store(url, SHARD)
        opened.append(store)
        return store

    def close_all() -> None:
        for store in opened:
            store.close()

    request.addfinalizer(close_all)
    return open_again


def held(store: Store, epoch: int) -> tuple[object, list[tuple[int, bytes]]]:
    stored = store.load(epoch)
    return stored.snapshot, list(stored.records)


def test_a_new_store_holds_nothing(reopen: Reopen) -> None:
    store = reopen()
    assert held(store, store.acquire("a")) == (None, [])


def test_what_was_committed_is_there_for_the_next_owner_in_order(reopen: Reopen) -> None:
    store = reopen()
    epoch = store.acquire("a")
    store.commit(epoch, [(1, b"one"), (2, b"two")])
    store.commit(epoch, [(3, b"three")])
    again = reopen()
    assert held(again, again.acquire("b")) == (None, [(1, b"one"), (2, b"two"), (3, b"three")])


def test_each_owner_gets_a_larger_epoch_and_fences_those_before(reopen: Reopen) -> None:
    old = reopen()
    first = old.acquire("a")
    old.commit(first, [(1, b"one")])
    new = reopen()
    second = new.acquire("b")
    assert second > first
    for write in (
        lambda: old.commit(first, [(2, b"from the dead")]),
        lambda: old.write_snapshot(first, 1, b"from the dead"),
        lambda: old.renew(first, 1000),
        lambda: old.load(first),
    ):
        with pytest.raises(Fenced):
            write()
    old.release(first)  # nothing of its own is left to release
    new.commit(second, [(2, b"two")])
    assert held(new, second) == (None, [(1, b"one"), (2, b"two")])


def test_a_snapshot_stands_for_the_records_up_to_it(reopen: Reopen) -> None:
    store = reopen()
    epoch = store.acquire("a")
    store.commit(epoch, [(1, b"one"), (2, b"two"), (3, b"three")])
    store.write_snapshot(epoch, 2, b"one and two")
    assert held(store, epoch) == ((2, b"one and two"), [(3, b"three")])
    store.commit(epoch, [(4, b"four")])
    store.write_snapshot(epoch, 4, b"all")
    again = reopen()
    assert held(again, again.acquire("b")) == ((4, b"all"), [])


def test_a_snapshot_may_be_written_again_and_be_large(reopen: Reopen) -> None:
    store = reopen()
    epoch = store.acquire("a")
    store.commit(epoch, [(1, b"one"), (2, b"two")])
    large = bytes(range(256)) * 40_000  # several pieces, where a store cuts it
    for _ in range(3):
        store.write_snapshot(epoch, 1, large)
    assert held(store, epoch) == ((1, large), [(2, b"two")])


def test_a_log_of_many_records_comes_back_whole(reopen: Reopen) -> None:
    store = reopen()
    epoch = store.acquire("a")
    records = [(position, b"%d" % position) for position in range(1, 12_001)]
    store.commit(epoch, records)
    store.write_snapshot(epoch, 3_000, b"the first of them")
    assert held(store, epoch) == ((3_000, b"the first of them"), records[3_000:])


def test_a_commit_that_does_not_continue_the_log_leaves_nothing(reopen: Reopen) -> None:
    store = reopen()
    epoch = store.acquire("a")
    store.commit(epoch, [(1, b"one")])
    with pytest.raises(StoreError):
        store.commit(epoch, [(2, b"two"), (1, b"again")])
    assert held(store, epoch) == (None, [(1, b"one")])
    with pytest.raises(StoreError):
        store.commit(epoch, [(5, b"after a gap")])
    assert held(store, epoch) == (None, [(1, b"one")])


def test_the_log_continues_after_a_snapshot_of_everything(reopen: Reopen) -> None:
    store = reopen()
    epoch = store.acquire("a")
    store.commit(epoch, [(1, b"one"), (2, b"two")])
    store.write_snapshot(epoch, 2, b"all")
    again = reopen()
    epoch = again.acquire("b")
    with pytest.raises(StoreError):
        again.commit(epoch, [(2, b"two again")])
    again.commit(epoch, [(3, b"three")])
    assert held(again, epoch) == ((2, b"all"), [(3, b"three")])


# --- leases ---------------------------------------------------------------------------------------


def test_a_lease_keeps_others_away_until_it_is_released(reopen: Reopen) -> None:
    owner, other = reopen(), reopen()
    epoch = owner.acquire("a", lease_ms=LONG_MS)
    owner.renew(epoch, LONG_MS, "a:1")
    with pytest.raises(Held) as caught:
        other.acquire("b", lease_ms=LONG_MS)
    lease = caught.value.lease
    assert (lease.epoch, lease.owner, lease.address) == (epoch, "a", "a:1")
    assert 0 < lease.remaining_ms <= LONG_MS
    owner.commit(epoch, [(1, b"one")])  # who was refused has changed nothing
    owner.release(epoch)
    assert other.acquire("b", lease_ms=LONG_MS) > epoch


def test_a_lease_ends_by_itself_and_whoever_comes_then_fences_its_owner(reopen: Reopen) -> None:
    paused, other = reopen(), reopen()
    epoch = paused.acquire("a", lease_ms=1)
    while True:
        try:
            other.acquire("b", lease_ms=LONG_MS)
            break
        except Held as error:
            assert error.lease.remaining_ms <= 1
    with pytest.raises(Fenced):
        paused.commit(epoch, [(1, b"from the dead")])


def test_the_lease_of_an_owner_that_is_known_to_be_gone_does_not_count(reopen: Reopen) -> None:
    gone = reopen().acquire("a", lease_ms=LONG_MS)
    other = reopen()
    with pytest.raises(Held):
        other.acquire("b", lease_ms=LONG_MS, replaces=gone - 1)
    assert other.acquire("b", lease_ms=LONG_MS, replaces=gone) > gone
    with pytest.raises(Held):  # it has been replaced: this is about nobody now
        reopen().acquire("c", lease_ms=LONG_MS, replaces=gone)


def test_an_owner_that_starts_again_does_not_wait_for_its_own_lease(reopen: Reopen) -> None:
    first = reopen().acquire("a", lease_ms=LONG_MS)
    assert reopen().acquire("a", lease_ms=LONG_MS) > first


@SURVIVES
def test_a_lease_is_renewed_and_anybody_can_read_it(reopen: Reopen, url: str) -> None:
    store = reopen()
    leases = open_leases(url)
    epoch = store.acquire("a", lease_ms=0)
    free = leases.read(SHARD)
    assert free is not None and (free.epoch, free.address, free.remaining_ms) == (epoch, "", 0)
    store.renew(epoch, 0, "a:1")
    store.renew(epoch, LONG_MS)
    taken = leases.read(SHARD)
    assert taken is not None and taken.remaining_ms > LONG_MS // 2 and taken.address == "a:1"
    store.renew(epoch, LONG_MS, "a:2")
    moved = leases.read(SHARD)
    assert moved is not None and moved.address == "a:2"
    nobody = leases.read(SHARD + 1)
    assert nobody is None or nobody.epoch == 0
    leases.close()


# --- failures -------------------------------------------------------------------------------------

DIES = f"""
import os, signal, sys
from tracker.store import open_store
store = open_store(sys.argv[1], {SHARD})
epoch = store.acquire("doomed")
store.commit(epoch, [(1, b"kept")])
where = sys.argv[2]
if where == "before a commit":
    os.kill(os.getpid(), signal.SIGKILL)
if where == "within a commit" and sys.argv[1].startswith("sqlite"):
    store._db.create_function("die", 0, lambda: os.kill(os.getpid(), signal.SIGKILL))
    store._db.execute(
        "CREATE TEMP TRIGGER dies AFTER INSERT ON main.log WHEN NEW.position = 3 BEGIN SELECT die(); END"
    )
if where == "within a commit" and sys.argv[1].startswith("redis"):
    # The request leaves in part: the server must not carry out half of it.
    import socket
    send = socket.socket.sendall
    def half(self, data, *more):
        if b"the other half" in data:
            send(self, data[: data.index(b"the other half") + 5])
            os.kill(os.getpid(), signal.SIGKILL)
        send(self, data, *more)
    socket.socket.sendall = half
store.commit(epoch, [(2, b"half"), (3, b"the other half")])
os.kill(os.getpid(), signal.SIGKILL)
"""


@SURVIVES
@pytest.mark.parametrize(
    ("where", "kept"),
    [("before a commit", 1), ("within a commit", 1), ("after a commit", 3)],
)
def test_an_owner_that_dies_leaves_all_of_a_commit_or_nothing(
    reopen: Reopen, url: str, where: str, kept: int
) -> None:
    died = subprocess.run([sys.executable, "-c", DIES, url, where], check=False, timeout=HANG_S)
    assert died.returncode == -signal.SIGKILL
    store = reopen()
    records = [(1, b"kept"), (2, b"half"), (3, b"the other half")]
    assert held(store, store.acquire("next")) == (None, records[:kept])


def test_a_commit_whose_answer_was_lost_is_there_once_when_it_is_made_again(
    reopen: Reopen, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = reopen()
    epoch = store.acquire("a")
    store.commit(epoch, [(1, b"one")])
    batch = [(2, b"two"), (3, b"three")]
    lose_answer(store, kind, monkeypatch, lambda: store.commit(epoch, batch))
    store.commit(epoch, batch)
    store.commit(epoch, [(4, b"four")])
    assert held(store, epoch) == (None, [(1, b"one"), *batch, (4, b"four")])


class AnswerLost:
    """A connection to SQLite that fails after what it has written is there."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        written = self._connection.total_changes
        done = self._connection.execute(statement, *values)
        ends = statement == "COMMIT" or self._connection.total_changes > written
        if ends and not self._connection.in_transaction:
            raise sqlite3.OperationalError("disk I/O error")
        return done


def lose_answer(
    store: Store, kind: str, monkeypatch: pytest.MonkeyPatch, commit: Callable[[], None]
) -> None:
    """Commits; the commit reaches the store, and the owner hears of an error."""
    if kind == "memory":
        commit()  # nothing can come between; that a repeated one is known is still checked
        return
    with monkeypatch.context() as patched, pytest.raises(StoreUnavailable):
        if kind == "sqlite":
            patched.setattr(store, "_db", AnswerLost(store._db))  # type: ignore[attr-defined]
        else:
            import redis

            read = redis.connection.AbstractConnection.read_response

            def answer_lost_too(self: object, *args: object, **more: object) -> object:
                read(self, *args, **more)  # type: ignore[arg-type]
                raise redis.ConnectionError("Connection closed by server.")

            patched.setattr(redis.connection.AbstractConnection, "read_response", answer_lost_too)
        commit()


def test_of_two_owners_at_once_one_writes_and_the_other_is_fenced(reopen: Reopen) -> None:
    """Many owners come at once; each writes until it is replaced. The log has no gap, and what a
    commit has returned for is in it."""
    stores = [reopen() for _ in range(4)]
    written: list[bytes] = []
    last: list[int] = []
    begin = threading.Barrier(len(stores))
    guard = threading.Lock()

    def own(store: Store, name: str) -> None:
        begin.wait()
        with guard if isinstance(store, MemoryStore) else threading.Lock():
            epoch = store.acquire(name)
        position = len(list(store.load(epoch).records)) if not fenced(store, epoch) else 0
        for number in range(5):
            record = b"%s %d" % (name.encode(), number)
            try:
                store.commit(epoch, [(position + 1 + number, record)])
            except Fenced:
                return
            except StoreError:
                return  # it read the log before the owner before it had been replaced
            written.append(record)
        last.append(position)

    def fenced(store: Store, epoch: int) -> bool:
        try:
            store.load(epoch)
            return False
        except Fenced:
            return True

    def run(store: Store, name: str) -> None:
        try:
            own(store, name)
        except Fenced:
            pass

    threads = [
        threading.Thread(target=run, args=(store, f"owner-{place}"))
        for place, store in enumerate(stores)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    final = reopen()
    _, records = held(final, final.acquire("last"))
    assert [position for position, _ in records] == list(range(1, len(records) + 1))
    assert set(written) <= {record for _, record in records}
    assert last, "nobody wrote to the end"


@SURVIVES
def test_a_log_that_came_back_shorter_is_noticed_and_not_passed_over(
    reopen: Reopen, url: str, kind: str, request: pytest.FixtureRequest
) -> None:
    store = reopen()
    epoch = store.acquire("a")
    store.commit(epoch, [(1, b"one"), (2, b"two"), (3, b"three")])
    lose_last_record(url, kind, request)
    with pytest.raises(LogShortened, match=r"ends at record 2, and record 3 was committed.*copy"):
        store.commit(epoch, [(4, b"four")])
    again = reopen()
    with pytest.raises(LogShortened, match="ends at record 2"):
        again.acquire("b")
    assert "record 3 was committed" in again.accept_loss()
    assert held(again, again.acquire("b")) == (None, [(1, b"one"), (2, b"two")])
    assert again.accept_loss() == ""


def lose_last_record(url: str, kind: str, request: pytest.FixtureRequest) -> None:
    """As a copy does that is a little older."""
    if kind == "sqlite":
        import sqlite3

        path = Path(url.partition(":")[2]) / f"shard-{SHARD}.db"
        with sqlite3.connect(path) as database:
            database.execute("DELETE FROM log WHERE position = 3")
        return
    server: RedisServer = request.getfixturevalue("server")
    with server.client() as client:
        base = f"lowmark:{{default:{SHARD}}}:"
        client.rpop(base + "log")
        client.hset(base + "meta", "last", 2)


# --- formats --------------------------------------------------------------------------------------

RewriteFormat = Callable[[int], None]


@pytest.fixture
def rewrite_format(kind: str, url: str, request: pytest.FixtureRequest) -> RewriteFormat:
    """Gives the store another number, as if another version had written it."""

    def rewrite(number: int) -> None:
        if kind == "sqlite":
            with closing(
                sqlite3.connect(f"{url.removeprefix('sqlite:')}/shard-{SHARD}.db")
            ) as file:
                file.execute(f"PRAGMA user_version={number}")
            return
        server: RedisServer = request.getfixturevalue("server")
        with server.client() as client:
            client.hset(f"lowmark:{{default:{SHARD}}}:meta", "format", number)

    return rewrite


@SURVIVES
def test_a_store_gets_the_number_of_a_level_with_its_first_record_and_keeps_it(
    reopen: Reopen,
) -> None:
    store = reopen()
    epoch = store.acquire("a")
    store.commit(epoch, [(1, b"one")])
    with pytest.raises(StoreError):
        store.commit(epoch, [(5, b"a gap")], NEWEST_LEVEL)
    assert store.load(epoch).format == OLDEST_LEVEL, "nothing of the level is there"
    store.commit(epoch, [(2, b"two")], NEWEST_LEVEL)
    store.commit(epoch, [(3, b"three")])
    store.write_snapshot(epoch, 1, b"the first")
    stored = reopen().load(epoch)
    assert (stored.format, list(stored.records)) == (NEWEST_LEVEL, [(2, b"two"), (3, b"three")])


@SURVIVES
def test_a_snapshot_brings_its_level_to_a_store(reopen: Reopen) -> None:
    store = reopen()
    epoch = store.acquire("a")
    store.write_snapshot(epoch, 0, b"a peer's", NEWEST_LEVEL)
    assert reopen().load(epoch).format == NEWEST_LEVEL


@SURVIVES
@pytest.mark.parametrize("number", [0, NEWEST_LEVEL + 1])
def test_a_store_of_another_versions_format_is_refused_by_name_and_left_alone(
    reopen: Reopen, rewrite_format: RewriteFormat, number: int, url: str
) -> None:
    store = reopen()
    epoch = store.acquire("a", lease_ms=LONG_MS)
    rewrite_format(number)
    told = f"has format {number}, this version reads formats {OLDEST_LEVEL} to {NEWEST_LEVEL}; use the version"
    with pytest.raises(StoreError, match=told):
        reopen().acquire("a")
    with pytest.raises(StoreError, match=told):
        store.acquire("a")  # opened before it was raised
    with closing(open_leases(url)) as leases:
        lease = leases.read(SHARD)
    assert lease is not None and (lease.epoch, lease.owner) == (epoch, "a"), "of any format"


@SURVIVES
def test_an_owner_is_fenced_by_one_of_a_newer_version(
    reopen: Reopen, rewrite_format: RewriteFormat
) -> None:
    older, newer = reopen(), reopen()
    epoch = older.acquire("a")
    newer.commit(newer.acquire("b"), [(1, b"one")])
    rewrite_format(NEWEST_LEVEL + 1)
    with pytest.raises(Fenced):
        older.commit(epoch, [(1, b"other")])
    with pytest.raises(Fenced):
        older.renew(epoch, LONG_MS)


def test_a_file_that_several_processes_make_at_once_is_made_once(tmp_path: Path) -> None:
    make = (
        "import sys; from pathlib import Path; from tracker.store import SqliteStore;"
        "sys.stdin.read(); print(SqliteStore(Path(sys.argv[1]), 0).acquire('x'))"
    )
    command = [sys.executable, "-c", make, str(tmp_path / "s.db")]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=os.getcwd())
        for _ in range(3)
    ]
    epochs = sorted(int(process.communicate(timeout=HANG_S)[0]) for process in started)
    assert epochs == [1, 2, 3]
    store = SqliteStore(tmp_path / "s.db", 0)
    assert store.acquire("y") == 4
    store.close()
