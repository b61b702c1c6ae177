"""Fronts and nodes come and go by the hundred, members of a group are killed, while shards come and go:
everything at once, at one tracker; and what is left of those who have gone."""

from __future__ import annotations

import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.check.judging import Judged, judge
from tests.cluster.children import Running
from tests.elastic.shared import share
from tests.elastic.standing import Standing
from tests.elastic.system import System
from tests.elastic.traces import PREFIX, counted, names_in_stores, wait_for_snapshots

STANDING_CELLS = 2_000
STEPS = ((3, False), (2, True), (3, False), (1, True))
"""While the others come and go, from two shards on."""
LIVING_NODES, LIVING_FRONTS = 5, 2
"""Of the steady load."""
MOST_GROWTH_BYTES = 32 << 20
"""Of a process's memory, from when a fifth of the comers has gone to when all have: allocators keep some."""
PAUSE_S = 2.0
COME_AND_GO_S = 1800.0
"""What all of them may take together, at the most."""


@dataclass
class Came:
    """What came of it."""

    joins: int = 0
    leaves: int = 0
    kills: int = 0
    rescales: int = 0
    moved_cells: int = 0
    files: int = 0
    seconds: float = 0.0
    memory_bytes: dict[str, dict[str, int]] = field(default_factory=dict)
    names_in_stores: dict[str, int] = field(default_factory=dict)
    left: list[dict[str, Any]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    judged: list[Judged] = field(default_factory=list)

    def as_data(self) -> dict[str, Any]:
        return asdict(self)


def come_and_go(directory: Path, pairs: int, threads: int, shared_s: float) -> Came:
    came = Came()
    with System(directory, 2, interval_ms=50.0, items=2) as system:
        system.start()
        fleet = system.fleet
        system.standing = Standing(fleet, directory / "standing")
        system.standing.open_cells(STANDING_CELLS)
        _comers(came, system, pairs, threads)
        meanwhile = system.other(
            "tests.elastic.comings", fleet.target, str(system.parts), "later", str(pairs // 4), "2",
            errors="later.log",
        )  # fmt: skip
        meanwhile.start()
        rescales = threading.Thread(target=_guarded, args=(came, lambda: _rescale(came, system)))
        rescales.start()
        shared = share(fleet, directory / "shared", shared_s)
        rescales.join()
        _ended(came, meanwhile)
        came.joins += shared.joins
        came.leaves += shared.leaves
        came.kills, came.files = shared.kills, shared.files
        came.wrong += shared.wrong
        assert shared.judged is not None
        came.judged.append(shared.judged)
        system.standing.finish()
        history = system.finish()
        came.judged += [judge(history), system.standing.judge()]
        for server in fleet.servers:
            assert server.stop() == 0, server.errors()
        came.names_in_stores = names_in_stores(fleet)
        for store, count in came.names_in_stores.items():
            if count:
                came.wrong.append(f"the snapshot of {store} names {count} who have left")
    return came


def _guarded(came: Came, work: Any) -> None:
    try:
        work()
    except Exception as error:
        came.wrong.append(f"while others came and went: {str(error) or repr(error)}")


def _comers(came: Came, system: System, pairs: int, threads: int) -> None:
    """They come and go, while shards do, and leave nothing."""
    fleet = system.fleet
    comers = system.other(
        "tests.elastic.comings", fleet.target, str(system.parts), PREFIX, str(pairs), str(threads),
        errors="comings.log",
    )  # fmt: skip
    began_s = time.monotonic()
    comers.start()
    comers.until(lambda line: line.startswith("left") and int(line.split()[1]) >= 3 * pairs // 5)
    came.memory_bytes["early"] = fleet.memory_bytes()
    _ended(came, comers)
    came.seconds = round(time.monotonic() - began_s, 1)
    came.memory_bytes["late"] = fleet.memory_bytes()
    came.left = counted(fleet)
    for process in came.left:
        if (
            process["comers"]
            or process["nodes"] > LIVING_NODES
            or process["fronts"] > LIVING_FRONTS
        ):
            came.wrong.append(f"those who have gone are still counted: {process}")
    for address, late in came.memory_bytes["late"].items():
        grown = late - came.memory_bytes["early"].get(address, late)
        if grown > MOST_GROWTH_BYTES:
            came.wrong.append(
                f"{address} has grown by {grown:,} bytes with those who came and went"
            )
    wait_for_snapshots(fleet)


def _ended(came: Came, comers: Running) -> None:
    """Waits until all of them have come and gone."""
    comers.ends_well(COME_AND_GO_S)
    _, joins, _, leaves, *_ = comers.lines[-1][1].split()
    came.joins += int(joins)
    came.leaves += int(leaves)


def _rescale(came: Came, system: System) -> None:
    fleet = system.fleet
    for shards, evacuate in STEPS:
        time.sleep(PAUSE_S)  # paces: the load
        while len(fleet.addresses) < shards:
            fleet.join()
        came.moved_cells += fleet.changed(shards, evacuate=evacuate, by_command=True)
        came.rescales += 1
