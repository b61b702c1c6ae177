"""A pipeline moves to another group: whole, once, and where the directory says (rule 13)."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial

import pytest

from tests import inside
from tests.core.deployment import Deployment, goes_on
from tests.core.driver import Cluster, HandNode, plain, refused
from tracker.core.log import (
    DeclareLost,
    DeletePipeline,
    EndMove,
    FinishUpgrade,
    Frame,
    FrameArrived,
    JoinNode,
    JoinShard,
    KeepPart,
    KnowGroup,
    MovePipeline,
    MoveTerms,
    PartKept,
    PeerDisconnected,
    PipelineEnded,
    PipelineReport,
    PlacePipeline,
    RegisterPipeline,
    RescaleShards,
    RestartPipeline,
    ShardReport,
)
from tracker.core.log.losses import LossReport
from tracker.core.model import Batch, Edge, PipelineSpec, Refusal, RefusalCode, Unit
from tracker.core.model.levels import NEWEST_LEVEL
from tracker.core.model.placements import Group
from tracker.core.model.slots import FOREVER
from tracker.core.moving.driver import Ask, Piece

SPEC = PipelineSpec("p", ("work", "next"), (Edge("work", "next", 2),), fronts=("a",), open=True)
SHARDS = [(1, 1), (1, 3), (3, 1), (2, 3)]


def running(*shards: int, group: int = 0) -> tuple[Deployment, HandNode, HandNode]:
    """A front at 40, items at 23 and 31, and a worker with a hold at 25 and a batch."""
    made = Deployment(*shards)
    made.register(SPEC, group)
    cluster = made.groups[group]
    front = cluster.front(SPEC, "front")
    front.commit(created=[(0, 23, 1), (0, 31, 2)])
    front.commit(heartbeats={"a": 40})
    worker = cluster.node(SPEC, "worker")
    worker.commit(
        consumed=[(0, 31, 2)], created=[(1, 33, 7)], holds={"h": (1, 33)}, batch=Batch("q", 4, b"f")
    )
    assert cluster.agreed(SPEC) == (23, 25)
    return made, front, worker


def finish(front: HandNode, worker: HandNode) -> None:
    """All that is open is consumed, and the front goes on to 50."""
    worker.commit(consumed=[(0, 23, 1)], created=[(1, 25, 9)])
    worker.commit(consumed=[(1, 25, 9), (1, 33, 7)], holds={"h": (1, FOREVER)})
    front.commit(heartbeats={"a": 50})


def goes_on_to_its_end(group: Cluster, front: HandNode, worker: HandNode) -> None:
    """Its nodes go on in a group, with the keys that they have, and nothing is left open."""
    for node in (front, worker):
        goes_on(node, group)
    finish(front, worker)
    assert group.agreed(SPEC) == (50, 52)


@pytest.mark.parametrize("shards", SHARDS)
def test_all_of_it_goes_and_its_nodes_go_on_with_their_keys(shards: tuple[int, int]) -> None:
    made, front, worker = running(*shards)
    said = made.groups[0].agreed(SPEC)
    assert made.move("p", 0, 1) == ""
    assert made.has("p") == [1]
    target = made.groups[1]
    assert target.agreed(SPEC) == said
    refused(front.ended, RefusalCode.NOT_READY, "on its way to group 1")
    for node in (front, worker):
        goes_on(node, target)
    assert target.min_times(SPEC)[0] == (23, 25)
    finish(front, worker)
    assert target.agreed(SPEC) == (50, 52)


@pytest.mark.parametrize("shards", SHARDS)
def test_what_was_committed_before_is_not_committed_again(shards: tuple[int, int]) -> None:
    made, front, worker = running(*shards)
    made.move("p", 0, 1)
    for node in (front, worker):
        goes_on(node, made.groups[1])
        assert node.durable == node.last
    again = made.groups[1].join("worker")
    assert again.last_batches == (Batch("q", 4, b"f"),)
    assert [hold.name for hold in again.holds] == ["h"]
    assert again.key.incarnation > worker.key.incarnation


@pytest.mark.parametrize("shards", SHARDS)
def test_nothing_of_it_is_taken_in_between(shards: tuple[int, int]) -> None:
    made, front, _ = running(*shards)
    made.begin_move("p", 0, 1)
    made.settle()
    source = made.groups[0]
    refused(front.attach_refused(), RefusalCode.NOT_READY, "on its way")
    refused(source.join("new"), RefusalCode.NOT_READY, "on its way to group 1")
    registrar = source.routing.registrar("p")
    refused(source.ask(registrar, RestartPipeline, "p", 0, None, 0), RefusalCode.NOT_READY)
    assert source.agreed(SPEC) == (23, 25), "what was announced is still told"


@pytest.mark.parametrize("shards", SHARDS)
def test_subscribers_hear_that_it_has_gone(shards: tuple[int, int]) -> None:
    made, _, _ = running(*shards)
    made.move("p", 0, 1)
    ended = [e for e in made.groups[0].effects if isinstance(e, PipelineEnded)]
    assert ended == [PipelineEnded("p", moved=True)] * shards[0]
    refused(made.groups[0].join("new"), RefusalCode.UNKNOWN_PIPELINE, "gone to another group")


def test_it_is_not_deleted_where_it_has_gone_from() -> None:
    """Who asks there is sent on, and not told that it was."""
    made, _, _ = running(2, 2)
    made.move("p", 0, 1)
    made.settle()
    source = made.groups[0]
    answer = source.ask(source.routing.registrar("p"), DeletePipeline, "p", 0, True, 0)
    refused(answer, RefusalCode.UNKNOWN_PIPELINE, "gone to another group")
    assert made.has("p") == [1]


def test_it_goes_to_no_group_that_records_by_an_older_feature_level() -> None:
    """That would leave out what it does not know of. The pipeline goes on where it is."""
    newer = NEWEST_LEVEL + 1
    made = Deployment(1, 1)
    made.groups[0] = Cluster(1, speaks=newer)
    made.register(SPEC, 0)
    there = made.groups[1]
    there.register(replace(SPEC, name="other"))
    assert f"this needs level {newer}" in made.move("p", 0, 1)
    made.groups[0].front(SPEC, "front").commit(heartbeats={"a": 70})
    there.upgrade(0, newer)
    assert "finish the upgrade of this group first" in made.move("p", 0, 1)
    there.ask(0, FinishUpgrade, newer)
    assert made.move("p", 0, 1) == ""
    assert there.agreed(SPEC) == (70, 72)


def test_it_comes_back_and_goes_on_there() -> None:
    made, front, worker = running(2, 3)
    made.move("p", 0, 1)
    made.settle()
    assert made.move("p", 1, 0) == ""
    assert made.has("p") == [0]
    goes_on_to_its_end(made.groups[0], front, worker)


def test_a_front_that_waits_for_its_grant_is_granted_there() -> None:
    made, _, _ = running(3, 2)
    source = made.groups[0]
    late = source.node(SPEC, "late", "front")
    source.held |= {(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)}
    late.begin(joins={"b": 1})
    source.commit(late.home)
    assert not late.grants
    made.groups[0].held.clear()
    made.begin_move("p", 0, 1)
    made.run(made.drive("p", 0))
    goes_on(late, made.groups[1])
    made.settle()
    (grant,) = [g for g in late.grants if g.front == "b"][-1:]
    assert grant.granted and grant.slot >= 25
    late.commit(created=[(1, grant.slot, 5)])


def test_names_of_units_and_what_is_staged_go_along() -> None:
    made, front, worker = running(2, 2)
    front.commit(created=[(0, 41, 77)], units_created=[Unit(0, "file-1", 41)])
    made.move("p", 0, 1)
    target = made.groups[1]
    keeper = target.routing.names_keeper("p", 0)
    assert target.processes[keeper].resolve_units("p", 0, ["file-1"]) == [41]
    assert worker.durable


@pytest.mark.parametrize("shards", [(1, 1), (2, 3)])
def test_whatever_dies_between_two_steps_it_ends_in_one_group(
    shards: tuple[int, int], snapshot: bool
) -> None:
    for place in itertools.count():
        made, front, worker = running(*shards)
        made.begin_move("p", 0, 1)
        drive = made.drive("p", 0)
        taken = len([*zip(made.steps(drive), range(place), strict=False)])
        for cluster in made.groups:
            cluster.restart_all(from_snapshots=snapshot)
        made.settle()
        made.go_on("p", 0, 1)
        assert made.has("p") == [1]
        goes_on_to_its_end(made.groups[1], front, worker)
        if taken < place:
            break
    assert place > 6


def test_one_that_cannot_come_is_given_up_and_goes_on_where_it_was() -> None:
    made, front, worker = running(2, 2)
    made.groups[1].register(SPEC)  # without a placement: nobody may
    why = made.move("p", 0, 1)
    assert "cannot come" in why
    assert made.groups[0].pipeline(0).placed > 0
    goes_on_to_its_end(made.groups[0], front, worker)


def test_it_is_given_up_while_the_other_group_is_away_and_not_when_the_directory_has_turned() -> (
    None
):
    made, front, worker = running(2, 2, 2, group=1)
    made.away.add(2)
    assert "does not answer" in made.move("p", 1, 2)
    made.away.clear()
    assert made.has("p") == [1]
    made.begin_move("p", 1, 2)
    made.until(made.drive("p", 1), PlacePipeline)
    made.away.add(2)
    made.run(made.drive("p", 1))
    assert made.has("p") == []
    made.away.clear()
    made.run(made.drive("p", 2))
    assert made.has("p") == [2]
    goes_on_to_its_end(made.groups[2], front, worker)


def test_one_that_is_on_its_way_when_the_other_group_is_cordoned_stays() -> None:
    """That group is taken away when nothing is left there."""
    made, front, worker = running(2, 2)
    directory = made.groups[0]
    directory.ask(directory.sequencer, KnowGroup, Group(1, ("a:1",)))
    made.begin_move("p", 0, 1)
    drive = made.drive("p", 0)
    made.until(drive, KeepPart)
    directory.ask(directory.sequencer, KnowGroup, Group(1, (), cordoned=True))
    made.run(drive)
    made.settle()
    assert made.has("p") == [0]
    goes_on_to_its_end(made.groups[0], front, worker)
    directory.ask(directory.sequencer, KnowGroup, Group(1, ()))
    assert made.move("p", 0, 1) == ""
    directory.ask(directory.sequencer, KnowGroup, Group(1, (), cordoned=True))
    assert made.move("p", 1, 0) == "", "it may be emptied"


def test_a_group_to_which_one_was_about_to_come_waits_for_no_group_that_is_gone() -> None:
    """While it waits, no shard of it comes or goes. The pipeline is where it was, should that group be back."""
    made, front, worker = running(2, 2, 2, group=1)
    made.begin_move("p", 1, 2)
    made.until(made.drive("p", 1), KeepPart)
    made.away.add(1)
    target = made.groups[2]
    refused(target.ask(0, JoinShard, "host:1"), RefusalCode.NOT_READY)
    made.run(made.drive("p", 2))
    made.settle()
    assert not any(process.membership.moving for process in target.processes.values())
    target.join_shard()
    made.away.clear()
    made.run(made.drive("p", 1))
    assert made.has("p") == [1]
    goes_on_to_its_end(made.groups[1], front, worker)


def test_while_the_directory_is_away_it_waits_and_goes_on_when_that_is_back() -> None:
    made, _, _ = running(2, 2, 2, group=1)
    made.begin_move("p", 1, 2)
    made.away.add(0)
    steps = made.steps(made.drive("p", 1))
    assert len([*zip(steps, range(50), strict=False)]) == 50
    made.away.clear()
    made.run(made.drive("p", 1))
    assert made.has("p") == [2]


def test_every_answer_may_be_lost() -> None:
    made, _, _ = running(2, 2)
    made.begin_move("p", 0, 1)
    for limit in (3, 7, 12, 20):
        steps = made.steps(made.drive("p", 0))
        for _ in zip(steps, range(limit), strict=False):
            made.lost_answers = not made.lost_answers
            if made.has("p") == [1]:
                break
        made.lost_answers = False
        if "p" not in made.groups[0].processes[0].membership.moving:
            break
    if made.has("p") != [1]:
        made.run(made.drive("p", 0))
    assert made.has("p") == [1]


def test_what_was_reported_before_it_came_is_of_another_pipeline(snapshot: bool) -> None:
    """A shard says that it has nothing of it, as it does while it has not heard that the pipeline came; or it said that long
    ago, when the pipeline had been there before and nothing was open."""
    made, _, _ = running(1, 2)
    made.move("p", 0, 1)
    there = made.groups[1]
    there.restart_all(from_snapshots=snapshot)
    there.settle()
    pipeline, link = there.pipeline(0), there.processes[0].links[1]
    before = dict(inside.vectors(there.processes[0]).of(1))
    before[pipeline.arrived_home] = pipeline.arrived_number - 1
    for whole in (False, True):
        said = ShardReport(
            link.last_report + 1, whole, tuple(before.items()), (PipelineReport("p"),)
        )
        there.handle(0, FrameArrived(Frame(1, link.epoch, said)))
        assert pipeline.combiner.low(0) == 23


def test_a_shard_may_have_passed_over_a_generation() -> None:
    """One of them heard of the second restart first, and knows nothing of the generation in between."""
    made, _, _ = running(3, 2)
    source = made.groups[0]
    registrar = source.routing.registrar("p")
    for generation in (0, 1):
        source.ask(registrar, RestartPipeline, "p", generation, None, 0)
    source.front(SPEC, "front").commit(heartbeats={"a": 60})
    del source.pipeline((registrar + 1) % 3).restarts[0]
    assert made.move("p", 0, 1) == ""
    begun = [dropped.restart.generation for dropped in made.groups[1].pipeline(0).restarts]
    assert begun == [1, 2]


def test_shards_do_not_come_and_go_meanwhile_and_a_move_waits_for_them() -> None:
    made, _, _ = running(2, 2)
    made.begin_move("p", 0, 1)
    made.settle()
    source = made.groups[0]
    refused(source.ask(0, RescaleShards, 1), RefusalCode.NOT_READY, "on their way between groups")
    refused(source.ask(0, JoinShard, "host:1"), RefusalCode.NOT_READY)
    made.run(made.drive("p", 0))
    source.rescale(1)


def test_a_piece_is_kept_once_and_of_no_other_placement() -> None:
    made, _, _ = running(1, 1)
    made.begin_move("p", 0, 1)
    asked = made.until(made.drive("p", 0), KeepPart)
    assert made.ask(asked) is None, "it may be repeated"
    kept = asked.what
    assert isinstance(kept, KeepPart)
    wrong = KeepPart(None, "p", 99, 0, 1, kept.part)
    refused(made.ask(Ask(1, wrong, 0)), RefusalCode.NOT_READY, "does not come by placement 99")
    beyond = KeepPart(None, "p", kept.version, 7, 3, kept.part)
    refused(made.ask(Ask(1, beyond, 0)), RefusalCode.INVALID, "piece 7 of 3")


def test_a_piece_that_waits_for_a_slow_store_is_not_kept_again() -> None:
    made, _, _ = running(1, 1)
    made.begin_move("p", 0, 1)
    drive = made.drive("p", 0)
    made.until(drive, MovePipeline)
    there, asked = made.groups[1], drive.send(MoveTerms(made.groups[1].routing, (0,), 1))
    for number in range(3):
        there.handle(0, replace(asked.what, request=f"again-{number}"))
    kept = [r for _, r, _ in inside.pending(there.processes[0]) if isinstance(r, PartKept)]
    assert len(kept) == 1
    there.settle()
    assert there.answers("again-0") == [None] and not there.answers("again-1")


def test_one_that_was_asked_for_by_an_older_placement_is_refused() -> None:
    made, _, _ = running(2, 2)
    made.move("p", 0, 1)
    made.settle()
    made.move("p", 1, 0)
    made.settle()
    stale = MovePipeline(None, "p", 0, 1)
    refused(made.ask(Ask(0, stale)), RefusalCode.CONFLICT, "look again")


def test_what_recovery_finds_is_what_was_there(snapshot: bool) -> None:
    made, _, _ = running(2, 3)
    made.begin_move("p", 0, 1)
    made.until(made.drive("p", 0), KeepPart)
    made.settle()
    for cluster in made.groups:
        before = {s: plain(p.snapshot()) for s, p in cluster.processes.items()}
        cluster.restart_all(from_snapshots=snapshot)
        assert {s: plain(p.snapshot()) for s, p in cluster.processes.items()} == before
        assert all("p" in p.membership.moving for p in cluster.processes.values())
    assert inside.pipelines(made.groups[0].processes[0])


def lose(cluster: Cluster, shard: int) -> None:
    """A shard's store is gone, and an operator says so."""
    cluster.crash(shard)
    for other in cluster.processes:
        cluster.handle(other, PeerDisconnected(shard))
    left = min(cluster.processes)
    answer = cluster.ask(left, DeclareLost, (shard,), True, 1)
    assert isinstance(answer, LossReport), answer
    cluster.settle()


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_shard_that_is_lost_while_it_goes_ends_it_in_one_group(lost: int) -> None:
    made, _, _ = running(3, 2)
    made.begin_move("p", 0, 1)
    made.settle()
    source = made.groups[0]
    lose(source, lost)
    assert all("p" in process.membership.moving for process in source.processes.values())
    made.run(made.drive("p", 0))
    made.settle()
    assert made.has("p") in ([0], [1])
    assert not any(process.membership.moving for process in source.processes.values())


