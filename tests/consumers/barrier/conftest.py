"""A tracker with one segment, `deliver`, whose units a barrier takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tracker
from tests.consumers.barrier.feeding import SPEC, Feeder
from tracker.client.embedded import EmbeddedTracker


@pytest.fixture
def running() -> Iterator[EmbeddedTracker]:
    with tracker.embedded() as embedded:
        embedded.register(SPEC)
        yield embedded


@pytest.fixture
def feeder(running: EmbeddedTracker, tmp_path: Path) -> Iterator[Feeder]:
    with Feeder(running.target, tmp_path / "out") as feeder:
        yield feeder
