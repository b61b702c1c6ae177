"""An entry of the home log, and the part of it that each shard gets (rules 3 and 10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tracker.core.log import Entry, KeyTick, WrittenOff
from tracker.core.log.sizes import entry_bytes
from tracker.core.log.steps import CellsMoved, DepartureSummarized, NodesMoved, ShardLeft
from tracker.core.model import Cells, Tick, TickContent, Unit
from tracker.core.model.routing import RoutingTable

_NO_CELLS = Cells.empty()


class OutboxEntry:
    """Entry `number` of a home log. A part holds the cells of the slots that its shard owns, the
    names of units that it keeps, and everything that all shards must know."""

    __slots__ = (
        "_cells_by_shard",
        "_owners",
        "_size_bytes",
        "cell_count",
        "entry",
        "number",
        "routing",
    )

    def __init__(self, number: int, entry: Entry, routing: RoutingTable) -> None:
        self.number = number
        self.entry = entry
        self.routing = routing
        self._owners: tuple[Mapping[int, Any], ...] | None = None
        self._cells_by_shard: Sequence[tuple[int, Cells, Cells]] | None = None
        self.cell_count = 0
        if isinstance(entry, KeyTick):
            content = entry.tick.content
            self.cell_count = content.created.size + content.consumed.size + entry.late.size
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
        if not isinstance(entry, KeyTick):
            return self._other_part(entry, shard)
        if self.routing.owning == (shard,):
            return entry
        content = entry.tick.content
        if not (self.cell_count or content.units_created or content.units_consumed):
            return entry
        part = self.owned_by(shard)
        told = part.tick.content
        told.heartbeats, told.joins, told.leaves = content.heartbeats, content.joins, content.leaves
        told.batch = content.batch
        return part

    @property
    def tick(self) -> Tick:
        """The tick that it is."""
        assert isinstance(self.entry, KeyTick)
        return self.entry.tick

    @property
    def is_plain(self) -> bool:
        """Whether it is a tick by which no front joins or leaves: a run may have it."""
        if not isinstance(self.entry, KeyTick):
            return False
        content = self.entry.tick.content
        return not (content.joins or content.leaves)

    @property
    def has_more_than_cells(self) -> bool:
        """Whether it is a tick of which a shard may own something else than cells: names of units, or what came
        late."""
        assert isinstance(self.entry, KeyTick)
        content = self.entry.tick.content
        return bool(content.units_created or content.units_consumed or self.entry.late.size)

    def concerned(self) -> dict[int, None]:
        """The shards that own some of a tick."""
        shards: dict[int, None] = {}
        for owners in self._dealt():
            if owners:
                shards.update(dict.fromkeys(owners))
        return shards

    def owned_by(self, shard: int) -> KeyTick:
        """What a shard owns of a tick: cells and units alone. Holds are the home's, and no shard's."""
        assert isinstance(self.entry, KeyTick)
        tick = self.entry.tick
        created, consumed, late, units_created, units_consumed = self._dealt()
        content = TickContent(
            created=created.get(shard, _NO_CELLS),
            consumed=consumed.get(shard, _NO_CELLS),
            units_created=units_created.get(shard, ()),
            units_consumed=units_consumed.get(shard, ()),
        )
        return KeyTick(
            Tick(tick.pipeline, tick.key, tick.number, content), late.get(shard, _NO_CELLS)
        )

    def cells_by_shard(self) -> Sequence[tuple[int, Cells, Cells]]:
        """By shard the cells that it owns of what a tick created and of what it consumed; found once."""
        if self._cells_by_shard is None:
            content, pipeline = self.tick.content, self.tick.pipeline
            if len(self.routing.owning) == 1:
                return ((self.routing.owning[0], content.created, content.consumed),)
            owners = {
                self._owner_of_all(cells, pipeline)
                for cells in (content.created, content.consumed)
                if cells.size
            }
            owner = owners.pop() if len(owners) == 1 else None
            if owner is not None:
                self._cells_by_shard = ((owner, content.created, content.consumed),)
            else:
                created, consumed, *_ = self._dealt()
                self._cells_by_shard = [
                    (shard, created.get(shard, _NO_CELLS), consumed.get(shard, _NO_CELLS))
                    for shard in {**created, **consumed}
                ]
        return self._cells_by_shard

    def _dealt(self) -> tuple[Mapping[int, Any], ...]:
        """What a tick created, consumed and consumed late, and the units of both kinds, each by shard; found
        once."""
        if self._owners is None:
            assert isinstance(self.entry, KeyTick)
            pipeline, content = self.entry.tick.pipeline, self.entry.tick.content
            self._owners = (
                self._dealt_cells(content.created, pipeline),
                self._dealt_cells(content.consumed, pipeline),
                self._dealt_cells(self.entry.late, pipeline),
                self._dealt_units(content.units_created, pipeline),
                self._dealt_units(content.units_consumed, pipeline),
            )
        return self._owners

    def _other_part(self, entry: Entry, shard: int) -> Entry:
        """The part of an entry that is no tick, for `shard`."""
        match entry:
            case WrittenOff():
                owners = self.routing.owners(entry.cells.slots, entry.pipeline)
                return replace(entry, cells=entry.cells.select(owners == shard))
            case CellsMoved():
                owners = self.routing.owners(entry.cells.slots, entry.pipeline)
                owner = self.routing.owner
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
            case DepartureSummarized() | ShardLeft() if shard != entry.heir:
                words = [replace(w, late=(), written_off_items=()) for w in entry.pipelines]
                return replace(entry, pipelines=tuple(words))
        return entry

    def _owner_of_all(self, cells: Cells, pipeline: str) -> int | None:
        """The shard that owns all of some cells, as far as that can be seen at once."""
        lowest, highest = min(cells.lowest_slots().values()), cells.highest_slot()
        return self.routing.owner_of_all(lowest, highest, pipeline)

    def _dealt_cells(self, cells: Cells, pipeline: str) -> dict[int, Cells]:
        if not cells.size:
            return {}
        owner = self._owner_of_all(cells, pipeline)
        if owner is not None:
            return {owner: cells}
        owners = self.routing.owners(cells.slots, pipeline)
        shards = dict.fromkeys(owners.tolist())
        return {shard: cells.select(owners == shard) for shard in shards}

    def _dealt_units(self, units: tuple[Unit, ...], pipeline: str) -> dict[int, tuple[Unit, ...]]:
        if not units:
            return {}
        keeper = self.routing.names_keeper
        segments = {unit.segment for unit in units}
        keepers = {keeper(pipeline, segment) for segment in segments}
        return {shard: self._kept(units, shard, pipeline) for shard in sorted(keepers)}

    def _kept(self, units: tuple[Unit, ...], shard: int, pipeline: str) -> tuple[Unit, ...]:
        keeper = self.routing.names_keeper
        return tuple(unit for unit in units if keeper(pipeline, unit.segment) == shard)
