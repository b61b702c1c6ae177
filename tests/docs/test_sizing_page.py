"""docs/sizing.md: its figures are those that were measured, its example is computed by them, and what a deployment took
is what they foresee."""

from __future__ import annotations

import re

import pytest

from benchmarks.sizing import DEPLOYMENT, LOAD, measured, on_the_page, reckoned
from fronts.front import HEARTBEAT_INTERVAL_MS
from tests.docs.pages import ROOT

PERFORMANCE = (ROOT / "docs" / "performance.md").read_text()
FIGURES = {
    "rate": r"\| ticks of 1 cell, through one process, a second \| ([\d,.]+) /s",
    "notification": r"\| subscribers \| ([\d.]+ µs) a notification",
    "process": r"a process has some ([\d.]+ MB) beside it",
    "pipeline": r"\(([\d.]+ KB) a pipeline",
    "node": r"\| memory of a node at its home, [\d,]+ nodes \| ([\d,]+ bytes)",
    "cell": r"\| memory of an open cell, neighbouring slots \| ([\d.]+ bytes)",
    "record": r"\| bytes of all logs of a tick, .*\|  \| ([\d.]+) with 1,",
}
"""Where performance.md has what one takes."""
VARIES = {"rate": 0.2, "notification": 0.2}
"""By how much of itself a figure may differ that is another one in each run of the benchmarks."""
UNITS = {"µs": 1e-6, "KB": 1e3, "MB": 1e6}


def _figure(pattern: str) -> float:
    (found,) = re.findall(pattern, PERFORMANCE)
    number, _, unit = found.replace(",", "").partition(" ")
    return float(number) * UNITS.get(unit, 1)


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_the_one_that_was_measured(name: str) -> None:
    assert measured()[name] == pytest.approx(_figure(FIGURES[name]), rel=VARIES.get(name))


def test_a_front_promises_as_often_as_it_is_reckoned_to() -> None:
    assert measured()["promises"] == 1000 / HEARTBEAT_INTERVAL_MS


def test_a_segment_takes_what_a_start_with_full_histories_took() -> None:
    pipelines = _figure(r"\| (300) \| [\d.]+ MiB \|")
    resident = _figure(r"\| 300 \| .* \| ([\d,]+) MiB \|")
    assert measured()["segment"] == pytest.approx(resident * 2**20 / (pipelines * 3), rel=0.005)


def test_the_figures_are_all_of_these() -> None:
    assert {*measured()} == {*FIGURES, "promises", "segment"}


def test_the_example_is_computed() -> None:
    have = {name: float(text) for name, text in on_the_page("What you have", 2).items()}
    shown = {name: float(text) for name, text in on_the_page("What comes out", 3).items()}
    expected = reckoned(have, measured())
    assert shown == {name: float(f"{value:.3g}") for name, value in expected.items()}


@pytest.mark.parametrize(
    ("name", "what"), [("ticks", "ticks a second"), ("memory", "resident memory")]
)
def test_a_deployment_took_no_more_than_foreseen_and_no_less_than_a_third(
    name: str, what: str
) -> None:
    took = _figure(rf"\| {what} of {DEPLOYMENT} \| ([\d,.]+)")
    assert took <= reckoned(LOAD, measured())[name] <= 3 * took
