"""How often a shard reports, and what does not wait for that (rule 5)."""

from __future__ import annotations

import pytest

from tests.core.driver import MS, Cluster, HandNode
from tracker.core.log import Effect, Send, ShardReport, Wake
from tracker.core.model import PipelineSpec
from tracker.core.process import ProcessConfig

SPEC = PipelineSpec("p", ("s",), front_count=1, horizon_slots=1 << 30)
BUSY_MS = 240


class Busy(Cluster):
    """A tick becomes durable each millisecond, and every shard hears of it at once."""

    def __init__(self, shards: int) -> None:
        super().__init__(shards)
        self.register(SPEC)
        self.node_at_work: HandNode = self.front(SPEC, "n", f=0)
        self.pass_time(1_000)
        self.reports = 0

    def _take(self, shard: int, effects: list[Effect]) -> None:
        if shard == 0:
            bodies = [effect.frame.body for effect in effects if isinstance(effect, Send)]
            self.reports = getattr(self, "reports", 0)
            self.reports += sum(isinstance(body, ShardReport) for body in bodies)
        super()._take(shard, effects)

    def work(self, milliseconds: int) -> None:
        """So long."""
        for _ in range(milliseconds):
            self.now_ns += MS
            for shard in self.processes:
                if self._wakes.get(shard, self.now_ns + 1) <= self.now_ns:
                    self.handle(shard, Wake())
            self.node_at_work.begin(heartbeats={"f": self.now_ns // MS})
            self.move_at_once()


@pytest.mark.parametrize("shards", [2, 4, 8, 16])
def test_what_a_shard_sends_of_reports_does_not_grow_with_the_number_of_shards(shards: int) -> None:
    busy = Busy(shards)
    config, others = busy.config, shards - 1
    busy.work(BUSY_MS)
    interval_ms = min(others * config.link_report_interval_ms, config.max_report_interval_ms)
    at_most = BUSY_MS // interval_ms + config.report_burst
    assert BUSY_MS // (interval_ms + 1) <= busy.reports // others <= at_most


def test_what_one_tick_brings_about_waits_for_nothing() -> None:
    """All that has to be told of it is few enough to go at once; time need not pass."""
    busy = Busy(16)
    busy.node_at_work.begin(heartbeats={"f": 500})
    busy.move_at_once()
    assert busy.agreed(SPEC) == (500,)


def test_what_others_report_is_gone_by_at_once_though_the_own_report_has_to_wait() -> None:
    """A shard that has said as much as it may, and nothing that it has not said, announces what it hears."""
    config = ProcessConfig(max_report_interval_ms=100, link_report_interval_ms=100)
    cluster = Cluster(2, config=config)
    cluster.register(SPEC)
    front = cluster.front(SPEC, "n", promise=10, f=0)
    cluster.pass_time(1_000)
    cluster.pass_time(400)
    home, other = front.home, 1 - front.home
    cluster.held = {(other, home)}
    last = 10 + config.report_burst
    for slot in range(11, last + 1):
        front.begin(heartbeats={"f": slot})
        cluster.settle()
        cluster.pass_time(config.report_interval_ms + 1)
    assert (cluster.min_times(SPEC)[home], cluster.min_times(SPEC)[other]) == ((10,), (last,))
    cluster.held.clear()
    cluster.move_at_once()
    assert cluster.agreed(SPEC) == (last,)
    front.begin(heartbeats={"f": last + 1})
    cluster.settle()
    assert cluster.agreed(SPEC) == (last,)
    cluster.pass_time(100)
    assert cluster.agreed(SPEC) == (last + 1,)


def test_news_that_waits_is_told_in_the_end_without_anything_else_happening() -> None:
    busy = Busy(16)
    busy.work(BUSY_MS)
    last = busy.now_ns // MS
    busy.pass_time(2 * busy.config.max_report_interval_ms)
    assert busy.agreed(SPEC) == (last,)
