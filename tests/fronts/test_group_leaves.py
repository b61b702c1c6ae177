"""A partition that is not listed any more takes leave, though the tracker is away just then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from fronts import groups
from fronts.front import FrontOptions
from fronts.groups import PartitionGroup
from tests.waits import until
from tracker.errors import UnavailableError


class LeavingFront:
    """Of a partition; the tracker is away when it leaves first."""

    def __init__(self) -> None:
        self.asked, self.closed, self.ends = 0, False, dict[str, int]()

    def start(self, **_: object) -> LeavingFront:
        return self

    def publish(self, ends: Mapping[str, int]) -> None:
        self.ends |= ends

    def leave(self) -> None:
        self.asked += 1
        if self.asked == 1:
            raise UnavailableError("the tracker is away")

    def close(self) -> None:
        self.closed = True


def test_a_partition_leaves_when_the_tracker_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its member had ended, and nobody else takes what is not listed: min time waited for it for good."""
    a, b = LeavingFront(), LeavingFront()
    made = iter((a, b))
    monkeypatch.setattr(groups, "RangeFront", lambda *_, **__: next(made))
    listed = ["a", "b"]

    def ends(partitions: Sequence[str]) -> dict[str, Any]:
        return {partition: len(listed) for partition in partitions}

    group = PartitionGroup(
        "unused:1", "p", "g", "in", tmp_path, partitions=lambda: list(listed), ends=ends,
        options=FrontOptions(member="m", poll_interval_ms=1),
    )  # fmt: skip
    with group.start():
        until(lambda: group.held == ["a", "b"])
        listed.remove("a")
        until(lambda: a.asked == 2 or group.failure)
        until(lambda: b.ends == {"b": 1} or group.failure)
        assert group.failure is None and group.held == ["b"] and not b.closed
    assert a.asked == 2 and b.closed
