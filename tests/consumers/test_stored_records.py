"""Records of consumers in an object store, where nothing is locked."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import tracker
from tests.consumers.exactly import run_exactly
from tests.files.s3 import s3_bucket
from tests.files.stores import EXCLUSIVE
from tests.files.stores import STORES as OPENED
from tests.waits import HANG_S
from tracker.client.embedded import EmbeddedTracker
from tracker.consumers.durable import StateFile, StoredState, state_at
from tracker.consumers.periods.cut import Period
from tracker.consumers.periods.folders import PartitionMark
from tracker.consumers.periods.follow import Periods
from tracker.consumers.periods.once import Call
from tracker.consumers.periods.runs import Runs
from tracker.core.model import Heartbeat, PipelineSpec, TickContent
from tracker.errors import StateError
from tracker.files import STORES, AwayError, Files, Stores

TAKERS = 6


@pytest.fixture(params=EXCLUSIVE)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Stores]]:
    """A record's location, and what reaches it."""
    with OPENED[request.param](tmp_path) as opened:

        class One(Stores):
            def files(self, where: str) -> Files:
                return opened.files

        yield opened.at("job/runs.json"), One()


def test_a_record_is_read_as_it_was_written_last(stored: tuple[str, Stores]) -> None:
    record = StoredState(*stored)
    assert record.read() is None
    for number in range(5):
        record.write({"number": number})
        assert record.read() == {"number": number}
    again = StoredState(*stored)
    again.hold()
    assert again.read() == {"number": 4}


def test_whoever_comes_later_takes_over_and_the_one_before_is_refused(
    stored: tuple[str, Stores],
) -> None:
    first, second = StoredState(*stored), StoredState(*stored)
    first.hold()
    first.write({"number": 0})
    second.hold()
    assert second.read() == {"number": 0}
    with pytest.raises(StateError, match="taken over by another process"):
        first.write({"number": 1})
    with pytest.raises(StateError, match="taken over by another process"):
        first.read()
    second.write({"number": 2})
    with pytest.raises(StateError):
        first.write({"number": 1})
    assert second.read() == {"number": 2}


def test_a_write_whose_answer_was_lost_is_its_own(
    stored: tuple[str, Stores], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store goes away when it has taken the record, and is back when its process tries again."""

    def away(files: Files, directory: str) -> list[str]:
        raise AwayError(f"{directory}: the store did not answer")

    record = StoredState(*stored)
    record.hold()
    with monkeypatch.context() as patched:
        patched.setattr(Files, "names", away)
        with pytest.raises(StateError, match="did not answer"):
            record.write({"number": 0})
    assert record.read() == {"number": 0}
    record.write({"number": 1})
    assert record.read() == {"number": 1}


def test_one_that_was_away_for_long_does_not_bring_back_an_old_version(
    stored: tuple[str, Stores],
) -> None:
    """The number that it would write has been used, and deleted since."""
    first, second = StoredState(*stored), StoredState(*stored)
    first.write({"number": 0})
    for number in range(1, 6):
        second.write({"number": number})
    with pytest.raises(StateError, match="taken over"):
        first.write({"number": 99})
    assert second.read() == {"number": 5}
    third = StoredState(*stored)
    assert third.read() == {"number": 5}


def test_of_those_who_write_at_once_one_goes_on(stored: tuple[str, Stores]) -> None:
    def write(taker: int) -> bool:
        record = StoredState(*stored)
        try:
            record.write({"number": taker})
            record.write({"number": taker})
        except StateError:
            return False
        return True

    with ThreadPoolExecutor(TAKERS) as pool:
        went_on = list(pool.map(write, range(TAKERS)))
    last = StoredState(*stored).read()
    assert last is None or went_on[last["number"]] or not any(went_on)


def test_a_path_is_a_file_with_a_lock(tmp_path: Path) -> None:
    assert isinstance(state_at(tmp_path / "runs.json"), StateFile)
    used = StateFile(tmp_path / "used.json")
    assert used.read() is None
    used.hold()  # it has it
    used.release()
    with pytest.raises(StateError, match="nosuch"):
        state_at("nosuch://bucket/runs.json")


# --- over a tracker -------------------------------------------------------------------------------


@pytest.fixture
def running() -> Iterator[EmbeddedTracker]:
    with tracker.embedded() as embedded:
        embedded.register(PipelineSpec("p", ("load",), fronts=("front",)))
        yield embedded


def promise(running: EmbeddedTracker, slot: int) -> None:
    with running.node("p", "front") as front:
        front.join()
        front.join_front("front", "load")
        front.commit(TickContent(heartbeats=(Heartbeat("front", slot),))).result(HANG_S)
    with running.subscriber("p") as subscriber:
        assert subscriber.wait_until(slot, "load", HANG_S)


def test_runs_and_periods_and_markers_may_be_in_a_bucket(running: EmbeddedTracker) -> None:
    with s3_bucket() as bucket:
        promise(running, 20)
        with Runs(running.target, "p", "load", f"{bucket}/runs.json", since=0) as runs:
            run = runs.begin()
            assert run is not None and (run.from_slot, run.to_slot) == (0, 20)
        with Runs(running.target, "p", "load", f"{bucket}/runs.json") as runs:
            again = runs.begin()
            assert again is not None and again.again and again.number == run.number
            runs.done(again)
            assert runs.begin() is None
        record = f"{bucket}/periods.json"
        with Periods(running.target, "p", "load", "100ms", record, since=0) as periods:
            mark = PartitionMark(periods.cut, f"{bucket}/table/slot={{slot}}")
            run_exactly(2, periods, mark)
        files = STORES.files(bucket)
        assert files.walk(f"{bucket}/table") == ["slot=0/_SUCCESS", "slot=10/_SUCCESS"]


def test_whoever_had_the_record_before_does_nothing_more(running: EmbeddedTracker) -> None:
    """Nothing is locked: the record is asked before each period."""
    with s3_bucket() as bucket:
        promise(running, 30)
        record = f"{bucket}/periods.json"
        first: list[int] = []
        second: list[int] = []

        def take_over(period: Period) -> None:
            first.append(period.from_slot)
            with Periods(running.target, "p", "load", "100ms", record) as other:
                taking = Call(lambda period: second.append(period.from_slot))
                run_exactly(3, other, taking)

        with Periods(running.target, "p", "load", "100ms", record, since=0) as periods:
            for _ in range(2):
                with pytest.raises(StateError, match="taken over by another process"):
                    periods.run(Call(take_over), timeout_s=HANG_S)
        assert (first, second) == ([0], [0, 10, 20])
