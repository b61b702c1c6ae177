"""A tracker with a small pipeline, for those who consume."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tracker
from tests.client.support import TWO_SEGMENTS, joined_front
from tracker.client import NodeClient
from tracker.client.embedded import EmbeddedTracker


@pytest.fixture
def running() -> Iterator[EmbeddedTracker]:
    with tracker.embedded() as embedded:
        embedded.register(TWO_SEGMENTS)
        yield embedded


@pytest.fixture
def node(running: EmbeddedTracker) -> NodeClient:
    """Node n, whose front feeds the first segment."""
    return joined_front(running.node("two", "n"))
