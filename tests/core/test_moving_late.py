"""A move of which a part comes late: from a group that was away, by a log that lags, or when the pipeline is gone (rule 13)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from tests import inside
from tests.core.deployment import Deployment, goes_on
from tests.core.driver import Cluster, HandNode, refused
from tests.core.test_moving import SPEC, lose, running
from tracker.core.log import (
    DeletePipeline,
    EndMove,
    JoinNode,
    KeepPart,
    LeaveNode,
    MovePipeline,
    PlacePipeline,
    RegisterPipeline,
    StageContributions,
)
from tracker.core.model import Batch, Cells, RefusalCode, Refused, StagedContribution, Unit
from tracker.core.model.placements import NOWHERE
from tracker.core.moving import driver
from tracker.core.moving.driver import Ask, Pause, Where
from tracker.core.moving.parts import in_pieces
from tracker.core.pipeline.snapshot import snapshot_pipeline


def is_settled(cluster: Cluster) -> bool:
    """Whether nothing is on its way, and every shard has all that every other one has logged."""
    processes = cluster.processes.values()
    return not any(process.membership.moving for process in processes) and not any(
        link.awaits for process in processes for link in process.links.values()
    )


# --- one log lags behind another ------------------------------------------------------------------


def deleted_unheard() -> tuple[Deployment, int, HandNode]:
    """In group 1 a pipeline was deleted, and one shard lacks what the home of its node had logged of it; one of its name is in
    group 0. Returns the deployment, the shard that lags, and the node of the first one, which has committed a tick."""
    made = Deployment(1, 3)
    made.register(SPEC, 1)
    there = made.groups[1]
    registrar = there.routing.registrar("p")
    home = min({0, 1, 2} - {there.sequencer, registrar})
    late = min({0, 1, 2} - {there.sequencer, home})
    node = there.node(SPEC, next(there.ids_at(home)))
    there.held = {(home, late)}
    node.begin()
    there.settle()
    there.handle(registrar, DeletePipeline("over", "p", 0, True, 0))
    there.settle()
    made.place("p", NOWHERE, made.place("p", 1).version, ended=1)
    made.register(SPEC, 0)
    return made, late, node


def go_on_while_one_lags(made: Deployment) -> None:
    """The pipeline moves from group 0 to group 1 as far as that goes while one shard lags, and then to the end."""
    made.begin_move("p", 0, 1)
    for _ in zip(made.steps(made.drive("p", 0)), range(30), strict=False):
        pass
    made.groups[1].reconnect()
    made.groups[1].pass_time(1_000)
    if made.has("p") != [1]:
        made.run(made.drive("p", 0))
    made.settle()
    assert made.has("p") == [1]


def test_what_is_late_of_one_that_was_deleted_is_nothing_to_the_one_that_comes() -> None:
    """A node of it has the key that a node of the other one had: a tick of that is not taken for one of its own."""
    made, late, before = deleted_unheard()
    here, there = made.groups
    worker = here.node(SPEC, before.key.node_id)
    assert worker.key == before.key
    front = here.front(SPEC, "front")
    first = next(slot for slot in range(20, 30) if there.routing.owner(slot, "p") != late)
    front.commit(created=[(0, first, 1)])
    front.commit(heartbeats={"a": 40})
    go_on_while_one_lags(made)
    for node in (worker, front):
        goes_on(node, there)
    second = next(there.slots_of(late, first + 2))
    worker.commit(consumed=[(0, first, 1)], created=[(1, second, 7)])
    front.commit(heartbeats={"a": 60})
    assert there.agreed(SPEC) == (60, second)


def test_one_that_lags_goes_on_when_a_move_is_given_up() -> None:
    made, _, _ = deleted_unheard()
    here, there = made.groups
    made.begin_move("p", 0, 1)
    for _ in zip(made.steps(made.drive("p", 0)), range(3), strict=False):
        pass
    assert [*there.processes[there.sequencer].membership.moving] == ["p"]
    made.place("p", 0, here.pipeline(0).placed)
    made.run(made.drive("p", 0))
    there.reconnect()
    if "p" in there.processes[there.sequencer].membership.moving:
        made.run(made.drive("p", 1))
    there.reconnect()
    there.pass_time(1_000)
    assert is_settled(there)


# --- the group that a pipeline has left comes back late --------------------------------------------


def turned(*shards: int) -> Deployment:
    """A pipeline has gone from group 0 to group 1, and group 0 has not heard that the directory has turned."""
    made, _, _ = running(*shards)
    made.begin_move("p", 0, 1)
    made.until(made.drive("p", 0), PlacePipeline)
    made.run(made.drive("p", 1))
    assert made.has("p") == [1]
    return made


def test_one_that_was_deleted_where_it_went_is_not_taken_up_again() -> None:
    made = turned(2, 2)
    made.delete("p", 1)
    made.run(made.drive("p", 0))
    made.settle()
    assert made.has("p") == []
    assert all(map(is_settled, made.groups))


def test_nor_when_its_name_was_claimed_for_the_group_that_it_has_left() -> None:
    made = turned(2, 2)
    made.delete("p", 1)
    made.place("p", 0)
    made.run(made.drive("p", 0))
    made.settle()
    assert made.has("p") == []
    made.register(SPEC, 0)


def test_nor_where_that_is_not_the_group_of_the_directory() -> None:
    made, _, _ = running(1, 2, 2, group=1)
    made.begin_move("p", 1, 2)
    made.until(made.drive("p", 1), PlacePipeline)
    made.run(made.drive("p", 2))
    made.delete("p", 2)
    made.run(made.drive("p", 1))
    made.settle()
    assert made.has("p") == []


def test_who_comes_back_late_ends_no_later_move_to_the_same_group() -> None:
    made = turned(2, 2, 2)
    late = made.drive("p", 0)
    made.move("p", 1, 2)
    made.settle()
    made.begin_move("p", 2, 1)
    made.until(made.drive("p", 2), PlacePipeline)
    made.run(late)
    made.go_on("p", 2, 1)
    assert made.has("p") == [1]


# --- the group to which a pipeline was to go comes back late ----------------------------------------


def given_up_unheard(*, kept: bool) -> Deployment:
    """A pipeline was to go from group 0 to group 1, and was given up; group 1 has not heard of that. kept: whether it has all parts."""
    made, _, _ = running(2, 2)
    made.begin_move("p", 0, 1)
    for asked, _ in made.steps(made.drive("p", 0)):
        what = asked.what if isinstance(asked, Ask) else None
        if isinstance(what, MovePipeline) and not kept:
            break
        if isinstance(what, KeepPart) and asked.shard == 1 and what.number == what.pieces - 1:
            break
    made.away.add(1)
    made.place("p", 0, 0)
    made.run(made.drive("p", 0))
    made.away.clear()
    assert made.has("p") == [0]
    assert not is_settled(made.groups[1])
    return made


def test_one_that_was_given_up_and_deleted_is_not_waited_for() -> None:
    """While it was, no shard of the group could come or go."""
    made = given_up_unheard(kept=False)
    made.delete("p", 0)
    made.run(made.drive("p", 1))
    assert all(map(is_settled, made.groups))


def test_nor_does_it_begin_where_its_name_was_claimed_for_another_one() -> None:
    made = given_up_unheard(kept=True)
    made.delete("p", 0)
    made.place("p", 1)
    made.run(made.drive("p", 1))
    made.settle()
    assert made.has("p") == []


# --- a shard is lost --------------------------------------------------------------------------------


def test_one_that_was_given_up_goes_on_where_a_shard_has_heard_that_only_from_others() -> None:
    """The shard that has logged the end of the move is lost, and one of those that are left has not heard of it."""
    made, _, _ = running(3, 2)
    source = made.groups[0]
    made.begin_move("p", 0, 1)
    made.settle()
    version = made.place("p", 0, 0).version
    source.held = {(0, 2)}
    source.handle(0, EndMove("end", "p", 1, version, True))
    source.settle()
    assert [source.pipeline(shard).rests for shard in (1, 2)] == [False, True]
    source.held.clear()
    lose(source, 0)
    front = source.front(SPEC, "front")
    front.commit(heartbeats={"a": front.grants[-1].slot + 10})
    assert source.agreed(SPEC)[0] == front.grants[-1].slot + 10


def test_a_tick_of_one_that_comes_waits_where_one_of_its_name_is_not_over_yet() -> None:
    """The sequencer has begun to take it before it heard of the end of the one before, and says so behind that alone. Until it has
    come, another shard must not take the tick for one of that."""
    made = Deployment(1, 3)
    here, there = made.groups
    registrar, sequencer = there.routing.registrar("p"), there.sequencer
    third = min({0, 1, 2} - {registrar, sequencer})
    there.held = {(registrar, sequencer), (third, sequencer)}
    before = made.place("p", 1)
    how = partial(RegisterPipeline, placed=before.version, above=before.above)
    for event in (how("r", SPEC), DeletePipeline("d", "p", 0, True, 0)):
        there.handle(registrar, event)
        there.settle()
    ended = there.processes[registrar].last_generation("p")
    made.place("p", NOWHERE, before.version, ended=ended)
    made.register(SPEC, 0)
    front, worker = here.front(SPEC, "front"), here.node(SPEC, next(there.ids_at(registrar)))
    slot = next(s for s in range(20, 60) if there.routing.owner(s, "p") != third)
    later = next(s for s in range(slot + 2, 90) if there.routing.owner(s, "p") == third)
    front.commit(created=[(0, slot, 1)], heartbeats={"a": 100})
    made.begin_move("p", 0, 1)
    for _ in made.steps(made.drive("p", 0)):
        if "p" in there.processes[sequencer].membership.moving:
            break
    there.held = set()
    there.settle()
    made.turn_unheard("p", 0, 1, {(sequencer, third)})
    assert "p" not in inside.pipelines(there.processes[third])
    goes_on(worker, there)
    worker.commit(consumed=[(0, slot, 1)], created=[(1, later, 7)])
    assert worker.durable == 1
    there.reconnect()
    made.go_on("p", 0, 1)
    there.pass_time(1_000)
    assert there.agreed(SPEC) == (100, later)
    worker.commit(consumed=[(1, later, 7)])
    assert there.agreed(SPEC) == (100, 102)


def test_what_the_directory_says_outlives_the_loss_of_the_shard_that_says_it() -> None:
    """Else a pipeline goes to another group by its word, and the shards that are left know nothing of that."""
    made = Deployment(3, 1, 1)
    made.register(SPEC, 1)
    directory, before = made.groups[0], made.groups[1].pipeline(0).placed
    registrar = directory.routing.registrar("p")
    made.begin_move("p", 1, 2)
    made.until(made.drive("p", 1), KeepPart)
    directory.held = {(registrar, other) for other in range(3)}
    directory.handle(registrar, PlacePipeline("turn", "p", 2, before))
    directory.settle()
    for _ in zip(made.steps(made.drive("p", 1)), range(20), strict=False):
        pass
    directory.held.clear()
    directory.links.clear()
    lose(directory, registrar)
    if made.has("p") != [2]:
        made.run(made.drive("p", 1))
    made.settle()
    (group,) = made.has("p")
    known = made.ask(Ask(0, Where("p")))
    assert (known.group, known.version) == (group, made.groups[group].pipeline(0).placed)


def test_nobody_hears_of_a_generation_that_one_begins_where_it_is_no_more() -> None:
    """The directory has turned. Whoever had heard of a generation that the other group knows nothing of would wait there for ever."""
    made, _, _ = running(3, 1)
    source, target = made.groups
    made.begin_move("p", 0, 1)
    made.until(made.drive("p", 0), PlacePipeline)
    assert [process.generation("p") for process in source.processes.values()] == [0, 0, 0]
    lose(source, 2)
    for process in source.processes.values():
        with pytest.raises(Refused, match="on its way to group 1") as asked:
            process.generation("p")
        assert asked.value.refusal.code is RefusalCode.NOT_READY
    made.go_on("p", 0, 1)
    assert made.has("p") == [1]
    assert target.processes[0].generation("p") == 0


def test_one_that_was_not_at_rest_begins_anew_where_it_stays() -> None:
    made, _, _ = running(3, 1)
    source = made.groups[0]
    made.begin_move("p", 0, 1)
    lose(source, 2)
    made.run(made.drive("p", 0))
    made.settle()
    assert made.has("p") == [0]
    assert {process.generation("p") > 0 for process in source.processes.values()} == {True}


def test_a_part_is_let_go_of_where_a_shard_hears_by_a_loss_alone_that_it_is_not_needed() -> None:
    """The sequencer had told one of both that are left that the move was given up."""
    made, _, _ = running(1, 3)
    there = made.groups[1]
    made.begin_move("p", 0, 1)
    made.until(made.drive("p", 0), KeepPart)
    for asked, _ in made.steps(made.drive("p", 0)):
        what = asked.what if isinstance(asked, Ask) else None
        if isinstance(what, KeepPart) and asked.shard == 2 and what.number == what.pieces - 1:
            break
    version = made.place("p", 0, 0).version
    there.held = {(0, 2)}
    there.handle(0, EndMove("end", "p", 1, version, False))
    there.settle()
    assert [len(inside.coming(process)) for process in there.processes.values()] == [0, 0, 1]
    there.held.clear()
    lose(there, 0)
    assert [len(inside.coming(process)) for process in there.processes.values()] == [0, 0]
    there.restart_all()
    assert [len(inside.coming(process)) for process in there.processes.values()] == [0, 0]


# --- pieces of two attempts -------------------------------------------------------------------------


def test_pieces_that_are_sent_after_a_crash_are_those_of_before(
    monkeypatch: pytest.MonkeyPatch, snapshot: bool
) -> None:
    """The other group keeps those that it has. That somebody had asked for a name changes nothing of what they are."""
    monkeypatch.setattr(driver, "in_pieces", partial(in_pieces, most_bytes=200))
    made = Deployment(1, 1)
    here, there = made.groups
    made.register(SPEC, 0)
    assert here.processes[0].resolve_units("p", 0, ["of-0"]) == [None]
    front, worker = here.front(SPEC, "front"), here.node(SPEC, "worker")
    for segment, node in enumerate((front, worker)):
        units = [Unit(segment, f"of-{segment}-{number}", 41) for number in range(20)]
        node.commit(units_created=units)
    made.begin_move("p", 0, 1)
    for asked, _ in made.steps(made.drive("p", 0)):
        what = asked.what if isinstance(asked, Ask) else None
        if isinstance(what, KeepPart) and what.number >= what.pieces // 2:
            break
    here.restart_all(from_snapshots=snapshot)
    made.run(made.drive("p", 0))
    made.settle()
    for segment in range(2):
        names = [f"of-{segment}-{number}" for number in range(20)]
        assert there.processes[0].resolve_units("p", segment, names) == [41] * 20


def contribution(batch: int, partition: int, value: int) -> StagedContribution:
    created = Cells.of([(1, 60, value, 1)])
    return StagedContribution("q", "r", batch, 0, "op", 0, partition, 0, created, Cells.empty())


def test_pieces_of_what_is_staged_are_those_of_before_also_where_an_attempt_came_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It came while the tick of its batch was not durable. What is staged by nodes then has one order, crash or not."""
    monkeypatch.setattr(driver, "in_pieces", partial(in_pieces, most_bytes=200))
    made = Deployment(1, 1)
    here, there = made.groups
    made.register(SPEC, 0)
    here.front(SPEC, "front")
    one, first = here.node(SPEC, "one"), contribution(0, 0, 5)
    here.node(SPEC, "two")
    assert here.ask_home("one", StageContributions, (first,)) is None
    one.begin(created=[], batch=Batch("q", 0, b"f"))
    here.handle(0, StageContributions("again", "p", "one", (first,)))
    here.settle()
    here.take_snapshot(0)
    for node_id, value in (("two", 100), ("one", 200)):
        for n in range(6):
            assert (
                here.ask_home(node_id, StageContributions, (contribution(1, n, value + n),)) is None
            )
    made.begin_move("p", 0, 1)
    for asked, _ in made.steps(made.drive("p", 0)):
        what = asked.what if isinstance(asked, Ask) else None
        if isinstance(what, KeepPart) and what.number >= what.pieces // 2:
            break
    here.restart(0)
    made.run(made.drive("p", 0))
    made.settle()
    for node_id in ("one", "two"):
        assert len(there.processes[0].staged("p", node_id, "q", 1)) == 6


