"""The Redis store: which servers it accepts, how it reaches them, and what it does while one is away."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.cluster.redis_server import STRICT, RedisServer
from tests.waits import HANG_S, until
from tracker.client.ports import free_ports
from tracker.service.leasing import LeaseKeeper
from tracker.store import (
    LogShortened,
    Store,
    StoreError,
    StoreUnavailable,
    open_leases,
    open_store,
    redis_url,
    shown_store,
)

Start = Callable[..., RedisServer]
LEASE_MS = 60_000
_HALF = 8192
"""Slots of a cluster: that of shard 0 is below, that of the list of all shards above."""


def _bus() -> tuple[str, str]:
    return "--cluster-port", str(free_ports(1)[0])


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts servers, which end with the test."""
    servers: list[RedisServer] = []

    def start_one(options: Sequence[str] = STRICT, **more: object) -> RedisServer:
        server = RedisServer(tmp_path / str(len(servers)), options, **more)  # type: ignore[arg-type]
        servers.append(server)
        return server.start()

    yield start_one
    for server in servers:
        server.discard()


def works(url: str) -> None:
    """A shard's log is written by one owner and read by the next."""
    store = open_store(url, 0)
    epoch = store.acquire("a")
    store.commit(epoch, [(1, b"one"), (2, b"two")])
    store.write_snapshot(epoch, 1, b"the first")
    store.close()
    again = open_store(url, 0)
    stored = again.load(again.acquire("b"))
    assert (stored.snapshot, list(stored.records)) == ((1, b"the first"), [(2, b"two")])
    again.close()


# --- what is asked of a server --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--appendonly", "no", "appendonly is no, not yes"),
        ("--appendfsync", "everysec", "appendfsync is everysec, not always"),
        ("--maxmemory-policy", "allkeys-lru", "maxmemory-policy is allkeys-lru, not noeviction"),
    ],
)
def test_a_server_that_promises_less_is_refused_unless_it_is_allowed_by_name(
    start: Start, option: str, value: str, says: str
) -> None:
    options = list(STRICT)
    options[options.index(option) + 1] = value
    server = start(options)
    with pytest.raises(StoreError, match=rf"{says}.*allow={option[2:]}"):
        open_store(server.url, 0).acquire("a")
    works(f"{server.url}?allow={option[2:]}")


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("appendonly", "no", "appendonly is no, not yes"),
        ("appendfsync", "no", "appendfsync is no, not always"),
        ("maxmemory-policy", "allkeys-lru", "maxmemory-policy is allkeys-lru, not noeviction"),
    ],
)
def test_a_server_that_is_weakened_later_takes_no_commit_until_that_is_corrected(
    start: Start, option: str, value: str, says: str
) -> None:
    server = start()
    store = open_store(server.url, 0)
    epoch = store.acquire("a", lease_ms=10_000)
    store.commit(epoch, [(1, b"one")])
    with server.client() as client:
        right = client.config_get(option)[option]
        client.config_set(option, value)
        assert says in store.weakened()
        refused = rf"{says}.*allow={option}"
        with pytest.raises(StoreUnavailable, match=refused):
            store.commit(epoch, [(2, b"two")])
        with pytest.raises(StoreUnavailable, match=refused):
            store.write_snapshot(epoch, 1, b"one")
        store.renew(epoch, 10_000)  # nobody else would do better
        client.config_set(option, right)
    until(lambda: store.weakened() == "")
    store.commit(epoch, [(2, b"two")])
    store.close()
    allowing = open_store(f"{server.url}?allow={option}", 0)
    allowing.acquire("a")
    with server.client() as client:
        client.config_set(option, value)
    assert allowing.weakened() == ""
    allowing.close()


def test_a_server_that_does_not_sync_while_it_rewrites_its_file_is_refused(start: Start) -> None:
    """It begins to by itself, when the file has grown."""
    option = "no-appendfsync-on-rewrite"
    server = start([*STRICT, f"--{option}", "yes"])
    with pytest.raises(StoreError, match=rf"{option} is yes, not no.*allow={option}"):
        open_store(server.url, 0).acquire("a")
    works(f"{server.url}?allow={option}")


def test_a_primary_that_may_be_cut_off_from_its_replicas_for_good_is_refused(start: Start) -> None:
    """A lag of 0 turns the number off."""
    least = ["--min-replicas-to-write", "1", "--min-replicas-max-lag", "0"]
    server = start([*STRICT, *least])
    with pytest.raises(StoreError, match=r"min-replicas-max-lag is 0.*allow=min-replicas-to-write"):
        open_store(f"{server.url}?replicas=1&allow=replicas", 0).acquire("a")


