"""A node that is retired, and what is given up with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracker.core.insight.explain import OpenCell
from tracker.view.explanations import cell_json, ranges_text


def loss_text(segment: str, cells: Sequence[OpenCell]) -> str:
    """What is to be written off in a segment."""
    items = sum(cell.items for cell in cells)
    at = ranges_text(cell.slot for cell in cells) or "none"
    return f"to be written off in {segment}: {items} items; open slots: {at}"


def retired_text(node_id: str, gone: Sequence[OpenCell], stayed: Sequence[OpenCell]) -> str:
    """That a node is retired, and which of the cells that were named are written off."""
    text = f"{node_id} is retired"
    if gone or stayed:
        items = sum(cell.items for cell in gone)
        text += f"\nwritten off: {items} items in {len(gone)} cells"
    return text


def retired_json(
    node_id: str, names: tuple[str, ...], gone: Sequence[OpenCell], stayed: Sequence[OpenCell]
) -> dict[str, Any]:
    """The same for scripts, cell by cell."""
    return {
        "node": node_id,
        "retired": True,
        "written_off": [cell_json(cell, names) for cell in gone],
        "stayed": [cell_json(cell, names) for cell in stayed],
    }
