"""A pipeline that moves there and back, and amid losses: nothing of an earlier stay counts in a later one (rule 13)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests import inside
from tests.core.deployment import Deployment, goes_on
from tests.core.driver import Cluster, refused
from tests.core.test_losing import joins_unheard, left_alone
from tests.core.test_moving import SPEC, lose, running
from tests.core.test_retiring import AT_MS
from tracker.core.log import (
    DeletePipeline,
    Joined,
    RegisterPipeline,
    RetireNode,
)
from tracker.core.model import Cells, Edge, PipelineSpec, RefusalCode
from tracker.core.model.placements import NOWHERE
from tracker.core.process import ProcessConfig

OPEN = PipelineSpec("p", ("work",), fronts=("a",), open=True)


def back_again(late: int) -> tuple[Deployment, int]:
    """A pipeline has left group 0, a shard has joined there, and the pipeline has come back. That the newcomer has nothing of the
    first stay, which it says when it joins, shard `late` hears when the pipeline is about to come. Returns the newcomer, too."""
    made, _, _ = running(2, 1)
    here = made.groups[0]
    made.move("p", 0, 1)
    made.settle()
    new = here.begin_to_join()
    here.settle()
    here.held = {(new, late)}
    here.bootstrap(new, here.sequencer)
    here.settle()
    made.begin_move("p", 1, 0)
    drive = made.drive("p", 1)
    for _ in zip(made.steps(drive), range(12), strict=False):
        pass
    here.reconnect()
    made.run(drive)
    made.go_on("p", 0)
    made.settle()
    assert made.has("p") == [0]
    return made, new


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_one_that_has_come_back_outlives_a_loss_though_a_newcomer_said_late_that_it_had_gone(
    lost: int,
) -> None:
    made, _ = back_again(late=1)
    lose(made.groups[0], lost)
    assert made.has("p") == [0], "it is in none"


def test_nor_is_that_taken_for_a_word_on_how_its_second_stay_has_ended() -> None:
    made, _ = back_again(late=1)
    here, registrar, new = made.groups[0], 1, 2
    assert here.routing.registrar("p") == registrar
    edges = (*SPEC.edges, Edge("next", "more"))
    changed = replace(SPEC, segments=(*SPEC.segments, "more"), edges=edges)
    here.handle(registrar, RegisterPipeline("change", changed, True))
    here.commit(registrar)
    for other in (0, new):
        here.deliver(registrar, other)
        here.commit(other)
    here.held = {(registrar, new), (new, registrar), (new, 0)}
    here.settle()
    here.handle(registrar, DeletePipeline("over", "p", 0, True, 0))
    here.settle()
    here.handle(registrar, RegisterPipeline("next", replace(SPEC, segments=("one",), edges=())))
    here.settle()
    assert "p" in inside.pipelines(here.processes[new]), "the newcomer has not heard of the end"
    here.reconnect()
    here.pass_time(3_000)
    assert not any(link.awaits for p in here.processes.values() for link in p.links.values())


@pytest.mark.parametrize("late", [1, 2])
def test_ledgers_of_one_that_has_come_outlive_a_loss_where_a_shard_has_not_heard_that_it_came(
    late: int,
) -> None:
    """That shard has its part durably; what was late and written off is at one shard alone, the registrar."""
    made = Deployment(2, 3)
    made.register(OPEN, 0)
    here, there = made.groups
    assert (there.sequencer, there.routing.registrar("p")) == (0, 2)
    front, spare = here.front(OPEN, "front"), here.node(OPEN, "spare")
    front.commit(created=[(0, 5, 7), (0, 6, 8), (0, 7, 9)])
    front.commit(heartbeats={"a": 50})
    here.join("gone")
    shown = Cells.of([(0, 5, 7, 1), (0, 6, 8, 1)])
    assert here.ask_home("gone", RetireNode, shown, AT_MS, None, None) is None
    here.settle()
    spare.commit(consumed=[(0, 5, 99)])
    made.settle()
    assert ledgers(here) == (1, 2)
    made.come_unheard("p", 0, 1, {(0, late)})
    lose(there, 0)
    there.held.clear()
    made.go_on("p", 0)
    made.settle()
    assert ledgers(there) == (1, 2)


def ledgers(cluster: Cluster) -> tuple[int, int]:
    cluster.settle()
    shards = [known.shard for known in cluster.pipelines()]
    return (
        sum(each.items for shard in shards for each in shard.late.values()),
        sum(number for shard in shards for number in shard.written_off.items.values()),
    )


@pytest.mark.parametrize("moves", [1, 2, 3])
def test_what_was_written_off_and_came_back_is_counted_once_wherever_it_goes(moves: int) -> None:
    made = Deployment(2, 2)
    made.register(OPEN, 0)
    here, there = made.groups
    counts = there.routing.registrar("p")
    slots = [next(there.slots_of(shard, 3)) for shard in (1 - counts, counts)]
    front, spare = here.front(OPEN, "front"), here.node(OPEN, "spare")
    here.front(OPEN, "holds", b=0)
    front.commit(created=[(0, slot, slot) for slot in slots])
    front.commit(heartbeats={"a": 50})
    here.join("gone")
    shown = Cells.of([(0, slot, slot, 1) for slot in slots])
    assert here.ask_home("gone", RetireNode, shown, AT_MS, None, None) is None
    assert ledgers(here) == (0, 2)
    made.move("p", 0, 1)
    made.settle()
    goes_on(spare, there)
    spare.commit(consumed=[(0, slots[0], slots[0])])
    assert ledgers(there) == (1, 1)
    at = 1
    for _ in range(moves - 1):
        made.move("p", at, 1 - at)
        made.settle()
        at = 1 - at
    assert ledgers(made.groups[at]) == (1, 1)


def test_no_more_pipelines_come_at_a_time_than_there_may_be() -> None:
    made = Deployment(1, 1)
    made.groups[1] = Cluster(1, config=ProcessConfig(max_pipelines=1))
    names = ("p", "q")
    for name in names:
        made.register(replace(SPEC, name=name), 0)
        made.begin_move(name, 0, 1)
    drives = [made.steps(made.drive(name, 0)) for name in names]
    while drives:
        for each in [*drives]:
            if next(each, None) is None:
                drives.remove(each)
    made.settle()
    assert len(inside.pipelines(made.groups[1].processes[0])) == 1


def test_who_is_gone_longest_is_forgotten_first_also_where_a_pipeline_has_moved() -> None:
    made = Deployment(1, 1)
    here, there = made.groups
    made.register(SPEC, 0)
    here.front(SPEC, "front")
    for name in ("c", "a", "b"):
        here.node(SPEC, name)
        assert here.ask(0, RetireNode, "p", name, Cells.empty(), AT_MS) is None
    assert made.move("p", 0, 1) == ""
    assert [*there.pipeline(0).home.gone_ids] == ["c", "a", "b"]


def test_none_is_registered_in_the_place_of_one_that_comes() -> None:
    made = Deployment(1, 1)
    made.groups[1] = Cluster(1, config=ProcessConfig(max_pipelines=1))
    made.settle()
    made.register(SPEC, 0)
    made.begin_move("p", 0, 1)
    there = made.groups[1].processes[0]
    for _ in made.steps(made.drive("p", 0)):
        if there.membership.moving and "p" not in inside.pipelines(there):
            answer = made.groups[1].ask(0, RegisterPipeline, replace(SPEC, name="q"))
            refused(answer, RefusalCode.FULL, "1 pipelines are registered, or about to come")
    made.settle()
    assert made.has("p") == [1]


def test_a_joining_whose_attempts_find_the_pipeline_there_and_back_again_is_answered() -> None:
    made = Deployment(1, 1)
    made.register(SPEC, 0)
    here, there = made.groups
    assert isinstance(here.join("n", joining="j"), Joined)  # this answer is lost, and the next one
    made.move("p", 0, 1)
    made.settle()
    assert isinstance(there.join("n", joining="j"), Joined)
    made.move("p", 1, 0)
    made.settle()
    assert isinstance(here.join("n", joining="j"), Joined)


def test_one_whose_deletion_was_answered_is_not_there_again_where_a_newcomer_is_left_alone() -> (
    None
):
    made = Deployment(1, 2, 1)
    made.register(SPEC, 1)
    here = made.groups[1]
    registrar = here.routing.registrar("p")
    assert (here.sequencer, registrar) == (0, 1)
    placed = here.pipeline(0).placed
    new = joins_unheard(here, registrar)
    here.handle(registrar, DeletePipeline("over", "p", 0, True, 0))
    here.settle()
    if here.answers("over"):  # the service gives the name back, and another group has it
        made.place("p", NOWHERE, placed, ended=here.answers("over")[0].generation)
        made.register(SPEC, 2)
    left_alone(here, registrar, new)
    made.settle()
    assert len(made.has("p")) == 1, "it is in two groups"
