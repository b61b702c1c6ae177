"""What is consumed below min time is counted, and holds nothing up (rule 1)."""

from __future__ import annotations

import pytest

from tests.core.driver import Cluster, HandNode
from tracker.core.model import PipelineSpec

SPEC = PipelineSpec("p", ("work",), front_count=1)
TICKS = 40
LATE_SLOTS = range(10, 16)
"""Of all shards."""


@pytest.fixture(params=[1, 2, 3])
def begun(request: pytest.FixtureRequest) -> tuple[Cluster, HandNode]:
    """Shards that have announced slot 50, and the front that has promised so much."""
    cluster = Cluster(request.param)
    cluster.register(SPEC)
    front = cluster.front(SPEC, "front", promise=50)
    assert cluster.agreed(SPEC) == (50,)
    return cluster, front


def go_on(cluster: Cluster) -> None:
    """Each process commits, hears and reports once."""
    for shard in cluster.processes:
        cluster.commit(shard)
    for link in cluster.deliverable():
        cluster.deliver(*link)
    cluster.pass_time_without_commits()


def test_min_time_moves_on_while_something_is_consumed_late_all_the_time(
    begun: tuple[Cluster, HandNode],
) -> None:
    """A reader has a backlog of an evicted front, say, and never rests."""
    cluster, front = begun
    reader = cluster.node(SPEC, "reader")
    for n in range(TICKS):
        reader.begin(consumed=[(0, slot, 100 * n + slot) for slot in LATE_SLOTS])
        front.begin(heartbeats={"a": 51 + n})
        go_on(cluster)
    behind = 51 + TICKS - min(cluster.min_times(SPEC))[0]
    assert behind <= 8, f"min time is {behind} promises behind"
    assert cluster.agreed(SPEC) == (50 + TICKS,)
    assert {process.describe("p", 0).late_items for process in cluster.processes.values()} == {
        TICKS * len(LATE_SLOTS)
    }


def test_a_home_that_lags_behind_takes_for_late_what_is_below_any_announcement() -> None:
    """The reader's home has not heard that the other shard has announced 50, when it begins to consume
    below that; what it consumes then holds the home where it is, so that it would never call any of
    it late by what it has announced itself."""
    cluster = Cluster(2)
    cluster.register(SPEC)
    front = cluster.front(SPEC, "front", promise=5)
    assert cluster.agreed(SPEC) == (5,)
    lagging = front.home
    other = 1 - lagging
    reader = cluster.node(SPEC, next(cluster.ids_at(lagging)))
    cluster.held = {(other, lagging)}
    front.commit(heartbeats={"a": 50})
    assert cluster.min_times(SPEC)[other] == (50,)
    assert cluster.min_times(SPEC)[lagging] == (5,)
    cluster.held.clear()
    for n in range(TICKS):
        reader.begin(consumed=[(0, slot, 100 * n + slot) for slot in LATE_SLOTS])
        front.begin(heartbeats={"a": 51 + n})
        go_on(cluster)
    behind = 51 + TICKS - min(cluster.min_times(SPEC))[0]
    assert behind <= 20, f"min time is {behind} promises behind"
    assert cluster.agreed(SPEC) == (50 + TICKS,)
