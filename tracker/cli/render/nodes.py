"""Nodes as a table; and one that is retired, with what is given up with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from rich.table import Table
from rich.text import Text

from tracker.client import NodeState
from tracker.core.insight.explain import OpenCell
from tracker.core.model import PipelineSpec
from tracker.view.explanations import cell_json, ranges_text
from tracker.view.pipelines import span_text, time_and_slot_text, time_text

Released: TypeAlias = Mapping[str, tuple[str, int]]
"""By name of a hold that was let go of: its segment, and the slot where it stood."""

STYLES = {
    NodeState.GONE: "red", NodeState.EVICTED: "red", NodeState.SILENT: "yellow", NodeState.LIVE: "green",
    NodeState.RETIRED: "dim",
}  # fmt: skip
"""By state, how it stands out."""
TYPES = {
    "pipeline": "string", "node_id": "string", "incarnation": "int64", "kind": "string", "state": "string",
    "home": "int64", "silent_ms": "int64", "node_time": "int64", "batch": "string", "staged": "int64",
    "slot": "int64", "time": "time", "age_ms": "int64", "holds": "int64", "waits": "string",
}  # fmt: skip
"""The columns, and what Arrow calls their types."""


def nodes_table(rows: Sequence[Mapping[str, Any]], spec: PipelineSpec) -> Table:
    """A line for each node, out of what is listed of it. behind: of its time, behind the clock."""
    table = Table(
        "node", "kind", "state", "home", "last tick", "ticks", "batch", "time", "behind", "holds"
    )
    table.add_column("waits for")
    for row in rows:
        staged = f"{row['staged']} staged" if row["staged"] else ""
        table.add_row(
            f"{row['node_id']}#{row['incarnation']}",
            row["kind"],
            Text(row["state"], STYLES[NodeState(row["state"])]),
            str(row["home"]),
            span_text(row["silent_ms"] * 10**6),
            f"{row['node_time']:,}",
            "; ".join(each for each in (row["batch"], staged) if each) or "-",
            "-" if row["slot"] is None else time_text(row["slot"], spec),
            "-" if row["age_ms"] is None else span_text(row["age_ms"] * 10**6),
            f"{row['holds']:,}" if row["holds"] else "-",
            row["waits"] or "-",
        )
    return table


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
