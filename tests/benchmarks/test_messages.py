"""The evaluation's workloads run to their end in simulation, and waiting for the window saves messages."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest

from benchmarks.batches import Chain
from benchmarks.evaluation import Evaluation, Workload
from local_tracker.core.window import Flush

SMALL = Workload(items=20, hops=10, machines=13, passed_on=False)


@pytest.mark.parametrize("shards", [1, 2])
def test_a_window_that_waits_sends_fewer_messages_later(shards: int) -> None:
    ticks, usual_ms = {}, {}
    for flush in Flush:
        evaluation = Evaluation(shards, replace(SMALL, flush=flush))
        ticks[flush] = evaluation.run()["ticks"]
        latencies_ms = evaluation.latencies_ms()
        assert len(latencies_ms) == SMALL.items and min(latencies_ms) > 0
        usual_ms[flush] = statistics.median(latencies_ms)
    assert ticks[Flush.AT_WINDOW_END] < ticks[Flush.WHEN_IDLE]
    assert usual_ms[Flush.AT_WINDOW_END] > usual_ms[Flush.WHEN_IDLE]


def test_items_that_are_passed_on_have_nothing_to_tell() -> None:
    passed_on = Evaluation(1, replace(SMALL, passed_on=True)).run()
    steps = SMALL.items  # the front's, and the last machine's
    assert passed_on["ticks"] <= 2 * steps + 1


def test_a_query_sends_a_tick_a_batch_whatever_it_reads() -> None:
    """20 items in 200 ms; batches of 100 ms have ten files each, and the one after them the rest."""
    front = 20 + 1
    assert Chain(1, 1, 100_000_000).run(20)["ticks"] - front in (2, 3)
    chained = Chain(2, 3, 100_000_000).run(20)
    assert chained["ticks"] - front <= 3 * 3
