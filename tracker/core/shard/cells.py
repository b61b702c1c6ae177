"""The checksums of one pipeline's open slots at one shard (rule 4).

Cells lie in pages of 64 neighbouring slots, all pages in two growing NumPy arrays, so that a tick of
a thousand cells is a handful of array operations and an open cell costs about 20 bytes where slots
are neighbours. A page whose checksums are all zero is given back.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from tracker.core.model import Cells
from tracker.core.model import durable as d
from tracker.core.model.slots import FOREVER

_PAGE_BITS = 6
_PAGE = 1 << _PAGE_BITS
_FIRST_ROWS = 8
_FEW = 6
"""Up to here cells are applied one by one: cheaper than the fixed cost of array calls..."""
_FEW_KNOWN = 32
"""... and up to here where they have been looked at one by one before."""
_MOST_ITEMS = 2**63 - 1


def kept_items(items: int) -> int:
    """A number of items as shards report and keep it: where an int64 does not hold it, what it holds. It
    is negative where consumption has come before creation: what people are shown adds these up first."""
    return max(-_MOST_ITEMS, min(items, _MOST_ITEMS))


def shown_items(items: int) -> int:
    """A number of items, of slots or cells, as people are shown it, everywhere: none is negative."""
    return max(0, kept_items(items))


class CellTable:
    """XOR checksums and advisory item counts by (segment, slot)."""

    def __init__(self, segments: int) -> None:
        self._rows: list[dict[int, int]] = [{} for _ in range(segments)]  # page number -> row
        self._page_heaps: list[list[int]] = [[] for _ in range(segments)]  # may hold freed pages
        self._checksums = np.zeros((_FIRST_ROWS, _PAGE), np.uint64)
        self._counts = np.zeros((_FIRST_ROWS, _PAGE), np.int64)
        self._filled = [0] * _FIRST_ROWS  # how many checksums of a row are not zero
        self._free = list(range(_FIRST_ROWS - 1, -1, -1))
        self.open_slots = [0] * segments
        self.open_items = [0] * segments

    def grow(self, segments: int) -> None:
        """There are so many segments from here on, and nothing is open in the new ones."""
        for _ in range(segments - len(self.open_slots)):
            self._rows.append({})
            self._page_heaps.append([])
            self.open_slots.append(0)
            self.open_items.append(0)

    def apply(self, cells: Cells, sign: int) -> None:
        """XOR the checksums in; add `sign` times the counts (+1 created, -1 consumed)."""
        if cells.size <= _FEW or (cells.size <= _FEW_KNOWN and cells.has_rows):
            for segment, slot, checksum, count in cells.rows():
                self._apply_one(segment, slot, checksum, sign * count)
            return
        lowest = cells.lowest_slots()
        if len(lowest) == 1 and cells.run() is not None:
            ((segment, first),) = lowest.items()
            self._apply_run(segment, first, cells, sign)
            return
        for segment in lowest:
            part = cells if len(lowest) == 1 else cells.select(cells.segments == segment)
            self._apply_segment(segment, part, sign)

    def _apply_one(self, segment: int, slot: int, checksum: int, count: int) -> None:
        page = slot >> _PAGE_BITS
        row = self._row(segment, page)
        offset = slot & (_PAGE - 1)
        before = self._checksums.item(row, offset)
        after = before ^ checksum
        self._checksums[row, offset] = after
        self._counts[row, offset] += count
        self.open_items[segment] += count
        change = bool(after) - bool(before)
        self.open_slots[segment] += change
        self._filled[row] += change
        if not self._filled[row]:
            self._free_page(segment, page, row)

    def _apply_run(self, segment: int, first: int, cells: Cells, sign: int) -> None:
        """The same for neighbouring slots from `first` on, as fronts and merges give them: of each page they
        are one slice."""
        checksums, counts, size = cells.checksums, cells.counts, cells.size
        add = np.add if sign > 0 else np.subtract
        at = 0
        while at < size:
            page, offset = (first + at) >> _PAGE_BITS, (first + at) & (_PAGE - 1)
            until = min(size, at + _PAGE - offset)
            row = self._row(segment, page)
            part = self._checksums[row, offset : offset + until - at]
            np.bitwise_xor(part, checksums[at:until], part)
            part_counts = self._counts[row, offset : offset + until - at]
            add(part_counts, counts[at:until], part_counts)
            self._count_filled(segment, page, row)
            at = until
        self.open_items[segment] += sign * cells.items()

    def _count_filled(self, segment: int, page: int, row: int) -> None:
        """Counts a page's open slots anew; gives the page back if there are none."""
        now = int(np.count_nonzero(self._checksums[row]))
        self.open_slots[segment] += now - self._filled[row]
        self._filled[row] = now
        if not now:
            self._free_page(segment, page, row)

    def _apply_segment(self, segment: int, cells: Cells, sign: int) -> None:
        slots = cells.slots
        pages, place_of_page = _pages_of(slots, cells.lowest_slots()[segment], cells.highest_slot())
        rows = [self._row(segment, page) for page in pages]
        # Where a page's slots begin in the table, less where they begin among all slots (modulo 2^64).
        shifts = (np.array(rows, np.int64) - np.array(pages, np.int64)) << _PAGE_BITS
        index = slots + shifts[place_of_page]
        np.bitwise_xor.at(self._checksums.reshape(-1), index, cells.checksums)
        add = np.add if sign > 0 else np.subtract
        add.at(self._counts.reshape(-1), index, cells.counts)
        self.open_items[segment] += sign * cells.items()
        for page, row in zip(pages, rows, strict=True):
            self._count_filled(segment, page, row)

    def value(self, segment: int, slot: int) -> tuple[int, int]:
        """A cell's checksum and advisory count; (0, 0) where nothing is open."""
        row = self._rows[segment].get(slot >> _PAGE_BITS)
        if row is None:
            return 0, 0
        offset = slot & (_PAGE - 1)
        return self._checksums.item(row, offset), self._counts.item(row, offset)

    def count_closed(self, segment: int, slots: NDArray[np.int64]) -> int:
        """How many of some slots, each named once, are not open."""
        rows = self._rows[segment]
        numbers, page_of = np.unique(slots >> _PAGE_BITS, return_inverse=True)
        known = np.array([rows.get(page, -1) for page in numbers.tolist()], np.intp)[page_of]
        there = known >= 0
        open_there = np.count_nonzero(self._checksums[known[there], slots[there] & (_PAGE - 1)])
        return len(slots) - int(open_there)

    def lowest(self, segment: int) -> int:
        """The lowest slot of a segment whose checksum is not zero; FOREVER if there is none."""
        rows, heap = self._rows[segment], self._page_heaps[segment]
        while heap:
            row = rows.get(heap[0])
            if row is None:
                heapq.heappop(heap)
                continue
            return (heap[0] << _PAGE_BITS) + int(np.flatnonzero(self._checksums[row])[0])
        return FOREVER

    def open_cells(self) -> Cells:
        """All cells with a non-zero checksum, by segment and slot."""
        parts = [self._cells_of(segment, sorted(rows)) for segment, rows in enumerate(self._rows)]
        return Cells.concatenate(parts)

    def segment_cells(self, segment: int, below: int = FOREVER) -> Cells:
        """A segment's cells with a non-zero checksum and a slot below `below`, by slot."""
        last = (below - 1) >> _PAGE_BITS
        cells = self._cells_of(segment, sorted(p for p in self._rows[segment] if p <= last))
        return cells.select(cells.slots < below) if len(cells) else cells

    def _cells_of(self, segment: int, pages: list[int]) -> Cells:
        """The cells with a non-zero checksum of some of a segment's pages, in the order of the pages."""
        if not pages:
            return Cells.empty()
        rows = np.array([self._rows[segment][page] for page in pages], np.intp)
        checksums = self._checksums[rows]
        which, offsets = np.nonzero(checksums)
        return Cells(
            np.full(len(which), segment, np.int32),
            (np.array(pages, np.int64)[which] << _PAGE_BITS) + offsets,
            checksums[which, offsets],
            self._counts[rows[which], offsets],
        )

    def _row(self, segment: int, page: int) -> int:
        row = self._rows[segment].get(page)
        if row is None:
            if not self._free:
                self._grow()
            row = self._rows[segment][page] = self._free.pop()
            heapq.heappush(self._page_heaps[segment], page)
        return row

    def _grow(self) -> None:
        rows = len(self._checksums)
        self._checksums = np.concatenate([self._checksums, np.zeros_like(self._checksums)])
        self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
        self._filled += [0] * rows
        self._free = list(range(2 * rows - 1, rows - 1, -1))

    def _free_page(self, segment: int, page: int, row: int) -> None:
        """Gives back a page that is all zero, and the row that it lies in."""
        # Counts are advisory: where a zero page's do not add up to zero, they end with the page.
        counts = self._counts[row]
        self.open_items[segment] -= int(np.add.reduce(counts))
        counts.fill(0)
        rows, heap = self._rows[segment], self._page_heaps[segment]
        del rows[page]
        self._free.append(row)
        if len(heap) > 4 * len(rows) + 64:
            self._page_heaps[segment] = sorted(rows)

    def open_slot_numbers(self) -> list[int]:
        """The slots of all cells with a non-zero checksum, of whatever segment."""
        return [
            (page << _PAGE_BITS) + offset
            for rows in self._rows
            for page, row in rows.items()
            for offset in self._checksums[row].nonzero()[0].tolist()
        ]

    def validate(self) -> None:
        """Raises AssertionError where an invariant does not hold."""
        known = set(self._free)
        rows_held, filled = len(self._free), 0
        for segment, rows in enumerate(self._rows):
            open_slots = 0
            for row in rows.values():
                in_row = int(np.count_nonzero(self._checksums[row]))
                assert in_row, "an empty page is kept"
                assert in_row == self._filled[row], "a page's open slots are miscounted"
                open_slots += in_row
            assert open_slots == self.open_slots[segment], "open slots are miscounted"
            filled += open_slots
            if rows:
                assert rows.keys() <= set(self._page_heaps[segment]), "a page is not in the heap"
                known.update(rows.values())
                rows_held += len(rows)
        assert rows_held == len(known) == len(self._checksums), "a row is lost"
        assert filled == int(np.count_nonzero(self._checksums)), "a free row holds a checksum"


