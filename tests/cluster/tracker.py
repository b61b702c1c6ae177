"""A tracker as processes of its own: started, killed, paused, replaced, grown, shrunk and ended."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Self, TextIO, TypeVar

from examples.history import Recorder
from tests.cluster.children import Running, discard, ends_of_logs, processor_s
from tests.cluster.forked import fork
from tests.cluster.network import Loopback, Network, Place, fresh_address
from tests.cluster.redis_server import STRICT, RedisServer
from tests.waits import HANG_S, until
from tracker.client import Admin, LowmarkError, RoutingInfo, SecureTarget
from tracker.core.insight.describe import ShardRole
from tracker.core.model import PipelineSpec

Answer = TypeVar("Answer")
ASK_S = 5.0  # expires: whoever asks asks again


class Server(Running):
    """A process of a tracker, `lowmark serve`, at its place; not started."""

    def __init__(
        self,
        place: Place,
        way: Sequence[str],
        directory: Path,
        *more: str,
        fault: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """more: options of this process alone, not of one that replaces it."""
        super().__init__(
            "tests.cluster.serving", fault, "--", "serve", "--listen", place.listen, *way, *more,
            errors=directory / f"{place.name}.log", before=place.command, environment=environment,
        )  # fmt: skip
        self.place, self.way = place, tuple(way)
        self.metrics = ""
        """Where it tells its metrics, if it does."""

    @property
    def name(self) -> str:
        return self.place.name

    @property
    def address(self) -> str:
        return self.place.address


class Tracker:
    """Shards, standbys and newcomers, none of which outlives it."""

    def __init__(
        self,
        directory: Path,
        shards: int = 1,
        standbys: int = 0,
        *,
        store: str = "sqlite",
        options: Sequence[str] = (),
        metrics: bool = False,
        network: Network | None = None,
        fault: str = "",
    ) -> None:
        """store: "sqlite" for files in `directory`, "redis" for a server of its own, else as `lowmark
        serve --store` takes it; options: more of every process; metrics: whether each tells them, at an
        address of its own; fault: one of `tests.sabotage`, in every process."""
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self.network = directory, network or Loopback()
        self._fault, self._options, self._tells_metrics = fault, tuple(options), metrics
        self.redis: RedisServer | None = None
        if store == "redis":
            place = self.network.place("redis")
            self.redis = RedisServer(
                directory / "redis", [*STRICT, "--protected-mode", "no"], place=place
            )
            store = f"redis://{place.address}?timeout_ms=1000"
        self.store = f"sqlite:{directory / 'store'}" if store == "sqlite" else store
        places = [self.network.place(f"shard-{number}") for number in range(shards)]
        waiting = [self.network.place(f"standby-{number}") for number in range(standbys)]
        first = ("--peers", ",".join(place.address for place in places), "--store", self.store)
        self.shards = [self.server(p, *first, "--shard", str(n)) for n, p in enumerate(places)]
        self.standbys = [
            self.server(p, *first, "--standby", "--address", p.address) for p in waiting
        ]
        self.newcomers: list[Server] = []
        self.gone: list[Server] = []
        """Those that have left, in the order in which they did."""

    def server(self, place: Place, *way: str, **environment: str) -> Server:
        """A process of this tracker at a place, with options of its own; not started, and not listed."""
        told = ""
        if self._tells_metrics:
            told = fresh_address()
            way = (*way, "--metrics-listen", told)
        is_said = any(word.startswith("log_level=") for word in self._options)  # once at most
        level = [] if is_said else ["--set", "log_level=info"]
        server = Server(
            place, [*way, *level, *self._options], self.directory,
            fault=self._fault, environment=environment,
        )  # fmt: skip
        server.metrics = told
        return server

    def replaced(self, old: Server, *more: str, **environment: str) -> Server:
        """Another process in the place of one that has ended, with more options or variables; not
        started."""
        new = Server(
            old.place, old.way, self.directory, *more, fault=self._fault, environment=environment
        )
        new.metrics = old.metrics
        for listed in (self.shards, self.standbys, self.newcomers):
            if old in listed:
                listed[listed.index(old)] = new
        return new

    @property
    def servers(self) -> list[Server]:
        """All but those that have left."""
        everyone = [*self.shards, *self.standbys, *self.newcomers]
        return [server for server in everyone if server not in self.gone]

    @property
    def addresses(self) -> list[str]:
        return [server.address for server in self.servers]

    @property
    def target(self) -> str:
        return ",".join(self.addresses)

    def admin(self, timeout_s: float = HANG_S) -> Admin:
        return Admin(self.target, timeout_s)

    def register(self, spec: PipelineSpec) -> None:
        with self.admin() as admin:
            admin.register(spec)

    def errors(self) -> str:
        return ends_of_logs(self.directory)

    def processor_s(self) -> float:
        """Processor time of those that are there, together, so far."""
        return sum(processor_s(server.pid) for server in self.servers)

    # --- a life -----------------------------------------------------------------------------------

    def start(self) -> Self:
        """Returns when the shards have found each other; standbys are started then."""
        if self.redis is not None:
            self.redis.start()
        for server in self.shards:
            server.start()
        self.wait_connected()
        for server in self.standbys:
            server.start()
        return self

    def wait_connected(self) -> None:
        """Until every shard's process is connected to all others, which are as many as there are."""
        owners = [s for s in self.servers if s not in self.standbys]

        def connected(server: Server) -> bool:
            self.check_alive()
            states = asked(server.address, lambda admin: admin.shards()) or []
            return len(states) == len(owners) and all(shard.state.connected for shard in states)

        for server in owners:
            until(lambda server=server: connected(server), self.errors)  # type: ignore[misc]

    def check_alive(self) -> None:
        """No process has ended that was not ended from here."""
        for server in self.servers:
            assert not server.has_ended(), f"{server.name} has ended by itself: {server.errors()}"

    def close(self) -> None:
        """Ends what still runs, however it went."""
        discard([*self.servers, *self.gone])
        if self.redis is not None:
            self.redis.discard()
        self.network.close()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- shards come and go -----------------------------------------------------------------------

    def newcomer(self, *more: str, **environment: str) -> Server:
        """One more process, started, which joins with a store of its own."""
        place = self.network.place(f"newcomer-{len(self.newcomers)}")
        store = self.directory / f"store-of-{place.name}"
        way = ("--join", self.target, "--store", f"sqlite:{store}", *more)
        self.newcomers.append(self.server(place, *way, **environment))
        self.newcomers[-1].start()
        return self.newcomers[-1]

    def join(self) -> Server:
        """A newcomer that the others count."""
        before = {shard.state.shard for shard in self.routing().shards}
        newcomer = self.newcomer()
        self.until(lambda now: any(s.state.shard not in before for s in now.of(ShardRole.SPARE)))
        return newcomer

    def rescale(
        self, shards: int, *, evacuate: bool = False, timeout_s: float = HANG_S
    ) -> RoutingInfo:
        with Admin(self.shards[0].address, HANG_S) as admin:
            return admin.rescale(shards, evacuate=evacuate, timeout_s=timeout_s)

    def left(self) -> list[Server]:
        """Those that a rescale lets go, when they have ended."""
        staying = {shard.address for shard in self.routing().shards}
        leaving = [server for server in self.servers if server.address not in staying]
        for server in leaving:
            server.ends_well(HANG_S)
        self.gone += leaving
        return leaving

    def routing(self) -> RoutingInfo:
        """As the first process sees it, which stays."""
        return self.until(lambda _: True)

    def until(self, wanted: Callable[[RoutingInfo], object]) -> RoutingInfo:
        """Waits until the shards are as wanted, as the first process sees them."""
        seen: RoutingInfo | None = None

        def routed() -> RoutingInfo | None:
            nonlocal seen
            seen = asked(self.shards[0].address, lambda admin: admin.routing(), HANG_S)
            return seen if seen is not None and wanted(seen) else None

        found = until(routed, lambda: f"{seen}\n{self.errors()}", HANG_S)
        assert found is not None
        return found

    def owner_of(self, shard: int) -> Server | None:
        """The process that serves a shard, as its neighbours see it."""
        for there in self.servers:
            address = asked(there.address, lambda admin: admin.shards()[shard].address, 2.0)
            for server in self.servers:
                if server.address == address:
                    return server
        return None

    def serving(self) -> list[str]:
        """Where the shards are."""
        with self.admin() as admin:
            return sorted({shard.address for shard in admin.shards()})

    def record_final(self, recorder: Recorder, pipeline: str) -> None:
        """What each shard says of a pipeline at the end."""
        for address in self.serving():
            with Admin(address, HANG_S) as admin:
                recorder.final(address, admin.pipeline(pipeline).state)