def test_nothing_that_was_sent_before_a_loss_is_mixed_with_what_is_left() -> None:
    made, _, _ = running(3, 2)
    made.begin_move("p", 0, 1)
    made.until(made.drive("p", 0), KeepPart)
    made.settle()
    lose(made.groups[0], 2)
    assert "has lost shards [2]" in made.go_on("p", 0, 1)
    assert made.has("p") == [0]
    assert not made.groups[1].processes[0].membership.moving
    assert made.move("p", 0, 1) == "", "it moves as it is now"
    assert made.has("p") == [1]


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_shard_that_is_lost_with_its_part_leaves_the_pipeline_standing(lost: int) -> None:
    made, _, _ = running(2, 3)
    made.begin_move("p", 0, 1)
    made.until(made.drive("p", 0), PlacePipeline)
    made.settle()
    target = made.groups[1]
    lose(target, lost)
    made.go_on("p", 0, 1)
    assert made.has("p") == [1]
    for process in target.processes.values():
        assert inside.pipeline(process, "p").held is not None
    refused(target.join("front"), RefusalCode.NOT_READY, "stands")


@pytest.mark.parametrize("lost", [0, 1, 2])
@pytest.mark.parametrize("anew", [False, True])
def test_one_of_which_a_shard_is_lost_with_its_part_stays_where_all_of_it_is(
    lost: int, *, anew: bool
) -> None:
    """The directory has not turned: nothing has to be given up. anew: whoever goes on with the move begins again."""
    made, front, worker = running(2, 3)
    made.begin_move("p", 0, 1)
    drive = made.drive("p", 0)
    for asked, _ in made.steps(drive):
        what = asked.what if isinstance(asked, Ask) else None
        if isinstance(what, KeepPart) and asked.shard == 1 and what.number == what.pieces - 1:
            break
    lose(made.groups[1], lost)
    if not anew:
        made.run(drive)
    made.go_on("p", 0, 1)
    assert made.has("p") == [0]
    assert not any(
        made.groups[1].processes[shard].membership.moving for shard in {0, 1, 2} - {lost}
    )
    goes_on_to_its_end(made.groups[0], front, worker)
    assert made.move("p", 0, 1) == "", "it moves to those that are left"


