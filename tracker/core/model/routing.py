"""Who owns a slot, who is home to a node, who keeps a segment's unit names (rules 3 and 10).

Slots are dealt to shards in blocks, by a versioned table of entries that each begin at a slot. Slots
are numbers of one pipeline, so a pipeline that was there when the shards changed has entries of its
own. Homes and keepers of names are found by rendezvous hashing over the newest shards: when the set of
shards changes, only what the change concerns moves.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from tracker.core.model.slots import LOWEST_SLOT


@dataclass(frozen=True, slots=True)
class RoutingRule:
    """From `from_slot` on, block `slot // block_slots` belongs to `shards[block % len(shards)]`."""

    from_slot: int
    block_slots: int
    shards: tuple[int, ...]


MAX_ENTRIES = 16
"""Entries of one pipeline. A change that would need more forgets the oldest: their slots are dealt by
the next one, and what is still open there moves."""


class RoutingTable:
    """Entries in the order of their first slots; the first begins at the lowest slot there is.

    `entries` are for every pipeline that `pipelines` does not name. Tables are values: a change makes
    another one, with the next version.
    """

    def __init__(
        self,
        entries: Iterable[RoutingRule],
        *,
        version: int = 0,
        pipelines: Mapping[str, Iterable[RoutingRule]] | None = None,
    ) -> None:
        self.version = version
        self._all = _Entries(entries)
        self._named = {name: _Entries(own) for name, own in (pipelines or {}).items()}
        self.entries = self._all.entries
        owning = {shard for e in self.entries for shard in e.shards}
        self._shards = tuple(sorted(owning))
        for named in self._named.values():
            owning.update(shard for entry in named.entries for shard in entry.shards)
        self._owning = tuple(sorted(owning))
        self._home = lru_cache(maxsize=65_536)(self._find_home)

    @classmethod
    def uniform(cls, shards: int, block_slots: int = 64) -> RoutingTable:
        """One entry for ever: `shards` shards, numbered from 0, in blocks of `block_slots` slots."""
        return cls([RoutingRule(LOWEST_SLOT, block_slots, tuple(range(shards)))])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RoutingTable):
            return NotImplemented
        return (self.version, self.entries, self.pipelines) == (
            other.version,
            other.entries,
            other.pipelines,
        )

    def __hash__(self) -> int:
        return hash((self.version, self.entries))

    def __repr__(self) -> str:
        return f"RoutingTable(version={self.version}, {self.entries}, {self.pipelines})"

    def __reduce__(self) -> tuple[object, ...]:
        return _table, (self.version, self.entries, self.pipelines)

    @property
    def pipelines(self) -> dict[str, tuple[RoutingRule, ...]]:
        """The pipelines that have entries of their own."""
        return {name: named.entries for name, named in self._named.items()}

    @property
    def shards(self) -> tuple[int, ...]:
        """Numbers of all shards that own slots of a pipeline that is new, ascending."""
        return self._shards

    @property
    def owning(self) -> tuple[int, ...]:
        """Numbers of all shards that own any slot of any pipeline, ascending."""
        return self._owning

    # --- changes ----------------------------------------------------------------------------------

    def resized(
        self,
        shards: Iterable[int],
        from_slots: Mapping[str, int],
        done: Mapping[str, int] | None = None,
    ) -> RoutingTable:
        """The next version: `shards` own every slot but those below `from_slots` of the pipelines that
        it names, which stay where they are. done: by pipeline, a slot below which nothing is open:
        entries that end there are forgotten."""
        newest = replace(self.entries[-1], from_slot=LOWEST_SLOT, shards=tuple(sorted(shards)))
        pipelines = {}
        for name, from_slot in from_slots.items():
            known = self._named.get(name, self._all).since((done or {}).get(name, LOWEST_SLOT))
            older = [entry for entry in known if entry.from_slot < from_slot]
            pipelines[name] = _shortened([*older, replace(newest, from_slot=from_slot)])
        return RoutingTable([newest], version=self.version + 1, pipelines=pipelines)

    def without(self, gone: Iterable[int], version: int | None = None) -> RoutingTable:
        """The next version (or the one given), in which shards that are not among the newest own
        nothing: those that stay take their places, and keep their own."""
        leaving, stay = set(gone), self.entries[-1].shards

        def cleared(entry: RoutingRule) -> RoutingRule:
            owners = entry.shards
            return replace(
                entry,
                shards=tuple(
                    stay[index % len(stay)] if shard in leaving else shard
                    for index, shard in enumerate(owners)
                ),
            )

        return RoutingTable(
            [cleared(entry) for entry in self.entries],
            version=self.version + 1 if version is None else version,
            pipelines={n: [cleared(e) for e in own.entries] for n, own in self._named.items()},
        )

    # --- look-ups ---------------------------------------------------------------------------------

    def owner(self, slot: int, pipeline: str = "") -> int:
        """The shard that keeps the checksums of `slot`."""
        return self._named.get(pipeline, self._all).owner(slot)

    def owner_of_all(self, lowest: int, highest: int, pipeline: str = "") -> int | None:
        """The shard that keeps what lies between two slots, both included, where they are of one block; else None."""
        return self._named.get(pipeline, self._all).owner_of_all(lowest, highest)

    def owners(self, slots: NDArray[np.int64], pipeline: str = "") -> NDArray[np.int32]:
        """`owner` for an int64 array of slots; an int32 array of that shape."""
        return self._named.get(pipeline, self._all).owners(slots)

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


class _Entries:
    """The entries of a pipeline."""

    def __init__(self, entries: Iterable[RoutingRule]) -> None:
        self.entries = tuple(entries)
        starts = [entry.from_slot for entry in self.entries]
        if not starts or starts[0] != LOWEST_SLOT or sorted(set(starts)) != starts:
            raise ValueError(
                f"routing entries must begin at slots that rise from {LOWEST_SLOT}, got {starts}"
            )
        for entry in self.entries:
            if entry.block_slots < 1 or not entry.shards:
                raise ValueError(f"a routing entry needs a block of >= 1 slot and shards: {entry}")
        self._starts = starts

    def since(self, slot: int) -> tuple[RoutingRule, ...]:
        """Those that hold for some slot from this one on; the first of them for all before."""
        kept = self.entries[bisect_right(self._starts, slot) - 1 :]
        return (replace(kept[0], from_slot=LOWEST_SLOT), *kept[1:])

    def owner(self, slot: int) -> int:
        entry = self._entry(slot)
        return entry.shards[slot // entry.block_slots % len(entry.shards)]

    def owner_of_all(self, lowest: int, highest: int) -> int | None:
        """The shard that keeps what lies between two slots, if they are of one block."""
        entry = self._entry(highest)
        block = highest // entry.block_slots
        if lowest < entry.from_slot or lowest // entry.block_slots != block:
            return None
        return entry.shards[block % len(entry.shards)]

    def _entry(self, slot: int) -> RoutingRule:
        return self.entries[bisect_right(self._starts, slot) - 1]

    def owners(self, slots: NDArray[np.int64]) -> NDArray[np.int32]:
        newest = self.entries[-1]
        if len(self.entries) == 1 or (len(slots) and slots.min() >= newest.from_slot):
            return _deal(newest, slots)
        which = np.searchsorted(self._starts, slots, side="right") - 1
        owners = np.empty(slots.shape, np.int32)
        for index, entry in enumerate(self.entries):
            chosen = which == index
            owners[chosen] = _deal(entry, slots[chosen])
        return owners


def _shortened(entries: list[RoutingRule]) -> list[RoutingRule]:
    kept = entries[-MAX_ENTRIES:]
    return [replace(kept[0], from_slot=LOWEST_SLOT), *kept[1:]]


def _table(
    version: int,
    entries: tuple[RoutingRule, ...],
    pipelines: dict[str, tuple[RoutingRule, ...]],
) -> RoutingTable:
    return RoutingTable(entries, version=version, pipelines=pipelines)


def _deal(entry: RoutingRule, slots: NDArray[np.int64]) -> NDArray[np.int32]:
    shards = np.array(entry.shards, np.int32)
    return shards[slots // entry.block_slots % len(shards)]