def test_pieces_of_a_part_are_the_same_in_whatever_order_a_process_keeps_it() -> None:
    """A process that comes back may keep names, nodes and what is staged in another order than it did before."""
    made = Deployment(1)
    (here,) = made.groups
    made.register(SPEC, 0)
    front = here.front(SPEC, "front")
    here.node(SPEC, "other")
    assert not here.pipeline(0).home.gone_ids
    front.commit(units_created=[Unit(0, f"of-{number}", 41 + number % 3) for number in range(20)])
    for node_id in ("other", "front"):
        assert here.ask_home(node_id, StageContributions, (contribution(1, 0, 7),)) is None
    part = snapshot_pipeline(here.pipeline(0), {})
    turned = replace(
        part, **{name: getattr(part, name)[::-1] for name in ("units", "nodes", "staged")}
    )
    assert turned.units != part.units and turned.staged != part.staged
    for one, other in zip(in_pieces(part, 200), in_pieces(turned, 200), strict=True):
        kept = [(each.units, [n.key for n in each.nodes]) for each in (one, other)]
        staged = [[(node, c.key) for node, c in each.staged] for each in (one, other)]
        assert kept[0] == kept[1] and staged[0] == staged[1]


# --- a node of one that was deleted comes late ------------------------------------------------------


def test_a_node_of_one_that_was_deleted_is_none_of_another_one_in_another_group() -> None:
    """Incarnations are counted by the homes of a group: a node of the other one may have the same key, and as many ticks."""
    made = Deployment(1, 1)
    here, there = made.groups
    made.register(SPEC, 1)
    before = there.front(SPEC, "front")
    made.delete("p", 1)
    made.place("p", 0)
    made.register(SPEC, 0)
    front = here.front(SPEC, "front")
    assert (front.key, front.durable) == (before.key, before.durable)
    before.cluster = here
    refused(before.attach_refused(), RefusalCode.FENCED, "join again")
    front.commit(created=[(0, 23, 1)])
    front.commit(heartbeats={"a": 40})
    assert here.agreed(SPEC) == (23, 25)