def test_one_that_is_complete_is_so_without_a_shard_that_was_lost() -> None:
    """Else it would stand until it is restarted, which nothing is that is complete."""
    made = Deployment(2, 3)
    spec = PipelineSpec("p", ("work",), fronts=("a",))
    made.register(spec, 0)
    made.groups[0].front(spec, "front").commit(leaves=["a"])
    made.begin_move("p", 0, 1)
    made.until(made.drive("p", 0), PlacePipeline)
    lose(made.groups[1], 1)
    made.go_on("p", 0, 1)
    target = made.groups[1]
    assert target.agreed(spec) == (FOREVER,)
    assert all(known.held is None for known in target.pipelines())


def test_one_that_stands_since_a_loss_does_not_move() -> None:
    made, _, _ = running(3, 1)
    source = made.groups[0]
    source.crash(2)
    for other in source.processes:
        source.handle(other, PeerDisconnected(2))
    source.ask(0, DeclareLost, (2,), False, 1)
    source.settle()
    refused(made.begin_move("p", 0, 1), RefusalCode.NOT_READY, "stands")


def test_one_that_is_deleted_as_its_move_begins_is_gone() -> None:
    made, _, _ = running(3, 2)
    source = made.groups[0]
    registrar, sequencer = source.routing.registrar("p"), source.sequencer
    assert registrar != sequencer, "else one log orders both"
    source.part(0, 1, 2)
    source.handle(registrar, DeletePipeline("d", "p", 0, True, 1))
    source.handle(sequencer, MovePipeline("m", "p", 0, 1))
    for shard in (registrar, sequencer):
        source.commit(shard)
    source.reconnect()
    made.settle()
    made.run(made.drive("p", 0))
    made.settle()
    assert made.has("p") == []
    assert not any(process.membership.moving for process in source.processes.values())
    assert isinstance(source.register(SPEC), PipelineSpec | Refusal)


