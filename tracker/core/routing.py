"""Who owns a slot, who is home to a node, who keeps a segment's unit names (rules 3 and 10).

Slots are dealt to shards in blocks, by a versioned table of entries that each begin at a slot. Homes
and keepers of names are found by rendezvous hashing over the newest entry's shards: when the set of
shards changes, only what the change concerns moves.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from tracker.core.slots import LOWEST_SLOT


@dataclass(frozen=True, slots=True)
class RoutingEntry:
    """From `from_slot` on, block `slot // block_slots` belongs to `shards[block % len(shards)]`."""

    from_slot: int
    block_slots: int
    shards: tuple[int, ...]


class RoutingTable:
    """Entries in the order of their first slots; the first begins at the lowest slot there is."""

    def __init__(self, entries: Iterable[RoutingEntry]) -> None:
        self.entries = tuple(entries)
        starts = [entry.from_slot for entry in self.entries]
        if not starts or starts[0] != LOWEST_SLOT or sorted(set(starts)) != starts:
            raise ValueError(
                f"routing entries must begin at slots that rise from {LOWEST_SLOT}, got {starts}"
            )
        for entry in self.entries:
            if entry.block_slots < 1 or not entry.shards:
                raise ValueError(f"a routing entry needs a block of >= 1 slot and shards: {entry}")
        self._starts = np.array(starts, np.int64)
        self._shards = tuple(sorted({shard for entry in self.entries for shard in entry.shards}))
        self._home = lru_cache(maxsize=65_536)(self._find_home)

    @classmethod
    def uniform(cls, shards: int, block_slots: int = 64) -> RoutingTable:
        """One entry for ever: `shards` shards, numbered from 0, in blocks of `block_slots` slots."""
        return cls([RoutingEntry(LOWEST_SLOT, block_slots, tuple(range(shards)))])

    @property
    def shards(self) -> tuple[int, ...]:
        """Numbers of all shards that own any slot, ascending."""
        return self._shards

    def owner(self, slot: int) -> int:
        """The shard that keeps the checksums of `slot`."""
        entry = self.entries[bisect_right(self._starts, slot) - 1]
        return entry.shards[slot // entry.block_slots % len(entry.shards)]

    def owners(self, slots: NDArray[np.int64]) -> NDArray[np.int32]:
        """`owner` for an int64 array of slots; an int32 array of that shape."""
        if len(self.entries) == 1:
            return _deal(self.entries[0], slots)
        which = np.searchsorted(self._starts, slots, side="right") - 1
        owners = np.empty(slots.shape, np.int32)
        for place, entry in enumerate(self.entries):
            chosen = which == place
            owners[chosen] = _deal(entry, slots[chosen])
        return owners

    def home(self, pipeline: str, node_id: str) -> int:
        """The shard that a node commits to."""
        return self._home("node", pipeline, node_id)

    def registrar(self, pipeline: str) -> int:
        """The shard that decides on registrations of a pipeline's name."""
        return self._home("pipeline", pipeline, "")

    def names_keeper(self, pipeline: str, segment: int) -> int:
        """The shard that keeps the names of a segment's open units."""
        return self._home("names", pipeline, str(segment))

    def _find_home(self, what: str, pipeline: str, name: str) -> int:
        def weight(shard: int) -> bytes:
            text = "\0".join((what, pipeline, name, str(shard)))
            return blake2b(text.encode(), digest_size=8).digest()

        return max(self.entries[-1].shards, key=weight)


def _deal(entry: RoutingEntry, slots: NDArray[np.int64]) -> NDArray[np.int32]:
    shards = np.array(entry.shards, np.int32)
    return shards[slots // entry.block_slots % len(shards)]
