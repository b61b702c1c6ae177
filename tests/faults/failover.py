"""How long announcements stand still when a shard's owner is killed: with a standby, and without one by
the size of its state."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.faults.network import open_network
from tests.faults.nodes import PIPELINE, now_slot
from tests.faults.system import System
from tests.processes.running import WAIT_S, Running
from tracker.client import NodeClient
from tracker.core.model import Cells, TickContent

MOST_S = 2.0
"""What a take-over by a standby may take, in the middle of several: a machine that does something else
may hold up one."""
POLL_S = 0.05
CELLS_PER_TICK = 20_000
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


def standby_watches(system: System) -> None:
    """Waits until the process that owns no shard is connected to all that do: it can hear of a death."""
    deadline = time.monotonic() + WAIT_S
    places = [*system.places, *system.standby_places]
    while True:
        owners = [system.owner_of(shard) for shard in range(len(system.places))]
        addresses = {
            (shard, places[system.trackers.index(owner)].address)
            for shard, owner in enumerate(owners)
            if owner is not None
        }
        (waiting, *more) = [process for process in system.trackers if process not in owners]
        if not more and len(addresses) == len(owners) and addresses <= watched(waiting):
            return
        assert time.monotonic() < deadline, f"no standby watches all owners: {system.errors()}"
        time.sleep(POLL_S)


def watched(process: Running) -> set[tuple[int, str]]:
    """The shards and addresses of the owners to which this run of a process has connected, as a
    standby."""
    found = set()
    for line in process.errors_of_run().splitlines():
        if '"watches_owner"' in line:
            said = json.loads(line)
            found.add((said["shard"], said["address"]))
    return found


def take_overs(directory: Path, store: str, rounds: int) -> list[float]:
    """The gaps of some kills in a row, a standby being there each time."""
    system = System(directory, open_network(), shards=2, standbys=1, store=store)
    try:
        system.start()
        gaps = []
        for number in range(rounds):
            standby_watches(system)
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
        with NodeClient(system.places[0].address, PIPELINE, "filler") as filler:
            filler.join(WAIT_S)
            filled, first = 0, now_slot() + AHEAD_SLOTS
            for size in sizes:
                fill(filler, first + filled, size - filled)
                filled = size
                system.goes_on()
                at_ns = time.monotonic_ns()
                system.shards[0].kill()
                system.shards[0].start()
                system.goes_on()
                found.append({"open_cells": size, "gap_s": round(system.gap_s(at_ns), 2)})
            fill(filler, first, filled)  # the same again: they cancel
            filler.flush(WAIT_S)
        return found
    finally:
        system.close()


def fill(node: NodeClient, first: int, count: int) -> None:
    """Opens a cell in each of some slots, or closes it again."""
    for start in range(first, first + count, CELLS_PER_TICK):
        slots = np.arange(start, min(start + CELLS_PER_TICK, first + count), dtype=np.int64)
        cells = Cells(
            np.zeros(len(slots), np.int32), slots, slots.astype(np.uint64),
            np.ones(len(slots), np.int64),
        )  # fmt: skip
        node.commit(TickContent(created=cells))
    node.flush(WAIT_S)
