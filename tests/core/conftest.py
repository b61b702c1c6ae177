"""What tests of the core are run with: most promises hold for any number of shards."""

from __future__ import annotations

import pytest


@pytest.fixture(params=[1, 2, 3])
def shards(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


@pytest.fixture(params=[False, True], ids=["from the log", "from a snapshot"])
def snapshot(request: pytest.FixtureRequest) -> bool:
    """Whether a process comes back from a snapshot."""
    with_snapshot: bool = request.param
    return with_snapshot
