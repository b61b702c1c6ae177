"""The offsets of a batch that writes to a topic are there, and a listing of a store that lags does not show them yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark.test_topic_sink import OUT, P0, Query, Run, created
from tracker.core.model.ack_values import range_value
from tracker.files import Files


class Unlisted:
    """Files of which one is there, and in no listing."""

    MAY_LAG = True

    def __init__(self, files: Files, path: Path) -> None:
        self._files, self._path = files, path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def names(self, directory: str) -> list[str]:
        found = self._files.names(directory)
        return [name for name in found if f"{directory}/{name}" != str(self._path)]


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return Query(tmp_path)


def run_on_store_that_lags(query: Query, batch: int) -> Run:
    run = query.run()
    checkpoint = run.ticks.checkpoint
    files: Any = Unlisted(checkpoint.files, query.root / "offsets" / str(batch))
    checkpoint.files = files
    return run


def test_what_it_has_written_has_no_later_slot_than_its_own(query: Query) -> None:
    """What the batch before has left is covered together with that: min time passed what the batch had yet to count."""
    query.slots = {0: 50, 1: 30}
    run = run_on_store_that_lags(query, 1)
    query.over(0, 1, 3)
    query.plan(1, 2)
    query.write(2)
    assert created(run.tick(0)) == [(OUT, 30, range_value(P0, 0, 5), 5)]


def test_what_it_has_written_is_not_nobodys(query: Query) -> None:
    """The query passed for one that is at rest: no reader waited for the records, and the batch created nothing."""
    query.slots = {0: 50, 1: 60}
    run = run_on_store_that_lags(query, 1)
    query.over(0, 1, 3)
    run.tick(0)
    query.plan(1, 2)
    query.write(2)
    assert not run.sink.sweep(0)
    query.commit(1)
    assert created(run.tick(1)) == [(OUT, 60, range_value(P0, 3, 5), 2)]