# --- a shard has not heard yet that there is a pipeline ----------------------------------------------


@pytest.mark.parametrize("used_again", [False, True])
def test_one_that_moves_before_a_shard_has_heard_of_it_moves_when_it_is_asked_again(
    used_again: bool,
) -> None:
    made = Deployment(3, 1)
    here = made.groups[0]
    if used_again:
        made.place("p", 0)
        made.register(SPEC, 0)
        made.delete("p", 0)
        made.place("p", 0)
    registrar = here.routing.registrar("p")
    late = min({0, 1, 2} - {registrar, here.sequencer})
    here.held = {(registrar, late)}
    here.handle(registrar, RegisterPipeline("new", SPEC))
    here.settle()
    placed = here.pipeline(registrar).placed
    here.handle(here.sequencer, MovePipeline("move", "p", placed, 1))
    here.settle()
    for _ in zip(made.steps(made.drive("p", 0)), range(30), strict=False):
        pass
    here.reconnect()
    here.pass_time(1_000)
    if made.has("p") != [1] and "p" in here.processes[here.sequencer].membership.moving:
        made.run(made.drive("p", 0))
    made.settle()
    if made.has("p") == [0]:
        assert made.move("p", 0, 1) == ""
    assert made.has("p") == [1]


def moved_long_ago() -> tuple[Deployment, int, int]:
    """A move from group 1 to group 0 was given up, the pipeline was deleted, and its name is placed in group 0. Returns the deployment,
    by which placement the move began, and which one there is now."""
    made = Deployment(3, 1)
    made.register(SPEC, 1)
    before = made.groups[1].pipeline(0).placed
    made.place("p", 1, before)
    made.groups[1].pipeline(0).placed = made.place("p", 1).version
    made.delete("p", 1)
    return made, before, made.place("p", 0).version


