"""A Redis server forgets who has acquired a shard, and what was committed since: it has failed over to a replica that
lacked that. The one who had acquired it notices, and does not write into the log of whoever was given its epoch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.redis_server import STRICT, RedisServer
from tests.waits import until
from tracker.store import Fenced, LogShortened, Store, StoreError, open_leases, open_store

LEASE_MS = 60_000


class Pair:
    """A primary and its replica, which lags behind when it is told to, and a store at the primary's address."""

    def __init__(self, directory: Path) -> None:
        self.primary = RedisServer(directory / "primary").start()
        at = ("127.0.0.1", str(self.primary.port))
        self.replica = RedisServer(directory / "replica", [*STRICT, "--replicaof", *at]).start()
        self.has_come()

    def has_come(self) -> None:
        """The replica has all that the primary has."""
        with self.primary.client() as client:
            until(lambda: client.incr("told") and client.wait(1, 1000) == 1)  # expires: asked again

    def lags(self) -> None:
        """From here on the replica gets nothing more; what it has is on its disk."""
        with self.replica.client() as client:
            client.replicaof("NO", "ONE")
            until(lambda: not client.info("persistence")["aof_rewrite_in_progress"])

    def fails_over(self) -> None:
        """The replica is at the primary's address from here on, with what it has."""
        self.primary.kill()
        self.replica.kill()
        server = RedisServer(self.replica.directory, STRICT, port=self.primary.port)
        self.primary = server.start()

    def discard(self) -> None:
        self.replica.discard()
        self.primary.discard()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    pair.discard()


def acquired(pair: Pair, owner: str) -> tuple[Store, int]:
    store = open_store(pair.primary.url, 0)
    return store, store.acquire(owner)


def log(pair: Pair) -> list[bytes]:
    with pair.primary.client() as client:
        return list(client.lrange("lowmark:{default:0}:log", 0, -1))


def test_no_epoch_is_given_again_and_who_was_forgotten_writes_nothing_and_says_what_is_lost(
    pair: Pair,
) -> None:
    """The new owner has come to where the next record of the old one belongs."""
    pair.lags()
    old, epoch = acquired(pair, "old")
    old.commit(epoch, [(1, b"acknowledged")])
    pair.fails_over()
    new, later = acquired(pair, "new")
    new.commit(later, [(1, b"of the new one")])
    with pytest.raises(LogShortened, match="ends at record 0, and record 1 was committed"):
        old.commit(epoch, [(2, b"of the old one")])
    assert log(pair) == [b"of the new one"]
    assert later > epoch, "others go by that"
    with pytest.raises(LogShortened, match="accept-loss"):
        acquired(pair, "next")
    for store in (old, new):
        store.close()


@pytest.mark.parametrize("what", ["renews", "commits"])
def test_who_was_forgotten_and_had_committed_nothing_is_replaced(pair: Pair, what: str) -> None:
    first, before = acquired(pair, "first")
    first.commit(before, [(1, b"one")])
    pair.has_come()
    pair.lags()
    old, epoch = acquired(pair, "old")
    pair.fails_over()
    new, later = acquired(pair, "new")
    with pytest.raises(Fenced):
        if what == "renews":
            old.renew(epoch, LEASE_MS)
        else:
            old.commit(epoch, [(2, b"of the old one")])
    assert later > epoch
    new.commit(later, [(2, b"of the new one")])
    assert log(pair) == [b"one", b"of the new one"]
    for store in (first, old, new):
        store.close()


def test_a_shard_that_a_server_has_forgotten_is_found_again_by_those_who_would_take_it_over(
    pair: Pair,
) -> None:
    """In a cluster the list of shards is another server's than the shard, and may fail over by itself. Nobody but its owner
    knows of a shard that has joined, and it may die."""
    owner, leases = open_store(pair.primary.url, 5), open_leases(pair.primary.url)
    epoch = owner.acquire("newcomer")
    with pair.primary.client() as client:
        client.delete("lowmark:{default:all}:shards")
    assert leases.shards() == []
    owner.renew(epoch, LEASE_MS)
    until(lambda: leases.shards() == [5])
    owner.close()
    leases.close()


def test_an_owner_that_only_renews_its_lease_notices_what_is_lost(pair: Pair) -> None:
    """Nobody commits for a while, and then another one takes over: it would never be noticed."""
    owner, epoch = acquired(pair, "a")
    owner.commit(epoch, [(1, b"one")])
    pair.has_come()
    pair.lags()
    owner.commit(epoch, [(2, b"acknowledged")])
    pair.fails_over()
    with pytest.raises(LogShortened, match="ends at record 1, and record 2 was committed"):
        owner.renew(epoch, LEASE_MS)
    with pytest.raises(StoreError, match="accept-loss"):
        acquired(pair, "next")
    owner.close()
