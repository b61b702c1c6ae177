"""Groups come to a tracker that is being upgraded: nothing is recorded of them by a level at which not all record (rules 10, 13)."""

from __future__ import annotations

import pytest

from tests.core.driver import Cluster, refused
from tracker.core.log import (
    Event,
    FinishUpgrade,
    GroupKnown,
    KnowGroup,
    MovePipeline,
    Placed,
    PlacePipeline,
)
from tracker.core.log.steps import MoveBegun
from tracker.core.model import PipelineSpec, RefusalCode
from tracker.core.model.levels import MOVES, NEWEST_LEVEL
from tracker.core.model.placements import Group

SPEC = PipelineSpec("p", ("in",), fronts=("a",), open=True)


@pytest.mark.parametrize(
    "event",
    [KnowGroup("early", Group(1, ("a:1",))), PlacePipeline("early", "other", 1)],
    ids=["a group", "a name"],
)
def test_a_group_that_comes_before_the_upgrade_is_finished_is_told_to_wait(event: Event) -> None:
    """Else the others would wait with that entry for the level, and the step that raises it would stand behind it."""
    cluster = Cluster(2, speaks=MOVES - 1)
    cluster.register(SPEC)
    front = cluster.front(SPEC, next(cluster.ids_at(cluster.sequencer)), promise=10)
    for shard in range(2):
        cluster.upgrade(shard)
    cluster.settle()
    name = getattr(event, "pipeline", "")
    shard = cluster.routing.registrar(name) if name else cluster.sequencer
    cluster.handle(shard, event)
    cluster.settle()
    front.attach()
    front.commit(heartbeats={"a": 20})
    assert cluster.agreed(SPEC) == (20,)
    refused(cluster.answers("early")[0], RefusalCode.NOT_READY, "finish the upgrade")
    assert not cluster.logged(GroupKnown) and not cluster.logged(Placed)
    assert cluster.ask(cluster.sequencer, FinishUpgrade, NEWEST_LEVEL) is None
    cluster.settle()
    cluster.handle(shard, event)
    cluster.settle()
    assert len(cluster.logged(GroupKnown)) + len(cluster.logged(Placed)) == 1
    front.commit(heartbeats={"a": 30})
    assert cluster.agreed(SPEC) == (30,)


@pytest.mark.parametrize(
    "event",
    [
        KnowGroup("early", Group(1, ("a:1",))),
        PlacePipeline("early", "q0", 1),
        MovePipeline("early", "other", 1, 1, True),
    ],
    ids=["a group", "a name", "a pipeline"],
)
def test_nor_is_it_recorded_by_a_sequencer_that_began_by_itself_with_the_newer_release(
    event: Event,
) -> None:
    """The newer release has replaced it before it had logged anything, so that it records by the newer level, and does not let in
    the process of the older release. What it logged of groups stood in front of the step that raises the level."""
    cluster = Cluster(2, speaks=MOVES - 1)
    cluster.upgrade(0)
    cluster.held = {(1, 0)}
    cluster.settle()
    assert [cluster.processes[s].membership.level for s in (0, 1)] == [MOVES, MOVES - 1]
    assert cluster.routing.registrar("q0") == cluster.sequencer == 0
    cluster.handle(0, event)
    refused(cluster.answers("early")[0], RefusalCode.NOT_READY, "shards [1] have not reported")
    cluster.held.clear()
    cluster.register(SPEC)
    cluster.upgrade(1)
    front = cluster.front(SPEC, next(cluster.ids_at(0)), promise=10)
    cluster.handle(0, event)
    refused(cluster.answers("early")[1], RefusalCode.NOT_READY, "finish the upgrade")
    assert not cluster.logged(GroupKnown) + cluster.logged(Placed) + cluster.logged(MoveBegun)
    assert cluster.ask(0, FinishUpgrade, NEWEST_LEVEL) is None
    cluster.settle()
    cluster.handle(0, event)
    front.commit(heartbeats={"a": 20})
    assert cluster.agreed(SPEC) == (20,)
    assert len(cluster.answers("early")) == 3 and cluster.formats[1] == NEWEST_LEVEL
    assert cluster.logged(GroupKnown) + cluster.logged(Placed) + cluster.logged(MoveBegun)