def test_a_front_is_held_there_where_it_was_granted_whatever_a_newcomer_held_it_at_here() -> None:
    """The newcomer had heard at once of the front, and of an edge that leads from there to where more is announced."""
    spec = PipelineSpec("p", ("a", "b"), (), fronts=("f", "g"), start_slot=0)
    made = Deployment(1, 1)
    made.register(spec, 0)
    cluster = made.groups[0]
    front = cluster.front(spec, "front", promise=100, f=0)
    cluster.front(spec, "other", promise=300, g=1)
    shard = cluster.begin_to_join()
    cluster.settle()
    cluster.snapshots[shard] = cluster.processes[0].bootstrap_snapshot(shard)
    granted = cluster.node(spec, "joins", "front").join_front("h", 0).slot
    joined = replace(spec, edges=(Edge("a", "b"),))
    assert cluster.ask(0, RegisterPipeline, joined, True) == joined
    cluster.start(shard)
    cluster.settle()
    front.commit(heartbeats={"f": 1_000})
    made.move("p", 0, 1)
    made.settle()
    assert made.groups[1].processes[0].min_times("p") == (granted, 300)


def test_a_shard_that_hears_by_a_loss_alone_that_a_pipeline_has_gone_does_not_say_that_it_was_deleted() -> (
    None
):
    """The sequencer had told one of both that are left that the move is over."""
    made, _, _ = running(3, 1)
    source = made.groups[0]
    made.begin_move("p", 0, 1)
    drive = made.drive("p", 0)
    made.until(drive, PlacePipeline)
    source.held = {(0, 2)}
    for _ in zip(made.steps(drive), range(5), strict=False):
        pass
    assert ["p" in inside.pipelines(process) for process in source.processes.values()] == [
        False, False, True,
    ]  # fmt: skip
    source.held.clear()
    lose(source, 0)
    assert made.has("p") == [1]
    ended = [effect for effect in source.effects if isinstance(effect, PipelineEnded)]
    assert [effect.moved for effect in ended] == [True] * 3


