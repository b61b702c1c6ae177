"""Checksums by segment and slot, as parallel NumPy arrays, never one Python object a cell (rule 1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

_FEW = 6
"""Up to here Python's own loops over an array take less than a call of NumPy's."""
_FEW_TOGETHER = 32
"""Up to here they do for what was looked at before, as parts of it were."""
_COLUMNS = {
    name: (place, np.dtype(packed))
    for place, (name, packed) in enumerate(
        {"segments": "<i4", "slots": "<i8", "checksums": "<u8", "counts": "<i8"}.items()
    )
}
"""By column its place among packed ones, and how each of its numbers is packed."""
_FEW_PACKED = [Struct(f"<{n}i{n}q{n}Q{n}q") for n in range(_FEW + 1)]
"""By the number of cells: how to unpack their columns, one behind the other."""


_FAR = 2**62
"""Beyond it slots are not looked at as a run: their sums may not be numbers of 64 bits."""


def _same(data: bytes, size: int) -> int | None:
    """The signed number that so many packed ones all are; None if they are not one."""
    first = data[: len(data) // size]
    return int.from_bytes(first, "little", signed=True) if first * size == data else None


def _extreme(values: NDArray[Any], place: Any) -> int:
    # To ask where it lies takes NumPy half as long as to reduce to it.
    return int(values.item(place))


@dataclass(slots=True, eq=False)
class Cells:
    """XOR deltas by (segment, slot): four arrays of one length.

    segments: int32 numbers of segments; slots: int64; checksums: uint64, the XOR of the ack values;
    counts: int64, how many items (shown to people, never decided by). A pair may occur repeatedly.
    Nobody writes into the arrays: what is asked of them often is found once, and kept.
    """

    segments: NDArray[np.int32]
    slots: NDArray[np.int64]
    checksums: NDArray[np.uint64]
    counts: NDArray[np.int64]
    size: int = field(init=False)
    """How many cells; `len` says the same, and takes longer to."""
    packed: tuple[bytes, bytes, bytes, bytes] | None = field(default=None, init=False, repr=False)
    """The four arrays as little-endian bytes, where the cells came so; None where they were made here. The
    arrays are then views of the bytes, and made when one is asked for."""
    _few: list[tuple[int, int, int, int]] | None = field(default=None, init=False, repr=False)
    _segment_span: tuple[int, int] | None = field(default=None, init=False, repr=False)
    _lowest_slots: dict[int, int] | None = field(default=None, init=False, repr=False)
    _highest_slot: int | None = field(default=None, init=False, repr=False)
    _run: tuple[int, ...] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.size = len(self.slots)

    @classmethod
    def unpacked(cls, segments: bytes, slots: bytes, checksums: bytes, counts: bytes) -> Cells:
        """From little-endian bytes, which are kept. Their lengths must be those of equally many numbers."""
        return cls._from(len(slots) >> 3, (segments, slots, checksums, counts), None)

    @classmethod
    def _from(
        cls,
        size: int,
        packed: tuple[bytes, bytes, bytes, bytes] | None,
        rows: list[tuple[int, int, int, int]] | None,
    ) -> Cells:
        """From bytes or rows, which are kept; the arrays are made when one is asked for."""
        cells = cls.__new__(cls)
        cells.size, cells.packed = size, packed
        cells._few, cells._segment_span, cells._run = rows, None, None  # noqa: SLF001 - one of this class
        cells._lowest_slots = cells._highest_slot = None  # noqa: SLF001 - one of this class
        return cells

    def __getattr__(self, name: str) -> Any:
        """An array that was not asked for before."""
        if name not in _COLUMNS or (self.packed is None and self._few is None):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        place, packed = _COLUMNS[name]
        if self.packed is not None:
            array = np.frombuffer(self.packed[place], packed)
        else:
            assert self._few is not None
            array = np.array([row[place] for row in self._few], packed)
        setattr(self, name, array)
        return array

    @property
    def has_rows(self) -> bool:
        """Whether its rows are at hand, so that to look at them costs no call of NumPy."""
        return self._few is not None

    @classmethod
    def empty(cls) -> Cells:
        return _NO_CELLS

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, int, int]]) -> Cells:
        """From rows of (segment, slot, checksum, count)."""
        table = list(rows)
        if not table:
            return _NO_CELLS
        segments, slots, checksums, counts = zip(*table, strict=True)
        return cls(
            np.array(segments, np.int32),
            np.array(slots, np.int64),
            np.array(checksums, np.uint64),
            np.array(counts, np.int64),
        )

    def __len__(self) -> int:
        return self.size

    def select(self, mask: NDArray[np.bool_]) -> Cells:
        """The cells at the True places of a boolean array of this length."""
        return self if mask.all() else self._at(mask)

    def between(self, first: int, end: int) -> Cells:
        """The cells from place `first` up to, and without, place `end`."""
        if first >= end:
            return _NO_CELLS
        return self if first == 0 and end == self.size else self._at(slice(first, end))

    def _at(self, places: NDArray[np.bool_] | slice) -> Cells:
        return Cells(
            self.segments[places], self.slots[places], self.checksums[places], self.counts[places]
        )

    def segment_span(self) -> tuple[int, int]:
        """The least and the greatest number of a segment; there is at least one cell."""
        if self._segment_span is None:
            self._segment_span = self._find_segment_span()
        return self._segment_span

    @property
    def _is_few(self) -> bool:
        return self.size <= _FEW or self._few is not None

    def _look_at_few(self) -> list[tuple[int, int, int, int]]:
        """Finds at once what is asked of few cells."""
        if self._few is None:
            self._few = self._find_rows()
        rows = self._few
        if len(rows) == 1:
            segment, slot, _, _ = rows[0]
            self._segment_span, self._highest_slot = (segment, segment), slot
            self._lowest_slots = {segment: slot}
        elif rows:
            segments = [row[0] for row in rows]
            self._segment_span = min(segments), max(segments)
            self._highest_slot = max([row[1] for row in rows])
            lowest: dict[int, int] = {}
            self._lowest_slots = lowest
            for segment, slot, _, _ in rows:
                if slot <= lowest.get(segment, slot):
                    lowest[segment] = slot
        else:
            self._lowest_slots = {}
        return rows

    def _find_segment_span(self) -> tuple[int, int]:
        if self._is_few:
            self._look_at_few()
            assert self._segment_span is not None, "there is at least one cell"
            return self._segment_span
        one = None if self.packed is None else _same(self.packed[0], self.size)
        if one is not None:
            return one, one
        return int(self.segments.min()), int(self.segments.max())

    def lowest_slots(self) -> dict[int, int]:
        """The lowest slot of each segment that there is a cell of; no segment number is negative."""
        if self._lowest_slots is None:
            self._lowest_slots = self._find_lowest_slots()
        return self._lowest_slots

    def _find_lowest_slots(self) -> dict[int, int]:
        if self._is_few:
            self._look_at_few()
            assert self._lowest_slots is not None
            return self._lowest_slots
        first, last = self.segment_span()
        if first == last:
            run = self.run()
            if run is not None:
                return {first: run}
            return {first: _extreme(self.slots, self.slots.argmin())}
        by_segment = np.full(last + 1, np.iinfo(np.int64).max)
        np.minimum.at(by_segment, self.segments, self.slots)
        segments = np.unique(self.segments)
        return dict(zip(segments.tolist(), by_segment[segments].tolist(), strict=True))

    def highest_slot(self) -> int:
        """The highest slot of all cells, of which there is at least one."""
        if self._highest_slot is None:
            if not self._is_few:
                run = self.run()
                self._highest_slot = (
                    _extreme(self.slots, self.slots.argmax())
                    if run is None
                    else run + self.size - 1
                )
            else:
                self._look_at_few()
                assert self._highest_slot is not None, "there is at least one cell"
        return self._highest_slot

    def count_span(self) -> tuple[int, int]:
        """The least and the greatest number of items; there is at least one cell."""
        if self.size == 1:
            count = self.rows()[0][3]
            return count, count
        if self.size <= _FEW:
            listed = [row[3] for row in self.rows()]
            return min(listed), max(listed)
        one = None if self.packed is None else _same(self.packed[3], self.size)
        if one is not None:
            return one, one
        counts = self.counts
        return _extreme(counts, counts.argmin()), _extreme(counts, counts.argmax())

    def items(self) -> int:
        """How many items, all in all; there is at least one cell."""
        one = None if self.packed is None else _same(self.packed[3], self.size)
        return int(np.add.reduce(self.counts)) if one is None else one * self.size

    def run(self) -> int | None:
        """The first slot, if these are cells of neighbouring slots in their order; there is at least one."""
        if self._run is None:
            self._run = self._find_run()
        return self._run[0] if self._run else None

    def _find_run(self) -> tuple[int, ...]:
        data = self.slots.tobytes() if self.packed is None else self.packed[1]
        first = int.from_bytes(data[:8], "little", signed=True)
        if not -_FAR < first < _FAR:
            return ()
        neighbours = np.arange(first, first + self.size, dtype=_COLUMNS["slots"][1])
        return (first,) if data == neighbours.tobytes() else ()

    def below(self, bounds: Sequence[int]) -> NDArray[np.bool_] | None:
        """Which cells have a slot below their segment's bound (by segment number); None: not one has,
        as mostly."""
        for segment, slot in self.lowest_slots().items():
            if slot < bounds[segment]:
                return self.slots < np.array(bounds, np.int64)[self.segments]
        return None

    def rows(self) -> list[tuple[int, int, int, int]]:
        """As (segment, slot, checksum, count) tuples of Python ints. Nobody changes the list."""
        if self._few is not None:
            return self._few
        return self._look_at_few() if self.size <= _FEW else self._find_rows()

    def _find_rows(self) -> list[tuple[int, int, int, int]]:
        if self.packed is not None and self.size <= _FEW:
            flat = _FEW_PACKED[self.size].unpack(b"".join(self.packed))
            if self.size == 1:
                return [flat]
            return [flat[place :: self.size] for place in range(self.size)]
        return list(
            zip(
                self.segments.tolist(),
                self.slots.tolist(),
                self.checksums.tolist(),
                self.counts.tolist(),
                strict=True,
            )
        )

    @staticmethod
    def concatenate(parts: Iterable[Cells]) -> Cells:
        filled = [part for part in parts if len(part)]
        if not filled:
            return _NO_CELLS
        if len(filled) == 1:
            return filled[0]
        size = sum([part.size for part in filled])
        if size <= _FEW_TOGETHER and all(part.has_rows for part in filled):
            return Cells._from(size, None, [row for part in filled for row in part.rows()])
        packed = [part.packed for part in filled if part.packed is not None]
        if len(packed) == len(filled):
            return Cells.unpacked(*map(b"".join, zip(*packed, strict=True)))
        return Cells(
            np.concatenate([p.segments for p in filled]),
            np.concatenate([p.slots for p in filled]),
            np.concatenate([p.checksums for p in filled]),
            np.concatenate([p.counts for p in filled]),
        )


_NO_CELLS = Cells.unpacked(b"", b"", b"", b"")


@dataclass(frozen=True, slots=True)
class WrittenOffCell:
    """`items` is advisory, negative where more was consumed than had been created; `came_back`: they were consumed after all, and are in the late ledger.
    `watched`: nothing was created in the cell since, and min time has not passed it."""

    segment: int
    slot: int
    checksum: int
    items: int
    node_id: str
    at_ms: int
    came_back: bool = False
    watched: bool = True
