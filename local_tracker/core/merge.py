"""Merging acks: one XOR and one count for each (segment, slot), with array operations only.

Acks of one time mostly lie next to each other, or in a narrow range of slots; each of the two has a
way that costs a few nanoseconds an ack. Anything else is sorted.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tracker.core.model import Cells

_DENSE_FACTOR = 4
"""A table over all slots of a range is used where it has at most this many places per ack."""


def merge_acks(segment: int, slots: NDArray[np.int64], values: NDArray[np.uint64]) -> Cells:
    """Acks of one segment, merged: a cell for each different slot, by decreasing slot.

    slots, values: one slot and one ack value an ack, arrays of one length. The counts of the cells
    say how many acks each one holds; a cell whose values cancel is kept for its count.
    """
    if len(slots) == 0:
        return Cells.empty()
    merged_slots, checksums, counts = _merge(slots, values, None)
    return Cells(np.full(len(merged_slots), segment, np.int32), merged_slots, checksums, counts)


def merge_cells(cells: Cells) -> Cells:
    """Cells with at most one for each (segment, slot), by decreasing slot, then by segment.

    Cells without checksum and count are left out: they say nothing.
    """
    if len(cells) == 0:
        return cells
    parts = []
    for segment in np.unique(cells.segments).tolist():
        own = cells.select(cells.segments == segment)
        slots, checksums, counts = _merge(own.slots, own.checksums, own.counts)
        parts.append(Cells(np.full(len(slots), segment, np.int32), slots, checksums, counts))
    merged = Cells.concatenate(parts)
    merged = merged.select((merged.checksums != 0) | (merged.counts != 0))
    # Stable, so that segments stay in order within a slot. ~x is -x - 1, which can't overflow.
    order = np.argsort(~merged.slots, kind="stable")
    return Cells(
        merged.segments[order], merged.slots[order], merged.checksums[order], merged.counts[order]
    )


def _merge(
    slots: NDArray[np.int64], values: NDArray[np.uint64], counts: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64]]:
    """(slots, checksums, counts) by decreasing slot; `counts` None counts 1 for each."""
    steps_up = slots[1:] >= slots[:-1]
    if not steps_up.all():
        lowest, highest = int(slots.min()), int(slots.max())
        # Python ints: the difference of two int64 may not be one.
        if highest - lowest < _DENSE_FACTOR * len(slots):
            return _merge_dense(slots, values, counts, lowest, highest)
        order = np.argsort(slots, kind="stable")
        slots, values = slots[order], values[order]
        counts = None if counts is None else counts[order]
    return _merge_sorted(slots, values, counts)


def _merge_sorted(
    slots: NDArray[np.int64], values: NDArray[np.uint64], counts: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64]]:
    starts = np.concatenate(([0], np.flatnonzero(slots[1:] != slots[:-1]) + 1))
    checksums = np.bitwise_xor.reduceat(values, starts)
    if counts is None:
        sums = np.diff(np.append(starts, len(slots))).astype(np.int64)
    else:
        sums = np.add.reduceat(counts, starts)
    return slots[starts][::-1], checksums[::-1], sums[::-1]


def _merge_dense(
    slots: NDArray[np.int64],
    values: NDArray[np.uint64],
    counts: NDArray[np.int64] | None,
    lowest: int,
    highest: int,
) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64]]:
    width = highest - lowest + 1
    places = slots - lowest
    checksums = np.zeros(width, np.uint64)
    np.bitwise_xor.at(checksums, places, values)
    acks = np.bincount(places, minlength=width)
    if counts is None:
        sums = acks.astype(np.int64)
    else:
        sums = np.zeros(width, np.int64)
        np.add.at(sums, places, counts)
    used = np.flatnonzero(acks)[::-1]
    return used + lowest, checksums[used], sums[used]
