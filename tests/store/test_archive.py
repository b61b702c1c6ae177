"""A shard's store as a file: out of one kind of store, into another."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.cluster.redis_server import RedisServer
from tests.waits import HANG_S
from tracker.cli.app import app
from tracker.core.model.levels import NEWEST_LEVEL, OLDEST_LEVEL
from tracker.service.cluster.owning import mark_gone
from tracker.store import (
    GONE,
    Fenced,
    Held,
    MemoryStore,
    Store,
    Stored,
    StoreError,
    archive,
    open_leases,
    open_store,
)
from tracker.store import format as store_format
from tracker.store.archive import FILLING_LEASE_MS, export_stores, import_stores
from tracker.store.sqlite import read_lease


def filled(url: str, shard: int = 2) -> Store:
    store = open_store(url, shard)
    epoch = store.acquire("a", least_epoch=7)
    store.commit(epoch, [(n, b"record %d" % n) for n in range(1, 3001)])
    store.write_snapshot(epoch, 500, b"the first 500")
    return store


def test_from_a_file_into_redis_and_back_nothing_changes(tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "redis").start()
    try:
        source = filled(f"sqlite:{tmp_path / 'a'}")
        (out,) = export_stores({2: source}, tmp_path / "out")
        assert (out.snapshot_position, out.records) == (500, 2500)
        there = open_store(server.url, 2)
        import_stores({2: there}, tmp_path / "out")
        export_stores({2: there}, tmp_path / "back")
        back = open_store(f"sqlite:{tmp_path / 'b'}", 2)
        import_stores({2: back}, tmp_path / "back")
        epoch = back.acquire("next")
        assert epoch > out.epoch, "an older epoch would be taken for a replaced owner"
        stored = back.load(epoch)
        assert stored.snapshot == (500, b"the first 500")
        assert list(stored.records) == [(n, b"record %d" % n) for n in range(501, 3001)]
        back.commit(epoch, [(3001, b"and on")])
        for store in (source, there, back):
            store.close()
    finally:
        server.discard()


def test_what_a_shard_has_begun_with_before_its_first_record_goes_along(tmp_path: Path) -> None:
    """A newcomer's store begins with what its peer has handed out; any other, with how many shards there were."""
    source, target = MemoryStore(), open_store(f"sqlite:{tmp_path / 'b'}", 2)
    epoch = source.acquire("newcomer")
    source.write_snapshot(epoch, 0, b"the state of a peer")
    source.commit(epoch, [(1, b"one"), (2, b"two")])
    export_stores({2: source}, tmp_path / "out")
    import_stores({2: target}, tmp_path / "out")
    stored = target.load(target.acquire("next"))
    assert stored.snapshot == (0, b"the state of a peer")
    assert list(stored.records) == [(1, b"one"), (2, b"two")]
    target.close()