def test_a_shard_that_hears_by_a_loss_alone_that_a_move_was_given_up_lets_the_pipeline_go_on() -> (
    None
):
    """The sequencer had told one of both that are left that the move is over."""
    made, _, _ = running(3, 1)
    source = made.groups[0]
    made.begin_move("p", 0, 1)
    made.away.add(1)
    drive = made.drive("p", 0)
    made.until(drive, PlacePipeline)
    source.held = {(0, 2)}
    for _ in zip(made.steps(drive), range(20), strict=False):
        pass
    going = [bool(process.membership.moving) for process in source.processes.values()]
    assert going == [False, False, True]
    source.held.clear()
    lose(source, 0)
    front = source.front(SPEC, "front")
    front.commit(heartbeats={"a": 90})
    assert source.agreed(SPEC) == (90, 92)


def test_no_pipeline_is_in_two_groups_since_the_shard_that_placed_it_was_lost() -> None:
    """It told both groups where the pipeline belongs, and nobody else of the directory has heard that."""
    made, _, _ = running(3, 1)
    source = made.groups[0]
    registrar = source.routing.registrar("p")
    assert registrar == 2, "else the sequencer is lost, too"
    made.begin_move("p", 0, 1)
    drive = made.drive("p", 0)
    for asked, _ in made.steps(drive):
        if isinstance(asked, Ask) and isinstance(asked.what, KeepPart):
            break
    source.held = {(registrar, 0), (registrar, 1)}
    for asked, _ in zip(made.steps(drive), range(10), strict=False):
        if isinstance(asked[0], Ask) and isinstance(asked[0].what, EndMove):
            break  # the group that the pipeline goes to has been told
    source.held.clear()
    lose(source, registrar)
    made.run(made.drive("p", 0))
    made.settle()
    assert len(made.has("p")) == 1


