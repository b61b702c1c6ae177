"""Groups come to a tracker that is being upgraded: nothing is recorded of them by a level at which not all record (rules 10, 13)."""

from __future__ import annotations

import pytest

from tests.core.driver import Cluster, refused
from tracker.core.log import (
    Event,
    FinishUpgrade,
    GroupKnown,
    KnowGroup,
    Placed,
    PlacePipeline,
)
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