def test_one_that_was_to_come_long_ago_keeps_nobody_from_hearing_of_another_one() -> None:
    """It is asked for late, by a move that was given up, where another one is being registered under its name."""
    made, before, placed = moved_long_ago()
    here = made.groups[0]
    registrar, sequencer = here.routing.registrar("p"), here.sequencer
    assert registrar != sequencer
    here.held = {(registrar, other) for other in range(3)}
    here.handle(registrar, RegisterPipeline("new", SPEC, placed=placed))
    here.settle()
    here.handle(sequencer, MovePipeline("late", "p", before, 1, arrives=True, segments=2))
    here.settle()
    here.handle(registrar, PlacePipeline("again", "p", 0))
    here.settle()
    here.reconnect()
    for _ in zip(made.steps(made.drive("p", 0)), range(300), strict=False):
        pass
    here.pass_time(1_000)
    assert here.answers("new") == [SPEC]
    assert is_settled(here)
    assert len(here.pipelines()) == 3


def test_a_shard_says_that_one_is_over_behind_all_that_follows_of_what_it_has_appended() -> None:
    """A node has left just before its home applies the deletion: that its key is forgotten stands in the home's log, too, and
    one of the name that was to come meanwhile does not come."""
    made = Deployment(1, 3)
    made.register(SPEC, 1)
    there = made.groups[1]
    registrar, sequencer = there.routing.registrar("p"), there.sequencer
    home = min({0, 1, 2} - {sequencer, registrar})
    late = min({0, 1, 2} - {sequencer, home})
    node = there.node(SPEC, next(there.ids_at(home)))
    there.handle(registrar, DeletePipeline("over", "p", 0, True, 0))
    there.commit(registrar)
    there.deliver(registrar, home)
    there.handle(home, LeaveNode("leave", "p", node.key))
    there.commit(home, 1)
    there.commit(home)
    assert "p" not in inside.pipelines(there.processes[home])
    there.settle(lambda: home in over_at(there, late))
    there.held = {(home, late)}
    there.settle()
    made.place("p", NOWHERE, made.place("p", 1).version, ended=1)
    made.register(SPEC, 0)
    made.begin_move("p", 0, 1)
    for _ in zip(made.steps(made.drive("p", 0)), range(5), strict=False):
        pass
    if "p" in made.groups[0].processes[0].membership.moving:
        made.place("p", 0, made.groups[0].pipeline(0).placed)
        made.run(made.drive("p", 0))
    there.reconnect()
    there.pass_time(1_000)
    if "p" in there.processes[sequencer].membership.moving:
        made.run(made.drive("p", 1))
    there.pass_time(1_000)
    assert is_settled(there)


