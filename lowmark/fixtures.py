"""Lowmark's fixtures for pytest, which finds them by the entry point `pytest11` of the package.

Every run of pytest where Lowmark is installed imports this module. So it holds fixtures alone, of which each loads what
it needs when it is used; and it lies here, since a program may have a `tracker` of its own (`lowmark._shadows`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from lowmark import testing


@pytest.fixture
def lowmark_tracker() -> Iterator[testing.EmbeddedTracker]:
    """A tracker in memory for one test, at an address of its own: `lowmark_tracker.target`."""
    with testing.EmbeddedTracker() as tracker:
        yield tracker


@pytest.fixture
def lowmark_clock() -> testing.ManualClock:
    """A clock that stands until the test moves it, for `FrontOptions(clock=lowmark_clock)`."""
    return testing.ManualClock()


@pytest.fixture
def lowmark_front(
    lowmark_tracker: testing.EmbeddedTracker,
) -> Iterator[Callable[[str, str, str], testing.HandFront]]:
    """Makes fronts of `lowmark_tracker` whose labels the test gives: `lowmark_front("orders", "shop", "price")` is the
    front `shop` of pipeline `orders`, which feeds segment `price`."""
    with ExitStack() as made:

        def make(pipeline: str, front: str, segment: str) -> testing.HandFront:
            front_made = testing.HandFront(lowmark_tracker.target, pipeline, front, segment)
            return made.enter_context(front_made)

        yield make
