"""What is shown while the demo runs: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from examples.flights.data import AIRPORTS, DAY_NS, YEAR_BEGIN_NS, YEAR_END_NS
from examples.flights.pipeline import SPEC
from lowmark import FOREVER

PLAIN_INTERVAL_S = 5.0
_BAR_WIDTH = 36


@dataclass
class Progress:
    """What is known of the run. rows: by query or airport; min_times: by segment, slots, exclusive."""

    phase: str = "starting"
    clock_ns: int = YEAR_BEGIN_NS
    rows: dict[str, int] = field(default_factory=dict)
    min_times: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(SPEC.segments, SPEC.start_slot)
    )
    open_items: dict[str, int] = field(default_factory=dict)
    announcements: int = 0


def date_of(moment_ns: int) -> str:
    """A replayed moment as a date."""
    return datetime.fromtimestamp(moment_ns // 10**9, UTC).strftime("%Y-%m-%d")


def min_time_text(slot: int) -> str:
    """A min time as the date before which everything is processed."""
    return "complete" if slot == FOREVER else date_of(slot * DAY_NS)


class View(Protocol):
    """Shows progress."""

    def show(self, progress: Progress) -> None: ...

    def __enter__(self) -> View: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class PlainView:
    """A line every few seconds, and one for each phase."""

    def __init__(self) -> None:
        self._shown_s = 0.0
        self._phase = ""

    def show(self, progress: Progress) -> None:
        now_s = time.monotonic()
        if progress.phase == self._phase and now_s - self._shown_s < PLAIN_INTERVAL_S:
            return
        self._shown_s, self._phase = now_s, progress.phase
        published = sum(progress.rows.get(airport, 0) for airport in AIRPORTS)
        segments = " ".join(
            f"{segment}<{min_time_text(slot)}" for segment, slot in progress.min_times.items()
        )
        print(
            f"{progress.phase}: clock {date_of(progress.clock_ns)} published {published} "
            f"aggregated {progress.rows.get('aggregate', 0)} | min time {segments}",
            flush=True,
        )

    def __enter__(self) -> PlainView:
        return self

    def __exit__(self, *_: object) -> None: ...


class LiveView:
    """A table that is drawn anew."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False)

    def show(self, progress: Progress) -> None:
        self._live.update(_drawn(progress), refresh=True)

    def __enter__(self) -> LiveView:
        self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.__exit__(None, None, None)


def _drawn(progress: Progress) -> RenderableType:
    heading = Text.assemble(
        ("Flights of 2013 ", "bold"),
        f"{progress.phase}; the replay's clock reads ",
        (date_of(progress.clock_ns), "bold"),
        f"; {progress.announcements} announcements heard",
    )
    airports = Table("airport", "flights published", box=None, padding=(0, 2, 0, 0))
    for airport in AIRPORTS:
        count = progress.rows.get(airport, 0)
        airports.add_row(airport, f"{count:,}")
    segments = Table(
        "segment", "rows", "in flight", "everything is processed before", "", box=None,
        padding=(0, 2, 0, 0),
    )  # fmt: skip
    for segment, slot in progress.min_times.items():
        rows = progress.rows.get(segment)
        share = _share(slot)
        segments.add_row(
            segment,
            "" if rows is None else f"{rows:,}",
            f"{progress.open_items.get(segment, 0):,}",
            Text(min_time_text(slot), "bold green" if slot == FOREVER else "bold"),
            ProgressBar(total=1.0, completed=share, width=_BAR_WIDTH),
        )
    return Group(heading, Text(), airports, Text(), segments)


def _share(slot: int) -> float:
    """How far through the year a min time is, 0 to 1."""
    if slot == FOREVER:
        return 1.0
    return max(0.0, min(1.0, (slot * DAY_NS - YEAR_BEGIN_NS) / (YEAR_END_NS - YEAR_BEGIN_NS)))


def make_view() -> View:
    """The view that suits standard output."""
    console = Console()
    return LiveView(console) if console.is_terminal else PlainView()
