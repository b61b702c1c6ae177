"""What operators have written off at one shard: cells whose items were lost with a node (rule 9).

The list says what was given up, where, because of whom; nothing is given up silently. What was given
up may turn out not to have been lost: consumption below min time goes to the late ledger anyway, and
above it a cell is watched. When nothing was created in it since, and its checksum is what was written
off, then just those items have been consumed after all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tracker.core.model import Cells, WrittenOffCell
from tracker.core.model import durable as d
from tracker.core.shard.cells import kept_items, shown_items

MAX_LISTED_CELLS = 10_000
"""Cells that are listed of one pipeline at one shard; of older ones the number of items is kept."""

Cell = tuple[int, int]
"""(segment number, slot)."""


_CELLS, _ITEMS = {"written_off": d.values("segment", "slot")}, {"written_off_items": d.ITEMS}


@dataclass(eq=False)
class WrittenOffLedger:
    """The cells that were written off at one shard, in the order of the last time."""

    cells: dict[Cell, WrittenOffCell] = d.survives(_CELLS, own=True)
    items: dict[int, int] = d.survives(_ITEMS, own=True)
    """By segment, how many items are written off, also those of cells no longer listed."""
    _watched: dict[Cell, None] = d.follows("`cells`", dict)

    def derive(self) -> None:
        """Works out which cells are watched."""
        self._watched = {at: None for at, cell in self.cells.items() if cell.watched}

    def __bool__(self) -> bool:
        """Whether any cell is watched."""
        return bool(self._watched)

    def shown(self) -> tuple[WrittenOffCell, ...]:
        """The cells as people are shown them."""
        return tuple(replace(c, items=shown_items(c.items)) for c in self.cells.values())

    def add(self, cell: WrittenOffCell) -> None:
        """A cell was cleared. One that was cleared before and came to hold a part of its items again
        (some were consumed after all) goes on as one entry."""
        at = (cell.segment, cell.slot)
        before = self.cells.pop(at, None)
        self._count(cell.segment, cell.items)
        if before is not None and before.watched:
            cell = replace(
                cell,
                checksum=before.checksum ^ cell.checksum,
                items=kept_items(before.items + cell.items),
            )
        self._list(cell)

    def _list(self, cell: WrittenOffCell) -> None:
        """Lists a cell, last."""
        at = (cell.segment, cell.slot)
        self.cells[at] = cell
        if cell.watched:
            self._watched[at] = None
        while len(self.cells) > MAX_LISTED_CELLS:
            oldest = next(iter(self.cells))
            del self.cells[oldest]
            self._watched.pop(oldest, None)

    def give(self, cell: WrittenOffCell) -> None:
        """Another shard lists a cell from here on."""
        at = (cell.segment, cell.slot)
        if self.cells.pop(at, None) is not None:
            self._watched.pop(at, None)
            if not cell.came_back:
                self._count(cell.segment, -cell.items)

    def take(self, cell: WrittenOffCell, *, watch: bool) -> None:
        """Lists a cell that another shard listed. It is not watched where the cell is open and does not
        hold just what was written off."""
        if not cell.came_back:
            self._count(cell.segment, cell.items)
        self._list(cell if watch else replace(cell, watched=False))

    def add_items(self, segment: int, items: int) -> None:
        """Items of cells that another shard had written off and listed no longer."""
        self._count(segment, items)

    def created(self, cells: Cells) -> None:
        """Items were created: from now on what the checksum of their cells says of those written off
        cannot be found out any more."""
        self._let_go(self._places(cells))

    def forget_below(self, segment: int, slot: int) -> None:
        """Min time has passed: what is consumed below it goes to the late ledger as it is."""
        self._let_go([at for at in self._watched if at[0] == segment and at[1] < slot])

    def forget_all(self) -> None:
        """The generation in which they were written off is over."""
        self._let_go(list(self._watched))

    def consumed(self, cells: Cells) -> list[WrittenOffCell]:
        """The watched cells among those in which items were consumed."""
        return [self.cells[at] for at in self._places(cells)]

    def came_back(self, cell: WrittenOffCell) -> None:
        """A cell's items were consumed after all."""
        at = (cell.segment, cell.slot)
        self._count(cell.segment, -cell.items)
        self._watched.pop(at, None)
        self.cells[at] = replace(cell, came_back=True, watched=False)

    def _count(self, segment: int, items: int) -> None:
        self.items[segment] = kept_items(self.items.get(segment, 0) + items)

    def _places(self, cells: Cells) -> list[Cell]:
        pairs = zip(cells.segments.tolist(), cells.slots.tolist(), strict=True)
        return list(dict.fromkeys(pair for pair in pairs if pair in self._watched))

    def _let_go(self, cells_at: Iterable[Cell]) -> None:
        for at in cells_at:
            del self._watched[at]
            self.cells[at] = replace(self.cells[at], watched=False)

    def validate(self) -> None:
        """Raises AssertionError where an invariant does not hold."""
        watched = {at for at, cell in self.cells.items() if cell.watched}
        assert watched == self._watched.keys(), "watched cells are miscounted"
        assert len(self.cells) <= MAX_LISTED_CELLS
