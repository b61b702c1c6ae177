"""A process may announce what follows from what it has made durable, and nothing else."""

from __future__ import annotations

import pytest

from tests.core.driver import Lossy
from tests.simulation.checkers import Failure
from tests.simulation.ledger import Ledger
from tracker.core.log import Announced, Effect, ReceivedEntries, Record, ShardReport
from tracker.core.log.steps import DepartureSummary, ShardLeft
from tracker.core.model import PipelineSpec
from tracker.core.model.routing import RoutingTable
from tracker.core.model.slots import FOREVER
from tracker.core.process import ProcessConfig

SPEC = PipelineSpec("p", ("a", "c"), front_count=2)


class Judged(Lossy):
    """What is made durable goes to a ledger, and by it is judged what is announced."""

    def __init__(self, shards: int, config: ProcessConfig) -> None:
        self.ledger = Ledger(shards, RoutingTable.uniform(shards, 1))
        super().__init__(shards, config=config)

    def store(self, shard: int, records: int | None = None) -> None:
        before = len(self.stored[shard])
        super().store(shard, records)
        for _, record in self.stored[shard][before:]:
            self.ledger.take(shard, record)

    def _take(self, shard: int, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Announced):
                self.ledger.check_said(shard, effect.pipeline, list(effect.min_times))
        super()._take(shard, effects)


def test_who_hears_by_a_departure_that_a_segment_is_complete_announces_what_was_true_of_all() -> (
    None
):
    """Shard 2 alone has announced that `a` is complete, when it leaves. Shard 1 may not take that over:
    with what it has announced itself, the whole pipeline could be complete before its registrar logs it."""
    cluster = Judged(3, ProcessConfig(rescale_margin_ms=40))
    cluster.register(SPEC)
    leaving = cluster.front(SPEC, "A", promise=5, A=0)
    cluster.front(SPEC, "C", promise=8, C=1)
    assert cluster.agreed(SPEC) == (5, 8)
    cluster.lost = {(2, 1, ShardReport)}
    leaving.commit(leaves=["A"])
    assert cluster.min_times(SPEC) == [(FOREVER, 8), (5, 8), (FOREVER, 8)]
    before = len(cluster.said)
    cluster.rescale(2)
    cluster.pass_time(1_000)
    assert cluster.gone == {2}
    announced = [effect.min_times for shard, effect in cluster.said[before:] if shard == 1]
    assert announced == [((0, 8),), ((0, FOREVER),)], "at the departure, and by itself behind it"


def departure(*announced: int) -> Record:
    summary = DepartureSummary("p", None, announced)
    return ReceivedEntries(1, 1, (ShardLeft((), (summary,), 0),))


def test_that_a_segment_is_complete_does_not_follow_from_a_departure() -> None:
    ledger = Ledger(2, RoutingTable.uniform(2))
    ledger.take(0, departure(FOREVER, 8))
    ledger.check_said(0, "p", [(0, 8), (1, 8)])
    with pytest.raises(Failure, match=f"shard 0 announced {FOREVER} for segment 0 of p"):
        ledger.check_said(0, "p", [(0, FOREVER)])
    with pytest.raises(Failure, match="shard 1 announced 8 for segment 0 of p"):
        ledger.check_said(1, "p", [(0, 8)])


def test_behind_a_restart_what_was_true_of_the_whole_pipeline_follows_for_each_segment() -> None:
    ledger = Ledger(2, RoutingTable.uniform(2))
    ledger.take(0, departure(12, 8))
    ledger.check_said(0, "p", [(0, 8), (1, 8)])
    ledger.check_said(0, "p", [(0, 12)])
    with pytest.raises(Failure, match="shard 0 announced 12 for segment 1 of p"):
        ledger.check_said(0, "p", [(1, 12)])


def test_that_a_whole_pipeline_is_complete_follows_from_a_departure() -> None:
    ledger = Ledger(2, RoutingTable.uniform(2))
    ledger.take(0, departure(FOREVER, FOREVER))
    ledger.check_said(0, "p", [(0, FOREVER), (1, FOREVER)])