def over_at(cluster: Cluster, shard: int) -> tuple[int, ...]:
    """The homes that have logged their last of the pipeline that was deleted, as far as a shard has heard."""
    ended = inside.pipelines(cluster.processes[shard]).ended.get("p")
    return () if ended is None else ended.over_at


def test_a_shard_that_had_registered_one_which_has_gone_may_leave_after_a_restart() -> None:
    made = Deployment(3, 1)
    here = made.groups[0]
    made.register(SPEC, 0)
    registrar = here.routing.registrar("p")
    assert registrar != here.sequencer
    made.move("p", 0, 1)
    made.settle()
    here.restart(registrar)
    here.settle()
    here.rescale(2, evacuate=True, without=(registrar,))
    here.pass_time(2_000)
    assert registrar in here.gone


def test_one_goes_on_its_way_after_a_restart_though_nothing_else_happens() -> None:
    made = Deployment(1, 1)
    made.register(SPEC, 0)
    here = made.groups[0]
    here.handle(0, MovePipeline("move", "p", 0, 1))
    here.store(0)
    here.restart(0)
    assert made.run(made.drive("p", 0)) == ""
    assert made.has("p") == [1]


def test_a_driver_that_is_asked_to_wait_hears_that_somebody_has_given_the_move_up() -> None:
    """The other group has let go of it by then, and takes no part of it any more: the pipeline would stand until the driver gives up
    by itself."""
    made, _, _ = running(1, 1)
    made.begin_move("p", 0, 1)
    move = made.groups[0].processes[0].membership.moving["p"]
    steps = made.steps(made.drive("p", 0))
    assert any(isinstance(each, Ask) and isinstance(each.what, MovePipeline) for each, _ in steps)
    made.place("p", 0, move.version)
    made.run(made.drive("p", 1))
    asked = [each for each, _ in steps if isinstance(each, Ask)]
    assert made.has("p") == [0]
    assert sum(isinstance(each.what, KeepPart) for each in asked) == 1


