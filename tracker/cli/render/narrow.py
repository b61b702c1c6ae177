"""Tables that are too wide for a terminal: a block for each row instead of a line, so that nothing is cut off."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

WIDEST = 10_000
"""No table is as wide as this."""
LEAST_LAST = 16
"""The last column, whose texts are wrapped or cut off, is readable from so many characters on."""
FRAME = 3
"""Characters of a line and two blanks, for each column."""
NOTHING = ("", "-")


def fits(table: Table, console: Console, options: ConsoleOptions) -> bool:
    """Whether all that the columns have stands in one line, but for the last one's; they are held to that."""
    for column in table.columns[:-1]:
        column.no_wrap = True
    unlimited = options.update(width=WIDEST, max_width=WIDEST)
    widths = [_widest(column, console, unlimited) for column in table.columns]
    return (
        sum(widths[:-1]) + min(widths[-1], LEAST_LAST) + FRAME * len(widths) + 1
        <= options.max_width
    )


def _widest(column: Column, console: Console, unlimited: ConsoleOptions) -> int:
    cells = (column.header, *column.cells)
    return max(Measurement.get(console, unlimited, cell).maximum for cell in cells)


def blocks(table: Table, console: Console) -> Iterator[RenderableType]:
    """Each row as its first cell, and below it what the other columns have of it."""
    headings = [_styled(column.header, console) for column in table.columns]
    for first, *others in zip(*(column.cells for column in table.columns), strict=True):
        if (title := _styled(first, console, "bold")).plain:
            yield title
        below = Table.grid(padding=(0, 2, 0, 0))
        below.add_column(no_wrap=True)
        below.add_column(overflow="fold")
        for heading, cell in zip(headings[1:], others, strict=True):
            text = _styled(cell, console)
            if text.plain not in NOTHING:
                below.add_row(Text.assemble("  ", heading), text)
        yield below
    if table.caption:
        yield _styled(table.caption, console, "italic")


def _styled(cell: RenderableType, console: Console, style: str = "") -> Text:
    """The cells of tables here are texts."""
    text = cell.copy() if isinstance(cell, Text) else console.render_str(str(cell))
    text.no_wrap = False
    text.stylize_before(style)
    return text
