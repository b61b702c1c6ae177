"""The progress of many pipelines, a line each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from rich.table import Table
from rich.text import Text

from tracker.client import PipelineInfo
from tracker.view.model import lag_slots
from tracker.view.pipelines import slots_text, time_text
from tracker.view.progress import Progress, progress_json

Lines: TypeAlias = Sequence[tuple[PipelineInfo, Sequence[Progress]]]
"""By pipeline: it, and its lines."""

STYLES = {"stuck": "red", "waiting": "yellow", "moving": "", "complete": "green"}
"""By state, how it stands out."""
TYPES = {
    "pipeline": "string", "segment": "string",
    "min_time": "int64", "time": "time", "complete": "bool", "whole_time": "int64", "round": "int64",
    "lag_slots": "int64", "lag_ms": "int64", "age_ms": "int64",
    "state": "string", "open_slots": "int64", "open_items": "int64", "holds": "string", "advice": "string",
}  # fmt: skip
"""The columns, and what Arrow calls their types."""


def status_table(lines: Lines) -> Table:
    """A line for each pipeline, and for each of its segments where there are several."""
    table = Table("pipeline", "segment")
    table.add_column("min time", no_wrap=True)
    table.add_column("lag", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("held by")
    for info, progress in lines:
        for each in progress[1:] if len(progress) == 2 else progress:
            lag = lag_slots(each.min_time, info)
            table.add_row(
                info.spec.name,
                "all" if each.segment is None else each.segment,
                time_text(each.min_time, info.spec),
                "-" if lag is None else slots_text(lag, info.spec),
                Text(each.state, STYLES[each.state]),
                each.holds or "-",
            )
    return table


def status_rows(lines: Lines) -> list[dict[str, Any]]:
    """The lines as plain values; those of whole pipelines have no segment."""
    return [progress_json(each, info) for info, progress in lines for each in progress]
