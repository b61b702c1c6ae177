"""What was open at shards that are lost is listed where it is given up, also where they are lost one after the other."""

from __future__ import annotations

import pytest

from tests.core.test_losing import Running, declare, lose
from tracker.core.log import RestartPipeline


@pytest.mark.parametrize("write_off", [True, False])
@pytest.mark.parametrize("lost", [(3, 2), (1, 3)])
def test_what_was_open_at_two_shards_that_are_lost_in_turn_is_listed(
    lost: tuple[int, int], *, write_off: bool
) -> None:
    """write_off: whether the second one is declared lost so; since the first one was, the pipeline stands."""
    running = Running(4, lost=lost[0])
    cluster = running.cluster
    running.create(*range(8))
    cluster.pass_time(200)
    for shard, gives_up in zip(lost, (False, write_off), strict=True):
        lose(cluster, shard)
        declare(cluster, shard, write_off=gives_up)
    known = cluster.pipeline(cluster.routing.registrar("p"))
    if known.held is not None:
        where = cluster.routing.registrar("p")
        cluster.ask(where, RestartPipeline, "p", known.generation, None, 2_000)
        cluster.settle()
    listed = [c.cells for p in cluster.pipelines() for each in p.restarts for c in each.cells]
    assert sum(listed) == 8
