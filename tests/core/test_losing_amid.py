"""Shards that are declared lost, several within moments, or amid something else: who rests on what only a lost one knew."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import count, islice

import pytest

from tests import inside
from tests.core.driver import Cluster, names_of
from tests.core.test_losing import SPEC, Running, appended, at_home, declare, finish_anew, lose
from tracker.core.log import (
    DeclareLost,
    DeletePipeline,
    PeerConnected,
    PeerDisconnected,
    RegisterPipeline,
    RescaleShards,
    Restart,
    RestartPipeline,
)
from tracker.core.log.losses import LossReport, ShardLost
from tracker.core.log.steps import (
    NodesMoved,
    RoutingChanged,
    SequencerMoved,
    ShardLeaving,
    ShardLeft,
)
from tracker.core.model import Edge, PipelineSpec
from tracker.core.model.levels import LOSSES, NEWEST_LEVEL
from tracker.core.pipeline import pipelines
from tracker.core.process import ProcessConfig


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
    moved = next(n for n in names if (before.home("p", n), cluster.routing.home("p", n)) == (3, 4))
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


def test_a_deletion_that_a_newcomer_began_with_and_another_one_has_not_heard_keeps_no_name() -> (
    None
):
    """Whoever had it from the registrar waits for no shard that began later; whoever hears of it by the loss must not either."""
    cluster = Cluster(3)
    registrar, deaf = 2, 1
    spec = replace(SPEC, name=next(names_of(cluster, registrar)))
    cluster.register(spec)
    cluster.held = {(registrar, deaf)}
    cluster.handle(registrar, DeletePipeline("end", spec.name, 0, True, 0))
    cluster.settle()
    newcomer = cluster.join_shard(0)
    assert spec.name in inside.pipelines(cluster.processes[deaf])
    assert newcomer in cluster.processes[deaf].membership.members
    lose(cluster, registrar)
    cluster.held.clear()
    declare(cluster, registrar)
    cluster.pass_time(1_000)
    assert isinstance(cluster.register(spec), PipelineSpec)
    assert all(spec.name in inside.pipelines(process) for process in cluster.processes.values())


def test_a_deletion_that_one_shard_has_forgotten_and_another_one_has_not_keeps_no_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which of those that are over a shard forgets first depends on what it has heard."""
    monkeypatch.setattr(pipelines, "MAX_ENDED", 1)
    cluster = Cluster(4)
    lost, deaf = 3, 2
    one, other, third = (replace(SPEC, name=name) for name in islice(names_of(cluster, 0), 3))
    for spec in (one, other, third):
        cluster.register(spec)
    cluster.ask(0, DeletePipeline, one.name, 0, True, 0)
    cluster.settle()
    cluster.held = {(1, deaf)}
    cluster.handle(0, DeletePipeline("other", other.name, 0, True, 0))
    cluster.settle()
    cluster.handle(0, DeletePipeline("third", third.name, 0, True, 0))
    cluster.settle()
    cluster.held.clear()
    cluster.reconnect()
    known = {s: {*inside.pipelines(p).ended} for s, p in cluster.processes.items()}
    assert known[0] != known[deaf], known
    lose(cluster, lost)
    declare(cluster, lost)
    cluster.pass_time(1_000)
    for spec in (one, other, third):
        assert isinstance(
            cluster.ask(cluster.routing.registrar(spec.name), RegisterPipeline, spec), PipelineSpec
        )


def test_two_that_are_declared_lost_before_either_is_durable_are_both_lost() -> None:
    """Two operators, or two commands at once."""
    cluster = Running(4, lost=3).cluster
    lose(cluster, 2, 3)
    cluster.handle(0, DeclareLost("one", (3,), True, 1_000))
    cluster.handle(0, DeclareLost("other", (2,), True, 1_000))
    cluster.settle()
    cluster.pass_time(1_000)
    assert cluster.answers("one") and cluster.answers("other")
    assert cluster.processes[0].membership.members == {0, 1}


