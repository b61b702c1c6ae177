"""What a pipeline brings along from the group that it leaves is nothing to the logs of the one that it comes to (rule 13)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests import inside
from tests.core.deployment import Deployment
from tests.core.driver import Cluster
from tests.core.test_moving import SPEC, lose, running
from tracker.core.log import (
    DeclareLost,
    DeletePipeline,
    MovePipeline,
    PeerDisconnected,
    PipelineEnded,
    PlacePipeline,
    RescaleShards,
    Restart,
)
from tracker.core.log.losses import ShardLost
from tracker.core.log.steps import ShardLeft


def test_a_shard_that_hears_by_a_loss_alone_that_one_has_come_goes_by_no_log_of_the_group_before() -> (
    None
):
    """The pipeline had come to group 1 by an entry of the log of shard 1 there. In group 2 shard 1 has logged less."""
    made = Deployment(1, 2, 3)
    before, there = made.groups[1:]
    before.rescale(1, evacuate=True, without=(0,))
    before.pass_time(2_000)
    assert before.sequencer == 1
    other = replace(SPEC, name="other")
    made.register(other, 1)
    busy = before.front(other, "busy")
    for slot in range(100):
        busy.commit(heartbeats={"a": slot + 1})
    before.crash(0)
    made.register(SPEC, 0)
    assert made.move("p", 0, 1) == ""
    made.settle()
    assert before.pipeline(1).arrived_home == 1
    made.come_unheard("p", 1, 2, {(0, 2)})
    lose(there, 0)
    there.held.clear()
    made.go_on("p", 1)
    made.settle()
    front = there.node(SPEC, next(there.ids_at(2)), "front")
    slot = front.join_front("a").slot
    front.commit(heartbeats={"a": slot + 10})
    there.pass_time(5_000)
    assert there.agreed(SPEC)[0] == slot + 10


@pytest.mark.parametrize("late", [1, 2])
def test_one_that_comes_stands_at_all_or_at_none_where_one_that_has_left_is_declared_lost(
    late: int,
) -> None:
    """A shard has left as far as all but one have heard, and its log is waited for by that one alone."""
    made, _, _ = running(1, 4)
    there = made.groups[1]
    there.handle(0, RescaleShards("fewer", 3, True, (3,)))
    there.settle(lambda: bool(there.logged(ShardLeft)))
    there.held = {(3, late)}
    there.settle()
    assert [3 in process.membership.members for process in there.processes.values()] == [
        False, late == 1, late == 2, False,
    ]  # fmt: skip
    made.begin_move("p", 0, 1)
    made.until(made.drive("p", 0), PlacePipeline)
    lose(there, 3)
    there.held.clear()
    made.go_on("p", 0, 1)
    made.settle()
    assert made.has("p") == [1]
    assert len({pipeline.held is None for pipeline in there.pipelines()}) == 1


def dies(cluster: Cluster, shard: int) -> None:
    cluster.crash(shard)
    for other in cluster.processes:
        cluster.handle(other, PeerDisconnected(shard))


def test_one_that_has_begun_anew_by_a_loss_is_not_set_back_by_the_end_of_its_move() -> None:
    """The log that says that it has come is lost, and shard 1 alone has heard it. Shard 3 hears from that how the pipeline goes on, and
    not yet what shard 2 knew. Then shard 1 is lost, too: shard 2 knows no more than that the pipeline comes."""
    made, _, _ = running(1, 4)
    there = made.groups[1]
    made.come_unheard("p", 0, 1, {(0, 2), (0, 3)})
    dies(there, 0)
    there.held = {(2, 3)}
    there.handle(1, DeclareLost("first", (0,), True, 1))
    there.settle(lambda: bool(there.logged(ShardLost)))
    there.held = {(2, 3), (1, 2)}
    there.settle()
    generation = there.pipeline(3).generation
    assert generation > 0 and "p" not in inside.pipelines(there.processes[2])
    dies(there, 1)
    there.held.clear()
    there.handle(2, DeclareLost("second", (1,), True, 1))
    there.pass_time(1_000)
    assert there.answers("second")
    made.go_on("p", 0, 1)
    made.settle()
    assert made.has("p") == [1]
    assert all(pipeline.generation >= generation for pipeline in there.pipelines())


def test_one_that_was_deleted_as_its_move_began_is_deleted_where_a_shard_hears_that_by_a_loss() -> (
    None
):
    """The registrar's log is lost, and shard 0 alone has heard it; shard 1 decides on the name from then on."""
    made, _, _ = running(3, 2)
    here = made.groups[0]
    assert here.routing.registrar("p") == 2
    here.held = {(2, 1)}
    here.handle(2, DeletePipeline("over", "p", 0, True, 1))
    here.handle(0, MovePipeline("move", "p", 0, 1))
    here.settle()
    lose(here, 2)
    here.held.clear()
    made.go_on("p", 0, 1)
    made.settle()
    assert not any(e for e in here.effects if isinstance(e, PipelineEnded) and e.moved)
    assert here.routing.registrar("p") == 1
    assert isinstance(here.ask(1, DeletePipeline, "p", 0, True, 1), Restart)
