"""Fixtures of the tests of local trackers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import tracker
from tracker.core.model import PipelineSpec

if (
    TYPE_CHECKING
):  # a part of this folder runs where the client is installed alone (`make install-matrix`)
    from tracker import EmbeddedTracker


@pytest.fixture
def running() -> Iterator[EmbeddedTracker]:
    """A tracker with pipeline `p` of one segment, `a`, for one front."""
    with tracker.embedded() as embedded:
        embedded.register(PipelineSpec("p", ("a",), front_count=1))
        yield embedded