def test_replicas_are_asked_for_by_number_and_refused_where_there_are_less(start: Start) -> None:
    server = start()
    with pytest.raises(StoreError, match="0 replicas are connected, 1 are asked for"):
        open_store(f"{server.url}?replicas=1", 0).acquire("a")
    with pytest.raises(StoreError, match="min-replicas-to-write is 0, 1 replicas are asked for"):
        open_store(f"{server.url}?replicas=1&allow=replicas", 0).acquire("a")


def test_a_server_that_does_not_let_itself_be_asked_is_refused(start: Start) -> None:
    server = start([*STRICT, "--rename-command", "CONFIG", ""])
    with pytest.raises(StoreError, match=r"configuration cannot be read.*allow=unchecked"):
        open_store(server.url, 0).acquire("a")
    works(f"{server.url}?allow=unchecked")


def test_a_commit_waits_for_the_replicas_and_an_old_one_counts_only_when_they_have_it(
    start: Start,
) -> None:
    primary = start([*STRICT, "--min-replicas-to-write", "1"])
    replica = start([*STRICT, "--replicaof", "127.0.0.1", str(primary.port)])
    with primary.client() as client:
        until(lambda: client.info("replication").get("min_slaves_good_slaves") == 1)
        # Before its first write a connection waits for nothing, and a replica counts before it has read the snapshot.
        until(lambda: client.set("told", 1) and client.wait(1, 1000) == 1)  # expires: asked again
    store = open_store(f"{primary.url}?replicas=1&timeout_ms=1000", 0)
    epoch = store.acquire("a")
    store.commit(epoch, [(1, b"one")])
    replica.pause()
    with pytest.raises(StoreUnavailable, match="0 of the 1 replicas asked for have a commit"):
        store.commit(epoch, [(2, b"two")])
    # It is in the primary, and repeated: still it counts only with the replica.
    with pytest.raises(StoreUnavailable, match="0 of the 1 replicas"):
        store.commit(epoch, [(2, b"two")])
    replica.go_on()
    commit_until_it_works(store, epoch, 2)
    with replica.client() as client:
        assert client.lrange("lowmark:{default:0}:log", 0, -1) == [b"one", b"two"]
    store.close()


def test_a_lease_counts_as_renewed_when_the_replicas_know_of_it(start: Start) -> None:
    """Else a primary that is cut off renews it for a while, when its replica has failed over and another process owns the
    shard by that: what the first one is asked it answers as if it were the owner."""
    primary = start([*STRICT, "--min-replicas-to-write", "1"])
    replica = start([*STRICT, "--replicaof", "127.0.0.1", str(primary.port)])
    with primary.client() as client:
        until(lambda: client.info("replication").get("min_slaves_good_slaves") == 1)
        until(lambda: client.set("told", 1) and client.wait(1, 1000) == 1)  # expires: asked again
    store = open_store(f"{primary.url}?replicas=1&timeout_ms=1000", 0)
    keeper = LeaseKeeper(store, store.acquire("a", lease_ms=LEASE_MS), LEASE_MS, lambda _: None)
    replica.pause()
    with pytest.raises(StoreUnavailable, match="0 of the 1 replicas"):
        keeper.renew()
    assert not keeper.held
    keeper.stop(release=True)  # that may be late without harm
    replica.go_on()

    def renews() -> bool:
        with suppress(StoreUnavailable):
            keeper.renew()
        return keeper.held

    until(renews)
    store.close()


# --- ways to a server -----------------------------------------------------------------------------


def certificates(directory: Path) -> None:
    """A key and a certificate for this host, signed by itself."""
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(directory / "key.pem"), "-out", str(directory / "cert.pem")]
    subprocess.run(command, check=True, capture_output=True, timeout=HANG_S)


def test_tls_with_a_certificate_that_is_checked(start: Start, tmp_path: Path) -> None:
    certificates(tmp_path)
    port = free_ports(1)[0]
    server = start(
        [
            *STRICT, "--tls-port", str(port), "--tls-auth-clients", "no",
            "--tls-cert-file", str(tmp_path / "cert.pem"),
            "--tls-key-file", str(tmp_path / "key.pem"),
            "--tls-ca-cert-file", str(tmp_path / "cert.pem"),
        ]
    )  # fmt: skip
    assert server.port != port
    works(f"rediss://127.0.0.1:{port}?ssl_ca_certs={tmp_path / 'cert.pem'}")
    with pytest.raises(StoreUnavailable, match="cannot be acquired now"):
        open_store(f"rediss://127.0.0.1:{port}", 0).acquire("a")  # signed by nobody it knows


