"""A node that comes back and knows more of itself than its home does: then acknowledged records are gone, and it
is told so (rule 9), not let in to go on from what is left."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.deployment import Deployment
from tests.core.driver import Cluster, HandNode, Lossy
from tracker.core.log import (
    Answer,
    AttachSession,
    EntriesReceived,
    Joined,
    JoinNode,
    LeaveNode,
    Restart,
    RestartPipeline,
    RetireNode,
    SessionRefused,
)
from tracker.core.model import Cells, NodeKey, PipelineSpec, Refusal, RefusalCode, Refused
from tracker.core.model.routing import RoutingTable
from tracker.core.process import ProcessConfig

SPEC = PipelineSpec("p", ("a", "b"), (), open=True, start_slot=0)


def join(cluster: Cluster, incarnation: int, ticks: int, node_id: str = "n") -> object:
    return cluster.join(node_id, "query", known_incarnation=incarnation, known_ticks=ticks)


def came_back(cluster: Cluster, incarnation: int, ticks: int) -> HandNode:
    return cluster.node(SPEC, "n", "query", known_incarnation=incarnation, known_ticks=ticks)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(1)
    cluster.register(SPEC)
    return cluster


def refused(answer: object) -> str:
    assert isinstance(answer, Refusal) and answer.code is RefusalCode.LOST, answer
    assert "node 'n' was acknowledged" in answer.message and "restore a copy" in answer.message
    return answer.message


def put_back(cluster: Cluster, records: int) -> None:
    """The store is an older copy of itself."""
    del cluster.stored[0][records:]
    cluster.restart(0)


def test_ticks_that_the_tracker_has_forgotten_are_named(cluster: Cluster) -> None:
    node = came_back(cluster, 0, 0)
    for slot in range(3):
        node.commit(created=[(0, slot, 7)])
    cluster.settle()
    older = len(cluster.stored[0])
    for slot in range(3, 5):
        node.commit(created=[(0, slot, 7)])
    cluster.settle()
    known = node.key.incarnation, 5
    put_back(cluster, older)
    before = list(cluster.stored[0])
    said = refused(join(cluster, *known))
    assert "ticks 4 to 5 of its incarnation 1" in said and "that one up to tick 3" in said
    refused(join(cluster, *known))
    assert cluster.stored[0] == before, "nobody was fenced, and the next attempt is told the same"
    assert isinstance(join(cluster, known[0], 3), Joined)


def test_a_joining_that_the_tracker_has_forgotten_is_named(cluster: Cluster) -> None:
    came_back(cluster, 0, 0)
    cluster.settle()
    older = len(cluster.stored[0])
    node = came_back(cluster, 1, 0)
    cluster.settle()
    put_back(cluster, older)
    assert "its incarnation 2, with ticks up to 4" in refused(join(cluster, 2, 4))
    # Others may have joined since, and got the number: the node itself is known by an older one.
    for other in ("x", "y", "z"):
        assert isinstance(join(cluster, 0, 0, other), Joined)
    assert "no incarnation above 1 of it" in refused(join(cluster, 2, 4))
    (told,) = cluster.handle(0, AttachSession("s", "p", node.key))
    assert isinstance(told, SessionRefused) and told.refusal.code is RefusalCode.LOST
    assert "knows of no such joining" in told.refusal.message


def test_a_tracker_that_was_begun_anew_is_told_by_those_who_were_there_before(
    cluster: Cluster,
) -> None:
    assert "no incarnation above 0 of any node" in refused(join(cluster, 1, 3))
    (told,) = cluster.handle(0, AttachSession("s", "p", NodeKey("n", 1)))
    assert isinstance(told, SessionRefused) and told.refusal.code is RefusalCode.LOST


@pytest.mark.parametrize("ticks", [0, 2])
def test_a_record_that_is_behind_or_of_an_earlier_joining_is_no_loss(
    cluster: Cluster, ticks: int
) -> None:
    node = came_back(cluster, 0, 0)
    for slot in range(3):
        node.commit(created=[(0, slot, 7)])
    cluster.settle()
    later = came_back(cluster, node.key.incarnation, ticks)
    assert isinstance(join(cluster, node.key.incarnation, 3), Joined)
    assert later.key.incarnation == 2


def test_a_node_that_has_left_or_was_retired_may_come_back(cluster: Cluster) -> None:
    node = came_back(cluster, 0, 0)
    node.commit(created=[(0, 1, 7)])
    node.commit(consumed=[(0, 1, 7)])
    cluster.settle()
    assert node.leave() is None
    cluster.settle()
    again = came_back(cluster, node.key.incarnation, 2)
    again.commit(created=[(0, 2, 7)])
    cluster.settle()
    assert cluster.ask(0, RetireNode, "p", "n", Cells.empty(), 0) is None
    cluster.settle()
    assert isinstance(join(cluster, again.key.incarnation, 1), Joined)


def test_what_is_only_asked_is_refused_alike(cluster: Cluster) -> None:
    event = JoinNode("j", "p", "n", "query", check_only=True, known_incarnation=4)
    (answer,) = cluster.handle(0, event)
    assert isinstance(answer, Answer)
    refused(answer.result)


def test_one_that_left_joined_elsewhere_and_comes_back_to_its_first_home_has_lost_nothing() -> None:
    """There its first key is not dropped yet: some shard has not confirmed that it left."""
    cluster = Lossy(2, config=ProcessConfig(rescale_margin_ms=40))
    two, three = RoutingTable.uniform(2), RoutingTable.uniform(3)
    name = next(n for n in map(str, range(100)) if (two.home(n, "n"), three.home(n, "n")) == (1, 2))
    spec = replace(SPEC, name=name)
    cluster.register(spec)
    first = cluster.node(spec, "n")
    cluster.join_shard()
    cluster.lost = {(0, 1, EntriesReceived)}
    assert cluster.ask(1, LeaveNode, name, first.key) is None
    cluster.rescale(3)
    node = cluster.node(spec, "n")
    node.commit(created=[(0, 5, 7)])
    assert node.home == 2 and node.key.incarnation > first.key.incarnation
    assert cluster.ask(2, LeaveNode, name, node.key) is None
    cluster.rescale(2)
    assert cluster.routing.home(name, "n") == 1
    cluster.handle(1, AttachSession("late", name, node.key))
    (ended,) = [e for e in cluster.effects if isinstance(e, SessionRefused) and e.session == "late"]
    assert ended.refusal.code is RefusalCode.UNKNOWN_NODE
    incarnation = node.key.incarnation
    answer = cluster.join("n", "query", pipeline=name, known_incarnation=incarnation, known_ticks=1)
    assert isinstance(answer, Joined) and answer.key.incarnation > incarnation


def test_a_shard_that_has_forgotten_what_it_had_received_is_told_so() -> None:
    """Nobody keeps that for it any more: both would ask and answer for ever, as fast as they can, and min time would stand."""
    cluster = Cluster(2)
    cluster.register(SPEC)
    node = cluster.node(SPEC, next(cluster.ids_at(0)))
    older = len(cluster.stored[1])
    for slot in range(3):
        node.commit(created=[(0, slot, 7)])
    kept = cluster.stored[1][older:]
    del cluster.stored[1][older:]
    with pytest.raises(Refused, match=r"shard 1 .* restore a copy") as refusal:
        cluster.restart(1)
        cluster.settle()
    assert refusal.value.refusal.code is RefusalCode.INVALID
    cluster.stored[1] += kept
    cluster.restart(1)
    node.commit(consumed=[(0, slot, 7) for slot in range(3)])
    assert not any(sum(pipeline.shard.cells.open_slots) for pipeline in cluster.pipelines())


def test_what_was_acknowledged_of_a_deleted_pipeline_is_not_missed_in_another_group() -> None:
    """The next one of its name is in a later generation, and that group has given fewer incarnations."""
    made = Deployment(1, 1)
    made.register(SPEC, 1)
    for _ in range(3):
        node = made.groups[1].node(SPEC, "n", "query")
    node.commit(created=[(0, 1, 7)])
    made.delete("p", 1)
    made.register(SPEC, 0)
    here = made.groups[0]
    (told,) = here.handle(0, AttachSession("s", "p", node.key, node.joined.generation))
    assert isinstance(told, SessionRefused) and told.refusal.code is RefusalCode.FENCED
    again = came_back(here, node.key.incarnation, 1)
    assert again.key.incarnation < node.key.incarnation
    generation = again.joined.generation
    refused(here.join("n", known_incarnation=node.key.incarnation, known_generation=generation))


def test_a_generation_that_the_tracker_has_forgotten_is_named(cluster: Cluster) -> None:
    """Its incarnations are no witness: others may have been given as many since."""
    node = came_back(cluster, 0, 0)
    older = len(cluster.stored[0])
    assert isinstance(cluster.ask(0, RestartPipeline, "p", 0, None, 0), Restart)
    later = came_back(cluster, node.key.incarnation, 0)
    put_back(cluster, older)
    for other in ("x", "y", "z"):
        assert isinstance(join(cluster, 0, 0, other), Joined)
    assert cluster.ask(0, LeaveNode, "p", node.key) is None
    answer = cluster.join("n", "query", known_incarnation=later.key.incarnation, known_generation=1)
    assert "in generation 1" in refused(answer) and "in generation 0" in refused(answer)
