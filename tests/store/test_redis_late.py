"""What an owner has given up reaches its Redis server all the same, later: a network that was cut delivers what was
sent before, and the client's end of the connection is long closed. It must change nothing by then."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha1
from pathlib import Path

import pytest

from tests.cluster.redis_server import RedisServer
from tests.cluster.relay import Relay
from tests.waits import HANG_S
from tracker.store import StoreUnavailable, open_store
from tracker.store import redis_scripts as scripts
from tracker.store.redis import RedisStore

TIMEOUT_MS = 300  # expires: what is held back is given up then


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis").start()
    yield server
    server.discard()


@contextmanager
def cut_off(server: RedisServer) -> Iterator[tuple[RedisStore, int, Relay]]:
    """An owner with four records and a snapshot of the first, and the network between it and its server."""
    relay = Relay(f"{server.host}:{server.port}")
    store = open_store(f"redis://{relay.address}?timeout_ms={TIMEOUT_MS}", 0)
    assert isinstance(store, RedisStore)
    epoch = store.acquire("a", lease_ms=60_000)
    store.commit(epoch, [(n, b"%d" % n) for n in range(1, 5)])
    store.write_snapshot(epoch, 1, b"one")
    try:
        yield store, epoch, relay
    finally:
        store.close()
        relay.close()


def delivered(server: RedisServer, held: bytes) -> None:
    """What was held back comes to the server, which answers it to nobody."""
    with socket.create_connection((server.host, server.port), HANG_S) as late:
        late.sendall(held)
        assert late.recv(1 << 16)


def stored(server: RedisServer) -> tuple[tuple[int, bytes] | None, list[tuple[int, bytes]]]:
    """What the next owner finds."""
    store = open_store(server.url, 0)
    found = store.load(store.acquire("a"))
    snapshot, records = found.snapshot, list(found.records)
    store.close()
    return snapshot, records


def digest(script: str) -> bytes:
    return sha1(script.encode(), usedforsecurity=False).hexdigest().encode()


@pytest.mark.parametrize(
    "mark",
    [
        pytest.param(digest(scripts.SNAPSHOT_PIECE), id="its begin"),
        pytest.param(b"given up", id="its piece"),
        pytest.param(digest(scripts.SNAPSHOT_DONE), id="its end"),
    ],
)
def test_a_snapshot_that_was_given_up_touches_none_that_was_written_since(
    server: RedisServer, mark: bytes
) -> None:
    with cut_off(server) as (store, epoch, relay):
        relay.hold_from(mark)
        with pytest.raises(StoreUnavailable):
            store.write_snapshot(epoch, 2, b"given up")
        held = relay.held
        relay.lose()
        store.write_snapshot(epoch, 3, b"three")
        delivered(server, held)
        assert stored(server) == ((3, b"three"), [(4, b"4")])
