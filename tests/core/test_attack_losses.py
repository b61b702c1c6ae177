"""Shards that are declared lost, several within moments, or amid something else: who rests on what only a lost one knew."""

from __future__ import annotations

from itertools import count

import pytest

from tests.core.test_losing import SPEC, Running, declare, finish_anew, lose
from tracker.core.log import DeclareLost


@pytest.mark.parametrize("crash", [0, 1, 2])
def test_the_leader_is_lost_and_one_has_not_heard_what_another_one_knew_that_has_gone_on(
    crash: int,
) -> None:
    """Shard 4 goes on without shard 3, and becomes home to nodes of that one. Shard 2 has heard nothing of it since before, and waits:
    for it the nodes are at home at shard 3. Then the leader is lost."""
    running = Running(5, lost=3)
    cluster = running.cluster
    running.create(0, 1, 2, 3)
    before = cluster.routing
    cluster.held = {(4, 2)}
    lose(cluster, 3)
    cluster.handle(0, DeclareLost("asked", (3,), True, 1_000))
    cluster.settle()
    cluster.pass_time(1_000)
    gone_on = [p.membership.loss is None for p in cluster.processes.values()]
    assert gone_on == [True, True, False, True]
    names = map("moved{}".format, count())
    moved = next(
        n for n in names if (before.home("p", n), cluster.routing.home("p", n)) == (3, 4)
    )
    cluster.node(SPEC, moved).begin(created=[(0, 20, 77)])
    cluster.settle()
    lose(cluster, 0)
    cluster.handle(1, DeclareLost("again", (0,), True, 1_000))
    cluster.settle()
    if crash:
        cluster.crash_at(2, crash)
    cluster.reconnect()
    cluster.pass_time(2_000)
    assert cluster.answers("again") and cluster.has_crashed == bool(crash)
    finish_anew(cluster, 4)
