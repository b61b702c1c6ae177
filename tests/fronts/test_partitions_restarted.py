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
    """Three records of each partition are labelled FIRST, and not consumed."""
    with tracker.embedded() as embedded:
        embedded.register(SPEC)
        log = Log(embedded, tmp_path)
        with log.member("m") as group:
            until(lambda: group.held == ["a", "b"])
            log.slot = FIRST
            reached(embedded, FIRST)
            log.ends = {"a": 3, "b": 3}
            until(lambda: [f.ends for f in group._fronts.values()] == [{"a": 3}, {"b": 3}])  # noqa: SLF001
        yield log


def restarted(log: Log) -> None:
    with log.embedded.admin() as admin:
        assert admin.restart("p", 0, FIRST) == (1, FIRST)
    log.slot = FIRST + 100


def all_is_waited_for(log: Log) -> None:
    reader = new_reader(log.embedded)
    for partition in ("a", "b"):
        with log.embedded.subscriber("p") as subscriber:
            assert not subscriber.wait_until(FIRST + 1, timeout_s=1), partition  # expires: unread
        consume_cells(reader, (FIRST, range_value(partition, 0, 3), 3))
    reached(log.embedded, log.slot)
    with log.embedded.admin() as admin:
        assert admin.pipeline("p").state.late_items == 0


def test_each_partition_is_waited_for(log: Log) -> None:
    restarted(log)
    with log.member("n"):
        all_is_waited_for(log)


def test_a_partition_that_has_left_is_waited_for(log: Log) -> None:
    del log.ends["b"]
    with log.member("m"):
        until(lambda: log.waited_for() == ["g/a"])
    restarted(log)
    with log.member("n"):
        all_is_waited_for(log)


def test_a_partition_is_waited_for_that_is_taken_after_another_one(tmp_path: Path) -> None:
    """The first one has nothing from the first slot on, and promises as soon as it is granted."""
    with tracker.embedded() as embedded:
        embedded.register(SPEC)
        log = Log(embedded, tmp_path)
        with log.member("m") as group:
            until(lambda: group.held == ["a", "b"])
            log.slot = FIRST
            reached(embedded, FIRST)
            log.ends = {"a": 0, "b": 3}
            until(lambda: group._fronts["b"].ends == {"b": 3})  # noqa: SLF001
        restarted(log)
        with log.member("n") as group:
            until(lambda: group.held == ["a", "b"])
            with embedded.subscriber("p") as subscriber:
                assert not subscriber.wait_until(
                    FIRST + 1, timeout_s=1
                )  # expires: nobody has read it
            consume_cells(new_reader(embedded), (FIRST, range_value("b", 0, 3), 3))
            reached(embedded, log.slot)
