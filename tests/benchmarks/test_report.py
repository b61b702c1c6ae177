"""Figures meet or miss their bars, and the page is filled from what a run has written."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from benchmarks.__main__ import SECTIONS, explained
from benchmarks.bars import BARS, BOUNDED
from benchmarks.figures import Budget, Curve, Figure, Skipped, are_told, percentile, shown, table
from benchmarks.machine import described, machine
from benchmarks.pairs import Bar, Verdict, ratios
from benchmarks.plot import plot
from benchmarks.report import PAGE, filled_page

SLOW = Figure("latency", (6.0, 7.0, 9.0, 6.5, 7.0, 7.5, 8.0), "ms", "a round trip", Bar(5.0))
FAST = Figure("rate", (1.0, 0.8, *[0.9] * 5), "", "an echo", Bar(0.7, at_most=False))
CURVE = Curve("cost by nodes", "nodes", "µs", {"µs": [(10.0, 5.0), (1000.0, 6.0)]})


def test_a_table_says_what_is_not_met() -> None:
    slow, fast = table([SLOW.as_data(), FAST.as_data()]).splitlines()[2:]
    assert "7.00 ms" in slow and "6.00 – 9.00 (7); 6.00 – 9.00" in slow and "**not met**" in slow
    assert "0.9" in fast and "≥ 0.7: met" in fast


def test_a_bar_within_the_interval_is_neither_met_nor_missed() -> None:
    bar = Bar(1.02)
    around = Figure("copy", tuple(0.97 + 0.01 * n for n in range(10)), bar=bar)
    below = Figure("copy", tuple(0.97 + 0.001 * n for n in range(10)), bar=bar)
    above = Figure("copy", tuple(1.03 + 0.001 * n for n in range(10)), bar=bar)
    rows = table([figure.as_data() for figure in (around, below, above)]).splitlines()[2:]
    verdicts = ("≤ 1.02: cannot tell", "≤ 1.02: met", "≤ 1.02: **not met**")
    assert all(verdict in row for verdict, row in zip(verdicts, rows, strict=True))
    assert [are_told([figure]) for figure in (around, below, above)] == [False, True, True]
    assert Figure("a figure without a bar", (1.0,)).verdict is Verdict.MET


def test_few_rounds_tell_nothing_but_a_count_needs_one() -> None:
    bar = Bar(5.0)
    assert Figure("latency", (1.0, 2.0, 3.0), bar=bar).verdict is Verdict.CANNOT_TELL
    assert "interval" not in Figure("latency", (1.0, 2.0, 3.0), bar=bar).as_data()
    assert Figure("messages", (5.0,), bar=bar, exact=True).verdict is Verdict.MET
    assert Figure("messages", (5.1,), bar=bar, exact=True).verdict is Verdict.NOT_MET


def test_the_least_disturbed_rounds_decide_where_they_are_told_apart() -> None:
    """Their median is beyond the bar, and the interval spans it."""
    rounds = tuple(7.8 + 0.1 * n for n in range(7))
    figure = Figure("latency", rounds, "ms", bar=Bar(8.0), least=min(rounds))
    assert figure.verdict is Verdict.MET
    assert (
        Figure("latency", rounds, "ms", bar=Bar(7.7), least=min(rounds)).verdict is Verdict.NOT_MET
    )
    (row,) = table([figure.as_data()]).splitlines()[2:]
    assert "7.80 – 8.40 (7); undisturbed 7.80" in row and "≤ 8.00 ms: met" in row


def test_a_rule_of_its_own_may_judge_a_figure() -> None:
    unsteady = Figure("worst second", (1.0,), bar=Bar(1.5), judged=Verdict.CANNOT_TELL)
    assert "≤ 1.50: cannot tell" in table([unsteady.as_data()])


@pytest.mark.parametrize(
    ("bar", "verdict", "quick", "standard"),
    [
        ("failover", Verdict.MET, True, True),
        ("failover", Verdict.CANNOT_TELL, True, False),
        ("failover", Verdict.NOT_MET, False, False),
        ("move, pause", Verdict.NOT_MET, True, True),
    ],
)
def test_what_is_not_met_is_explained_or_fails_the_run(
    bar: str, verdict: Verdict, quick: bool, standard: bool
) -> None:
    figure = Figure("figure", (1.0,), bar=BARS[bar], judged=verdict).as_data()
    found = [explained(figure, budget) for budget in (Budget.QUICK, Budget.STANDARD, Budget.FULL)]
    assert found == [quick, standard, standard]
    assert BARS.keys() >= BOUNDED


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
