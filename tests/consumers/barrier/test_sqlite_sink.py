"""The sink in an SQLite file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.consumers.barrier.conformance import BARRIER, OrderedSinkSuite, Place
from tracker.consumers.barrier.sqlite import ordered_rows
from tracker.consumers.reorder import Released


class SqlitePlace:
    """A file."""

    kind = "sqlite"
    KILLS = 5

    def __init__(self, path: Path) -> None:
        self.where: Mapping[str, str] = {"path": str(path)}

    def rows(self, barrier: str = BARRIER) -> list[Released]:
        return ordered_rows(self.where["path"], barrier)


class TestSqliteSink(OrderedSinkSuite):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        return SqlitePlace(tmp_path / "sink.db")