def test_one_that_has_left_as_a_pipeline_begins_to_come_is_to_have_no_part_of_it() -> None:
    target = Cluster(3)
    target.handle(0, RescaleShards("fewer", 2, True))
    target.settle(lambda: len(inside.expected_membership(target.processes[0]).members) == 2)
    assert len(target.processes[0].membership.members) == 3
    target.handle(0, MovePipeline("m", "p", 0, 0, arrives=True, segments=2))
    target.settle()
    (terms,) = target.answers("m")
    assert terms.members == (0, 1)


def given_up_unheard() -> Deployment:
    """A pipeline of group 0 was about to come to group 1, which has its part and does not hear that it was given up."""
    made, _, _ = running(1, 1)
    made.begin_move("p", 0, 1)
    made.until(made.drive("p", 0), KeepPart)
    made.place("p", 0, 0)
    made.away.add(1)
    made.run(made.drive("p", 0))
    made.away.clear()
    made.settle()
    assert made.has("p") == [0] and "p" in made.groups[1].processes[0].membership.moving
    return made


def test_what_was_deleted_does_not_come_where_its_name_is_claimed_again() -> None:
    made = given_up_unheard()
    made.delete("p", 0)
    made.place("p", 1)
    made.run(made.drive("p", 1))
    assert made.has("p") == []
    made.register(SPEC, 1)
    assert made.groups[1].agreed(SPEC) == (0, 0)