def test_a_driver_that_the_directory_asks_to_wait_does_so() -> None:
    """The shard that decides where the pipeline belongs has come back, and has not heard the other one. All of the pipeline was asked
    for and sent once more, and again, as fast as the network took it."""
    made, _, _ = running(2, 1)
    here = made.groups[0]
    made.begin_move("p", 0, 1)
    steps = made.steps(made.drive("p", 0))
    assert any(isinstance(each, Ask) and isinstance(each.what, KeepPart) for each, _ in steps)
    here.part(0, 1)
    here.restart(here.routing.registrar("p"))
    turns = (answer for each, answer in steps
             if isinstance(each, Ask) and isinstance(each.what, PlacePipeline))  # fmt: skip
    refused(next(turns), RefusalCode.NOT_READY, "have not reported yet")
    assert isinstance(next(steps)[0], Pause)
    here.reconnect()
    for _ in steps:
        pass
    made.go_on("p", 1)
    assert made.has("p") == [1]


@pytest.mark.parametrize("joins", [False, True])
def test_one_that_begins_to_come_before_another_one_is_registered_and_deleted_unheard(
    *, joins: bool
) -> None:
    """The sequencer says that it has logged its last of the deleted one behind its word that one of the name comes (as in
    `test_one_that_was_to_come_long_ago_keeps_nobody_from_hearing_of_another_one`): others wait for the one with the other. joins: it
    has more of the deleted one to say."""
    made, before, placed = moved_long_ago()
    here = made.groups[0]
    registrar, sequencer = here.routing.registrar("p"), here.sequencer
    (late,) = {0, 1, 2} - {registrar, sequencer}
    here.held = {
        (registrar, sequencer),
        (late, sequencer),
        (sequencer, late),
        (sequencer, registrar),
    }
    here.handle(registrar, RegisterPipeline("new", SPEC, placed=placed))
    here.settle()
    registered = len(here.links[registrar, sequencer])
    generation = here.pipeline(late).generation
    here.handle(registrar, DeletePipeline("over", "p", generation, True, 0))
    here.settle()
    here.handle(sequencer, MovePipeline("late", "p", before, 1, arrives=True, segments=2))
    here.settle()
    if joins:
        here.deliver(registrar, sequencer, registered)
        here.settle()
        number = here.processes[sequencer].membership.moving["p"].number
        here.handle(sequencer, EndMove("end", "p", number, placed, False))
        here.settle()
        here.handle(sequencer, JoinNode("joins", "p", next(here.ids_at(sequencer)), "other"))
        here.settle()
        for other in (registrar, late):  # not in one frame
            here.deliver(sequencer, other, 1)
        here.settle()
    here.reconnect()
    here.pass_time(1_000)
    if not joins:
        made.run(made.drive("p", 0))
        here.pass_time(1_000)
    assert is_settled(here)
    assert here.answers("over")


def test_one_that_is_deleted_unheard_may_be_let_go_of_twice() -> None:
    """The sequencer has not heard that the pipeline was deleted. It lets it go; that is given up, which places it anew; and lets it go
    again. A shard that has heard of the end knows the first placement alone."""
    made, _, _ = running(3, 1)
    here = made.groups[0]
    registrar, sequencer = here.routing.registrar("p"), here.sequencer
    here.held = {(registrar, sequencer)}
    here.handle(registrar, DeletePipeline("over", "p", 0, True, 1))
    here.settle()
    here.handle(sequencer, MovePipeline("first", "p", 0, 1))
    here.settle()
    number = here.processes[sequencer].membership.moving["p"].number
    here.handle(sequencer, EndMove("stays", "p", number, 1, True))
    here.settle()
    here.handle(sequencer, MovePipeline("second", "p", 1, 1))
    here.settle()
    here.reconnect()
    here.pass_time(1_000)
    assert not any(link.awaits for p in here.processes.values() for link in p.links.values())
    made.run(made.drive("p", 0))
    made.settle()
    assert is_settled(here) and made.has("p") == []
