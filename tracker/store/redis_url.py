"""The addresses of Redis stores, and what their options say.

    redis://[user:password@]host[:6379][/database][?options]       one server, with or without replicas
    rediss://...                                                   the same, with TLS
    redis+sentinel://[user:password@]host[:26379],.../service[/database]   found by sentinels
    redis+cluster://[user:password@]host[:6379],...                a cluster
    rediss+sentinel://, rediss+cluster://                          with TLS

Options of Lowmark: namespace (before the keys; `default`), replicas (that must have each commit; 0),
timeout_ms (of one answer; 5000), allow (weaknesses that are accepted, by name, with commas). All
others go to the Redis client: ssl_ca_certs, ssl_certfile, ssl_keyfile, ssl_cert_reqs and so on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.retry import Retry
from redis.sentinel import Sentinel

from tracker.redacting import redacted
from tracker.store.interface import StoreError

SCHEMES = (
    "redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster",
)  # fmt: skip
WEAKNESSES = (
    "version", "appendonly", "appendfsync", "no-appendfsync-on-rewrite", "maxmemory-policy",
    "replicas", "min-replicas-to-write", "unchecked",
)  # fmt: skip
"""What may be allowed by name; `unchecked`: a server that does not let itself be asked."""
TIMEOUT_MS = 5_000
MOST_TIMEOUT_MS = 600_000
MOST_REPLICAS = 100
MOST_NAMESPACE_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """A store's address, taken apart. `namespace` stands before the names of the keys."""

    shown: str
    """Without the password."""
    kind: str
    """`single`, `sentinel` or `cluster`."""
    hosts: tuple[tuple[str, int], ...]
    service: str
    namespace: str
    replicas: int
    timeout_ms: int
    allowed: frozenset[str]
    connection: dict[str, Any] = field(repr=False, default_factory=dict)

    def client(self) -> tuple[Callable[[str], redis.Redis], Callable[[], None]]:
        """Opens nothing yet; returns whom to ask for the server that keeps a key, and what to call
        when that one does not answer as it should: another may keep the key by now."""
        if self.kind == "single":
            host, port = self.hosts[0]
            single = redis.Redis(host=host, port=port, **self.connection)
            return lambda _: single, lambda: None
        if self.kind == "sentinel":
            shared = {k: v for k, v in self.connection.items() if k not in _NOT_FOR_SENTINELS}
            sentinel: Any = Sentinel(list(self.hosts), sentinel_kwargs=shared, **self.connection)  # type: ignore[no-untyped-call]
            master = sentinel.master_for(self.service)
            return lambda _: master, lambda: None
        nodes = [ClusterNode(host, port) for host, port in self.hosts]  # type: ignore[no-untyped-call]
        settings = {k: v for k, v in self.connection.items() if k != "db"}
        made: list[Any] = []

        def keeper(key: str) -> redis.Redis:
            cluster = next(iter(made), None)  # another thread may let go of it at any time
            if cluster is None:
                cluster = RedisCluster(startup_nodes=nodes, **settings)  # it asks the nodes at once
                made[:] = [cluster]
            node = cluster.get_node_from_key(key)
            connected: redis.Redis = cluster.get_redis_connection(node)
            return connected

        return keeper, made.clear


_NOT_FOR_SENTINELS = {"db", "username", "password"}


def parse_redis_url(url: str) -> RedisUrl:
    """Raises StoreError for what is no address, or an option that is not known."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise StoreError(f"store {redacted(url)!r} is not of a kind of {', '.join(SCHEMES)}")
    protocol, _, form = parts.scheme.partition("+")
    login, _, addresses = parts.netloc.rpartition("@")
    hosts = tuple(_host(address, form, url) for address in addresses.split(",") if address)
    path = [unquote(piece) for piece in parts.path.split("/") if piece]
    service = path.pop(0) if form == "sentinel" and path else ""
    if not hosts or (form == "sentinel") != bool(service) or (form == "" and len(hosts) != 1):
        raise StoreError(
            f"store {redacted(url)!r} needs one host, or hosts with commas where there are "
            "sentinels or a cluster, and for sentinels the name of a service"
        )
    database = path.pop(0) if path else "0"
    if path or not database.isdigit() or (form == "cluster" and database != "0"):
        raise StoreError(f"store {redacted(url)!r}: {parts.path!r} is no number of a database")
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    replicas = _number(url, given, "replicas", 0, MOST_REPLICAS)
    timeout_ms = _number(url, given, "timeout_ms", TIMEOUT_MS, MOST_TIMEOUT_MS)
    namespace = given.pop("namespace", "default")
    if not 0 < len(namespace) <= MOST_NAMESPACE_CHARACTERS or set("{}") & set(namespace):
        raise StoreError(
            f"store {redacted(url)!r}: a namespace has 1 to {MOST_NAMESPACE_CHARACTERS} "
            "characters, none of which is a brace"
        )
    allowed = frozenset(filter(None, given.pop("allow", "").split(",")))
    if unknown := sorted(allowed - set(WEAKNESSES)):
        raise StoreError(
            f"store {redacted(url)!r}: allow={unknown[0]} is none of {', '.join(WEAKNESSES)}"
        )
    user, _, password = login.partition(":")
    connection: dict[str, Any] = {
        "username": unquote(user) or None,
        "password": unquote(password) or None,
        "db": int(database),
        "socket_timeout": timeout_ms / 1000,
        "socket_connect_timeout": timeout_ms / 1000,
        # A commit is repeated by the owner alone, who knows it again.
        "retry": Retry(NoBackoff(), 0),
    } | _client_options(url, given)
    if protocol == "rediss":
        connection["ssl"] = True
    kind = form or "single"
    return RedisUrl(
        redacted(url), kind, hosts, service, namespace, replicas, timeout_ms, allowed, connection
    )


def _host(address: str, form: str, url: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, "26379" if form == "sentinel" else "6379"
    if not host or not port.isdigit():
        raise StoreError(f"store {redacted(url)!r}: {address!r} is not host:port")
    return host.strip("[]"), int(port)


def _number(url: str, given: dict[str, str], name: str, default: int, most: int) -> int:
    text = given.pop(name, str(default))
    if not text.isdigit() or not int(text) <= most:
        raise StoreError(f"store {redacted(url)!r}: {name}={text} is not a number from 0 to {most}")
    return int(text)


def _client_options(url: str, given: dict[str, str]) -> dict[str, str]:
    for name in given:
        if not name.startswith("ssl_"):
            raise StoreError(
                f"store {redacted(url)!r}: option {name!r} is not known; there are namespace, "
                "replicas, timeout_ms, allow and the ssl_ options of the Redis client"
            )
    return given