def test_one_that_leaves_may_know_of_a_segment_that_the_lost_registrar_has_told_it_alone() -> None:
    """Who leads waits for its last entry, which says what it has announced of that segment, too."""
    cluster = Cluster(4, config=ProcessConfig(rescale_margin_ms=40))
    registrar, leaves = 2, 3
    spec = replace(SPEC, name=next(names_of(cluster, registrar)))
    cluster.register(spec)
    cluster.handle(0, RescaleShards("leaves", 3, True, (leaves,)))
    cluster.settle(lambda: bool(cluster.logged(ShardLeaving)))
    assert cluster.routing.registrar(spec.name) == registrar
    cluster.held = {(0, leaves), (registrar, 0), (registrar, 1)}
    wider = replace(spec, segments=("a", "b", "c"), edges=(*spec.edges, Edge("b", "c", 0)))
    cluster.handle(registrar, RegisterPipeline("wider", wider, True))
    cluster.settle()
    assert len(cluster.pipeline(leaves, spec.name).announced) == 3
    cluster.held.remove((0, leaves))
    cluster.pass_time(1_000)
    assert cluster.logged(ShardLeft)
    lose(cluster, registrar)
    cluster.held.clear()
    cluster.handle(0, DeclareLost("lost", (registrar,), True, 1_000))
    cluster.pass_time(2_000)
    assert cluster.answers("lost") and leaves in cluster.gone
    cluster.crash(leaves)
    cluster.restart_all()
    assert {len(pipeline.announced) for pipeline in cluster.pipelines(spec.name)} == {2}


def test_a_name_that_is_used_again_and_ends_again_is_taken_where_all_that_comes_late() -> None:
    """The others say that the second one is over before the registrar's word that it begins has come. No shard is lost."""
    cluster = Cluster(3)
    registrar, late = 0, 2
    spec = replace(SPEC, name=next(names_of(cluster, registrar)))
    cluster.register(spec)
    cluster.ask(registrar, DeletePipeline, spec.name, 0, True, 0)
    cluster.settle()
    cluster.held = {(registrar, late)}
    cluster.handle(registrar, RegisterPipeline("again", spec))
    cluster.settle()
    generation = cluster.pipeline(registrar, spec.name).generation
    cluster.handle(registrar, DeletePipeline("ends", spec.name, generation, True, 0))
    cluster.settle()
    cluster.reconnect()
    cluster.pass_time(1_000)
    assert cluster.answers("ends"), "the log of the registrar stands there"
    assert isinstance(cluster.register(spec), PipelineSpec)


@pytest.mark.parametrize("leader_has_left", [False, True])
def test_one_hears_of_the_next_sequencer_before_the_one_that_names_it_while_a_shard_is_lost(
    leader_has_left: bool,
) -> None:
    """It cannot tell whether the log that names it is that of a lost shard, and takes what that one says late."""
    cluster = Running(
        4, lost=2, cluster=Cluster(4, config=ProcessConfig(rescale_margin_ms=40))
    ).cluster
    late = 3
    cluster.handle(0, RescaleShards("leaves", 3, True, (0,)))
    moves = appended(cluster, 0, SequencerMoved)
    cluster.settle(moves)
    assert moves()
    cluster.held = {(0, late), (late, 1)} if leader_has_left else {(0, late), (1, 0)}
    cluster.settle()
    assert cluster.processes[1].membership.sequencer == 1
    assert cluster.processes[late].membership.sequencer == 0
    lose(cluster, 2)
    leader = 1 if leader_has_left else 0
    cluster.handle(leader, DeclareLost("lost", (2,), True, 1_000))
    cluster.settle()
    cluster.held = {(0, late)}
    cluster.pass_time(1_000)
    assert cluster.processes[late].membership.sequencer == 1
    cluster.reconnect()
    cluster.pass_time(2_000)
    assert isinstance(cluster.answers("lost")[0], LossReport)
    for shard in {0} & cluster.gone:
        cluster.crash(shard)
    finish_anew(cluster, 0)


def test_what_one_says_by_a_declaration_that_another_one_never_hears_of_holds_up_nothing() -> None:
    """It names a newcomer, too, that is gone with the first loss for those who went on, and that the last leader cannot name."""
    running = Running(5, lost=0)
    cluster = running.cluster
    running.create(0, 1, 2, 3)
    newcomer = cluster.begin_to_join()
    cluster.settle()
    cluster.held = {(2, 3)}
    for lost, leader in ((0, 1), (1, 2)):
        lose(cluster, lost)
        cluster.handle(leader, DeclareLost(f"lost {lost}", (lost,), True, 1_000))
        cluster.settle()
        cluster.pass_time(1_000)
    assert cluster.processes[4].membership.lost.keys() == {0, newcomer}
    assert newcomer in cluster.processes[3].membership.joining
    lose(cluster, 2)
    cluster.held.clear()
    cluster.handle(3, DeclareLost("all", (0, 1, 2), True, 1_000))
    for _ in range(2):
        cluster.pass_time(1_000)
    assert cluster.answers("all")
    finish_anew(cluster, 4)


