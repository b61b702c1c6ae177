"""What a front passes over after an eviction (`pass_over_late`): nobody looks for it again, and nothing of it is let go of before
that is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fronts.journals import PRUNE_ABOVE_RECORDS
from tests.files.s3 import s3_bucket
from tests.fronts.runs import FileRuns, RangeRuns, Runs, making
from tests.waits import HANG_S
from tracker.core.model.slots import LOWEST_SLOT
from tracker.errors import TrackingError

GRANTED = 100
"""Where the front may label when it comes back, as a slot: far beyond what it had published."""


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with s3_bucket() as bucket:
        yield bucket


@pytest.fixture(params=["here", "in a store"])
def log(bucket: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RangeRuns]:
    root = f"{bucket}/{tmp_path.name}" if request.param == "in a store" else str(tmp_path)
    with making(RangeRuns, root) as make:
        yield make()


def evicted(runs: Runs[Any]) -> None:
    """The last run is gone, and min time went on without it."""
    runs.kill()
    runs.tracker.grant = GRANTED
    runs.now_ns = 10 * (GRANTED + 20)


def published(log: RangeRuns, publish: Callable[[dict[str, int]], object], ends: range) -> None:
    for end in ends:
        log.now_ns += 10
        publish({"a": end})


def test_a_journal_keeps_what_the_tracker_does_not_have(log: RangeRuns) -> None:
    """Min time has passed it, but the next run has to find it: without it the front was refused for good."""
    front = log.start(prune_above_bytes=1)
    published(log, front.publish, range(1, PRUNE_ABOVE_RECORDS))
    assert front.wait_durable(HANG_S)
    log.tracker.holding = True
    published(log, front.publish, range(PRUNE_ABOVE_RECORDS, PRUNE_ABOVE_RECORDS + 3))
    evicted(log)
    log.min_time = GRANTED * 10
    log.tracker.grant = GRANTED * 10
    log.now_ns = 10 * log.tracker.grant
    for number in range(2):
        log.tracker.holding = True
        front = log.start(prune_above_bytes=1, pass_over_late=True)
        assert len(front.front.late_batches) == 3, number
        published(log, front.publish, range(front.ends["a"] + 1, front.ends["a"] + 3))
        log.kill()
    front = log.start(pass_over_late=True)
    assert front.wait_durable(HANG_S)
    slots = [slot for slot, *_ in log.tracker.created]
    assert len(slots) == PRUNE_ABOVE_RECORDS - 1 + 4 and slots == sorted(slots)


def test_a_file_that_was_passed_over_may_be_removed(tmp_path: Path) -> None:
    """Whoever has read it counts late. The front was refused for good, since it looked for the file again."""
    runs = FileRuns(str(tmp_path))
    front = runs.start(format="json")
    assert front.write([{}]) and front.wait_durable(HANG_S)
    runs.tracker.holding = True
    late = front.write([{}])
    assert late is not None
    evicted(runs)
    front = runs.start(format="json", pass_over_late=True)
    assert front.front.late_batches == (1,) and front.wait_durable(HANG_S)
    late.path.unlink()
    runs.tracker.holding = True
    assert front.write([{}])
    runs.kill()
    front = runs.start(format="json")
    assert front.wait_durable(HANG_S)
    assert [unit.slot for unit in runs.tracker.units] == [0, GRANTED + 20]
    runs.close()


def test_who_has_passed_something_over_and_left_does_not_come_to_it_again(log: RangeRuns) -> None:
    front = log.start()
    published(log, front.publish, range(1, 2))
    assert front.wait_durable(HANG_S)
    log.tracker.holding = True
    published(log, front.publish, range(2, 3))
    evicted(log)
    front = log.start(pass_over_late=True)
    front.leave()
    log.tracker.last, log.tracker.left, log.tracker.heartbeat = None, False, LOWEST_SLOT
    log.tracker.node = None
    front = log.start()
    try:
        assert front.wait_durable(HANG_S)
    except TrackingError:
        pytest.fail("it commits what it had passed over")
    assert len(log.tracker.created) == 1