def test_what_was_deleted_does_not_come_in_place_of_one_of_its_name() -> None:
    """The part that is there is of the one before."""
    made = given_up_unheard()
    made.delete("p", 0)
    made.register(SPEC, 0)
    made.run(made.drive("p", 1))
    made.groups[0].front(SPEC, "front").commit(heartbeats={"a": 70})
    assert made.move("p", 0, 1) == ""
    assert made.groups[1].agreed(SPEC) == (70, 72)


def test_what_was_deleted_and_has_no_name_any_more_holds_up_no_shards() -> None:
    made = given_up_unheard()
    made.delete("p", 0)
    made.run(made.drive("p", 1))
    assert not made.groups[1].processes[0].membership.moving
    made.groups[1].join_shard()


@pytest.mark.parametrize("claimed", [None, 0, 1, 2])
@pytest.mark.parametrize("source", [0, 2])
def test_what_was_deleted_where_it_had_come_does_not_go_on_where_it_came_from(
    source: int, claimed: int | None
) -> None:
    """The group that it has left hears late of it, when its name is free again, or somebody has it again."""
    made, _, _ = running(1, 1, 1, group=source)
    made.begin_move("p", source, 1)
    made.until(made.drive("p", source), PlacePipeline)
    made.run(made.drive("p", 1))
    made.delete("p", 1)
    if claimed is not None:
        made.place("p", claimed)
    made.run(made.drive("p", source))
    assert made.has("p") == []
    made.register(SPEC, claimed or 0)
    assert made.groups[claimed or 0].agreed(SPEC) == (0, 0)


