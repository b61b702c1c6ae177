"""All pipelines live, the worst first."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tracker.cli.render.pipelines import chart
from tracker.cli.render.status import STYLES
from tracker.core.model.names import printable
from tracker.view.overview import Row, counts
from tracker.view.pipelines import slots_text, time_text

CHART_CHARACTERS = 20


def overview_view(rows: Sequence[Row], more: int, most: int, trouble: str = "") -> RenderableType:
    """How many are in which state, and a line each for the `most` worst. more: pipelines that are not among the rows."""
    told = ", ".join(f"{number:,} {state}" for state, number in counts(rows).items() if number)
    beyond = len(rows) - most + more if len(rows) > most else more
    parts: list[RenderableType] = [Text(told, "bold"), _table(rows[:most])]
    if beyond > 0:
        parts.append(Text(f"and {beyond:,} more"))
    if trouble:
        parts.append(Text(printable(trouble), "red"))
    return Group(*parts)


def _table(rows: Sequence[Row]) -> Table:
    table = Table()
    for heading in ("pipeline", "state", "min time", "lag", "last hour", "held by"):
        # A row is a line: as many as the screen has room for.
        table.add_column(heading, no_wrap=True, overflow="ellipsis")
    for row in rows:
        progress, spec = row.progress, row.info.spec
        table.add_row(
            row.name,
            Text(progress.state, STYLES[progress.state]),
            time_text(progress.min_time, spec),
            "-" if row.lag_slots is None else slots_text(row.lag_slots, spec),
            Text(chart(_thinned(row.lags_ms)), "cyan"),
            progress.holds or "-",
        )
    return table


def _thinned(lags_ms: Sequence[int]) -> list[int]:
    """The largest of each of CHART_CHARACTERS equal parts."""
    edges = [len(lags_ms) * part // CHART_CHARACTERS for part in range(CHART_CHARACTERS + 1)]
    parts = (lags_ms[a:b] for a, b in pairwise(edges))
    return [max(part) for part in parts if part]


def overview_json(rows: Sequence[Row], more: int) -> dict[str, Any]:
    """The same for scripts: all rows."""
    return {"states": counts(rows), "pipelines": [row.json() for row in rows], "more": more}
