"""A pipeline is restarted over a group that shares partitions: what they had labelled from its first slot on is committed anew
before min time can pass it, also of a partition that is listed no more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import tracker
from fronts.front import FrontOptions
from fronts.groups import PartitionGroup
from tests.fronts.support import consume_cells, new_reader, reached
from tests.waits import until
from tracker import EmbeddedTracker
from tracker.core.model import PipelineSpec
from tracker.core.model.ack_values import range_value

SPEC = PipelineSpec("p", ("in",), open=True, slack_ns=1_000)
FIRST = 1_020


class Log:
    """A log by hand, which a group labels."""

    def __init__(self, embedded: EmbeddedTracker, journals: Path) -> None:
        self.embedded, self.journals, self.slot = embedded, journals, 1_000
        self.ends = {"a": 0, "b": 0}

    def member(self, name: str) -> PartitionGroup:
        return PartitionGroup(
            self.embedded.target, "p", "g", "in", self.journals,
            partitions=lambda: sorted(self.ends), ends=self.ends_of,
            options=FrontOptions(
                member=name, poll_interval_ms=2, heartbeat_interval_ms=2,
                clock=lambda: self.slot * SPEC.slack_ns,
            ),
        )  # fmt: skip

    def ends_of(self, partitions: Sequence[str]) -> dict[str, int]:
        return {name: self.ends[name] for name in partitions}

    def waited_for(self) -> list[str]:
        return sorted(front.front for front in self.embedded.admin().pipeline("p").state.fronts)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with tracker.embedded() as embedded:
        embedded.register(SPEC)
        yield Log(embedded, tmp_path)


@pytest.fixture
def labelled(log: Log) -> Log:
    """Three records of each partition are labelled FIRST, and not consumed."""
    label_at_first(log, {"a": 3, "b": 3})
    return log


def label_at_first(log: Log, ends: dict[str, int]) -> None:
    """A member labels what comes up to these ends FIRST, and ends without leaving."""
    with log.member("m") as group:
        until(lambda: group.held == ["a", "b"])
        log.slot = FIRST
        reached(log.embedded, FIRST)
        log.ends = ends
        fronts = group._fronts  # noqa: SLF001
        until(lambda: all(fronts[name].ends == {name: end} for name, end in ends.items() if end))


def restarted(log: Log) -> None:
    with log.embedded.admin() as admin:
        assert admin.restart("p", 0, FIRST) == (1, FIRST)
    log.slot = FIRST + 100


def are_waited_for(log: Log, *partitions: str) -> None:
    reader = new_reader(log.embedded)
    for partition in partitions:
        with log.embedded.subscriber("p") as subscriber:
            assert not subscriber.wait_until(FIRST + 1, timeout_s=1), partition  # expires: unread
        consume_cells(reader, (FIRST, range_value(partition, 0, 3), 3))
    reached(log.embedded, log.slot)
    with log.embedded.admin() as admin:
        assert admin.pipeline("p").state.late_items == 0


def test_each_partition_is_waited_for(labelled: Log) -> None:
    restarted(labelled)
    with labelled.member("n"):
        are_waited_for(labelled, "a", "b")


def test_a_partition_that_has_left_is_waited_for(labelled: Log) -> None:
    del labelled.ends["b"]
    with labelled.member("m"):
        until(lambda: labelled.waited_for() == ["g/a"])
    restarted(labelled)
    with labelled.member("n"):
        are_waited_for(labelled, "a", "b")


def test_a_partition_is_waited_for_that_is_taken_after_another_one(log: Log) -> None:
    """The first one has nothing from the first slot on, and promises as soon as it is granted."""
    label_at_first(log, {"a": 0, "b": 3})
    restarted(log)
    with log.member("n") as group:
        until(lambda: group.held == ["a", "b"])
        are_waited_for(log, "b")
