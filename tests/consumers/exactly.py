"""Periods that are done until there are so many: when the last is there, nobody announces."""

from __future__ import annotations

from tests.waits import until
from tracker.consumers.periods.follow import Periods
from tracker.consumers.periods.once import Action


def run_exactly(count: int, periods: Periods, *actions: Action) -> None:
    """Runs the actions until `count` periods are done, and there is no other one a moment later."""
    done = 0

    def are_done() -> bool:
        nonlocal done
        done += periods.run(*actions, timeout_s=0.2)  # expires: there is no other one yet
        return done >= count

    until(are_done, lambda: f"{done} of {count} periods are done")
    assert done == count
