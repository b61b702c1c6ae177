"""Batches of tracked and untracked runs are compared by their numbers."""

from __future__ import annotations

import pytest

from benchmarks.added import CORES
from benchmarks.bars import BARS
from benchmarks.spark_s3 import FilesCopy
from benchmarks.store_pairs import BATCHES, Cost, batch_seconds, figures


def reports(*seconds: int, rows: int = 1) -> list[dict[str, object]]:
    """Of batches that have begun in these seconds."""
    return [
        {"timestamp": f"2026-03-01T10:00:{second:02}.500Z", "numInputRows": rows}
        for second in seconds
    ]


def test_a_batch_lasts_until_the_next_one_begins() -> None:
    """The first has the query's beginning in it, and behind the last none begins."""
    began = [0, 9, *range(10, 10 + BATCHES - 2)]
    assert batch_seconds([*reports(*began), *reports(59, rows=0)]) == (1.0,) * (BATCHES - 2)


def test_a_run_of_other_batches_is_no_run() -> None:
    with pytest.raises(AssertionError, match="has reported 3 batches"):
        batch_seconds(reports(1, 2, 3))


def test_what_tracking_adds_is_told_apart() -> None:
    plain = [Cost(10.0, 8.0, (1.0, 2.0), 1000, 0.1), Cost(10.0, 8.0, (4.0, 4.0), 1000, 0.2)]
    tracked = [Cost(11.0, 8.8, (1.5, 2.0), 1080, 0.4), Cost(10.0, 8.0, (4.0, 2.0), 1100, 0.3)]
    added, batches, whole, used, requests, more = figures(FilesCopy, plain, tracked)
    assert added.bar == BARS["copy to S3 by units"]
    usual_s = 3.0
    assert added.values == pytest.approx(
        [1 + each / BATCHES / CORES / usual_s for each in (0.3, 0.1)]
    )
    assert batches.values == (1.25, 0.75), "one of a pair: its batches share what else was done"
    assert whole.values == (1.1, 1.0)
    assert used.values == pytest.approx((1.1, 1.0))
    assert requests.values == (1000 / BATCHES, 1000 / BATCHES)
    assert more.values == (80 / BATCHES, 100 / BATCHES)