def test_a_user_of_an_access_list_needs_the_keys_of_its_namespace_alone(start: Start) -> None:
    rules = "on >very-secret ~lowmark:{mine:* +@all -@dangerous +info +config|get +script|load"
    server = start([*STRICT, "--user", "shop", *rules.split()])
    host = f"127.0.0.1:{server.port}"
    works(f"redis://shop:very-secret@{host}?namespace=mine")
    with pytest.raises(StoreError, match="check the login") as wrong:
        open_store(f"redis://shop:not-the-secret@{host}?namespace=mine", 0).acquire("a")
    assert "not-the-secret" not in str(wrong.value)
    with pytest.raises(StoreError, match=r"check the login|permission|ACL|keys"):
        open_store(f"redis://shop:very-secret@{host}?namespace=theirs", 0).acquire("a")


def test_a_cluster_keeps_a_shard_together(start: Start) -> None:
    bus = str(free_ports(1)[0])
    server = start([*STRICT, "--cluster-enabled", "yes", "--cluster-port", bus])
    with server.client() as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        until(lambda: "ok" in str(client.execute_command("CLUSTER INFO")["cluster_state"]))
    works(f"redis+cluster://127.0.0.1:{server.port}")


def test_sentinels_tell_where_the_primary_is_and_where_it_has_gone(start: Start) -> None:
    primary = start()
    replica = start([*STRICT, "--replicaof", "127.0.0.1", str(primary.port)])
    with primary.client() as client:
        until(lambda: client.info("replication")["connected_slaves"] == 1)
    watched = (
        f"sentinel monitor main 127.0.0.1 {primary.port} 1\n"
        "sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 2000\n"
    )
    sentinel = start((), sentinel=watched)
    store = open_store(f"redis+sentinel://127.0.0.1:{sentinel.port}/main", 0)
    epoch = store.acquire("a")
    store.commit(epoch, [(1, b"one")])
    with primary.client() as client:
        until(lambda: client.wait(1, 1000) == 1)  # expires: asked again
    with sentinel.client() as client:
        until(lambda: "slave" in str(client.execute_command("SENTINEL", "REPLICAS", "main")))
    primary.kill()
    commit_until_it_works(store, epoch, 2)
    with replica.client() as client:
        assert client.lrange("lowmark:{default:0}:log", 0, -1) == [b"one", b"two"]
    store.close()


def commit_until_it_works(store: Store, epoch: int, position: int) -> None:
    """As an owner does: the same records again."""

    def commit() -> bool:
        try:
            store.commit(epoch, [(position, b"two")])
            return True
        except StoreUnavailable:
            return False

    until(commit)


def test_addresses_that_cannot_be_are_refused_by_name() -> None:
    for url, says in {
        "redis://host?allow=hope": "allow=hope is none of version",
        "redis://host?colour=red": "option 'colour' is not known",
        "redis://host?replicas=many": "replicas=many is not a number",
        "redis://a,b": "needs one host",
        "redis+sentinel://a,b": "the name of a service",
        "redis://host:port": "is not host:port",
        "redis://host/first": "is no number of a database",
        "redis+cluster://host/1": "is no number of a database",
        "redis://host?namespace=%7B": "none of which is a brace",
    }.items():
        with pytest.raises(StoreError, match=says):
            open_store(url, 0)


def test_a_password_is_shown_nowhere() -> None:
    assert shown_store("rediss://me:very-secret@host:1/0") == "rediss://me:***@host:1/0"
    with pytest.raises(StoreError) as error:
        open_store("redis://me:very-secret@host/zero", 0)
    assert "very-secret" not in str(error.value)


# --- failures -------------------------------------------------------------------------------------


def test_while_redis_is_away_nothing_is_committed_and_then_it_goes_on(start: Start) -> None:
    server = start()
    store = open_store(server.url, 0)
    epoch = store.acquire("a")
    store.commit(epoch, [(1, b"one")])
    server.kill()
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="cannot be written now"):
            store.commit(epoch, [(2, b"two")])
    server.start()
    store.commit(epoch, [(2, b"two")])
    assert [position for position, _ in store.load(epoch).records] == [1, 2]
    store.close()


