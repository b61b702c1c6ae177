"""A tracker whose shards come and go, under load: fronts, queries and workers that write down each step,
and subscribers that write down all that they hear, for `tests.check`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.faults.network import Place
from tests.faults.system import System, placed
from tests.processes.running import WAIT_S, Running
from tracker.client import Admin, LowmarkError, RoutingInfo
from tracker.client.embedded import free_ports
from tracker.core.insight.describe import ShardRole
from tracker.service.failpoints import VARIABLE

LOOK_S = 0.1
MARGIN_MS = "50"
"""Short, so that new owners get something to do soon."""


class Loopback:
    """Places on this machine, with nothing between them."""

    kind = "loopback"

    def place(self, name: str) -> Place:
        address = f"127.0.0.1:{free_ports(1)[0]}"
        return Place(name, address, address)

    def cut(self, name: str) -> None:
        raise NotImplementedError

    def join(self, name: str) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to close."""


def until_routed(
    target: str, wanted: Callable[[RoutingInfo], object], errors: Callable[[], str]
) -> RoutingInfo:
    """Waits until the shards are as wanted, as a process sees them. errors: what there is to say if they
    are not in time."""
    deadline, seen = time.monotonic() + WAIT_S, ""
    while True:
        try:
            with Admin(target, WAIT_S) as admin:
                routing = admin.routing()
            if wanted(routing):
                return routing
            seen = str(routing)
        except LowmarkError as error:
            seen = str(error)
        assert time.monotonic() < deadline, f"{seen}\n{errors()}"
        time.sleep(LOOK_S)


class Elastic(System):
    """It begins with one shard; clients are given that one's address alone."""

    def __init__(self, directory: Path) -> None:
        self.newcomers: dict[int, Running] = {}
        self._newcomer_places: list[Place] = []
        super().__init__(directory, Loopback(), shards=1, standbys=0, store="sqlite", subscribers=1)

    def tracker(self, place: Place, *way: str, **environment: str) -> Running:
        return super().tracker(place, *way, "--rescale-margin-ms", MARGIN_MS, **environment)

    def first(self, failpoint: str = "", *more: str) -> Running:
        """Another process for the first shard, started, with more options; it dies at a failpoint, if one
        is given."""
        environment = {VARIABLE: failpoint} if failpoint else {}
        process = self.tracker(self.places[0], "--shard", "0", *more, **environment)
        self.shards[0] = process
        process.start()
        return process

    def newcomer(self, number: int, failpoint: str = "") -> Running:
        """Newcomer `number`, from 0, started (again), with a store of its own."""
        if number == len(self._newcomer_places):
            self._newcomer_places.append(self.network.place(f"newcomer-{number}"))
        place = self._newcomer_places[number]
        process = Running(
            "tracker.cli", "serve", "--join", self.target, "--listen", place.listen,
            "--store", f"sqlite:{self.directory / f'store-of-{number}'}", "--json",
            "--rescale-margin-ms", MARGIN_MS, errors=self.directory / f"{place.name}.log",
        )  # fmt: skip
        placed(None, process, {VARIABLE: failpoint} if failpoint else {})
        self.newcomers[number] = process
        process.start()
        return process

    def address_of_newcomer(self, number: int) -> str:
        return self._newcomer_places[number].address

    def until(self, wanted: Callable[[RoutingInfo], object]) -> RoutingInfo:
        """Waits until the shards are as wanted, as the first process sees them."""
        return until_routed(self.target, wanted, self.errors)

    def joins(self, count: int = 1) -> None:
        """Newcomers join, and own nothing yet."""
        before = len(self.until(lambda _: True).of(ShardRole.SPARE))
        for _ in range(count):
            self.newcomer(len(self.newcomers))
        self.until(lambda routing: len(routing.of(ShardRole.SPARE)) == before + count)

    def rescale(
        self, shards: int, *, evacuate: bool = False, timeout_s: float = WAIT_S
    ) -> RoutingInfo:
        with Admin(self.target, WAIT_S) as admin:
            return admin.rescale(shards, evacuate=evacuate, timeout_s=timeout_s)

    def serving(self) -> set[str]:
        return {shard.address for shard in self.until(lambda _: True).shards}

    def close(self) -> None:
        for process in self.newcomers.values():
            self._discard(process)
        super().close()


def numbers(routing: RoutingInfo, *roles: ShardRole) -> list[int]:
    return [shard.state.shard for shard in routing.of(*roles)]
