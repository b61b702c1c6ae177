"""Fixtures of the tests of local trackers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tracker
from tracker.client.embedded import EmbeddedTracker
from tracker.core.model import PipelineSpec


@pytest.fixture
def running() -> Iterator[EmbeddedTracker]:
    """A tracker with pipeline `p` of one segment, `a`, for one front."""
    with tracker.embedded() as embedded:
        embedded.register(PipelineSpec("p", ("a",), front_count=1))
        yield embedded