def test_what_is_answered_is_known_to_one_that_has_confirmed_it_and_is_left_alone() -> None:
    """It has not gone on without shard 3, and passes over what shard 4 has logged since, by which others are answered."""
    running = Running(5, lost=3)
    cluster = running.cluster
    running.create(0, 1, 2, 3)
    cluster.held = {(4, 2)}
    lose(cluster, 3)
    cluster.handle(0, DeclareLost("asked", (3,), True, 1_000))
    cluster.settle()
    cluster.pass_time(1_000)
    spec = replace(SPEC, name=next(names_of(cluster, 4)))
    cluster.handle(4, RegisterPipeline("registers", spec))
    cluster.settle()
    assert not cluster.answers("registers")
    lose(cluster, 0)
    cluster.handle(1, DeclareLost("again", (0,), True, 1_000))
    cluster.commit(1)
    cluster.deliver(1, 2)
    cluster.commit(2)
    cluster.held = {(1, 2)}
    for _ in range(3):
        cluster.pass_time(cluster.config.retransmit_ms + 1)
    told = cluster.answers("registers")
    lose(cluster, 1, 4)
    cluster.held.clear()
    declare(cluster, 0, 1, 3, 4)
    assert not told or spec.name in inside.pipelines(cluster.processes[2])


def chained(leaves: int, lost: int) -> Running:
    """Shard `leaves` is to go when `lost` is declared lost; all but shard 4 go on, which waits for what shard 2 knew. That one is lost, too."""
    cluster = Cluster(5, config=ProcessConfig(rescale_margin_ms=40))
    running = Running(5, lost=lost, cluster=cluster)
    running.create(0, 1, 2, 3)
    cluster.handle(0, RescaleShards("leaves", 4, True, (leaves,)))
    begins = SequencerMoved if leaves == 0 else ShardLeaving
    cluster.settle(lambda: bool(cluster.logged(begins)))
    cluster.held = {(2, 4)}
    lose(cluster, lost)
    first = min(cluster.processes)
    cluster.handle(first, DeclareLost("first", (lost,), True, 1_000))
    cluster.settle()
    cluster.pass_time(1_000)
    gone_on = {s for s, p in cluster.processes.items() if p.membership.loss is None}
    assert gone_on == cluster.processes.keys() - {4}
    return running


@pytest.mark.parametrize("leaves", [0, 1])
def test_nobody_leaves_before_all_have_heard_how_they_go_on(leaves: int) -> None:
    """Shard 4 would pass over that it has left, and wait for what it knows by the next declaration, or for it to declare that."""
    cluster = chained(leaves, lost=3).cluster
    assert all(leaves in process.membership.members for process in cluster.processes.values())
    lose(cluster, 2)
    cluster.held.clear()
    cluster.handle(0, DeclareLost("again", (2,), True, 1_000))
    for _ in range(3):
        cluster.pass_time(1_000)
    assert cluster.answers("again") and cluster.gone == {leaves}
    cluster.crash(leaves)
    finish_anew(cluster, 4)


def test_the_leader_is_lost_beside_one_that_is_to_leave_and_another_one_that_has_not_gone_on() -> (
    None
):
    """Shard 1 would have left, so that shard 3 would lead; that one would still have asked shard 1 to."""
    cluster = Cluster(5, config=ProcessConfig(rescale_margin_ms=40))
    running = Running(5, lost=2, cluster=cluster)
    running.create(0, 1, 2, 3)
    cluster.handle(0, RescaleShards("leaves", 4, True, (1,)))
    cluster.settle(lambda: bool(cluster.logged(ShardLeaving)))
    cluster.held = {(0, 3)}
    lose(cluster, 2)
    cluster.handle(0, DeclareLost("first", (2,), True, 1_000))
    cluster.commit(0)
    cluster.deliver(0, 3)
    cluster.settle()
    cluster.pass_time(1_000)
    gone_on = [p.membership.loss is None for p in cluster.processes.values()]
    assert gone_on == [True, True, False, True]
    lose(cluster, 0)
    cluster.held.clear()
    cluster.handle(1, DeclareLost("again", (0,), True, 1_000))
    for _ in range(3):
        cluster.pass_time(1_000)
    assert cluster.answers("again") and cluster.gone == {1}
    cluster.crash(1)
    finish_anew(cluster, 4)


