"""Shards of a tracker that runs: processes join it, own slots, hand them back and end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.processes.running import WAIT_S, Running
from tracker.client import Admin, LowmarkError, RoutingInfo
from tracker.client.embedded import free_ports
from tracker.core.describe import ShardRole

OWNER, SPARE = ShardRole.OWNER, ShardRole.SPARE


class Tracker:
    """Processes on loopback ports, each with a store of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.processes: list[Running] = []
        self.addresses = [f"127.0.0.1:{port}" for port in free_ports(6)]
        self.target = self.addresses[0]

    def serve(self, *way: str) -> Running:
        """Starts the next process, at the next address."""
        place = len(self.processes)
        process = Running(
            "tracker.cli", "serve", "--listen", self.addresses[place], *way,
            "--store", f"sqlite:{self.directory / f'store-{place}'}", "--json",
            "--rescale-margin-ms", "50", errors=self.directory / f"tracker-{place}.log",
        )  # fmt: skip
        self.processes.append(process)
        process.start()
        return process

    def join(self, *more: str) -> Running:
        return self.serve("--join", self.target, *more)

    def until(self, wanted: Callable[[RoutingInfo], bool]) -> RoutingInfo:
        """Waits until the shards are as wanted, as the first process sees them."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                with Admin(self.target, WAIT_S) as admin:
                    routing = admin.routing()
                if wanted(routing):
                    return routing
            except LowmarkError as error:
                routing = error  # type: ignore[assignment]
            assert time.monotonic() < deadline, f"{routing}\n{self.errors()}"
            time.sleep(0.1)

    def rescale(self, shards: int, *, evacuate: bool = False) -> RoutingInfo:
        with Admin(self.target, WAIT_S) as admin:
            return admin.rescale(shards, evacuate=evacuate, timeout_s=WAIT_S)

    def errors(self) -> str:
        return "\n".join(process.errors()[-1500:] for process in self.processes)

    def discard(self) -> None:
        for process in self.processes:
            process.discard()


@pytest.fixture
def tracker(tmp_path: Path) -> Iterator[Tracker]:
    tracker = Tracker(tmp_path)
    tracker.serve()
    tracker.until(lambda routing: len(routing.of(OWNER)) == 1)
    try:
        yield tracker
    finally:
        tracker.discard()


def numbers(routing: RoutingInfo, *roles: ShardRole) -> list[int]:
    return [shard.state.shard for shard in routing.of(*roles)]


def test_a_process_joins_owns_slots_and_goes(tracker: Tracker) -> None:
    newcomer = tracker.join()
    tracker.until(lambda routing: numbers(routing, SPARE) == [1])
    assert numbers(tracker.rescale(2), OWNER) == [0, 1]
    # It is a shard that comes back with its own store, and knows where the others are.
    newcomer.kill()
    newcomer.start()
    tracker.until(lambda routing: all(shard.state.connected for shard in routing.shards))
    assert numbers(tracker.rescale(1), OWNER) == [0]
    assert newcomer.end() == 0, newcomer.errors()
    assert "has left the tracker" in newcomer.errors_of_run()
    # Its number is not given again, also not to the same address.
    newcomer.start()
    tracker.until(lambda routing: numbers(routing, SPARE) == [2])
