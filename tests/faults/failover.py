"""How long announcements stand still when a shard's owner is killed: with a standby, and without one by
the size of its state."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from benchmarks.restart_time import CELLS_PER_TICK, fill
from tests.cluster.children import Running, now_slot
from tests.cluster.network import open_network
from tests.cluster.tracker import Tracker
from tests.faults.nodes import PIPELINE
from tests.faults.system import System
from tests.waits import HANG_S, until
from tracker.client import NodeClient

MOST_S = 2.0
"""What a take-over by a standby may take, in the middle of several: a machine that does something else
may hold up one."""
AHEAD_SLOTS = 10_000_000
"""The state's cells lie so far ahead that they hold nothing."""


def kill_owner(system: System, shard: int) -> float:
    """Kills the owner of a shard; returns for how long nothing was announced. It comes back, as a
    standby, when another has taken its place."""
    owner = system.owner_of(shard)
    assert owner is not None, f"nobody serves shard {shard}: {system.errors()}"
    at_ns = time.monotonic_ns()
    owner.kill()
    system.goes_on()
    gap_s = system.gap_s(at_ns)
    owner.start()
    return gap_s


def standby_watches(tracker: Tracker) -> None:
    """Waits until the process that owns no shard is connected to all that do: it can hear of a death."""

    def watches() -> bool:
        owners = [tracker.owner_of(shard) for shard in range(len(tracker.shards))]
        addresses = {(shard, owner.address) for shard, owner in enumerate(owners) if owner}
        (waiting, *more) = [process for process in tracker.servers if process not in owners]
        return not more and len(addresses) == len(owners) and addresses <= watched(waiting)

    until(watches, lambda: f"no standby watches all owners: {tracker.errors()}")


def watched(process: Running) -> set[tuple[int, str]]:
    """The shards and addresses of the owners to which this run of a process has connected, as a
    standby."""
    return {
        (said["shard"], said["address"])
        for said in process.events()
        if said["event"] == "watches_owner"
    }


def take_overs(directory: Path, store: str, rounds: int) -> list[float]:
    """The gaps of some kills in a row, a standby being there each time."""
    system = System(directory, open_network(), shards=2, standbys=1, store=store)
    try:
        system.start()
        gaps = []
        for number in range(rounds):
            standby_watches(system.tracker)
            system.goes_on()
            gaps.append(kill_owner(system, number % 2))
            print(f"takeover ({store}): went on after {gaps[-1]:.2f} s", flush=True)
        system.finish()
        found = system.violations()
        assert not found, found[:5]
        return gaps
    finally:
        system.close()


def restarts(directory: Path, store: str, sizes: list[int]) -> list[dict[str, Any]]:
    """By number of open cells: how long announcements stand still when the only process is killed
    and started again at once."""
    system = System(directory, open_network(), shards=1, standbys=0, store=store)
    try:
        system.start()
        system.goes_on()
        found: list[dict[str, Any]] = []
        with NodeClient(system.tracker.shards[0].address, PIPELINE, "filler") as filler:
            filler.join(HANG_S)
            filled, first = 0, now_slot() + AHEAD_SLOTS
            for size in sizes:
                fill(filler, first + filled, size - filled, CELLS_PER_TICK)
                filled = size
                system.goes_on()
                at_ns = time.monotonic_ns()
                system.tracker.shards[0].kill()
                system.tracker.shards[0].start()
                system.goes_on()
                found.append({"open_cells": size, "gap_s": round(system.gap_s(at_ns), 2)})
            fill(filler, first, filled, CELLS_PER_TICK)  # the same again: they cancel
            filler.flush(HANG_S)
        return found
    finally:
        system.close()
