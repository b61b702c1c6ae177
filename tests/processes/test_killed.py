"""Trackers, fronts and subscribers as processes, killed with SIGKILL and started again in the middle.

Two fronts publish files all the time, a reader consumes them, a subscriber listens. Whoever is
killed, nothing is announced too early, nothing goes back, and in the end all of it is complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.children import now_slot
from tests.processes.everything import MORE_FILES, PIPELINE, Everything, is_reached
from tests.processes.reading import Reader


@pytest.fixture
def everything(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Everything]:
    everything = Everything(request.param, tmp_path)
    reader = Reader(everything.target, PIPELINE, everything.files)
    try:
        everything.start(reader)
        yield everything
    finally:
        reader.close()
        everything.discard()


@pytest.mark.parametrize("everything", [3], ids=["three shards"], indirect=True)
def test_whoever_is_killed_nothing_is_premature_and_nothing_is_stuck(
    everything: Everything,
) -> None:
    everything.goes_on()
    for victims in (
        [everything.listener],
        [everything.fronts[0]],
        [everything.shards[-1]],
        [*everything.shards, *everything.fronts, everything.listener],
    ):
        for process in victims:
            process.kill()
        for process in victims:
            process.start()
        everything.goes_on()
    everything.finish()
    everything.check()


@pytest.mark.parametrize("everything", [2], ids=["two shards"], indirect=True)
def test_min_time_stands_still_while_a_shard_or_a_front_is_away(everything: Everything) -> None:
    everything.goes_on()
    for victim in (everything.fronts[1], everything.shards[0]):
        victim.kill()
        killed = now_slot() + 1
        everything.reader.until_more(MORE_FILES)  # others go on meanwhile, for nothing
        assert not any(is_reached(line, killed) for _, line in everything.listener.lines)
        victim.start()
        everything.hears_of(killed)
    everything.finish()
    everything.check()
