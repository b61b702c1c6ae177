"""Figures meet or miss their bars, and the page is filled from what a run has written."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from benchmarks.__main__ import SECTIONS
from benchmarks.figures import (
    Bar,
    Curve,
    Figure,
    Skipped,
    interval,
    percentile,
    ratios,
    shown,
    table,
)
from benchmarks.machine import described, machine
from benchmarks.plot import plot
from benchmarks.report import PAGE, filled_page

SLOW = Figure("latency", (4.0, 6.0, 9.0), "ms", "a round trip", Bar(5.0))
FAST = Figure("rate", (1.0, 0.8, 0.9), "", "an echo", Bar(0.7, at_most=False))
CURVE = Curve("cost by nodes", "nodes", "µs", {"µs": [(10.0, 5.0), (1000.0, 6.0)]})


def test_a_bar_holds_for_the_median_alone() -> None:
    assert not SLOW.met
    assert FAST.met
    assert Figure("rate", (0.1, 0.2, 0.9), bar=Bar(0.7, at_most=False)).met is False
    assert Figure("a figure without a bar", (1.0,)).met


def test_a_table_says_what_is_not_met() -> None:
    slow, fast = table([SLOW.as_data(), FAST.as_data()]).splitlines()[2:]
    assert "6.00 ms" in slow and "4.00 – 9.00 (3)" in slow and "**not met**" in slow
    assert "0.9" in fast and "≥ 0.7: met" in fast


def test_a_bar_within_the_interval_is_neither_met_nor_missed() -> None:
    bar = Bar(1.02)
    around = Figure("copy", tuple(0.97 + 0.01 * n for n in range(10)), bar=bar, by_interval=True)
    below = Figure("copy", tuple(0.97 + 0.001 * n for n in range(10)), bar=bar, by_interval=True)
    above = Figure("copy", tuple(1.03 + 0.001 * n for n in range(10)), bar=bar, by_interval=True)
    assert [figure.is_told for figure in (around, below, above)] == [False, True, True]
    rows = table([figure.as_data() for figure in (around, below, above)]).splitlines()[2:]
    verdicts = ("≤ 1.02: cannot tell", "≤ 1.02: met", "≤ 1.02: **not met**")
    assert all(verdict in row for verdict, row in zip(verdicts, rows, strict=True))


def test_one_wild_value_moves_an_interval_little() -> None:
    """Of ten values, 1 to 10, the signed ranks leave out eight of 55 middles at each end."""
    low, high = interval(range(1, 11))
    assert (low, high) == (3.0, 8.0)
    assert interval([*range(1, 24), 1000])[1] < 24
    assert interval([1.0, 3.0]) == (1.0, 3.0)


def test_what_cannot_be_run_has_a_row_with_the_reason() -> None:
    (row,) = table([Skipped("a copy on S3", "there is no go on the PATH").as_data()]).splitlines()[
        2:
    ]
    assert row == "| a copy on S3 | skipped | | | there is no go on the PATH |"


def test_ratios_are_of_pairs() -> None:
    assert ratios([2.0, 9.0], [1.0, 3.0]) == (2.0, 3.0)
    assert percentile(range(1, 101), 99) == 100
    assert [shown(value) for value in (0.0, 0.1234, 1.5, 12.34, 123.4, 12345.6)] == [
        "0", "0.123", "1.50", "12.3", "123", "12,346",
    ]  # fmt: skip


def test_the_page_has_a_block_for_each_benchmark(tmp_path: Path) -> None:
    page = PAGE.read_text()
    facts = machine()
    for section in SECTIONS:
        results = [{"section": section.name, **SLOW.as_data()}]
        curves = [{"section": section.name, **CURVE.as_data()}]
        run = {"machine": facts, "budget": "full", "results": results, "curves": curves}
        filled, names = filled_page(page, [run], tmp_path)
        assert names == {section.name}
        assert described(facts) in filled and "**not met**" in filled
        again, _ = filled_page(filled, [run], tmp_path)
        assert again == filled
    ElementTree.fromstring((tmp_path / "bench-cost-by-nodes.svg").read_text())


def test_figures_without_a_block_are_not_lost_silently(tmp_path: Path) -> None:
    results = [{"section": "unheard_of", **SLOW.as_data()}]
    run = {"machine": machine(), "budget": "full", "results": results, "curves": []}
    with pytest.raises(ValueError, match="no block for unheard_of"):
        filled_page(PAGE.read_text(), [run], tmp_path)


@pytest.mark.parametrize("by_factors", [False, True])
def test_a_plot_is_a_picture(by_factors: bool) -> None:
    lines = {"a": [(10.0, 1.0), (1000.0, 500.0)], "b": [(10.0, 2.0), (1000.0, 2.0)]}
    root = ElementTree.fromstring(plot("title", "x", "y", lines, by_factors))
    lines_drawn = [e for e in root.iter() if e.tag.endswith("polyline")]
    assert len(lines_drawn) == len(lines)
