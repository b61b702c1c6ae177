"""The progress of many pipelines, a line each."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from tracker.view.model import lag_slots
from tracker.view.pipelines import slots_text, time_text
from tracker.view.tables import Lines

STYLES = {"stuck": "red", "waiting": "yellow", "moving": "", "complete": "green"}
"""By state, how it stands out."""


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
