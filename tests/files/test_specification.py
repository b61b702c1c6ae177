"""What is asked of files, of every store that a program without Spark reaches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.files.specification import *  # noqa: F403
from tests.files.stores import EXCLUSIVE, STORES, Store


@pytest.fixture(params=sorted(STORES))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with STORES[request.param](tmp_path) as opened:
        yield opened


@pytest.fixture(params=EXCLUSIVE)
def exclusive(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with STORES[request.param](tmp_path) as opened:
        yield opened
