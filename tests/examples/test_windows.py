"""The windows example: a report that starts at min time reads every hour whole, though the driver is killed."""

from __future__ import annotations

import json
import subprocess
import sys

from examples.windows.flights import BEGIN, Count, Replayed
from examples.windows.run import Report
from scripts.summary import BUILD
from tests.docs.pages import ROOT
from tests.waits import PROGRAM_S

BURSTS = 2


def test_the_report_misses_no_hour() -> None:
    # Without holds it does: `make example-windows` shows by how many, with a driver more than a test needs.
    asked = ["--state", "hold", "--bursts", str(BURSTS)]
    ran = subprocess.run(
        [sys.executable, "-m", "examples.windows", *asked], check=False, cwd=ROOT,
        capture_output=True, text=True, timeout=PROGRAM_S,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert ran.stdout.splitlines()[-1].startswith("example-windows: OK windows=")
    assert "hold: the driver is killed" in ran.stdout
    report = json.loads((BUILD / "example-windows.json").read_text())
    assert (report["missed"], report["incomplete"], report["unread"]) == (0, 0, 0)
    assert report["waiting"] == len(Replayed(BURSTS).waiting) > 0
    assert report["hold"]["waits"], "explain says what the hours wait for"


def report_of(found: dict[tuple[int, str], list[Count]]) -> Report:
    """A report that has read all hours."""
    replayed = Replayed(2)
    return Report(replayed, found, replayed.hours.stop)


def test_a_report_is_held_against_the_flights_themselves() -> None:
    expected = Replayed(2).expected
    whole = {window: [count] for window, count in expected.items()}
    (first, count), *_ = whole.items()
    assert sum(c.flights for c in expected.values()) == len(Replayed(2).flights) > 100
    sound = report_of(whole)
    assert (sound.missed(), sound.incomplete(), sound.unread()) == ([], [], [])
    assert report_of({**whole, first: []}).missed() == [first]
    assert report_of({**whole, first: [*count, *count]}).incomplete() == [first]
    fewer = Count(count[0].flights - 1, count[0].cancelled)
    assert report_of({**whole, first: [fewer]}).incomplete() == [first]


def test_what_the_watermark_has_passed_must_be_read() -> None:
    report = Report(Replayed(3), {}, BEGIN)
    assert report.missed() == []
    waiting = {*report.replayed.waiting}
    assert {*report.unread()} == report.replayed.expected.keys() - waiting
    assert waiting and report.unread()