def test_a_commit_that_was_torn_on_the_disk_is_not_there(start: Start) -> None:
    server = start()
    store = open_store(server.url, 0)
    epoch = store.acquire("a")
    store.commit(epoch, [(1, b"one")])
    store.commit(epoch, [(2, b"x" * 1000), (3, b"y" * 1000)])
    server.kill()
    (tail,) = server.directory.glob("appendonlydir/*.incr.aof")
    tail.write_bytes(tail.read_bytes()[:-700])  # within the last record
    server.start()
    with pytest.raises(LogShortened, match="ends at record 1, and record 3 was committed"):
        store.commit(epoch, [(4, b"four")])
    with pytest.raises(LogShortened):
        open_store(server.url, 0).acquire("b")
    store.close()


def test_a_server_that_forgot_everything_is_noticed(start: Start) -> None:
    server = start()
    store = open_store(server.url, 0)
    epoch = store.acquire("a")
    store.commit(epoch, [(1, b"one")])
    with server.client() as client:
        client.flushall()
    with pytest.raises(LogShortened, match="ends at record 0, and record 1 was committed"):
        store.renew(epoch, 1000)
    with pytest.raises(LogShortened):
        open_store(server.url, 0).acquire("b")
    store.close()


def test_keys_of_another_program_are_refused_and_left_alone(start: Start) -> None:
    server = start()
    with server.client() as client:
        client.set("lowmark:{default:0}:meta", "mine")
        client.hset("lowmark:{default:1}:meta", "colour", "red")
        for shard in (0, 1):
            with pytest.raises(StoreError, match="belongs to another program"):
                open_store(server.url, shard).acquire("a")
        assert client.get("lowmark:{default:0}:meta") == b"mine"
        assert client.hgetall("lowmark:{default:1}:meta") == {b"colour": b"red"}


def test_a_log_with_a_hole_is_refused(start: Start) -> None:
    server = start()
    store = open_store(server.url, 0)
    epoch = store.acquire("a")
    store.commit(epoch, [(n, b"record") for n in range(1, 10)])
    with server.client() as client:
        client.rpop("lowmark:{default:0}:log")
    with pytest.raises(StoreError, match=r"holds 8 records and should hold 1 to 9.*backup"):
        store.load(epoch)
    store.close()


@pytest.mark.parametrize("noticed", ["by its owner", "at the next start"])
def test_a_log_that_a_server_has_thrown_out_is_a_loss_that_can_be_accepted(
    start: Start, noticed: str
) -> None:
    """Somebody has let it evict keys, and it took the largest one."""
    server = start()
    store = open_store(server.url, 0)
    epoch = store.acquire("a")
    store.commit(epoch, [(n, b"%d" % n) for n in range(1, 10)])
    store.write_snapshot(epoch, 4, b"four")
    assert store.accept_loss() == "", "nothing is missing"
    assert len(list(store.load(epoch).records)) == 5
    with server.client() as client:
        client.delete("lowmark:{default:0}:log")
    if noticed == "by its owner":
        with pytest.raises(LogShortened, match="ends at record 4, and record 9 was committed"):
            store.commit(epoch, [(10, b"10")])
    else:
        with pytest.raises(StoreError, match=r"holds 0 records.*5 to 9.*accept-loss"):
            store.load(store.acquire("a"))
    after = open_store(server.url, 0)
    assert ("record 9" if noticed == "by its owner" else "the 5 records") in after.accept_loss()
    epoch = after.acquire("next")
    stored = after.load(epoch)
    assert (stored.snapshot, list(stored.records)) == ((4, b"four"), [])
    after.commit(epoch, [(5, b"another")])
    assert list(after.load(epoch).records) == [(5, b"another")]
    for each in (store, after):
        each.close()


def test_a_server_without_room_loses_nothing_and_goes_on_when_there_is_room(start: Start) -> None:
    server = start()
    store = open_store(server.url, 0)
    epoch = store.acquire("a")
    store.commit(epoch, [(1, b"one")])
    with server.client() as client:
        client.config_set("maxmemory", "1")
        with pytest.raises(StoreUnavailable, match="OOM"):
            store.commit(epoch, [(2, b"two")])
        client.config_set("maxmemory", "0")
    store.commit(epoch, [(2, b"two")])
    assert [record for _, record in store.load(epoch).records] == [b"one", b"two"]
    store.close()


