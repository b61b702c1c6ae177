"""Shards of a tracker that runs: processes join it, own slots, hand them back and end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from examples.children import free_ports
from tests.processes.elastic import until_routed
from tests.processes.running import WAIT_S, Running
from tracker.client import Admin, RoutingInfo
from tracker.core.insight.describe import ShardRole

OWNER, SPARE = ShardRole.OWNER, ShardRole.SPARE


class Tracker:
    """Processes on loopback ports, each with a store of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.processes: list[Running] = []
        port = free_ports(4)
        self.addresses = [f"127.0.0.1:{port + place}" for place in range(4)]
        self.target = self.addresses[0]

    def serve(self, *way: str) -> Running:
        """Starts the next process, at the next address."""
        place = 3 if "--join" in way else 0
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
        return until_routed(self.target, wanted, self.errors)

    def rescale(self, shards: int, *, evacuate: bool = False) -> RoutingInfo:
        with Admin(self.target, WAIT_S) as admin:
            return admin.rescale(shards, evacuate=evacuate, timeout_s=WAIT_S)

    def errors(self) -> str:
        return "\n".join(process.errors()[-1500:] for process in self.processes)

    def discard(self) -> None:
        for process in self.processes:
            process.discard()


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[Tracker]:
    """Two processes that one looks after."""
    tracker = Tracker(tmp_path)
    tracker.serve("--shards", "2")
    try:
        yield tracker
    finally:
        tracker.discard()


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


def until_said(process: Running, text: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while text not in process.errors_of_run():
        assert time.monotonic() < deadline and not process.has_ended(), process.errors()
        time.sleep(0.05)


def test_a_parent_lets_a_process_go_whose_shard_has_left(parent: Tracker) -> None:
    parent.until(lambda routing: all(shard.state.connected for shard in routing.shards))
    (process,) = parent.processes
    assert numbers(parent.rescale(1, evacuate=True), OWNER) == [0]
    until_said(process, '"event": "shard_left"')
    # Started again with the same command, it starts what is left.
    assert process.stop() == 0, process.errors()
    process.start()
    parent.until(lambda routing: len(routing.shards) == 1)
    until_said(process, '"reason": "shard 1 has left')
    newcomer = parent.join()
    parent.until(lambda routing: numbers(routing, SPARE) == [2])
    assert numbers(parent.rescale(2), OWNER) == [0, 2]
    newcomer.kill()
