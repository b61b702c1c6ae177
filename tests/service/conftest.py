"""A tracker with a small pipeline, for the tests that need no other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import tracker
from tests.client.support import TWO_SEGMENTS

if TYPE_CHECKING:
    from tracker import EmbeddedTracker


@pytest.fixture
def running() -> Iterator[EmbeddedTracker]:
    with tracker.embedded() as running:
        running.register(TWO_SEGMENTS)
        yield running
