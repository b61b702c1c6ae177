"""A tracker whose shards come and go, under load: fronts, queries and workers that write down each step,
and subscribers that write down all that they hear, for `tests.check`.
"""

from __future__ import annotations

from pathlib import Path

from tests.cluster.network import Loopback
from tests.cluster.tracker import Server
from tests.faults.nodes import QUIET_PAUSE_S
from tests.faults.system import System
from tracker.core.insight.describe import ShardRole
from tracker.service.failpoints import VARIABLE

MARGIN = ("--set", "rescale_margin_ms=50")
"""Short, so that new owners get something to do soon."""


class Elastic(System):
    """It begins with one shard; clients are given that one's address alone."""

    def __init__(self, directory: Path) -> None:
        super().__init__(
            directory, Loopback(), shards=1, standbys=0, store="sqlite", subscribers=1,
            options=MARGIN, pause_s=QUIET_PAUSE_S,
        )  # fmt: skip

    def first(self, failpoint: str = "", *more: str) -> Server:
        """Another process for the first shard, started, with more options; it dies at a failpoint, if one
        is given."""
        return self._again(self.tracker.shards[0], failpoint, *more)

    def newcomer(self, number: int, failpoint: str = "") -> Server:
        """Newcomer `number`, from 0, started (again), with a store of its own."""
        if number == len(self.tracker.newcomers):
            return self.tracker.newcomer(**_dying_at(failpoint))
        return self._again(self.tracker.newcomers[number], failpoint)

    def _again(self, old: Server, failpoint: str, *more: str) -> Server:
        new = self.tracker.replaced(old, *more, **_dying_at(failpoint))
        new.start()
        return new

    def joins(self, count: int = 1) -> None:
        """Newcomers join, and own nothing yet."""
        before = len(self.tracker.routing().of(ShardRole.SPARE))
        for _ in range(count):
            self.tracker.newcomer()
        self.tracker.until(lambda now: len(now.of(ShardRole.SPARE)) == before + count)


def _dying_at(failpoint: str) -> dict[str, str]:
    return {VARIABLE: failpoint} if failpoint else {}
