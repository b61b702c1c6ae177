"""The terminal that tables and live views are written to."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from tracker.cli.render.narrow import WIDEST, blocks, fits
from tracker.core.model.names import printable


class Terminal(Console):
    """Shows names as they are: none is taken for markup, and of none a control character gets through. A table that is
    too wide is shown row by row; what is no terminal is as wide as it has to be."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)
        if not (self.is_terminal or options.get("width") or os.environ.get("COLUMNS")):
            self.width = WIDEST

    def render_str(self, text: str, **options: Any) -> Text:
        """A text that stands in a table, say: one line."""
        return super().render_str(printable(text), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Whatever is shown, at last; what rich itself says to the terminal stays."""
        limits = options or self.options
        if (
            isinstance(renderable, Table)
            and renderable.show_header
            and not fits(renderable, self, limits)
        ):
            renderable = Group(*blocks(renderable, self))
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(printable(segment.text, lines=True), segment.style)
