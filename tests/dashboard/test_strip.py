"""The slots that the strip shows: from a little before min time to the newest promise, never far beyond."""

from __future__ import annotations

import pytest

from tracker.client import PipelineInfo
from tracker.core.insight.describe import FrontDescription, PipelineDescription
from tracker.core.model import PipelineSpec
from tracker.core.model.slots import FOREVER, LOWEST_SLOT
from tracker.dashboard.query import STRIP_BINS, strip_span


def info(low: int, promise: int) -> PipelineInfo:
    front = FrontDescription("n", "f", "a", promise, 0, True)
    state = PipelineDescription(low, low == FOREVER, True, (), (front,), (), 0)
    return PipelineInfo(PipelineSpec("p", ("a",), fronts=("f",)), state)


@pytest.mark.parametrize("low", [0, 177_237_750_312, LOWEST_SLOT, -5_000])
@pytest.mark.parametrize("ahead", [0, 1, 100, 121, 160, 10**6, 10**12])
def test_it_ends_at_the_newest_promise_within_a_bin(low: int, ahead: int) -> None:
    promise = low + ahead + (1 if low == LOWEST_SLOT else 0)
    span = strip_span(info(low, promise))
    assert span is not None
    first, to, bins = span
    assert LOWEST_SLOT <= first <= low <= promise < to
    assert bins <= STRIP_BINS and (to - first) % bins == 0
    width = (to - first) // bins
    assert to - (promise + 1) <= max(width, STRIP_BINS)


def test_there_is_none_where_nothing_is_promised_or_all_is_complete() -> None:
    assert strip_span(info(5, LOWEST_SLOT)) is None
    assert strip_span(info(FOREVER, 5)) is None
