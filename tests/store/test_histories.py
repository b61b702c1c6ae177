"""Histories are stored by their second differences: what lies evenly takes a byte or two."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest

from tests.store.golden import golden
from tracker.core.cut.history import HistorySnapshot
from tracker.core.model.slots import FOREVER, LOWEST_SLOT
from tracker.wire.storage import snapshot_from_bytes, snapshot_to_bytes


def stored(slots: list[int], at_ms: list[int]) -> tuple[HistorySnapshot, int]:
    """A history that was stored and read again, and how many bytes it takes."""
    pinned = golden()["snapshot"][-1]
    snapshot = snapshot_from_bytes(bytes.fromhex(pinned.stored))
    sizes = []
    for kept in ([], [HistorySnapshot(0, 1, LOWEST_SLOT, array("q", slots), array("q", at_ms))]):
        pipeline = replace(snapshot.pipelines[0], history=tuple(kept))  # type: ignore[call-arg]
        data = snapshot_to_bytes(replace(snapshot, pipelines=(pipeline,)))
        sizes.append(len(data))
    ((read,),) = (each.history for each in snapshot_from_bytes(data).pipelines)
    return read, sizes[1] - sizes[0]


@pytest.mark.parametrize(
    "slots",
    [
        [],
        [LOWEST_SLOT],
        [7],
        [LOWEST_SLOT, -5, 3, FOREVER],
        [177_000_000_000, FOREVER - 1, FOREVER],
    ],
)
def test_a_history_comes_back_as_it_was(slots: list[int]) -> None:
    at_ms = [1_770_000_000_000 + 77 * number for number, _ in enumerate(slots)]
    read, _ = stored(slots, at_ms)
    assert (read.slots.tolist(), read.at_ms.tolist()) == (slots, at_ms)


def test_an_hour_of_a_year_takes_two_or_three_bytes() -> None:
    slots = [177_000_000_000 + 360_000 * hour + hour % 7 for hour in range(8_784)]
    at_ms = [1_770_000_000_000 + 3_600_000 * hour + hour % 37 for hour in range(8_784)]
    _, size_bytes = stored(slots, at_ms)
    assert size_bytes < 3 * 8_784