def test_what_the_leader_logs_next_counts_though_one_with_a_longer_log_had_left_before() -> None:
    running = Running(4, lost=2, cluster=Cluster(4, config=ProcessConfig(rescale_margin_ms=40)))
    cluster = running.cluster
    talks = cluster.node(SPEC, at_home(cluster, 3, "talks"), "front")
    for slot in range(60):
        talks.commit(created=[(0, slot, slot + 1)])
    cluster.rescale(3, evacuate=True, without=(3,))
    cluster.pass_time(1_000)
    assert cluster.gone == {3}
    cluster.crash(3)
    lose(cluster, 2)
    declare(cluster, 2)
    assert inside.home_last(cluster.processes[0]) < cluster.processes[0].membership.former[3]
    spec = replace(SPEC, name=next(names_of(cluster, 0)))
    assert isinstance(cluster.register(spec), PipelineSpec)
    assert all(spec.name in inside.pipelines(process) for process in cluster.processes.values())


def test_the_last_word_of_one_that_left_comes_when_how_all_go_on_is_accepted_and_not_durable() -> (
    None
):
    """That says that it has left: its log is waited for no more."""
    cluster = Cluster(4, config=ProcessConfig(rescale_margin_ms=40))
    Running(4, lost=2, cluster=cluster).create(0, 1)
    leaves, late = 3, 1
    cluster.handle(0, RescaleShards("leaves", 3, True, (leaves,)))
    left = appended(cluster, leaves, ShardLeft)
    cluster.settle(left)
    cluster.held = {(leaves, late)}
    cluster.settle()
    lose(cluster, 2)
    cluster.handle(0, DeclareLost("lost", (2,), True, 1_000))
    cluster.settle(lambda: any(entry.shards for entry in cluster.logged(ShardLost)))
    cluster.commit(0)
    cluster.deliver(0, late)
    assert leaves in inside.expected_membership(cluster.processes[late]).former
    cluster.held.clear()
    cluster.processes[leaves].handle(PeerDisconnected(late), cluster.now_ns)
    cluster.handle(leaves, PeerConnected(late))
    assert cluster.links[leaves, late]
    cluster.deliver(leaves, late)
    for _ in range(2):
        cluster.pass_time(1_000)
    assert cluster.answers("lost") and cluster.gone == {leaves}


def test_nodes_that_came_by_a_table_that_was_lost_with_its_sequencer_hold_up_no_rescale() -> None:
    """Shard 2 had heard of the table, and had given its nodes away by it. Shard 1 has them, and has never heard of it. The pipeline
    stands, so they stay there. By the next table it gave them on as their home, which it was by no table that others know: its
    frame was refused for ever."""
    cluster = Cluster(4)
    cluster.register(SPEC)
    for name in islice(cluster.ids_at(2), 6):
        cluster.node(SPEC, name)
    cluster.front(SPEC, next(cluster.ids_at(3)), promise=10)
    cluster.handle(0, RescaleShards("lost", 3, True, (2,)))
    cluster.settle(lambda: bool(cluster.logged(RoutingChanged)))
    cluster.held = {(0, 1), (2, 1), (3, 1)}
    cluster.settle()
    assert 1 in {step.home for step in cluster.logged(NodesMoved)}
    lose(cluster, 0)
    cluster.held.clear()
    declare(cluster, 0, write_off=False)
    table = cluster.rescale(2, evacuate=True)
    cluster.pass_time(1_000)
    assert cluster.routing == table and {*cluster.processes} - cluster.gone == {1, 2}
    assert not any(link.awaits for p in cluster.processes.values() for link in p.links.values())
    generation = cluster.pipeline(1).generation
    registrar = cluster.routing.registrar("p")
    how = partial(RestartPipeline, generation=generation, from_slot=None, at_ms=0)
    assert isinstance(cluster.ask(registrar, how, "p"), Restart)


def test_no_level_is_above_that_of_losses() -> None:
    """A declaration raises the level everywhere, so it need not be said. With a higher one, that only the leader has heard from a lost
    sequencer, what it records would stand before it says so again: `ShardsKnown` and `WithoutLost` then have to say it."""
    assert NEWEST_LEVEL == LOSSES
