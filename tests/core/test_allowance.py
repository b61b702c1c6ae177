"""A few times in a row at once, in the long run once a period."""

from __future__ import annotations

import pytest

from tracker.core.model.allowance import Allowance

PERIOD = 10


def taken(burst: int, asked_every: int, until: int) -> list[int]:
    """When something was done by whoever asks so often."""
    allowance, moments = Allowance(burst), []
    for now in range(0, until, asked_every):
        if allowance.free_ns(PERIOD) <= now:
            allowance.spend(now, PERIOD)
            moments.append(now)
    return moments


@pytest.mark.parametrize("burst", [1, 2, 4])
def test_a_row_goes_at_once_and_then_each_waits_its_period(burst: int) -> None:
    moments = taken(burst, 1, 200)
    assert moments[:burst] == [*range(burst)]
    assert moments[burst : burst + 3] == [PERIOD * n for n in range(1, 4)]


@pytest.mark.parametrize("burst", [1, 2, 4])
def test_what_comes_less_often_than_once_a_period_never_waits(burst: int) -> None:
    assert taken(burst, PERIOD, 500) == [*range(0, 500, PERIOD)]


def test_what_is_done_unasked_delays_no_more_than_a_burst() -> None:
    allowance = Allowance(4)
    for _ in range(1_000):
        allowance.spend(100, PERIOD)
    assert allowance.free_ns(PERIOD) == 100 + PERIOD


def test_what_is_done_unasked_counts_so_many_times_beyond_a_burst() -> None:
    allowance = Allowance(4, beyond=3)
    for _ in range(1_000):
        allowance.spend(100, PERIOD)
    assert allowance.free_ns(PERIOD) == 100 + 4 * PERIOD
