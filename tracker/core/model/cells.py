"""Checksums by segment and slot, as parallel NumPy arrays, never one Python object a cell (rule 1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

_FEW = 6
"""Up to here Python's own loops over an array take less than a call of NumPy's."""


def span(values: NDArray[Any]) -> tuple[int, int]:
    """The least and the greatest of integers, of which there is at least one."""
    if len(values) <= _FEW:
        listed = values.tolist()
        return min(listed), max(listed)
    return int(np.minimum.reduce(values)), int(np.maximum.reduce(values))


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
    _segment_span: tuple[int, int] | None = field(default=None, init=False, repr=False)
    _lowest_slots: dict[int, int] | None = field(default=None, init=False, repr=False)
    _highest_slot: int | None = field(default=None, init=False, repr=False)

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
        return len(self.slots)

    def select(self, mask: NDArray[np.bool_]) -> Cells:
        """The cells at the True places of a boolean array of this length."""
        if mask.all():
            return self
        return Cells(
            self.segments[mask],
            self.slots[mask],
            self.checksums[mask],
            self.counts[mask],
        )

    def segment_span(self) -> tuple[int, int]:
        """The least and the greatest number of a segment; there is at least one cell."""
        if self._segment_span is None:
            one = self.segments.item(0)
            same = self.segments.tobytes() == self.segments[:1].tobytes() * len(self.segments)
            self._segment_span = (one, one) if same else span(self.segments)
        return self._segment_span

    def lowest_slots(self) -> dict[int, int]:
        """The lowest slot of each segment that there is a cell of; no segment number is negative."""
        if self._lowest_slots is None:
            self._lowest_slots = self._find_lowest_slots()
        return self._lowest_slots

    def _find_lowest_slots(self) -> dict[int, int]:
        if len(self.slots) <= _FEW:
            lowest: dict[int, int] = {}
            for segment, slot in zip(self.segments.tolist(), self.slots.tolist(), strict=True):
                lowest[segment] = min(slot, lowest.get(segment, slot))
            return lowest
        first, last = self.segment_span()
        if first == last:
            return {first: int(np.minimum.reduce(self.slots))}
        by_segment = np.full(last + 1, np.iinfo(np.int64).max)
        np.minimum.at(by_segment, self.segments, self.slots)
        segments = np.unique(self.segments)
        return dict(zip(segments.tolist(), by_segment[segments].tolist(), strict=True))

    def highest_slot(self) -> int:
        """The highest slot of all cells, of which there is at least one."""
        if self._highest_slot is None:
            few = len(self.slots) <= _FEW
            self._highest_slot = max(self.slots.tolist()) if few else int(self.slots.max())
        return self._highest_slot

    def below(self, bounds: Sequence[int]) -> NDArray[np.bool_] | None:
        """Which cells have a slot below their segment's bound (by segment number); None: not one has,
        as mostly."""
        if all(slot >= bounds[segment] for segment, slot in self.lowest_slots().items()):
            return None
        return self.slots < np.array(bounds, np.int64)[self.segments]

    def rows(self) -> list[tuple[int, int, int, int]]:
        """As (segment, slot, checksum, count) tuples of Python ints; for tests and messages."""
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
        return Cells(
            np.concatenate([p.segments for p in filled]),
            np.concatenate([p.slots for p in filled]),
            np.concatenate([p.checksums for p in filled]),
            np.concatenate([p.counts for p in filled]),
        )


_NO_CELLS = Cells(
    np.empty(0, np.int32),
    np.empty(0, np.int64),
    np.empty(0, np.uint64),
    np.empty(0, np.int64),
)


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
