"""Runs of an incremental job: they cut time without gap and overlap, whatever dies in between."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from tests.client.support import done, promise
from tests.waits import HANG_S
from tracker.client import NodeClient
from tracker.client.embedded import EmbeddedTracker
from tracker.consumers.periods.runs import Run, Runs
from tracker.core.model.slots import FOREVER
from tracker.errors import StateError


def reach(running: EmbeddedTracker, node: NodeClient, slot: int) -> None:
    done(node.commit(promise(slot)))
    assert running.subscriber("two").wait_until(slot, timeout_s=HANG_S)


def runs(running: EmbeddedTracker, record: Path) -> Runs:
    return Runs(running.target, "two", "second", record)


def test_each_run_begins_where_the_last_one_ended(
    running: EmbeddedTracker, node: NodeClient, tmp_path: Path
) -> None:
    taken: list[Run] = []
    for slot in (10, 11, 500):
        reach(running, node, slot)
        with runs(running, tmp_path / "r.json") as job:
            run = job.begin()
            assert run is not None
            taken.append(run)
            job.done(run)
            job.done(run)
            assert job.begin() is None, "nothing more is complete"
    assert [(run.number, run.from_slot, run.to_slot) for run in taken] == [
        (0, 0, 10),
        (1, 10, 11),
        (2, 11, 500),
    ]
    done(node.leave_front("front"))
    assert running.subscriber("two").wait_until(FOREVER, timeout_s=HANG_S)
    with runs(running, tmp_path / "r.json") as job:
        last = job.begin()
        assert last is not None and (last.from_slot, last.to_slot) == (500, FOREVER)
        job.done(last)
        assert job.begin() is None


def test_a_run_that_was_not_done_is_given_out_again_the_same(
    running: EmbeddedTracker, node: NodeClient, tmp_path: Path
) -> None:
    reach(running, node, 10)
    with runs(running, tmp_path / "r.json") as job:
        first = job.begin()
    reach(running, node, 20)
    with runs(running, tmp_path / "r.json") as job:
        again = job.begin()
        assert first is not None and again is not None and again.again and not first.again
        assert (again.number, again.from_slot, again.to_slot) == (0, 0, 10)
        job.done(again)
        following = job.begin()
        assert following is not None
        assert (following.number, following.from_slot, following.to_slot) == (1, 10, 20)
        with pytest.raises(StateError, match="run 0 is not due"):
            job.done(again)


def test_a_run_is_given_out_again_with_the_version_that_it_read(
    running: EmbeddedTracker, node: NodeClient, tmp_path: Path
) -> None:
    versions = iter((7, 9))
    reach(running, node, 10)
    with runs(running, tmp_path / "r.json") as job:
        first = job.begin(lambda: next(versions))
    reach(running, node, 20)
    with runs(running, tmp_path / "r.json") as job:
        again = job.begin(lambda: next(versions))
        assert first is not None and again is not None
        assert (first.version, again.version, again.to_slot) == (7, 7, 10)
        job.done(again)
        following = job.begin(lambda: next(versions))
        assert following is not None and following.version == 9
        job.done(following)
        assert job.begin(lambda: next(versions)) is None, "and no version is asked for"


def test_the_version_is_asked_for_behind_min_time_and_before_the_run_is_recorded(
    running: EmbeddedTracker, node: NodeClient, tmp_path: Path
) -> None:
    """So all that is complete is in it, and a run without it is never given out."""
    reach(running, node, 10)

    def moves_on() -> int:
        reach(running, node, 20)
        return 3

    def away() -> int:
        raise OSError("the table is away")

    with runs(running, tmp_path / "r.json") as job:
        with pytest.raises(OSError, match="away"):
            job.begin(away)
        run = job.begin(moves_on)
        assert run is not None and (run.to_slot, run.version, run.again) == (10, 3, False)


def test_a_run_that_began_without_a_version_gets_one_once_there_is_one(
    running: EmbeddedTracker, node: NodeClient, tmp_path: Path
) -> None:
    """An empty table has none."""
    reach(running, node, 10)
    record = tmp_path / "r.json"
    with runs(running, record) as job:
        empty = job.begin(lambda: None)
        assert empty is not None and empty.version is None
    with runs(running, record) as job:
        found = [job.begin(lambda: 4), job.begin(lambda: 5), job.begin()]
    assert [run and run.version for run in found] == [4, 4, 4]
    state = json.loads(record.read_text())
    state["begun"][-1] = "4"
    record.write_text(json.dumps(state))
    with runs(running, record) as job, pytest.raises(StateError, match="not a record of runs"):
        job.begin()


def test_the_first_run_begins_where_the_job_says(
    running: EmbeddedTracker, node: NodeClient, tmp_path: Path
) -> None:
    reach(running, node, 10)
    with Runs(running.target, "two", None, tmp_path / "r.json", since=7) as job:
        run = job.begin()
        assert run is not None and (run.from_slot, run.to_slot) == (7, 10)


def test_where_the_first_run_begins_is_what_was_said_first_though_nothing_was_complete_then(
    running: EmbeddedTracker, node: NodeClient, tmp_path: Path
) -> None:
    """A job that says `since` now whenever it is started would never have a run."""
    found = []
    for since in (20, 40):
        reach(running, node, since - 15)
        with Runs(running.target, "two", None, tmp_path / "r.json", since=since) as job:
            found.append(job.begin())
    assert found == [None, Run(0, 20, 25)]


def test_a_record_is_used_by_one_process_and_one_job(
    running: EmbeddedTracker, node: NodeClient, tmp_path: Path
) -> None:
    reach(running, node, 10)
    record = tmp_path / "r.json"
    with runs(running, record) as job:
        assert job.begin() is not None
        with pytest.raises(StateError, match="used by another process"):
            runs(running, record).__enter__()
    with (
        Runs(running.target, "two", "first", record) as other,
        pytest.raises(StateError, match="record of runs of two/second"),
    ):
        other.begin()
    for damage in ("{", "[]", "{}"):
        record.write_text(damage)
        with runs(running, record) as job, pytest.raises(StateError, match=r"damaged|not a record"):
            job.begin()


def test_a_record_keeps_a_second_process_out_also_of_a_job_that_was_not_entered(
    running: EmbeddedTracker, node: NodeClient, tmp_path: Path
) -> None:
    """As one in a store does: else both are given the same run."""
    reach(running, node, 10)
    first, second = (runs(running, tmp_path / "r.json") for _ in range(2))
    with closing(first), closing(second):
        run = first.begin()
        with pytest.raises(StateError, match="is used by another process"):
            second.begin()
        assert run is not None
        first.done(run)
