"""A partition that is not listed any more takes leave, though the tracker is away or nobody has it just then."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import tracker
from fronts import groups
from fronts.front import FrontOptions
from fronts.groups import PartitionGroup
from tests.waits import until
from tracker import EmbeddedTracker
from tracker.client import NodeClient
from tracker.core.model import PipelineSpec
from tracker.errors import LowmarkError, TrackingError, UnavailableError


class LeavingFront:
    """A run of a partition's front; `errors` are raised when it leaves, one each. before: the run before it."""

    def __init__(self, *errors: LowmarkError, before: LeavingFront | None = None) -> None:
        self.errors, self.before, self.front = list(errors), before, self
        self.asked, self.closed, self.ends = 0, False, dict[str, int]()
        self.generation, self.silent = 0, nullcontext
        self.on_leave: Callable[[], object] = lambda: None

    def start(self, **_: object) -> LeavingFront:
        assert self.before is None or self.before.closed, "two runs of one front"
        return self

    def publish(self, ends: Mapping[str, int]) -> None:
        self.ends |= ends

    def check_alone(self, timeout_s: float) -> bool:
        return True

    def leave(self) -> None:
        self.asked += 1
        self.on_leave()
        if self.errors:
            raise self.errors.pop(0)

    def close(self) -> None:
        self.closed = True


def group_over(
    fronts: Iterable[LeavingFront], listed: list[str], path: Path, patch: pytest.MonkeyPatch
) -> PartitionGroup:
    """A member of a group whose fronts are these, in the order in which they are made."""
    made = iter(fronts)
    patch.setattr(groups, "RangeFront", lambda *_, **__: next(made))

    def ends(partitions: Sequence[str]) -> dict[str, Any]:
        return {partition: len(listed) for partition in partitions}

    return PartitionGroup(
        "unused:1", "p", "g", "in", path, partitions=lambda: list(listed), ends=ends,
        options=FrontOptions(member="m", poll_interval_ms=1),
    )  # fmt: skip


def test_a_partition_leaves_when_the_tracker_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its member had ended, and nobody else takes what is not listed: min time waited for it for good."""
    a, b = LeavingFront(UnavailableError("the tracker is away")), LeavingFront()
    listed = ["a", "b"]
    with group_over((a, b), listed, tmp_path, monkeypatch).start() as group:
        until(lambda: group.held == ["a", "b"])
        listed.remove("a")
        until(lambda: a.asked == 2 or group.failure)
        until(lambda: b.ends == {"b": 1} or group.failure)
        assert group.failure is None and group.held == ["b"] and not b.closed
    assert a.asked == 2 and b.closed


def test_a_front_that_fails_as_it_leaves_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Say it was evicted meanwhile. Its member had ended, and so did each that took its place."""
    a, b = LeavingFront(TrackingError("it was evicted")), LeavingFront()
    again = LeavingFront(before=a)
    listed = ["a", "b"]
    with group_over((a, b, again), listed, tmp_path, monkeypatch).start() as group:
        until(lambda: group.held == ["a", "b"])
        listed.remove("a")
        until(lambda: again.asked or group.failure)
        assert group.failure is None and group.held == ["b"] and a.closed
    assert a.asked == again.asked == 1


def test_a_partition_that_is_listed_again_before_it_has_left_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second run began beside the one that was to leave; in a store, where no lock keeps it out, it fenced that one,
    and its member ended."""
    away = UnavailableError("the tracker is away")
    a, b = LeavingFront(away, away), LeavingFront()
    again = LeavingFront(before=a)
    listed = ["a", "b"]
    a.on_leave = lambda: listed.append("a")
    with group_over((a, b, again), listed, tmp_path, monkeypatch).start() as group:
        until(lambda: group.held == ["a", "b"])
        listed.remove("a")
        until(lambda: "a" in again.ends or group.failure)
        assert group.failure is None and group.held == ["a", "b"]
    assert a.asked == 1 and again.closed and not again.asked


class Log:
    """A log by hand, which a group labels; and the tracker, asked for whom it waits."""

    def __init__(self, embedded: EmbeddedTracker, journals: Path) -> None:
        self.embedded, self.journals = embedded, journals
        self.names, self.looks = ["a", "b"], 0
        embedded.register(PipelineSpec("p", ("in",), open=True))

    def member(self, name: str) -> PartitionGroup:
        return PartitionGroup(
            self.embedded.target, "p", "g", "in", self.journals,
            partitions=self.listed, ends=lambda names: dict.fromkeys(names, 3),
            options=FrontOptions(member=name, poll_interval_ms=1, heartbeat_interval_ms=5),
        )  # fmt: skip

    def listed(self) -> list[str]:
        self.looks += 1
        return list(self.names)

    def waited_for(self) -> list[str]:
        return sorted(front.front for front in self.embedded.admin().pipeline("p").state.fronts)


def test_a_partition_that_nobody_has_when_it_is_not_listed_any_more_leaves(tmp_path: Path) -> None:
    """Members take what is listed, and let leave what they have; nobody ended what a member had that was gone."""
    with tracker.embedded(shards=2) as embedded:
        log = Log(embedded, tmp_path)
        with log.member("m1") as first:
            until(lambda: first.held == ["a", "b"])
        assert log.waited_for() == ["g/a", "g/b"]
        log.names.remove("a")
        with log.member("m2") as second:
            until(lambda: log.waited_for() == ["g/b"] or second.failure)
            until(lambda: second.held == ["b"] or second.failure)
            assert second.failure is None


def test_a_partition_whose_node_could_not_leave_is_taken_when_it_is_listed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its member had the lock of the journal for as long as it lived, and found that another process ran the front."""
    leave = NodeClient.leave

    def away(node: NodeClient, timeout_s: float) -> None:
        monkeypatch.setattr(NodeClient, "leave", leave)
        raise UnavailableError("the tracker is away")

    with tracker.embedded() as embedded:
        log = Log(embedded, tmp_path)
        with log.member("m") as group:
            until(lambda: group.held == ["a", "b"])
            monkeypatch.setattr(NodeClient, "leave", away)
            log.names.remove("a")
            until(lambda: log.waited_for() == ["g/b"] and NodeClient.leave is leave)
            before = log.looks
            until(lambda: log.looks > before + 1 or group.failure)
            log.names.append("a")
            until(lambda: group.held == ["a", "b"] or group.failure)
            assert group.failure is None and log.waited_for() == ["g/a", "g/b"]