@pytest.mark.parametrize("claimed", [False, True])
def test_who_still_goes_on_with_a_move_that_is_over_brings_back_nothing_that_was_deleted(
    *, claimed: bool
) -> None:
    """Somebody who went on with the move stood still, with all parts in hand."""
    made, _, _ = running(1, 1)
    made.begin_move("p", 0, 1)
    late = made.steps(made.drive("p", 0))
    has_all = (isinstance(a, Piece) and q.what.number + 1 == a.pieces for q, a in late)
    assert any(has_all)
    made.run(made.drive("p", 0))
    there = made.groups[1]
    there.ask(0, partial(DeletePipeline, drop_open=True, at_ms=0), "p", 0)
    if claimed:
        made.place("p", 1)
    assert len([*zip(range(2_000), late, strict=False)]) < 2_000
    for group in (0, 1):
        assert not made.groups[group].processes[0].membership.moving
    assert made.has("p") == []


def test_a_shard_that_is_lost_has_given_nothing_that_is_given_again_to_one_that_came() -> None:
    """It comes from a group that has lost more shards: there the numbers were beyond any that a first loss leads to."""
    made, _, _ = running(3, 2)
    source, target = made.groups
    for lost in (2, 1):
        lose(source, lost)
        source.front(SPEC, "front", 50)
    made.move("p", 0, 1)
    generation = target.pipeline(0).generation
    registrar = target.routing.registrar("p")
    node_id = next(target.ids_at(registrar))
    target.part(0, 1)
    target.handle(registrar, JoinNode("j", "p", node_id, "other"))
    target.commit(registrar)
    target.handle(registrar, RestartPipeline("r", "p", generation, None, 0))
    target.commit(registrar)
    (unheard,) = target.answers("j")
    assert target.pipeline(registrar).generation == generation + 1
    lose(target, registrar)
    assert target.pipeline(1 - registrar).generation > generation + 1
    assert target.join(node_id).key.incarnation > unheard.key.incarnation


@pytest.mark.parametrize("late_with", ["the change", "the end", "what comes next"])
def test_none_goes_before_it_is_registered_where_one_of_its_name_was_deleted(
    late_with: str,
) -> None:
    """One log has what there was of the one before, and that the next goes; that it is registered is in another. A shard hears
    late of both. Both are here by no placement."""
    made, _, _ = running(3, 1)
    source = made.groups[0]
    registrar, sequencer = source.routing.registrar("p"), source.sequencer
    (late,) = {0, 1, 2} - {registrar, sequencer}
    if late_with != "what comes next":
        source.held = {(sequencer, late)}
    if late_with == "the change":
        grown = replace(SPEC, segments=("work", "next", "last"))
        source.handle(registrar, RegisterPipeline("grow", grown, True))
        source.settle()
    source.handle(registrar, DeletePipeline("delete", "p", 0, True, 1))
    source.settle()
    source.held = {(sequencer, late), (registrar, late)}
    source.handle(registrar, RegisterPipeline("next", SPEC))
    source.settle()
    source.handle(sequencer, MovePipeline("move", "p", 0, 1))
    source.settle()
    source.links[sequencer, late].clear()  # it is sent again in one frame
    source.held = {(registrar, late)}
    source.pass_time(source.config.retransmit_ms + 1)
    source.reconnect()
    source.pass_time(1_000)
    assert all("p" in process.membership.moving for process in source.processes.values())
    assert made.run(made.drive("p", 0)) == ""
    made.settle()
    assert made.has("p") == [1]


def test_none_goes_before_it_is_registered_where_the_store_is_slow() -> None:
    """That the sequencer has logged its last of the one before is accepted, and not durable, when its next frame says that the next one
    goes."""
    made, _, _ = running(3, 1)
    source = made.groups[0]
    registrar, sequencer = source.routing.registrar("p"), source.sequencer
    (late,) = {0, 1, 2} - {registrar, sequencer}
    source.held = {(sequencer, late)}
    source.handle(registrar, DeletePipeline("delete", "p", 0, True, 1))
    source.settle()
    source.held |= {(registrar, late)}
    source.handle(registrar, RegisterPipeline("next", SPEC))
    source.settle()
    source.handle(sequencer, MovePipeline("move", "p", 0, 1))
    source.settle()
    source.deliver(sequencer, late)  # frame by frame, and nothing is committed in between
    source.held = {(registrar, late)}
    source.settle()
    source.reconnect()
    source.pass_time(1_000)
    assert made.run(made.drive("p", 0)) == ""
    made.settle()
    assert made.has("p") == [1]