def test_a_cluster_that_does_not_serve_a_shard_now_is_away(start: Start) -> None:
    """As while one of its servers is replaced: who waits for a shard goes on to wait."""
    bus = str(free_ports(1)[0])
    server = start([*STRICT, "--cluster-enabled", "yes", "--cluster-port", bus])
    with server.client() as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        until(lambda: "ok" in str(client.execute_command("CLUSTER INFO")["cluster_state"]))
        store = open_store(server.url, 0)
        epoch = store.acquire("a")
        client.execute_command("CLUSTER", "DELSLOTSRANGE", 0, 16383)
        until(lambda: "fail" in str(client.execute_command("CLUSTER INFO")["cluster_state"]))
        _is_away(server.url, store, epoch)
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        until(lambda: "ok" in str(client.execute_command("CLUSTER INFO")["cluster_state"]))
    store.commit(epoch, [(1, b"one")])
    store.close()


def test_a_lease_is_renewed_while_the_server_hangs_that_keeps_the_list_of_shards(
    start: Start,
) -> None:
    """All shards have that one in common. It is found in no list then, and is again when the server goes on."""
    shard, of_list = (start([*STRICT, "--cluster-enabled", "yes", *_bus()]) for _ in range(2))
    with shard.client() as client, of_list.client() as other:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, _HALF - 1)
        other.execute_command("CLUSTER", "ADDSLOTSRANGE", _HALF, 16383)
        bus = int(of_list.options[-1])
        client.execute_command("CLUSTER", "MEET", of_list.host, of_list.port, bus)
        until(
            lambda: all(
                "ok" in str(each.execute_command("CLUSTER INFO")["cluster_state"])
                for each in (client, other)
            )
        )
        store = open_store(f"redis+cluster://{shard.host}:{shard.port}?timeout_ms=1000", 0)
        keeper = LeaseKeeper(store, store.acquire("a", lease_ms=LEASE_MS), LEASE_MS, lambda _: None)
        assert other.delete("lowmark:{default:all}:shards") == 1
        of_list.pause()
        for _ in range(2):
            keeper.renew()
        assert keeper.held
        of_list.go_on()

        def is_listed() -> bool:
            keeper.renew()
            return bool(other.sismember("lowmark:{default:all}:shards", "0"))

        until(is_listed)
    keeper.stop(release=True)
    store.close()


@pytest.mark.parametrize("how", ["gone", "no slots"])
def test_a_cluster_of_which_nobody_answers_is_away_for_its_own_client(
    start: Start, how: str
) -> None:
    """What that says then is no error of a server."""
    bus = str(free_ports(1)[0])
    options = [*STRICT, "--cluster-enabled", "yes", "--cluster-port", bus]
    server = start(options)
    with server.client() as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        until(lambda: "ok" in str(client.execute_command("CLUSTER INFO")["cluster_state"]))
        url = f"redis+cluster://{server.host}:{server.port}?timeout_ms=1000"
        store = open_store(url, 0)
        epoch = store.acquire("a")
        if how == "no slots":
            client.execute_command("CLUSTER", "DELSLOTSRANGE", 0, 16383)
            until(lambda: "fail" in str(client.execute_command("CLUSTER INFO")["cluster_state"]))
    if how == "gone":
        server.kill()
    for _ in range(2):  # the second time it does not know whom to ask
        _is_away(url, store, epoch)
    store.close()


def test_a_replica_that_lacks_its_primary_is_away(start: Start) -> None:
    """As what an address leads to for a while, when a primary has died."""
    primary = start()
    replica = start([*STRICT, "--replicaof", "127.0.0.1", str(primary.port)])
    store = open_store(replica.url, 0)
    with replica.client() as client:
        client.config_set("replica-serve-stale-data", "no")
        until(lambda: client.info("replication")["master_link_status"] == "up")
        primary.kill()
        until(lambda: client.info("replication")["master_link_status"] == "down")
        _is_away(replica.url, store, 1)
    store.close()


def _is_away(url: str, store: Store, epoch: int) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be"):
        store.commit(epoch, [(1, b"one")])
    with pytest.raises(StoreUnavailable, match="cannot be"):
        open_store(url, 0).acquire("b")
    with closing(open_leases(url)) as leases:
        assert leases.read(0) is None and leases.shards() == []


def test_the_thread_that_renews_may_ask_for_a_cluster_anew_while_another_one_commits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As both do while one of its servers is away: an error that is none of the client's ends an owner."""

    class OneServer:
        """What is asked of the client of a cluster. Just then another thread has met an error."""

        def __init__(self, **_: object) -> None: ...

        def get_node_from_key(self, key: str) -> str:
            forget()
            return key

        def get_redis_connection(self, node: str) -> str:
            return node

    monkeypatch.setattr(redis_url, "RedisCluster", OneServer)
    keeper, forget = redis_url.parse_redis_url("redis+cluster://127.0.0.1:1").client()
    assert keeper("a") == "a"  # type: ignore[comparison-overlap]
