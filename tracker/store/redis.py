"""The store for production: a shard's log in Redis, one script a group commit.

The script checks the owner's epoch and appends, in one step, so an owner that was replaced cannot
write. How durable that is, is the server's to say: it is asked when a shard is acquired, and refused
if it promises less than it should, unless the weakness is allowed by name. A commit returns when the
server has answered (with `appendfsync always`: from disk) and as many replicas as are asked for have
it too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b, sha1
from typing import Any
from uuid import uuid4

import redis
from redis.exceptions import (
    AskError,
    AuthenticationError,
    ClusterDownError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TryAgainError,
)

from tracker.core.model.levels import OLDEST_LEVEL
from tracker.store import redis_scripts as scripts
from tracker.store.format import check_format
from tracker.store.interface import (
    Fenced,
    Held,
    Lease,
    LogShortened,
    Stored,
    StoreError,
    StoreUnavailable,
    follow_one_another,
    shortened_text,
)
from tracker.store.redis_url import RedisUrl, parse_redis_url

LEAST_VERSION = (6, 2)
SNAPSHOT_PIECE_BYTES = 4 * 1024 * 1024
PAGE_RECORDS = 2_000
"""Records that one answer brings when a log is read."""

_PASSING = ("BUSY", "MISCONF", "NOREPLICAS", "UNKILLABLE")
"""The first words of errors of a server that cannot now; others have classes, and have lost that word."""
_PASSING_KINDS = (
    AskError, ClusterDownError, NoScriptError, OutOfMemoryError, ReadOnlyError, TryAgainError,
)  # fmt: skip
"""... and of one that is not the right one now: also MOVED and MASTERDOWN, which are kinds of these."""
_OF_CLIENT = (RedisError, RedisClusterException)
"""What the client raises; the second, of which the first is none, where it reaches no server of a cluster."""


class RedisStore:
    """A shard's log in Redis. Raises StoreError for an address that cannot be."""

    def __init__(self, url: str, shard: int) -> None:
        self._url = parse_redis_url(url)
        self._keeper, self._forget_keeper = self._url.client()
        self._where = f"shard {shard} in store {self._url.shown}"
        base = f"lowmark:{{{self._url.namespace}:{shard}}}:"
        self._meta, self._log = base + "meta", base + "log"
        self._shard = shard
        self._numbers = f"lowmark:{{{self._url.namespace}:all}}:shards"
        self._list_keeper, self._forget_list_keeper = self._url.client()
        """Of that alone: in a cluster it is another server's, whose trouble is none of the shard's."""
        self._listing = threading.Lock()
        self._snapshots = {"a": base + "snapshot:a", "b": base + "snapshot:b"}
        self._known_last = 0
        """The last position that this process has seen in the log; durable there."""
        self._weakened: dict[str, str] = {}
        """What the server was found to promise less since it was acquired, by name."""

    def check(self) -> None:
        """Raises StoreError where the server promises less than it must."""
        with self._errors("acquired"):
            check_promises(self._server(), self._url)

    # --- owning -----------------------------------------------------------------------------------

    def acquire(
        self, owner: str, *, lease_ms: int = 0, replaces: int = 0, least_epoch: int = 1
    ) -> int:
        self.check()
        self._weakened = {}
        answer = self._run(scripts.ACQUIRE, [self._meta], [owner, lease_ms, replaces, least_epoch])
        self._known_last = int(answer[1])
        self._list()
        return int(answer[0])

    def _list(self) -> None:
        """Lets others find this shard; again and again, since a server that has failed over may have forgotten it."""
        with self._errors("listed", self._forget_list_keeper):
            self._list_keeper(self._numbers).sadd(self._numbers, self._shard)

    def _list_beside(self) -> None:
        """`_list` in a thread of its own, one at a time: no lease waits for the server that keeps the list."""
        if self._listing.acquire(blocking=False):
            threading.Thread(target=self._list_once, name="lowmark-list", daemon=True).start()

    def _list_once(self) -> None:
        try:
            with suppress(StoreError):  # the next renewal lists it again
                self._list()
        finally:
            self._listing.release()

    def shards(self) -> list[int]:
        """Numbers of the shards of this namespace that have ever been acquired."""
        with self._errors("read", self._forget_list_keeper):
            server: Any = self._list_keeper(self._numbers)
            return sorted(int(number) for number in server.smembers(self._numbers))

    def lease(self) -> Lease:
        """The lease as it is now; epoch 0 where the shard has never had an owner."""
        epoch, owner, address, left_ms = self._run(scripts.LEASE, [self._meta], [], wait=False)
        return Lease(int(epoch), owner.decode(), address.decode(), int(left_ms))

    def renew(self, epoch: int, lease_ms: int, address: str | None = None) -> None:
        more = [] if address is None else [address]
        # A lease that the next primary may not know is none: nobody could tell that it has run out there.
        arguments = [epoch, lease_ms, self._known_last, *more]
        self._run(scripts.RENEW, [self._meta], arguments, wait=lease_ms > 0)
        self._list_beside()

    def release(self, epoch: int) -> None:
        try:
            self.renew(epoch, 0)
        except Fenced:
            pass

    # --- reading ----------------------------------------------------------------------------------

    def load(self, epoch: int) -> Stored:
        self._begin_snapshot(epoch)
        with self._errors("read"):
            server = self._server()
            *range_, found = server.hmget(self._meta, ["base", "last", "format"])
            base, last = (int(value or 0) for value in range_)
            kept = server.llen(self._log)
            if kept != last - base:
                accept = "" if kept else ", or accept the loss with: lowmark store accept-loss"
                raise StoreError(
                    f"{self._where} is damaged: it holds {kept} records and should hold {base + 1} "
                    f"to {last}; restore it from a backup{accept}"
                )
            return Stored(self._snapshot(), self._records(base, last), _format_number(found))

    def _current(self) -> str:
        with self._errors("read"):
            return (self._server().hget(self._meta, "snapshot") or b"").decode()

    def _snapshot(self) -> tuple[int, bytes] | None:
        current = self._current()
        if not current:
            return None
        pieces: list[bytes] = self._server().lrange(self._snapshots[current], 0, -1)
        position = int(self._server().hget(self._meta, "snapshot_position") or 0)
        if not pieces:
            raise StoreError(
                f"{self._where} is damaged: its snapshot of record {position} is not there; restore "
                "it from a backup"
            )
        return position, b"".join(pieces)

    def _records(self, base: int, last: int) -> Iterator[tuple[int, bytes]]:
        position = base
        while position < last:
            start = position - base
            with self._errors("read"):
                page = self._server().lrange(self._log, start, start + PAGE_RECORDS - 1)
            if not page:
                raise StoreError(
                    f"{self._where} ends at record {position} while it is read, and should hold "
                    f"those up to {last}; does another program write there?"
                )
            for record in page:
                position += 1
                yield position, record

    # --- writing ----------------------------------------------------------------------------------

    def commit(
        self, epoch: int, records: Sequence[tuple[int, bytes]], level: int = OLDEST_LEVEL
    ) -> None:
        if not records:
            return
        self._check_promises()
        first = records[0][0]
        if not follow_one_another(records, first):
            raise StoreError(f"{self._where}: records {first} and on must follow one another")
        digest = blake2b(f"{epoch}:{first}:{len(records)}:".encode(), digest_size=16)
        for _, record in records:
            digest.update(len(record).to_bytes(8, "big") + record)
        heads = [epoch, first, self._known_last, digest.hexdigest(), level]
        keys = [self._meta, self._log]
        self._run(scripts.COMMIT, keys, [*heads, *(record for _, record in records)])
        self._known_last = records[-1][0]

    def write_snapshot(
        self, epoch: int, position: int, snapshot: bytes, level: int = OLDEST_LEVEL
    ) -> None:
        self._check_promises()
        name, attempt = self._begin_snapshot(epoch)
        new, old = self._snapshots[name], self._snapshots["a" if name == "b" else "b"]
        pieces = range(0, len(snapshot), SNAPSHOT_PIECE_BYTES)
        for start in pieces:
            piece = snapshot[start : start + SNAPSHOT_PIECE_BYTES]
            arguments = [epoch, name, attempt, piece]
            self._run(scripts.SNAPSHOT_PIECE, [self._meta, new], arguments, wait=False)
        keys = [self._meta, self._log, new, old]
        self._run(scripts.SNAPSHOT_DONE, keys, [epoch, position, name, len(pieces), level, attempt])
        self._known_last = max(self._known_last, position)

    def _begin_snapshot(self, epoch: int) -> tuple[str, str]:
        """Empties the list that holds no snapshot that counts; returns which it is, and the name of the attempt."""
        name, attempt = "b" if self._current() == "a" else "a", uuid4().hex
        keys = [self._meta, self._snapshots[name]]
        self._run(scripts.SNAPSHOT_PIECE, keys, [epoch, name, attempt], wait=False)
        return name, attempt

    def weakened(self) -> str:
        with self._errors("asked"):
            server = self._server()
            found = _refused(server, self._url)
            # Commits wait for replicas by themselves.
            found.pop("replicas", None)
            if not found and "appendonly" in self._weakened and _rewrites(server):
                found["appendonly"] = (
                    "appendonly is yes again, and what is in memory not on the disk yet"
                )
        self._weakened = found
        return "; ".join(found.values())

    def _check_promises(self) -> None:
        """Raises StoreUnavailable while the server promises less than it must."""
        found = self._weakened
        if found:
            raise StoreUnavailable(
                f"{self._where} promises less than when it was acquired: {'; '.join(found.values())}. Nothing "
                "is acknowledged until its configuration is corrected; or start the tracker again with it "
                f"allowed in the address: allow={','.join(found)}"
            )

    def accept_loss(self) -> str:
        missing, gone = self._run(scripts.ACCEPT, [self._meta, self._log], [])
        lost = f"{self._where}: the {int(gone)} records after its snapshot are gone"
        return str(missing.decode()) or (lost if int(gone) else "")

    def close(self) -> None:
        try:
            self._server().close()
        except (*_OF_CLIENT, OSError, StoreError):
            pass  # nothing is held that another owner would wait for

    # --- asking the server ------------------------------------------------------------------------

    def _server(self) -> Any:
        """The client for the server that keeps this shard, which is typed for answers in text too."""
        return self._keeper(self._meta)

    def _run(
        self, script: str, keys: list[str], arguments: list[Any], *, wait: bool = True
    ) -> list[Any]:
        """Runs a script; returns what follows its OK, and raises what any other word says."""
        with self._errors("written"):
            answer = self._evaluate(script, keys, arguments, wait=wait)
        word, rest = answer[0].decode(), answer[1:]
        match word:
            case "OK":
                return rest
            case "FENCED":
                if rest[1] and int(rest[1]) < self._known_last:
                    raise self._shortened(int(rest[1]))  # whoever came next did not find all
                raise Fenced(f"{self._where} has a newer owner: epoch {int(rest[0])}")
            case "HELD":
                owner, address = rest[1].decode(), rest[2].decode()
                raise Held(self._where, Lease(int(rest[0]), owner, address, int(float(rest[3]))))
            case "SHORT":
                raise self._shortened(int(rest[0]))
            case "MISSING":
                raise LogShortened(rest[0].decode())
            case "GAP":
                raise StoreError(f"{self._where}: records must continue at {int(rest[0])}")
            case "LATE":
                raise StoreUnavailable(
                    f"{self._where}: another attempt at the snapshot has come between; it is written again"
                )
            case "FORMAT":
                check_format(self._where, _format_number(rest[0]))
        raise StoreError(
            f"{self._where}: the key {self._meta} belongs to another program; choose another "
            "namespace"
        )

    def _evaluate(
        self, script: str, keys: list[str], arguments: list[Any], *, wait: bool
    ) -> list[Any]:
        replicas = self._url.replicas if wait else 0
        digest = sha1(script.encode(), usedforsecurity=False).hexdigest()
        server = self._server()
        for attempt in (1, 2):
            # Script and WAIT share a connection: WAIT counts what was written on its own alone.
            pipeline = server.pipeline(transaction=False)
            pipeline.evalsha(digest, len(keys), *keys, *arguments)
            if replicas:
                pipeline.execute_command("WAIT", replicas, self._url.timeout_ms // 2)
            answers = pipeline.execute(raise_on_error=False)
            if isinstance(answers[0], NoScriptError) and attempt == 1:
                server.script_load(script)
                continue
            break
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        if replicas and answers[1] < replicas:
            raise StoreUnavailable(
                f"{self._where}: {answers[1]} of the {replicas} replicas asked for have a commit "
                f"after {self._url.timeout_ms // 2} ms; are they up?"
            )
        result: list[Any] = answers[0]
        return result

    def _shortened(self, last: int) -> LogShortened:
        text = shortened_text(self._where, last, self._known_last)
        self._run(scripts.MISSING, [self._meta], [text])
        return LogShortened(text)

    @contextmanager
    def _errors(self, what: str, forget: Callable[[], None] | None = None) -> Iterator[None]:
        """The client's errors as the store's. forget: whom to ask anew for the server then."""
        try:
            yield
        except _OF_CLIENT as error:
            (forget or self._forget_keeper)()
            raise self._as_store_error(what, error) from error
        except OSError as error:
            raise StoreUnavailable(f"{self._where} cannot be {what} now: {error}") from error

    def _as_store_error(self, what: str, error: Exception) -> StoreError:
        if isinstance(error, AuthenticationError | NoPermissionError):
            return StoreError(f"{self._where} cannot be {what}: {error}; check the login")
        passing = not isinstance(error, ResponseError) or isinstance(error, _PASSING_KINDS)
        passing = passing or str(error).startswith(_PASSING)
        name = "OOM: " if isinstance(error, OutOfMemoryError) else ""
        kind = StoreUnavailable if passing else StoreError
        return kind(f"{self._where} cannot be {what} now: {name}{error}")


class RedisLeases:
    """Reads who owns the shards of a namespace."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stores: dict[int, RedisStore] = {}

    def read(self, shard: int) -> Lease | None:
        """The shard's lease; None where no server answers."""
        if shard not in self._stores:
            self._stores[shard] = RedisStore(self._url, shard)
        try:
            return self._stores[shard].lease()
        except StoreUnavailable:
            return None

    def shards(self) -> list[int]:
        if 0 not in self._stores:
            self._stores[0] = RedisStore(self._url, 0)
        try:
            return self._stores[0].shards()
        except StoreUnavailable:
            return []

    def close(self) -> None:
        for store in self._stores.values():
            store.close()


def check_promises(server: redis.Redis, url: RedisUrl) -> None:
    """Raises StoreError, naming what is weaker than asked for, and how to allow it."""
    refused = _refused(server, url)
    if refused:
        raise StoreError(
            f"store {url.shown} promises less than it must: {'; '.join(refused.values())}. Correct "
            f"its configuration, or allow it in the address: allow={','.join(refused)}"
        )


def _refused(server: redis.Redis, url: RedisUrl) -> dict[str, str]:
    """What is weaker than asked for, and not allowed, by name."""
    found = _weaknesses(server, url)
    return {name: text for name, text in found.items() if name not in url.allowed}


def _rewrites(server: redis.Redis) -> bool:
    """Whether the append-only file is being written anew. One that was turned on again counts for nothing before
    that is over."""
    info: dict[str, Any] = server.info("persistence")
    return bool(info.get("aof_rewrite_in_progress") or info.get("aof_rewrite_scheduled"))


def _weaknesses(server: redis.Redis, url: RedisUrl) -> dict[str, str]:
    found: dict[str, str] = {}
    info: dict[str, Any] = server.info("server") | server.info("replication")
    version = str(info.get("redis_version", "0"))
    if tuple(int(n) for n in version.split(".")[:2] if n.isdigit()) < LEAST_VERSION:
        found["version"] = (
            f"version is {version}, the least is {LEAST_VERSION[0]}.{LEAST_VERSION[1]}"
        )
    connected = int(info.get("connected_slaves", 0))
    if connected < url.replicas:
        found["replicas"] = f"{connected} replicas are connected, {url.replicas} are asked for"
    try:
        config = {
            name: str(value)
            for pattern in ("append*", "no-append*", "maxmemory*", "min-*")
            for name, value in server.config_get(pattern).items()
        }
    except (NoPermissionError, ResponseError) as error:
        found["unchecked"] = f"its configuration cannot be read ({error})"
        return found
    if config.get("appendonly") != "yes":
        found["appendonly"] = f"appendonly is {config.get('appendonly')}, not yes"
    if config.get("appendfsync") != "always":
        found["appendfsync"] = f"appendfsync is {config.get('appendfsync')}, not always"
    if config.get("no-appendfsync-on-rewrite", "no") != "no":
        found["no-appendfsync-on-rewrite"] = "no-appendfsync-on-rewrite is yes, not no"
    if config.get("maxmemory-policy") != "noeviction":
        found["maxmemory-policy"] = (
            f"maxmemory-policy is {config.get('maxmemory-policy')}, not noeviction"
        )
    least = config.get("min-replicas-to-write", "0")
    if int(least) < url.replicas:
        found["min-replicas-to-write"] = (
            f"min-replicas-to-write is {least}, {url.replicas} replicas are asked for"
        )
    elif url.replicas and config.get("min-replicas-max-lag") == "0":
        found["min-replicas-to-write"] = (
            f"min-replicas-max-lag is 0, by which min-replicas-to-write of {least} counts for nothing"
        )
    return found


def _format_number(value: bytes) -> int:
    """The number of a format; 0, which none has, for what is none."""
    return int(value) if value.isdigit() else 0
