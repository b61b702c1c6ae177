"""What a tick costs all processes of a tracker together, with four shards against one.

One node, at home at shard 0, sends the same ticks of a cell to either tracker, in turns; its slots are spread over
all shards. Counted is the processor time of all processes from the first tick until every shard knows that all
is complete, so what shards tell each other behind the tick is in it. There are so many that what a turn takes besides, a
registration and a subscriber at each shard, hardly counts.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks import looping
from benchmarks.bars import BARS
from benchmarks.figures import Budget, Figure
from benchmarks.pairs import FEWEST_ROUNDS, ratios, take_turns
from benchmarks.throughput import (
    TICKS_PER_SLOT,
    TICKS_TOGETHER,
    commit,
    messages_of,
    numbered_tick,
)
from tests.cluster.tracker import Tracker
from tracker.client import Subscriber
from tracker.core.model.routing import RoutingTable

SHARDS = 4
TIMEOUT_S = 120.0


def find(budget: Budget) -> Iterable[Figure]:
    for together in (TICKS_TOGETHER, 1):
        yield from _compare(budget, together)


def _compare(budget: Budget, together: int) -> Iterable[Figure]:
    ticks = budget.pick(2_000, 20_000)
    messages = messages_of([numbered_tick(number, 1) for number in range(2, ticks + 2)], together)
    with (
        tempfile.TemporaryDirectory(prefix="lowmark-bench-") as directory,
        Tracker(Path(directory) / "one") as one,
        Tracker(Path(directory) / "more", SHARDS) as more,
    ):
        pipelines = (f"p{turn}" for turn in itertools.count())
        costs = take_turns(
            {
                "one": lambda: _cost_us(one, 1, pipelines, messages, ticks),
                "more": lambda: _cost_us(more, SHARDS, pipelines, messages, ticks),
            },
            budget.pick(FEWEST_ROUNDS, 2 * FEWEST_ROUNDS),
        )
    return _figures(together, **costs)


def _figures(together: int, one: list[float], more: list[float]) -> list[Figure]:
    usual = sorted(one)[len(one) // 2]
    sent = f"{together} ticks a message" if together > 1 else "a tick a message"
    return [
        Figure(
            f"processor time of a tick, all processes together, with {SHARDS} shards / with 1, {sent}",
            ratios(more, one),
            "",
            f"{usual:.0f} µs with one",
            BARS["tick with 4 shards, all processes"] if together > 1 else None,
            least=min(more) / min(one),
        )
    ]


def _cost_us(
    tracker: Tracker, shards: int, pipelines: Iterator[str], messages: list[bytes], ticks: int
) -> float:
    """Microseconds of processors a tick."""
    pipeline = next(pipelines)
    before_s = tracker.processor_s()
    node_id = _at_home_at_first(pipeline, shards)
    looping.run(commit(tracker, pipeline, messages, ticks, node_id))
    promised = (ticks + 1) // TICKS_PER_SLOT
    for address in tracker.addresses:
        with Subscriber(address, pipeline) as subscriber:
            assert subscriber.wait_until(promised, timeout_s=TIMEOUT_S)
    return (tracker.processor_s() - before_s) / ticks * 1e6


def _at_home_at_first(pipeline: str, shards: int) -> str:
    routing = RoutingTable.uniform(shards)
    names = (f"node{number}" for number in itertools.count())
    return next(name for name in names if routing.home(pipeline, name) == 0)