def asked(
    target: str | SecureTarget, question: Callable[[Admin], Answer], timeout_s: float = ASK_S
) -> Answer | None:
    """The answer, or nothing while nobody answers."""
    try:
        with Admin(target, timeout_s) as admin:
            return question(admin)
    except LowmarkError:
        return None


def numbers(routing: RoutingInfo, *roles: ShardRole) -> list[int]:
    """Of the shards that play some roles."""
    return [shard.state.shard for shard in routing.of(*roles)]


def lowmark(
    *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a command of `lowmark` as a person does."""
    with TemporaryFile("w+") as output, TemporaryFile("w+") as errors:
        process = fork(
            "tracker.cli", arguments, {**os.environ, **(environment or {})}, errors.fileno(),
            output=output.fileno(),
        )  # fmt: skip
        process.stdin.close()
        try:
            status = process.wait(HANG_S)
        finally:
            process.kill()
        said, wrong = (_read(file) for file in (output, errors))
    return subprocess.CompletedProcess(process.args, status, said, wrong)


def _read(file: TextIO) -> str:
    file.seek(0)
    return file.read()


def local_tracker(
    target: str,
    pipeline: str,
    directory: Path,
    *more: str,
    node_id: str = "host",
    mode: str = "eager",
) -> Running:
    """A local tracker that others start (a sidecar), not the workers, at `socket_in(directory)`; not
    started. more: of its options."""
    directory.mkdir(parents=True, exist_ok=True)
    return Running(
        "local_tracker.agent", "--target", target, "--pipeline", pipeline, "--node-id", node_id,
        "--mode", mode, "--socket", socket_in(directory), *more,
        errors=directory / "local-tracker.log",
    )  # fmt: skip


def socket_in(directory: Path) -> str:
    """Where the local tracker of a directory is reached; its spool lies beside it."""
    return f"unix:{directory / 'local-tracker'}"