def test_a_log_of_large_records_is_filled_in_by_little_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server takes so much at once, and no more at the next attempt. A log grows as long as no snapshot takes its place."""
    monkeypatch.setattr(archive, "BYTES_PER_COMMIT", 1_000)
    source, target = MemoryStore(), MemoryStore()
    records = [(number, bytes(400)) for number in range(1, 11)]
    source.commit(source.acquire("s"), records)
    export_stores({2: source}, tmp_path / "out")
    commit, sizes = target.commit, list[int]()

    def watched(epoch: int, batch: list[tuple[int, bytes]], level: int) -> None:
        sizes.append(len(batch))
        commit(epoch, batch, level)

    monkeypatch.setattr(target, "commit", watched)
    import_stores({2: target}, tmp_path / "out")
    assert sizes == [3, 3, 3, 1]
    assert list(target.load(target.acquire("next")).records) == records


@pytest.mark.parametrize(
    "spoil",
    [
        lambda whole: whole[:-1],
        lambda whole: whole[:-100],
        lambda whole: whole[:200] + b"\xff" + whole[201:],
        lambda whole: b"",
        lambda whole: b"something else\n" * 100,
    ],
    ids=["a byte short", "cut off", "a byte changed", "empty", "another file"],
)
def test_a_damaged_file_is_refused_before_anything_is_written(
    tmp_path: Path, spoil: object
) -> None:
    source = filled(f"sqlite:{tmp_path / 'a'}")
    export_stores({2: source}, tmp_path / "out")
    source.close()
    (tmp_path / "out").write_bytes(spoil((tmp_path / "out").read_bytes()))  # type: ignore[operator]
    target = open_store(f"sqlite:{tmp_path / 'b'}", 2)
    with pytest.raises(StoreError, match="damaged"):
        import_stores({2: target}, tmp_path / "out")
    stored = target.load(target.acquire("x"))
    assert stored.snapshot is None and list(stored.records) == []
    target.close()


def test_a_copy_carries_the_number_of_its_store_and_a_newer_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for level in (OLDEST_LEVEL, NEWEST_LEVEL):
        source, target = MemoryStore(), MemoryStore()
        source.commit(source.acquire("a"), [(1, b"one")], level)
        export_stores({2: source}, tmp_path / f"level-{level}")
        (contents,) = import_stores({2: target}, tmp_path / f"level-{level}")
        assert contents.format == target.load(target.acquire("b")).format == level
    monkeypatch.setattr(store_format, "NEWEST_FORMAT", NEWEST_LEVEL - 1)  # the release before
    import_stores({2: MemoryStore()}, tmp_path / f"level-{OLDEST_LEVEL}")
    newer = f"has format {NEWEST_LEVEL}, this version reads"
    with pytest.raises(StoreError, match=newer):
        import_stores({2: MemoryStore()}, tmp_path / f"level-{NEWEST_LEVEL}")


def test_a_store_with_a_hole_is_not_copied(tmp_path: Path) -> None:
    """Nobody could begin with the copy, and that is heard when it is needed."""
    source = filled(f"sqlite:{tmp_path / 'a'}")
    with sqlite3.connect(tmp_path / "a" / "shard-2.db") as database:
        database.execute("DELETE FROM log WHERE position = 1000")
    database.close()
    with pytest.raises(StoreError, match="shard 2 is damaged: of the records after 500 some"):
        export_stores({2: source}, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    source.close()


def test_a_copy_is_on_the_disk_when_it_is_said_to_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its source may be deleted then, and the machine lose its power."""
    steps: list[str] = []
    sync, place = os.fsync, os.replace

    def synced(fd: int) -> None:
        steps.append(os.readlink(f"/proc/self/fd/{fd}"))
        sync(fd)

    def placed(source: Path, target: Path) -> None:
        steps.append("placed")
        place(source, target)

    source = MemoryStore()
    source.commit(source.acquire("a"), [(1, b"one")])
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", placed)
    export_stores({0: source}, tmp_path / "out")
    contents, *rest = steps
    assert contents.startswith(f"{tmp_path}/out.") and contents.endswith(".unfinished")
    assert rest == ["placed", str(tmp_path)]


def test_two_that_copy_to_one_file_do_not_take_away_what_the_other_writes(tmp_path: Path) -> None:
    """The second one removed it, and the first put into its place what a third had written by then."""
    out, other = tmp_path / "out", MemoryStore()
    other.commit(other.acquire("a"), [(1, b"one")])

    class Copied(MemoryStore):
        def load(self, epoch: int) -> Stored:
            with suppress(StoreError):
                export_stores({0: other}, out)
            return super().load(epoch)

    source = Copied()
    source.commit(source.acquire("a"), [(1, b"one")])
    export_stores({0: source}, out)
    assert list(tmp_path.iterdir()) == [out]
    import_stores({0: MemoryStore()}, out)


