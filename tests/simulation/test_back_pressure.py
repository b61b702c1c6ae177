"""A simulated process is read no further than a served one, so what waits for its store follows from its limits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests import inside
from tests.simulation.checkers import Failure, check_bounds
from tests.simulation.plan import MS
from tests.simulation.processes import Running
from tests.simulation.simulator import Simulator
from tracker.core.log import Entries, Frame, FrameArrived, PipelineRegistered, Record
from tracker.core.model import PipelineSpec

LIMIT, FRAMES = 6, 40


class Stalled(Simulator):
    """A process of two, whose store makes something durable by the test's hand alone."""

    def __init__(self) -> None:
        super().__init__(0)
        config = replace(self.plan.config, max_backlog_records=LIMIT)
        self.plan = replace(self.plan, config=config)
        self.process = self.start_process(self.shards[0])

    def _commit_soon(self, running: Running, delay_ns: int = 0) -> None:
        running.committing = True

    def _durable(self, shard: int, record: Record) -> None:
        """No home has logged what the test makes up."""

    def commit(self) -> None:
        self._commit(self.process)

    @property
    def waiting(self) -> int:
        return len(inside.unasked_records(self.process.process))


@pytest.fixture
def tracker() -> Stalled:
    return Stalled()


@pytest.fixture
def frames() -> list[FrameArrived]:
    """What another shard says while the store stalls: each brings a record."""
    specs = [PipelineSpec(f"p{number}", ("work",), front_count=1) for number in range(FRAMES)]
    told = [Entries(first, (PipelineRegistered(spec),)) for first, spec in enumerate(specs, 1)]
    return [FrameArrived(Frame(1, 1, entries)) for entries in told]


@pytest.mark.parametrize("pauses", [False, True], ids=["stalls", "stands still"])
def test_a_process_is_read_no_further_while_too_much_waits_for_its_store(
    tracker: Stalled, frames: list[FrameArrived], *, pauses: bool
) -> None:
    """However much has come at once, as when it goes on after a pause."""
    if pauses:
        tracker.pause_process(tracker.process, 20 * MS)
    for frame in frames:
        tracker.handle(tracker.process, frame)
    if pauses:
        assert not tracker.waiting
        tracker.resume(tracker.process)
    assert tracker.waiting == LIMIT
    for taken in range(LIMIT, FRAMES, LIMIT):
        assert tracker.counts["full_backlogs"] == FRAMES - LIMIT
        assert len(tracker.process.waiting_frames) == FRAMES - taken
        tracker.commit()
    tracker.commit()
    assert len(inside.pipelines(tracker.process.process)) == FRAMES, "nothing of it is lost"


def test_a_process_that_is_read_on_holds_too_much(
    tracker: Stalled, frames: list[FrameArrived]
) -> None:
    process = tracker.process.process
    for frame in frames[:LIMIT]:
        process.handle(frame, tracker.now)
    check_bounds(process)
    for frame in frames[LIMIT:]:
        process.handle(frame, tracker.now)
    with pytest.raises(Failure, match=f"{FRAMES} records that nobody has asked for"):
        check_bounds(process)
