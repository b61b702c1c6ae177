"""A node that is retired, and what is given up with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from tracker.core.insight.explain import OpenCell
from tracker.core.model import PipelineSpec
from tracker.view.explanations import cell_json, ranges_text
from tracker.view.pipelines import time_and_slot_text

Released: TypeAlias = Mapping[str, tuple[str, int]]
"""By name of a hold that was let go of: its segment, and the slot where it stood."""


def loss_text(segment: str, cells: Sequence[OpenCell], spec: PipelineSpec) -> str:
    """What is to be written off in a segment."""
    items = sum(cell.items for cell in cells)
    at = ranges_text((cell.slot for cell in cells), spec) or "none"
    return f"to be written off in {segment}: {items} items; open at {at}"


def retired_text(
    node_id: str,
    gone: Sequence[OpenCell],
    stayed: Sequence[OpenCell],
    released: Released,
    spec: PipelineSpec,
) -> str:
    """That a node is retired, what it held, and which of the cells that were named are written off."""
    text = f"{node_id} is retired"
    for name, (segment, slot) in sorted(released.items(), key=lambda each: each[1][1]):
        text += f"\nlet go of: {time_and_slot_text(slot, spec)} of {segment} ({name})"
    if gone or stayed:
        items = sum(cell.items for cell in gone)
        text += f"\nwritten off: {items} items in {len(gone)} cells"
    return text


def retired_json(
    node_id: str,
    names: tuple[str, ...],
    gone: Sequence[OpenCell],
    stayed: Sequence[OpenCell],
    released: Released,
) -> dict[str, Any]:
    """The same for scripts, cell by cell."""
    return {
        "node": node_id,
        "retired": True,
        "written_off": [cell_json(cell, names) for cell in gone],
        "stayed": [cell_json(cell, names) for cell in stayed],
        "released": [
            {"name": name, "segment": segment, "slot": slot}
            for name, (segment, slot) in released.items()
        ],
    }
