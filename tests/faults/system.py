"""A whole system of processes, and what there is to kill, pause and cut off in it."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from examples.history import Recorder, merge
from tests.check.history import read_history
from tests.check.rules import violations
from tests.faults.network import Network, Place
from tests.faults.nodes import FRONTS, PIPELINE, SEGMENTS, now_slot, read, spec
from tests.processes.running import WAIT_S, Running, ends_of_logs
from tests.store.redis_server import STRICT, RedisServer
from tracker.client import Admin, LowmarkError, UnavailableError
from tracker.core.model.slots import FOREVER

START_CALL_S = 5.0


def placed(place: Place | None, process: Running, environment: dict[str, str]) -> Running:
    """A process at its place, with some environment."""
    variables = [f"{name}={value}" for name, value in environment.items()]
    before = [*(place.command if place else ()), *(["env", *variables] if variables else [])]
    process._command = [*before, *process._command]
    return process


class PlacedRedis(RedisServer):
    """A Redis server at its place."""

    def __init__(self, directory: Path, place: Place) -> None:
        host, _, port = place.listen.rpartition(":")
        super().__init__(directory, [*STRICT, "--protected-mode", "no"], port=int(port))
        self.host, self.command = host, place.command


class System:
    """The tracker's processes, a standby, the nodes, the subscribers; not started."""

    def __init__(
        self,
        directory: Path,
        network: Network,
        *,
        shards: int = 3,
        standbys: int = 1,
        store: str = "redis",
        sabotage: str = "",
        subscribers: int = 2,
        hears_last_shard: bool = False,
    ) -> None:
        """`hears_last_shard`: one of the subscribers asks the last shard's process alone."""
        self.directory, self.network = directory, network
        self.sabotage = sabotage
        self._stack = ExitStack()
        self._stack.callback(network.close)
        self.work = directory / "work"
        self.work.mkdir(parents=True)
        self.redis: PlacedRedis | None = None
        if store == "redis":
            place = network.place("redis")
            self.redis = PlacedRedis(directory / "redis", place)
            self.store = f"redis://{place.address}?timeout_ms=1000"
        else:
            self.store = f"sqlite:{directory / 'store'}"
        self.places = [network.place(f"shard-{shard}") for shard in range(shards)]
        self.standby_places = [network.place(f"standby-{n}") for n in range(standbys)]
        self.peers = ",".join(place.address for place in self.places)
        everyone = [*self.places, *self.standby_places]
        self.target = ",".join(place.address for place in everyone)
        self.shards = [
            self.tracker(place, "--shard", str(shard)) for shard, place in enumerate(self.places)
        ]
        self.standbys = [
            self.tracker(place, "--standby", "--address", place.address)
            for place in self.standby_places
        ]
        self.nodes = {name: self._node("front", name) for name in FRONTS}
        self.nodes["parse"] = self._node("query", "parse", ",".join(FRONTS), "mid")
        self.nodes["join"] = self._node("staging", "join", "parse", "out")
        socket = f"unix:{directory / 'local-tracker'}"
        self.local_tracker = Running(
            "local_tracker.agent", "--target", self.target, "--pipeline", PIPELINE,
            "--node-id", "eager", "--mode", "eager", "--socket", socket,
            "--spool", str(directory / "spool"), errors=directory / "local-tracker.log",
        )  # fmt: skip
        self.worker = self._nodes_process("worker", socket, "worker", "join")
        turns = [self._turned(turn) for turn in range(subscribers)]
        if hears_last_shard:
            turns[-1] = self.places[-1].address
        self.subscribers: list[Running] = []
        for turn in turns:
            self.subscriber(turn)

    def subscriber(self, target: str) -> Running:
        """One more, which asks there first; not started."""
        errors = self.directory / f"subscriber-{len(self.subscribers)}.log"
        self.subscribers.append(
            Running("tests.processes.listener", target, PIPELINE, errors=errors)
        )
        return self.subscribers[-1]

    def _turned(self, by: int) -> str:
        targets = self.target.split(",")
        by %= len(targets)
        return ",".join(targets[by:] + targets[:by])

    def tracker(self, place: Place, *way: str, **environment: str) -> Running:
        """A tracker process at a place; not started."""
        module, before = "tracker.cli", ()
        if self.sabotage:
            module, before = "tests.sabotage", (self.sabotage, "--")  # type: ignore[assignment]
        process = Running(
            module, *before, "serve", *way, "--listen", place.listen, "--peers", self.peers,
            "--log-level", "info", errors=self.directory / f"{place.name}.log",
        )  # fmt: skip
        return placed(place, process, {"LOWMARK_STORE": self.store, **environment})

    def _node(self, kind: str, name: str, *more: str) -> Running:
        return self._nodes_process(kind, self.target, name, *more)

    def _nodes_process(self, kind: str, target: str, name: str, *more: str) -> Running:
        return Running(
            "tests.faults.nodes", kind, target, name, str(self.work), *more,
            errors=self.directory / f"{name}.log",
        )  # fmt: skip

    @property
    def trackers(self) -> list[Running]:
        return [*self.shards, *self.standbys]

    def start(self) -> None:
        if self.redis is not None:
            self.redis.start()
        for shard in self.shards:
            shard.start()
        self._register()
        for process in (*self.standbys, self.local_tracker, *self.nodes.values(), self.worker):
            process.start()
        for subscriber in self.subscribers:
            subscriber.start()

    def _register(self) -> None:
        """Waits until the pipeline is registered; a process that could not start is named at once."""
        deadline, registered = time.monotonic() + WAIT_S, spec(now_slot())
        while True:
            try:
                with Admin(self.target, START_CALL_S) as admin:
                    admin.register(registered)
                return
            except UnavailableError as error:
                self.check_alive()
                assert time.monotonic() < deadline, f"{error}\n{self.errors()}"

    def check_alive(self) -> None:
        """Nothing has ended that was not killed."""
        for name, process in self.everybody().items():
            ended = process._process is not None and process._process.poll() is not None
            assert not ended, f"{name} has ended by itself: {process.errors()}"

    def everybody(self) -> dict[str, Running]:
        """All processes but Redis, by name."""
        places = [*self.places, *self.standby_places]
        trackers = {p.name: t for p, t in zip(places, self.trackers, strict=True)}
        subscribers = {f"subscriber-{n}": s for n, s in enumerate(self.subscribers)}
        others = {"worker": self.worker, "local-tracker": self.local_tracker}
        return trackers | self.nodes | others | subscribers

    def close(self) -> None:
        """Ends what still runs, however the run went."""
        for process in (*self.nodes.values(), self.worker, self.local_tracker, *self.subscribers):
            self._discard(process)
        for process in self.trackers:
            self._discard(process)
        if self.redis is not None and self.redis._process is not None:
            go_on(self.redis.pid)
            self.redis.discard()
        self._stack.close()

    def _discard(self, process: Running) -> None:
        if process._process is not None:
            go_on(process.pid)
        process.discard()

    # --- looking ----------------------------------------------------------------------------------

    def heard(self) -> list[tuple[int, int, int]]:
        """(subscriber, moment, min time of the pipeline), in the order in which each heard it."""
        found = []
        for number, subscriber in enumerate(self.subscribers):
            for _, line in list(subscriber.lines):
                update = json.loads(line)
                if update["segment"] is None:
                    found.append((number, update["at_ns"], update["min_time"]))
        return found

    def hears_of(self, slot: int, timeout_s: float = WAIT_S) -> float:
        """Waits until a subscriber has heard that all before a slot is complete; returns the moment
        (seconds of the monotonic clock)."""
        deadline = time.monotonic() + timeout_s
        while True:
            moments = [at_ns for _, at_ns, min_time in self.heard() if min_time >= slot]
            if moments:
                return min(moments) / 1e9
            assert time.monotonic() < deadline, f"slot {slot} is not announced\n{self.errors()}"
            time.sleep(0.02)

    def moments(self) -> list[int]:
        """When any of the subscribers heard that min time has moved."""
        return sorted(at_ns for _, at_ns, _ in self.heard())

    def gap_s(self, since_ns: int) -> float:
        """The longest time since then in which no subscriber heard that min time has moved."""
        after = [at for at in self.moments() if at >= since_ns]
        assert after, "nothing has been heard since"
        return max(b - a for a, b in zip([since_ns, *after], after, strict=False)) / 1e9

    def goes_on(self, timeout_s: float = WAIT_S) -> float:
        """Waits until what is labelled from now on is announced; returns how long that took."""
        start = time.monotonic()
        return self.hears_of(now_slot() + 1, timeout_s) - start

    def acknowledged(self) -> int:
        """Ticks that nodes know to be durable."""
        return sum(
            path.read_bytes().count(b'{"kind":"durable"') for path in self.work.glob("*.steps")
        )

    def owner_of(self, shard: int) -> Running | None:
        """The process that serves a shard, as its neighbours see it."""
        for place in (*self.places, *self.standby_places):
            try:
                with Admin(place.address, 2.0) as admin:
                    address = admin.shards()[shard].address
            except LowmarkError:
                continue
            for process, there in zip(
                self.trackers, (*self.places, *self.standby_places), strict=True
            ):
                if there.address == address:
                    return process
        return None

    def errors(self) -> str:
        return ends_of_logs(self.directory)

    # --- ending and judging -----------------------------------------------------------------------

    def finish(self, timeout_s: float = 240.0) -> None:
        """Lets the fronts leave, and waits until all is complete and everybody has heard it."""
        (self.work / "finish").touch()
        self.hears_of(FOREVER, timeout_s)
        for name, process in self.nodes.items():
            assert process.end() == 0, f"{name}: {process.errors()}"
        assert self.worker.end() == 0, self.worker.errors()
        for subscriber in self.subscribers:
            assert subscriber.end() == 0, subscriber.errors()
        assert self.local_tracker.stop() == 0, self.local_tracker.errors()

    def stop_nodes(self) -> None:
        """Ends all that writes down what happens, where a run cannot be finished."""
        for process in (*self.subscribers, *self.nodes.values(), self.worker, self.local_tracker):
            self._discard(process)

    def history(self) -> Path:
        """Writes down all that has happened, as `tests.check` reads it."""
        recorder = Recorder(self.directory / "parts" / "run.jsonl")
        registered = spec(0)
        recorder.header(registered, dict.fromkeys(FRONTS, "in"))
        for path in sorted(self.work.glob("*.steps")):
            record_steps(recorder, list(read(path)))
        for number, subscriber in enumerate(self.subscribers):
            for _, line in subscriber.lines:
                update = json.loads(line)
                recorder.write(
                    "heard", update["at_ns"], subscriber=f"subscriber-{number}",
                    segment=update["segment"], min_time=update["min_time"],
                )  # fmt: skip
        self._record_final(recorder)
        recorder.expected(dict.fromkeys(SEGMENTS, FOREVER))
        recorder.close()
        path = self.directory / "history.jsonl"
        merge([recorder.path], path)
        return path

    def _record_final(self, recorder: Recorder) -> None:
        for address in self.serving():
            with Admin(address, WAIT_S) as admin:
                recorder.final(address, admin.pipeline(PIPELINE).state)

    def serving(self) -> set[str]:
        """Where the shards are, in the end."""
        return {self._address_of(shard) for shard in range(len(self.places))}

    def _address_of(self, shard: int) -> str:
        with Admin(self.target, WAIT_S) as admin:
            return admin.shards()[shard].address

    def violations(self) -> list[str]:
        """What the recorded history breaks."""
        return violations(read_history(self.history()))


def record_steps(recorder: Recorder, lines: list[dict[str, Any]]) -> None:
    """A node's record as lines of a history: each step's items, and one tick for it."""
    steps = {line["batch"]: line for line in lines if line["kind"] == "step"}
    told: set[int] = set()
    for line in steps.values():
        for segment, slot, item in line["created"]:
            recorder.created(segment, slot, item, line["at_ns"])
        for segment, _, item in line["consumed"]:
            recorder.consumed(segment, item, line["at_ns"])
    for line in lines:
        if line["kind"] != "durable" or line["batch"] in told:
            continue
        told.add(line["batch"])
        step = steps[line["batch"]]
        recorder.write(
            "tick", line["at_ns"], node=line["node"], number=line["number"],
            handed_ns=line["handed_ns"], acknowledged_ns=line["at_ns"],
            created=[[s, slot, 1] for s, slot, _ in step["created"]],
            consumed=[[s, slot, 1] for s, slot, _ in step["consumed"]],
            promises=[], leaves=[],
        )  # fmt: skip


def pause(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


def go_on(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        pass
