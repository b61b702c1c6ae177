"""docs/metrics.md lists every metric, as the list in the code has it."""

from __future__ import annotations

from scripts.metrics_page import PAGE, written
from tracker.metrics import exposition
from tracker.service.http import metrics


def test_the_tables_are_fresh() -> None:
    assert PAGE.read_text() == written(PAGE.read_text()), "run python -m scripts.metrics_page"


def test_the_limits_are_those_of_the_code() -> None:
    page = " ".join(PAGE.read_text().split())
    assert f"{metrics.MAX_PIPELINES:,} pipelines" in page
    assert f"{metrics.MAX_SEGMENTS:,} segments" in page
    assert f"{metrics.MAX_FRONTS:,} fronts" in page
    assert f"at most {exposition.MAX_CONNECTIONS} connections" in page
    assert exposition.LEAST_INTERVAL_S == 1 / 5
