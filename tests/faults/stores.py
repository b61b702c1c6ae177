"""What becomes of a store of SQLite files while its only process is down, or under it: the process refuses to
go on and says what is missing, and goes on when the right files are back."""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.network import open_network
from tests.faults.nodes import PAUSE_S
from tests.faults.system import System

DATABASE, LOG, MARK = "shard-0.db", "shard-0.db-wal", "shard-0.db-mark"
GONE = "acknowledged records are gone"
DAMAGED = "damaged or not SQLite"
IN_USE = "while it was in use"
_HEADER_BYTES, _FRAME_BYTES = 32, 24 + 4096


@dataclass(frozen=True)
class Spoilt:
    """Where the store is, an older copy of it, and what chance decides."""

    store: Path
    older: Path
    chance: random.Random

    def written(self) -> int:
        """How many bytes of its log the process has written since that was begun."""
        data = (self.store / LOG).read_bytes()
        places = range(_HEADER_BYTES, len(data) - _FRAME_BYTES, _FRAME_BYTES)
        frames = sum(data[at + 8 : at + 16] == data[16:24] for at in places)
        return _HEADER_BYTES + frames * _FRAME_BYTES


def flip_log(spoilt: Spoilt) -> None:
    with open(spoilt.store / LOG, "r+b") as file:
        place = spoilt.chance.randrange(spoilt.written())
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 1 << spoilt.chance.randrange(8)]))


def truncate_log(spoilt: Spoilt) -> None:
    os.truncate(spoilt.store / LOG, spoilt.chance.randrange(spoilt.written()))


def truncate_database(spoilt: Spoilt) -> None:
    (spoilt.store / LOG).unlink()
    os.truncate(spoilt.store / DATABASE, (spoilt.store / DATABASE).stat().st_size // 2)


def empty_database(spoilt: Spoilt) -> None:
    os.truncate(spoilt.store / DATABASE, 0)


def remove(spoilt: Spoilt) -> None:
    for name in (DATABASE, LOG):
        (spoilt.store / name).unlink()


def replace(spoilt: Spoilt) -> None:
    for name in (DATABASE, LOG):
        shutil.copy(spoilt.older / name, spoilt.store / name)


def replace_in_use(spoilt: Spoilt) -> None:
    for name in (DATABASE, LOG):
        shutil.copy(spoilt.older / name, spoilt.store / f"{name}.older")
        os.replace(spoilt.store / f"{name}.older", spoilt.store / name)


def remove_in_use(spoilt: Spoilt) -> None:
    (spoilt.store / DATABASE).unlink()


KINDS: dict[str, tuple[Callable[[Spoilt], None], tuple[str, ...]]] = {
    "flipped": (flip_log, (GONE,)),
    "log truncated": (truncate_log, (GONE,)),
    "database truncated": (truncate_database, (GONE, DAMAGED)),
    "database emptied": (empty_database, (GONE,)),
    "removed": (remove, (GONE,)),
    "replaced": (replace, (GONE,)),
    "replaced in use": (replace_in_use, (IN_USE,)),
    "removed in use": (remove_in_use, (IN_USE,)),
}
"""What is done to a store, and what its process says of it, in one of these ways."""


def spoil(system: System, kind: str, chance: random.Random) -> None:
    """Does that to the store of the only process, sees it refused, and puts the right store back."""
    (process,) = system.tracker.shards
    store, right = system.directory / "store", system.directory / "right"
    change, says = KINDS[kind]
    spoilt = Spoilt(store, system.directory / "older", chance)
    if says == (IN_USE,):
        keep_links(store, right)
    else:
        process.kill()
        shutil.copytree(store, right)
    change(spoilt)
    if says != (IN_USE,):
        process.start()
    status = process.end()
    said = process.errors_of_run()
    assert status == 1, f"{kind}: it ended with {status}: {process.errors()}"
    assert any(words in said for words in says), f"{kind}: it did not say so: {process.errors()}"
    shutil.rmtree(store)
    os.rename(right, store)
    process.start()
    system.goes_on()


def keep_links(store: Path, right: Path) -> None:
    """The very files that are in use, under other names: what is written to them is kept."""
    right.mkdir()
    for name in (DATABASE, LOG, MARK):
        os.link(store / name, right / name)


def run_stores(
    directory: Path,
    kinds: Iterable[str] = tuple(KINDS),
    seed: int = 1,
    shown: bool = False,
    pause_s: float = PAUSE_S,
) -> list[str]:
    """One system whose store is spoilt in each way in turn; returns what its history breaks."""
    chance = random.Random(seed)
    system = System(
        directory, open_network(), shards=1, standbys=0, store="sqlite", pause_s=pause_s
    )
    try:
        system.start()
        system.goes_on()
        system.tracker.shards[0].kill()
        shutil.copytree(directory / "store", directory / "older")
        system.tracker.shards[0].start()
        for kind in kinds:
            system.goes_on()
            spoil(system, kind, chance)
            if shown:
                print(f"store {kind}: refused, put back, went on", flush=True)
        system.finish()
        return system.violations()
    finally:
        system.close()
        sys.stdout.flush()
