"""Cells, as arrays of packed numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from acker.v1 import types_pb2 as pb
from tracker.core.model import Cells
from tracker.wire.codec import Codec
from tracker.wire.refusals import invalid

_I4, _I8, _U8 = np.dtype("<i4"), np.dtype("<i8"), np.dtype("<u8")


def cells_to_pb(cells: Cells) -> pb.Cells:
    """Packs the arrays as little-endian bytes."""
    message = pb.Cells()
    if len(cells):
        write_cells(cells, message)
    return message


def write_cells(cells: Cells, message: pb.Cells) -> None:
    if cells.packed is not None:
        message.segments, message.slots, message.checksums, message.counts = cells.packed
        return
    message.segments = _bytes(cells.segments, _I4)
    message.slots = _bytes(cells.slots, _I8)
    message.checksums = _bytes(cells.checksums, _U8)
    message.counts = _bytes(cells.counts, _I8)


def _bytes(array: NDArray[Any], packed: np.dtype[Any]) -> bytes:
    if array.dtype is not packed:  # another number format, or an equal description of this one
        array = array.astype(packed, copy=False)
    return array.tobytes()


def cells_from_pb(cells: pb.Cells) -> Cells:
    """Takes packed arrays as they are. Raises Refused(INVALID) if their lengths do not agree."""
    # Each access of a field copies its bytes.
    segments, slots = cells.segments, cells.slots
    checksums, counts = cells.checksums, cells.counts
    size = len(slots)
    if size % 8 or not size == len(checksums) == len(counts) == 2 * len(segments):
        raise invalid(
            f"packed cells of {len(segments)} bytes of segments (4 each), {size} of slots, "
            f"{len(checksums)} of checksums and {len(counts)} of counts (8 each) are not four arrays of "
            "one length"
        )
    return Cells.unpacked(segments, slots, checksums, counts) if size else Cells.empty()


CELLS = Codec(Cells, pb.Cells, cells_to_pb, cells_from_pb)