def test_what_has_gone_on_while_it_was_copied_is_not_said_to_be_copied(tmp_path: Path) -> None:
    """The disk was slow, the lease ended, and a process of the tracker that was started again went on with the shard."""

    class Slow(MemoryStore):
        renewals = 0

        def renew(self, epoch: int, lease_ms: int, address: str | None = None) -> None:
            super().renew(epoch, lease_ms, address)
            self.renewals += 1
            if self.renewals == 2:  # at its first record
                self.commit(self.acquire("serves", replaces=epoch), [(3, b"acknowledged")])

    source = Slow()
    source.commit(source.acquire("a"), [(1, b"one"), (2, b"two")])
    with pytest.raises(Fenced):
        export_stores({0: source}, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    source = filled(f"sqlite:{tmp_path / 'a'}")
    export_stores({2: source}, tmp_path / "out")
    with pytest.raises(StoreError, match="exists"):
        export_stores({2: source}, tmp_path / "out")
    with pytest.raises(StoreError, match="not empty"):
        import_stores({2: source}, tmp_path / "out")
    other = open_store(f"sqlite:{tmp_path / 'b'}", 1)
    with pytest.raises(StoreError, match="holds shard 2, not shard 1"):
        import_stores({1: other}, tmp_path / "out")
    source.close()
    other.close()


def test_the_command_line_exports_what_nobody_owns(tmp_path: Path) -> None:
    source, url = filled(f"sqlite:{tmp_path / 'a'}"), f"sqlite:{tmp_path / 'a'}"
    epoch = source.acquire("running", lease_ms=60_000)
    runner, out = CliRunner(), str(tmp_path / "out")
    held = runner.invoke(app, ["store", "copy", "--store", url, "--shard", "2", "--to", out])
    assert held.exit_code == 1 and "belongs to running" in held.output
    source.release(epoch)
    done = runner.invoke(app, ["store", "copy", "--store", url, "--shard", "2", "--to", out])
    assert done.exit_code == 0, done.output
    to = f"sqlite:{tmp_path / 'b'}"
    done = runner.invoke(app, ["store", "copy", "--store", to, "--shard", "2", "--from", out])
    assert done.exit_code == 0 and "2500 records" in done.output
    missing = runner.invoke(app, ["store", "copy", "--store", to, "--shard", "5", "--to", "x"])
    assert missing.exit_code == 1 and "no shard 5" in missing.output
    nothing = runner.invoke(app, ["store", "accept-loss", "--store", to, "--shard", "2"])
    assert nothing.exit_code == 0 and "nothing was missing" in nothing.output
    source.close()


def test_all_shards_go_into_one_file_and_back(tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "redis").start()
    try:
        sources = {shard: filled(server.url, shard) for shard in range(3)}
        sources[1].commit(sources[1].acquire("a"), [(3001, b"of shard 1 alone")])
        written = export_stores(sources, tmp_path / "all")
        assert [contents.records for contents in written] == [2500, 2501, 2500]
        targets = {shard: open_store(f"sqlite:{tmp_path / 'b'}", shard) for shard in range(3)}
        assert import_stores(targets, tmp_path / "all") == written
        for shard, store in targets.items():
            epoch = store.acquire("next")
            assert epoch > written[shard].epoch
            stored = store.load(epoch)
            assert stored.snapshot == (500, b"the first 500")
            assert list(stored.records)[2500:] == [(3001, b"of shard 1 alone")] * (shard == 1)
        for store in (*sources.values(), *targets.values()):
            store.close()
    finally:
        server.discard()


def test_a_file_of_all_shards_is_taken_whole_or_not_at_all(tmp_path: Path) -> None:
    sources = {shard: filled(f"sqlite:{tmp_path / 'a'}", shard) for shard in range(2)}
    running = sources[1].acquire("running", lease_ms=60_000)
    with pytest.raises(StoreError, match="belongs to running"):
        export_stores(sources, tmp_path / "all")
    assert not (tmp_path / "all").exists()
    sources[0].release(sources[0].acquire("another", lease_ms=60_000))  # it was given back
    sources[1].release(running)
    export_stores(sources, tmp_path / "all")
    used = {0: open_store(f"sqlite:{tmp_path / 'b'}", 0), 1: filled(f"sqlite:{tmp_path / 'b'}", 1)}
    with pytest.raises(StoreError, match="shard 1 is not empty"):
        import_stores(used, tmp_path / "all")
    assert used[0].load(used[0].acquire("x")).snapshot is None, "nothing was written"
    with pytest.raises(StoreError, match=r"holds shards 0, 1, not shard 0: .* --shards"):
        import_stores({0: used[0]}, tmp_path / "all")
    for store in (*sources.values(), *used.values()):
        store.close()


def test_the_command_line_exports_all_shards_and_forgets_none(tmp_path: Path) -> None:
    url, to, out = f"sqlite:{tmp_path / 'a'}", f"sqlite:{tmp_path / 'b'}", str(tmp_path / "all")
    for shard in range(2):
        filled(url, shard).close()
    runner = CliRunner()
    few = runner.invoke(app, ["store", "copy", "--store", url, "--shards", "1", "--to", out])
    assert few.exit_code == 1 and "there is a shard 1 too" in few.output
    many = runner.invoke(app, ["store", "copy", "--store", url, "--shards", "3", "--to", out])
    assert many.exit_code == 1 and "no shard 2" in many.output
    done = runner.invoke(app, ["store", "copy", "--store", url, "--shards", "2", "--to", out])
    assert done.exit_code == 0 and "shard 1, a snapshot of 13 bytes" in done.output, done.output
    done = runner.invoke(app, ["store", "copy", "--store", to, "--shards", "2", "--from", out])
    assert done.exit_code == 0 and "2500 records" in done.output, done.output


def test_no_shard_is_forgotten_behind_a_number_that_was_never_one(tmp_path: Path) -> None:
    """A newcomer was given up before it began, and the next one had the next number."""
    url, out = f"sqlite:{tmp_path / 'a'}", tmp_path / "all"
    for shard in (0, 1, 3):
        filled(url, shard).close()
    copied = CliRunner().invoke(
        app, ["store", "copy", "--store", url, "--shards", "2", "--to", str(out)]
    )
    assert copied.exit_code == 1 and "there is a shard 3 too" in copied.output
    assert not out.exists()


def test_a_shard_that_has_left_is_left_out_and_stays_what_it_is(tmp_path: Path) -> None:
    """Whoever copied it would be its newest owner, and the next process would serve it again."""
    url, out = f"sqlite:{tmp_path / 'a'}", str(tmp_path / "all")
    for shard in range(3):
        filled(url, shard).close()
    mark_gone(url, 2)
    runner = CliRunner()
    gone = runner.invoke(app, ["store", "copy", "--store", url, "--shards", "3", "--to", out])
    assert gone.exit_code == 1 and "shard 2 has left the tracker" in gone.output
    done = runner.invoke(app, ["store", "copy", "--store", url, "--shards", "2", "--to", out])
    assert done.exit_code == 0, done.output
    lease = read_lease(tmp_path / "a" / "shard-2.db")
    assert lease is not None and lease.owner == GONE


DIES = """
import os, sys
from pathlib import Path
from tracker.store import archive, open_store

writes = []
def dies(epoch, records, level):
    writes.append(records)
    if len(writes) == 2:
        os._exit(9)
    commit(epoch, records, level)

stores = {shard: open_store(sys.argv[1], shard) for shard in range(2)}
commit, stores[0].commit = stores[0].commit, dies
archive.import_stores(stores, Path(sys.argv[2]))
"""


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_a_store_that_was_filled_in_part_is_served_by_nobody(tmp_path: Path, kind: str) -> None:
    """Half of what was acknowledged would be announced anew. Whoever began it may have lost their terminal."""
    server = RedisServer(tmp_path / "redis").start() if kind == "redis" else None
    url = f"sqlite:{tmp_path / 'b'}" if server is None else server.url
    out = tmp_path / "all"
    sources = {shard: filled(f"sqlite:{tmp_path / 'a'}", shard) for shard in range(2)}
    export_stores(sources, out)
    for source in sources.values():
        source.close()
    died = subprocess.run([sys.executable, "-c", DIES, url, str(out)], check=False, timeout=HANG_S)
    assert died.returncode == 9
    for shard in range(2):
        again = CliRunner().invoke(
            app, ["store", "copy", "--store", url, "--shards", "2", "--from", str(out)]
        )
        assert again.exit_code == 1 and "begin it anew in an empty store" in again.output
        store = open_store(url, shard)
        with pytest.raises(Held) as held:
            store.acquire("127.0.0.1:7070", lease_ms=1_000)
        assert held.value.lease.remaining_ms > 365 * 86_400_000
        store.close()
    if server is not None:
        server.discard()


def test_nor_when_the_clock_is_set_back_behind_that(tmp_path: Path) -> None:
    """By a second, or an hour: the lease seems to run for longer than it was given for."""
    server = RedisServer(tmp_path / "redis").start()
    try:
        for url in (f"sqlite:{tmp_path / 'b'}", server.url):
            store = open_store(url, 0)
            store.acquire("the copy that broke off", lease_ms=FILLING_LEASE_MS)
            if url == server.url:
                server.client().hincrby("lowmark:{default:0}:meta", "lease_until_ms", 3_600_000)
            else:
                with closing(sqlite3.connect(tmp_path / "b" / "shard-0.db")) as db, db:
                    db.execute(
                        "UPDATE meta SET value = value + 3600000 WHERE name = 'lease_until_ms'"
                    )
            with pytest.raises(Held, match="the copy that broke off"):
                store.acquire("127.0.0.1:7070", lease_ms=1_000)
            found = open_leases(url).read(0)
            assert found is not None and found.remaining_ms
            store.close()
    finally:
        server.discard()
