"""The view shows min times as dates, on a terminal and elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from examples.flights.data import DAY_NS, YEAR_BEGIN_NS
from examples.flights.view import LiveView, PlainView, Progress, min_time_text
from tracker.core.model.slots import FOREVER

JULY_4 = YEAR_BEGIN_NS // DAY_NS + 184


def progress() -> Progress:
    shown = Progress(phase="replaying", clock_ns=(JULY_4 + 3) * DAY_NS)
    shown.min_times |= {"parse": JULY_4, "dead_letters": FOREVER}
    shown.rows |= {"EWR": 60_000, "aggregate": 150_000}
    shown.open_items |= {"parse": 12}
    return shown


def test_a_min_time_reads_as_the_day_before_which_all_is_done() -> None:
    assert min_time_text(JULY_4) == "2013-07-04"
    assert min_time_text(FOREVER) == "complete"


def test_the_live_view_shows_every_segment_and_front() -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=120, height=40, color_system=None)
    with LiveView(console) as view:
        view.show(progress())
    text = output.getvalue()
    for expected in ("replaying", "2013-07-07", "60,000", "150,000", "2013-07-04", "complete"):
        assert expected in text
    for segment in ("parse", "enrich", "aggregate", "dead_letters"):
        assert segment in text


def test_the_plain_view_is_a_line_for_each_phase(capsys: pytest.CaptureFixture[str]) -> None:
    shown = progress()
    with PlainView() as view:
        view.show(shown)
        view.show(shown)  # too soon for another
        shown.phase = "proving"
        view.show(shown)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["replaying", "proving"]
    assert "parse<2013-07-04" in lines[0] and "published 60000" in lines[0]
