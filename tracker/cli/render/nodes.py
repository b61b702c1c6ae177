"""The nodes of a pipeline, a line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from tracker.client import NodeState
from tracker.core.model import PipelineSpec
from tracker.view.pipelines import span_text, time_text

STYLES = {
    NodeState.GONE: "red", NodeState.EVICTED: "red", NodeState.SILENT: "yellow", NodeState.LIVE: "green",
    NodeState.RETIRED: "dim",
}  # fmt: skip
"""By state, how it stands out."""


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
