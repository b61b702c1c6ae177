"""A process that has time to spare commits at once; one that has none gathers first."""

from __future__ import annotations

import pytest

from tracker.service import pacing
from tracker.service.pacing import BUSY_SHARE, GATHER_S, HORIZON_S, Pace


class Clocks:
    """Stands for the wall's clock, and for that of the loop's thread."""

    def __init__(self) -> None:
        self.wall_s = self.busy_s = 100.0

    def monotonic(self) -> float:
        return self.wall_s

    def thread_time(self) -> float:
        return self.busy_s

    def pass_by(self, wall_s: float, busy_share: float) -> None:
        self.wall_s += wall_s
        self.busy_s += wall_s * busy_share


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    clocks = Clocks()
    monkeypatch.setattr(pacing, "time", clocks)
    return clocks


@pytest.mark.parametrize(
    ("share", "pause_s"),
    [(0.0, 0.0), (BUSY_SHARE - 0.05, 0.0), (BUSY_SHARE + 0.05, GATHER_S), (1.0, GATHER_S)],
)
def test_only_a_busy_process_gathers(clocks: Clocks, share: float, pause_s: float) -> None:
    pace = Pace()
    clocks.pass_by(2 * HORIZON_S, share)
    assert pace.pause_s() == pause_s


def test_an_announcement_that_follows_a_tick_at_once_does_not_look_busy(clocks: Clocks) -> None:
    pace = Pace()
    for _ in range(10):
        clocks.pass_by(2 * HORIZON_S, 0.1)
        assert pace.pause_s() == 0.0
        clocks.pass_by(0.0003, 1.0)
        assert pace.pause_s() == 0.0


def test_what_counts_is_the_time_since_it_was_looked_at_last(clocks: Clocks) -> None:
    pace = Pace()
    clocks.pass_by(60.0, 0.0)  # long ago it had nothing to do
    pace.pause_s()
    clocks.pass_by(2 * HORIZON_S, 0.9)
    assert pace.pause_s() == GATHER_S
    clocks.pass_by(1.0, 0.1)
    assert pace.pause_s() == 0.0
