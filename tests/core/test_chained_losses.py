"""Shards that are lost one after the other amid all else: some seeded schedules; more by `python -m tests.core.chained_losses FROM:TO`."""

from __future__ import annotations

import pytest

from tests.core.chained_losses import failing

SEEDS = 120
PIECES = 4


@pytest.mark.parametrize("piece", range(PIECES))
def test_all_that_are_left_go_on_and_nothing_goes_back_or_is_announced_early(piece: int) -> None:
    assert [*failing(range(piece, SEEDS, PIECES))] == []
