"""Published batches: what a front has let out, as the tick that creates it holds it.

A batch is a front's durable record: its number, and items that can be found again in what was
published. Its fingerprint is of those items, so that a tick that is committed twice, before and after
a restart, is known to be the same, and a record that was rewritten in between is noticed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tracker.core.model import Cells, Unit
from tracker.core.model.ack_values import range_value, unit_value
from tracker.core.model.ranges import NotedRanges, note
from tracker.core.model.slots import FOREVER, LOWEST_SLOT

FINGERPRINT_BYTES = 16


@dataclass(frozen=True, slots=True, eq=False)
class PublishedBatch:
    """A batch that readers can see. number: the front's own, growing; low and high: the least and the
    greatest slot of its items."""

    number: int
    low: int
    high: int
    created: Cells
    units: tuple[Unit, ...]
    fingerprint: bytes

    def from_slot(self, slot: int) -> PublishedBatch | None:
        """What of it is not below a slot, under its number and its fingerprint; None if nothing is."""
        if self.low >= slot:
            return self
        if self.high < slot:
            return None
        kept = self.created.slots >= slot
        created = Cells(
            self.created.segments[kept], self.created.slots[kept],
            self.created.checksums[kept], self.created.counts[kept],
        )  # fmt: skip
        units = tuple(unit for unit in self.units if unit.slot >= slot)
        low = int(created.slots.min())
        return PublishedBatch(self.number, low, self.high, created, units, self.fingerprint)

    def of_nothing(self, slot: int) -> PublishedBatch:
        """Its number and its fingerprint, without an item; it keeps no promise from `slot`."""
        return PublishedBatch(self.number, slot, slot, Cells.empty(), (), self.fingerprint)


def items_batch(segment: int, number: int, slots: ArrayLike, values: ArrayLike) -> PublishedBatch:
    """A batch whose items are rows: `slots` (int64) and ack `values` (uint64) of one length, at least
    one, in any order. segment: the number of the segment that the front feeds."""
    slot_array, value_array = np.asarray(slots, np.int64), np.asarray(values, np.uint64)
    if slot_array.shape != value_array.shape or slot_array.ndim != 1 or not len(slot_array):
        raise ValueError(
            f"batch {number} has slots of shape {slot_array.shape} and values of shape "
            f"{value_array.shape}; both need one length, of at least one item"
        )
    cells = _cells(segment, slot_array, value_array)
    contents = cells.slots.tobytes() + cells.checksums.tobytes() + cells.counts.tobytes()
    return PublishedBatch(
        number, int(cells.slots[0]), int(cells.slots[-1]), cells, (), _digest(contents)
    )


def units_batch(segment: int, number: int, slot: int, names: Sequence[str]) -> PublishedBatch:
    """A batch whose items are units, by their names, all labelled `slot`. The fingerprint is of the
    names without their directory, which may have been moved by the time it is looked at."""
    if not names:
        raise ValueError(f"batch {number} holds no unit")
    values = np.array([unit_value(name) for name in names], np.uint64)
    cells = _cells(segment, np.full(len(names), slot, np.int64), values)
    units = tuple(Unit(segment, name, slot) for name in names)
    contents = "\n".join([str(slot), *sorted(name.rsplit("/", 1)[-1] for name in names)])
    return PublishedBatch(number, slot, slot, cells, units, _digest(contents.encode()))


def ranges_batch(
    segment: int, number: int, slot: int, ranges: Sequence[tuple[str, int, int]]
) -> PublishedBatch:
    """A batch whose items are records, by the ranges (partition, begin, end) of their offsets, at least
    one, all labelled `slot`."""
    if not ranges:
        raise ValueError(f"batch {number} holds no range")
    rows = [(segment, slot, range_value(p, begin, end), end - begin) for p, begin, end in ranges]
    values = np.array([value for _, _, value, _ in rows], np.uint64)
    checksum = int(np.bitwise_xor.reduce(values))
    count = sum(count for *_, count in rows)
    contents = note(NotedRanges(number, slot, tuple(sorted(ranges))))
    return PublishedBatch(
        number, slot, slot, Cells.of([(segment, slot, checksum, count)]), (),
        _digest(contents.encode()),
    )  # fmt: skip


def _cells(segment: int, slots: NDArray[np.int64], values: NDArray[np.uint64]) -> Cells:
    """One cell a slot, by growing slot."""
    order = np.argsort(slots, kind="stable")
    distinct, starts, counts = np.unique(slots[order], return_index=True, return_counts=True)
    if int(distinct[-1]) == FOREVER:
        raise ValueError(f"slot {FOREVER} is no slot of an item; it stands for what is complete")
    assert int(distinct[0]) >= LOWEST_SLOT
    checksums = np.bitwise_xor.reduceat(values[order], starts)
    return Cells(
        np.full(len(distinct), segment, np.int32), distinct, checksums, counts.astype(np.int64)
    )


def _digest(contents: bytes) -> bytes:
    return blake2b(contents, digest_size=FINGERPRINT_BYTES, person=b"lowmark.front").digest()
