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
    message.segments = _bytes(cells.segments, _I4)
    message.slots = _bytes(cells.slots, _I8)
    message.checksums = _bytes(cells.checksums, _U8)
    message.counts = _bytes(cells.counts, _I8)


def _bytes(array: NDArray[Any], packed: np.dtype[Any]) -> bytes:
    if array.dtype is not packed:  # another number format, or an equal description of this one
        array = array.astype(packed, copy=False)
    return array.tobytes()


def cells_from_pb(cells: pb.Cells) -> Cells:
    """Reads packed arrays without a loop. Raises Refused(INVALID) if their lengths do not agree."""
    # Each access of a field copies its bytes.
    segments, slots = cells.segments, cells.slots
    checksums, counts = cells.checksums, cells.counts
    lengths = (len(segments), len(slots), len(checksums), len(counts))
    if not any(lengths):
        return Cells.empty()
    count = lengths[1] // 8
    if lengths != (4 * count, 8 * count, 8 * count, 8 * count):
        raise invalid(
            f"packed cells of {lengths[0]} bytes of segments (4 each), {lengths[1]} of slots, "
            f"{lengths[2]} of checksums and {lengths[3]} of counts (8 each) are not four arrays of "
            "one length"
        )
    return Cells(
        np.frombuffer(segments, _I4),
        np.frombuffer(slots, _I8),
        np.frombuffer(checksums, _U8),
        np.frombuffer(counts, _I8),
    )


CELLS = Codec(Cells, pb.Cells, cells_to_pb, cells_from_pb)
