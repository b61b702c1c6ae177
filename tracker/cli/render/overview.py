"""All pipelines live, the worst first."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from tracker.cli.render.narrow import fits
from tracker.cli.render.pipelines import chart
from tracker.cli.render.status import STYLES
from tracker.core.model.names import printable
from tracker.view.overview import Row, counts
from tracker.view.pipelines import slots_text, time_text

CHART_CHARACTERS = 20
COLUMNS = ("pipeline", "state", "min time", "lag", "last hour", "held by")
SPARED = ("last hour", "lag", "held by")
"""What is left out first where the screen is too narrow for all columns."""


def overview_view(rows: Sequence[Row], more: int, most: int, trouble: str = "") -> RenderableType:
    """How many are in which state, and a line each for the `most` worst. more: pipelines that are not among the rows."""
    told = ", ".join(f"{number:,} {state}" for state, number in counts(rows).items() if number)
    beyond = len(rows) - most + more if len(rows) > most else more
    parts: list[RenderableType] = [Text(told, "bold"), _Lines(rows[:most])]
    if beyond > 0:
        parts.append(Text(f"and {beyond:,} more"))
    if trouble:
        parts.append(Text(printable(trouble), "red"))
    return Group(*parts)


class _Lines:
    """A row is a line, of as many columns as there is room for: the screen has as many lines as rows were asked for."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        left_out = (SPARED[:count] for count in range(len(SPARED) + 1))
        tables = (self._table([c for c in COLUMNS if c not in spared]) for spared in left_out)
        yield next(
            (table for table in tables if fits(table, console, options)),
            self._table(["pipeline", "state"]),
        )

    def _table(self, headings: Sequence[str]) -> Table:
        table = Table()
        for heading in headings:
            table.add_column(heading)
        for row in self._rows:
            cells = _cells(row)
            table.add_row(*(cells[heading] for heading in headings))
        return table


def _cells(row: Row) -> dict[str, RenderableType]:
    """By the headings of their columns."""
    progress, spec = row.progress, row.info.spec
    return {
        "pipeline": row.name,
        "state": Text(progress.state, STYLES[progress.state]),
        "min time": time_text(progress.min_time, spec),
        "lag": "-" if row.lag_slots is None else slots_text(row.lag_slots, spec),
        "last hour": Text(chart(_thinned(row.lags_ms)), "cyan"),
        "held by": Text(printable(progress.holds or "-"), no_wrap=True, overflow="ellipsis"),
    }


def _thinned(lags_ms: Sequence[int]) -> list[int]:
    """The largest of each of CHART_CHARACTERS equal parts."""
    edges = [len(lags_ms) * part // CHART_CHARACTERS for part in range(CHART_CHARACTERS + 1)]
    parts = (lags_ms[a:b] for a, b in pairwise(edges))
    return [max(part) for part in parts if part]


def overview_json(rows: Sequence[Row], more: int) -> dict[str, Any]:
    """The same for scripts: all rows."""
    return {"states": counts(rows), "pipelines": [row.json() for row in rows], "more": more}
