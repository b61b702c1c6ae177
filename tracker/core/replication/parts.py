"""An entry of the home log, and the part of it that each shard gets (rules 3 and 10)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tracker.core.log import Entry, KeyTick, WrittenOff
from tracker.core.log.sizes import entry_bytes
from tracker.core.log.steps import SEQUENCER, CellsMoved, DepartureSummarized, NodesMoved, ShardLeft
from tracker.core.model import Cells, Tick, Unit
from tracker.core.model.routing import RoutingTable


class OutboxEntry:
    """Entry `number` of a home log. A part holds the cells of the slots that its shard owns, the
    names of units that it keeps, and everything that all shards must know."""

    __slots__ = ("_owners", "_routing", "_size_bytes", "cell_count", "entry", "number")

    def __init__(self, number: int, entry: Entry, routing: RoutingTable) -> None:
        self.number = number
        self.entry = entry
        self._routing = routing
        self._owners: tuple[NDArray[np.int32] | None, ...] | None = None
        self.cell_count = 0
        if isinstance(entry, KeyTick):
            content = entry.tick.content
            self.cell_count = len(content.created) + len(content.consumed) + len(entry.late)
        elif isinstance(entry, WrittenOff | CellsMoved):
            self.cell_count = len(entry.cells)
        self._size_bytes: int | None = None

    @property
    def size_bytes(self) -> int:
        """About how much the whole entry takes on the wire, at most."""
        if self._size_bytes is None:
            self._size_bytes = entry_bytes(self.entry)
        return self._size_bytes

    def part(self, shard: int) -> Entry:
        """The part of the entry that `shard` gets."""
        entry = self.entry
        if self._routing.owning == (shard,):
            return entry
        if not isinstance(entry, KeyTick):
            return self._other_part(entry, shard)
        content = entry.tick.content
        if not (self.cell_count or content.units_created or content.units_consumed):
            return entry
        groups = (content.created, content.consumed, entry.late)
        if self._owners is None:
            self._owners = tuple(self._owned(cells) for cells in groups)
        created, consumed, late = (
            cells if owners is None else cells.select(owners == shard)
            for cells, owners in zip(groups, self._owners, strict=True)
        )
        tick = entry.tick
        part = replace(
            content,
            created=created,
            consumed=consumed,
            units_created=self._kept(content.units_created, shard, tick.pipeline),
            units_consumed=self._kept(content.units_consumed, shard, tick.pipeline),
            holds=(),  # they are the home's, and no shard's
        )
        return KeyTick(Tick(tick.pipeline, tick.key, tick.number, part), late)

    def _other_part(self, entry: Entry, shard: int) -> Entry:
        """The part of an entry that is no tick, for `shard`."""
        match entry:
            case WrittenOff():
                owners = self._routing.owners(entry.cells.slots, entry.pipeline)
                return replace(entry, cells=entry.cells.select(owners == shard))
            case CellsMoved():
                owners = self._routing.owners(entry.cells.slots, entry.pipeline)
                owner = self._routing.owner
                return replace(
                    entry,
                    cells=entry.cells.select(owners == shard),
                    units=self._kept(entry.units, shard, entry.pipeline),
                    consumed=self._kept(entry.consumed, shard, entry.pipeline),
                    written_off=tuple(
                        cell
                        for cell in entry.written_off
                        if owner(cell.slot, entry.pipeline) == shard
                    ),
                )
            case NodesMoved() if entry.home != shard:
                return replace(entry, nodes=(), staged=())
            case DepartureSummarized() | ShardLeft() if shard != SEQUENCER:
                words = [replace(w, late=(), written_off_items=()) for w in entry.pipelines]
                return replace(entry, pipelines=tuple(words))
        return entry

    def _owned(self, cells: Cells) -> NDArray[np.int32] | None:
        assert isinstance(self.entry, KeyTick)
        if not len(cells):
            return None
        return self._routing.owners(cells.slots, self.entry.tick.pipeline)

    def _kept(self, units: tuple[Unit, ...], shard: int, pipeline: str) -> tuple[Unit, ...]:
        keeper = self._routing.names_keeper
        return tuple(unit for unit in units if keeper(pipeline, unit.segment) == shard)