def _with_cells(table: CellTable, saved: Cells) -> CellTable:
    table.apply(saved, 1)
    return table


CELLS = d.form(Cells, CellTable.open_cells, _with_cells)
"""How a table is saved."""


def new_cells(cells: Cells, table: CellTable | None) -> int:
    """How many cells creating in these would open: each counts once, and not at all where it is open in
    the table (None: nothing is known of what is open)."""
    opened = 0
    for segment in cells.lowest_slots() if len(cells) else ():
        slots = np.unique(cells.slots[cells.segments == segment])
        opened += len(slots) if table is None else table.count_closed(segment, slots)
    return opened


def _pages_of(
    slots: NDArray[np.int64], lowest: int, highest: int
) -> tuple[list[int], NDArray[np.int64]]:
    """The pages that some slots lie in, by number, and each slot's index in them. lowest, highest:
    the least slot of them, and one that is at least the greatest."""
    first, last = lowest >> _PAGE_BITS, highest >> _PAGE_BITS
    if last - first < len(slots):  # mostly: counting takes less than sorting
        offsets = (slots >> _PAGE_BITS) - first
        used = np.bincount(offsets).tolist()
        pages = [first + offset for offset, count in enumerate(used) if count]
        if len(pages) == len(used):
            return pages, offsets
        return pages, (np.cumsum(np.array(used, np.bool_)) - 1)[offsets]
    numbers, place_of_page = np.unique(slots >> _PAGE_BITS, return_inverse=True)
    return numbers.tolist(), place_of_page
