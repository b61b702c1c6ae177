"""The directory: a name belongs to one group at a time, by a version that is never given twice."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import count

import pytest

from tests import inside
from tests.core.deployment import Deployment
from tests.core.driver import Cluster, plain, refused
from tests.core.test_losing import declare, joins_unheard, left_alone, lose
from tests.core.test_moving import running
from tracker.core.log import (
    DeclareLost,
    DeletePipeline,
    EndMove,
    JoinShard,
    KnowGroup,
    LeaveNode,
    MovePipeline,
    PlacePipeline,
    RegisterPipeline,
    RescaleShards,
    Restart,
    RestartPipeline,
)
from tracker.core.log.losses import GENERATIONS_PER_LOSS, ShardLost
from tracker.core.log.steps import SequencerMoved
from tracker.core.membership.step_checks import MAX_ADDRESS_CHARACTERS, MAX_NUMBER
from tracker.core.model import PipelineSpec, RefusalCode, Refused
from tracker.core.model.placements import NOWHERE, Group, Placement
from tracker.core.model.routing import RoutingRule, RoutingTable
from tracker.core.model.slots import LOWEST_SLOT
from tracker.core.moving import directory
from tracker.core.moving.driver import Ask, Where

SPEC = PipelineSpec("p", ("s",), open=True)


def directory_of(shards: int) -> Cluster:
    """Its shards have reported by which feature level they record."""
    cluster = Cluster(shards)
    cluster.settle()
    return cluster


def place(cluster: Cluster, name: str, group: int, expected: int | None = None) -> object:
    return cluster.ask(cluster.routing.registrar(name), PlacePipeline, name, group, expected)


def placed(cluster: Cluster, name: str, group: int, expected: int | None = None) -> Placement:
    answer = place(cluster, name, group, expected)
    assert isinstance(answer, Placement), answer
    return answer


def test_a_name_is_claimed_by_one_group_alone(shards: int) -> None:
    cluster = directory_of(shards)
    first = placed(cluster, "p", 1)
    assert (first.group, first.came_from) == (1, first.version)
    assert placed(cluster, "p", 2) == first, "it is told who has it"
    again = placed(cluster, "p", 1)
    assert again.version > first.version, "whatever was decided by the older version is void"
    for process in cluster.processes.values():
        assert process.placements == {"p": again}


def test_a_placement_is_replaced_by_its_version_alone(shards: int) -> None:
    cluster = directory_of(shards)
    first = placed(cluster, "p", 1)
    moved = placed(cluster, "p", 2, first.version)
    assert (moved.group, moved.came_from) == (2, first.version)
    assert placed(cluster, "p", 3, first.version) == moved
    assert placed(cluster, "p", 2, first.version) == moved, "it may be asked for again"


def test_a_name_that_is_given_back_is_free_and_its_versions_go_on(shards: int) -> None:
    cluster = directory_of(shards)
    first = placed(cluster, "p", 1)
    placed(cluster, "p", NOWHERE, first.version)
    assert all(process.placements == {} for process in cluster.processes.values())
    other = placed(cluster, "p", 2)
    assert other.version > first.version + 1
    assert placed(cluster, "p", NOWHERE, first.version) == other


def claimed_late(seen: int) -> Deployment:
    """A pipeline is in group 1 by its second claim of the name; the first one, or what was sent of it again, comes after that."""
    made = Deployment(1, 1)
    first = made.place("p", 1, seen=0)
    again = made.place("p", 1, seen=first.version)
    assert again.version > first.version
    how = partial(RegisterPipeline, placed=again.version, above=again.above)
    assert made.groups[1].ask(0, how, SPEC) == SPEC
    claim = Ask(0, PlacePipeline(None, "p", 1, seen=[0, first.version][seen]))
    refused(made.ask(claim), RefusalCode.NOT_READY, f"is {again.version} by now", "ask again")
    made.settle()
    return made


@pytest.mark.parametrize("seen", [0, 1])
def test_a_claim_that_comes_late_keeps_no_name_of_a_pipeline_that_is_deleted(seen: int) -> None:
    """The name is given back by the placement by which the pipeline was there; one that is claimed late after that gets it no more."""
    made = claimed_late(seen)
    made.delete("p", 1)
    assert made.ask(Ask(0, Where("p"))) is None, "it belongs to a group that has no such pipeline"
    refused(made.ask(Ask(0, PlacePipeline(None, "p", 1, seen=1))), RefusalCode.NOT_READY)


@pytest.mark.parametrize("seen", [0, 1])
def test_a_claim_that_comes_late_keeps_no_pipeline_from_moving(seen: int) -> None:
    made = claimed_late(seen)
    made.move("p", 1, 0)
    made.go_on("p", 0)
    assert made.has("p") == [0]


def test_two_that_claim_at_a_time_are_answered_alike() -> None:
    cluster = directory_of(1)
    for number, group in enumerate((1, 2, 1)):
        cluster.handle(0, PlacePipeline(f"claim-{number}", "p", group))
    cluster.settle()
    said = [cluster.answers(f"claim-{number}")[0] for number in range(3)]
    assert [each.group for each in said] == [1, 1, 1]
    assert said[0] == said[1] and said[2].version > said[0].version


def test_a_pipeline_of_the_directory_s_own_group_needs_no_placement(shards: int) -> None:
    cluster = directory_of(shards)
    cluster.register(SPEC)
    assert placed(cluster, "p", 1) == Placement("p", 0, 0)
    first = placed(cluster, "p", 1, 0)
    assert (first.group, first.came_from) == (1, 0)


def test_one_that_belongs_to_another_group_is_not_registered_here(shards: int) -> None:
    cluster = directory_of(shards)
    placed(cluster, "p", 1)
    refused(cluster.register(SPEC), RefusalCode.CONFLICT, "belongs to group 1", "register it there")


def test_what_is_registered_again_has_the_version_of_its_placement() -> None:
    made = Deployment(1, 1)
    made.register(SPEC, 0)
    made.move("p", 0, 1)
    made.move("p", 1, 0)
    known = made.groups[0].pipeline(0).placed
    assert known == made.groups[0].processes[0].placements["p"].version > 0


def test_by_a_placement_that_may_be_void_nothing_is_registered(snapshot: bool) -> None:
    """Somebody was told that the name belongs to group 1, and comes there when the pipeline has been there and has gone."""
    made = Deployment(1, 2)
    late = made.place("p", 1).version
    made.register(SPEC, 1)
    made.move("p", 1, 0)
    there = made.groups[1]
    there.restart_all(from_snapshots=snapshot)
    registrar = there.routing.registrar("p")
    by_the_late_one = partial(RegisterPipeline, placed=late)
    answer = refused(
        there.ask(registrar, by_the_late_one, SPEC), RefusalCode.NOT_READY, "ask again"
    )
    assert f"by placement {late}" in answer.message
    assert made.has("p") == [0]
    made.move("p", 0, 1)
    assert there.ask(registrar, by_the_late_one, SPEC) == SPEC, "it is there"


def test_nor_by_one_before_a_deletion() -> None:
    made = Deployment(1, 1)
    late = made.place("p", 1).version
    made.register(SPEC, 1)
    there = made.groups[1]
    there.ask(0, partial(DeletePipeline, drop_open=True, at_ms=0), "p", 0)
    refused(there.ask(0, partial(RegisterPipeline, placed=late), SPEC), RefusalCode.NOT_READY)
    made.place("p", NOWHERE, made.place("p", 1).version)
    made.register(SPEC, 0)
    assert made.has("p") == [0]


@pytest.mark.parametrize(("before", "after"), [(1, 0), (0, 1), (1, 1)])
def test_a_name_that_is_used_again_is_another_pipeline_in_whatever_group(
    before: int, after: int
) -> None:
    """Whoever had to do with the one before is not taken for somebody of the one that is there now."""
    made = Deployment(1, 1)
    made.register(SPEC, before)
    there = made.groups[before]
    there.node(SPEC, "n")
    ended = there.pipeline(0).generation + 1
    made.delete("p", before)
    made.register(SPEC, after)
    here = made.groups[after]
    assert here.pipeline(0).generation > ended
    assert not here.processes[0].goes_on_since("p", 0)
    again = partial(DeletePipeline, drop_open=True, at_ms=0)
    refused(here.ask(0, again, "p", 0), RefusalCode.CONFLICT, "in generation")


def test_one_that_moves_when_the_name_is_used_again_is_above_all_before() -> None:
    made = Deployment(1, 1)
    generations = []
    for there, to in ((1, 0), (0, 1), (1, 0), (0, 1)):
        made.register(SPEC, there)
        generations.append(made.groups[there].pipeline(0).generation)
        made.move("p", there, to)
        made.delete("p", to)
    assert generations == sorted({*generations})


def test_who_leaves_late_leaves_nothing_in_another_group() -> None:
    """Keys are of one group: a node of the one that has the name now may have the same."""
    made = Deployment(1, 1)
    made.register(SPEC, 1)
    before = made.groups[1].node(SPEC, "n")
    made.delete("p", 1)
    made.register(SPEC, 0)
    here = made.groups[0]
    node = here.node(SPEC, "n")
    assert node.key == before.key
    leave = partial(LeaveNode, generation=before.joined.generation)
    refused(here.ask(0, leave, "p", node.key), RefusalCode.FENCED, "was restarted", "join again")
    node.commit(created=[(0, 1, 7)])
    assert node.leave() is None


def test_a_name_that_is_given_back_late_is_claimed_by_nobody_while_it_is_used_again() -> None:
    made = Deployment(1, 1)
    made.register(SPEC, 1)
    made.move("p", 1, 0)
    here = made.groups[0]
    placed = here.pipeline(0).placed
    here.ask(0, partial(DeletePipeline, drop_open=True, at_ms=0), "p", 0)
    made.register(SPEC, 0)
    here.handle(0, PlacePipeline("given back", "p", NOWHERE, placed))
    here.handle(0, PlacePipeline("claim", "p", 1))
    here.settle()
    (claim,) = here.answers("claim")
    assert claim.group == 0


def test_groups_are_known_and_come_back(shards: int, snapshot: bool) -> None:
    cluster = directory_of(shards)
    group = Group(1, ("a:1", "b:1"))
    for _ in range(2):
        assert cluster.ask(cluster.sequencer, KnowGroup, group) is None
    placed(cluster, "p", 1)
    before = [plain(process.snapshot()) for process in cluster.processes.values()]
    cluster.restart_all(from_snapshots=snapshot)
    assert [plain(process.snapshot()) for process in cluster.processes.values()] == before
    assert all(process.groups == {1: group} for process in cluster.processes.values())
    cluster.ask(cluster.sequencer, KnowGroup, Group(1, ("c:1",)))
    changed = {1: Group(1, ("c:1",))}
    assert all(process.groups == changed for process in cluster.processes.values())


def test_a_group_that_says_where_it_is_reached_by_now_stays_cordoned(shards: int) -> None:
    """Its process had not heard of that when it sent this."""
    cluster = directory_of(shards)
    cluster.ask(cluster.sequencer, KnowGroup, Group(1, ("a:1",)))
    cluster.handle(cluster.sequencer, KnowGroup("cordon", Group(1, (), cordoned=True)))
    cluster.handle(cluster.sequencer, KnowGroup("moves", Group(1, ("b:1",))))
    cluster.settle()
    assert cluster.processes[0].groups == {1: Group(1, ("b:1",), cordoned=True)}
    cluster.ask(cluster.sequencer, KnowGroup, Group(1, ()))
    assert cluster.processes[0].groups == {1: Group(1, ("b:1",))}


@pytest.mark.parametrize("heard", [1, 2])
def test_a_group_that_one_shard_has_heard_of_when_another_is_lost_is_known_to_all(
    heard: int, snapshot: bool
) -> None:
    """Else one of them knows for good neither where it is reached nor that it is cordoned: the group has told it. What the
    leader lacks, the group tells it again."""
    cluster = directory_of(3)
    group = Group(1, ("a:1",))
    cluster.held = {(0, 3 - heard)}
    cluster.handle(0, KnowGroup("known", group))
    cluster.settle()
    lose(cluster, 0)
    cluster.held.clear()
    declare(cluster, 0)
    if heard == 2:
        cluster.ask(1, KnowGroup, group)
    cluster.settle()
    cluster.restart_all(from_snapshots=snapshot)
    assert [process.groups for process in cluster.processes.values()] == [{1: group}] * 2


def test_groups_are_alike_everywhere_when_another_shard_has_become_the_sequencer() -> None:
    """What the one before had logged behind the word that it is no more was heard after what the next one had logged: each shard went
    by what it heard last, and a group was cordoned for some of them alone."""
    cluster = directory_of(3)
    cluster.ask(0, KnowGroup, Group(1, ("a:1",)))
    cluster.handle(0, RescaleShards("go", 2, True, (0,)))
    cluster.settle(lambda: bool(cluster.logged(SequencerMoved)))
    cluster.handle(0, KnowGroup("cordon", Group(1, (), cordoned=True)))
    cluster.commit(0, 1)
    for other in (1, 2):
        cluster.deliver(0, other)
    cluster.held = {(0, 1), (0, 2)}
    cluster.settle()
    cluster.handle(1, KnowGroup("moves", Group(1, ("b:1",))))
    cluster.settle()
    cluster.reconnect()
    cluster.settle()
    assert cluster.answers("moves") == [None]
    groups = [process.groups for process in cluster.processes.values()]
    assert groups == [{1: Group(1, ("b:1",))}] * 3
    refused(cluster.answers("cordon")[0], RefusalCode.NOT_READY, "ask again")


def test_no_name_is_given_to_a_group_that_was_cordoned_since_it_was_chosen(shards: int) -> None:
    """Else it is there when the group is taken for empty, and taken away."""
    cluster = directory_of(shards)
    cluster.ask(cluster.sequencer, KnowGroup, Group(1, ("a:1",)))
    first = placed(cluster, "there", 1)
    cluster.ask(cluster.sequencer, KnowGroup, Group(1, (), cordoned=True))
    refused(place(cluster, "p", 1), RefusalCode.NOT_READY, "group 1, which is cordoned by now")
    assert placed(cluster, "p", 2).group == 2
    assert placed(cluster, "there", 1).version > first.version


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (PlacePipeline("r", "p", 256), "groups are 0 to 255"),
        (PlacePipeline("r", "p", NOWHERE), "groups are 0 to 255"),
        (PlacePipeline("r", "p", 1, 7), "belongs to no group"),
        (KnowGroup("r", Group(-1, ("a:1",))), "groups are 0 to 255"),
        (KnowGroup("r", Group(1, ("",))), "addresses of 1 to 300 characters"),
        (KnowGroup("r", Group(1, (), cordoned=True)), "there is no group 1"),
        (KnowGroup("r", Group(1, ("a:1",) * 65)), "at most 64 addresses"),
    ],
)
def test_bad_requests_are_refused_and_change_nothing(event: object, words: str) -> None:
    cluster = directory_of(1)
    cluster.handle(0, event)  # type: ignore[arg-type]
    (answer,) = cluster.answers("r")
    assert words in answer.message
    assert not cluster.processes[0].placements and not cluster.processes[0].groups


def test_there_are_no_more_placements_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "MAX_PLACEMENTS", 2)
    cluster = directory_of(1)
    for name in ("a", "b"):
        placed(cluster, name, 1)
    refused(place(cluster, "c", 1), RefusalCode.FULL, "the limit is 2")
    assert placed(cluster, "a", 1).group == 1, "one that is there may still be claimed"


def test_another_shard_names_the_one_that_decides() -> None:
    cluster = directory_of(3)
    registrar = cluster.routing.registrar("p")
    other = (registrar + 1) % 3
    answer = refused(cluster.ask(other, PlacePipeline, "p", 1), RefusalCode.NOT_HOME)
    assert answer.home == registrar
    assert isinstance(cluster.ask(registrar, RegisterPipeline, SPEC), PipelineSpec)


@pytest.mark.parametrize("heard", [set(), {0}, {1}], ids=["by nobody", "by one", "by another"])
def test_what_the_directory_has_told_is_not_taken_back_when_the_shard_that_told_it_is_lost(
    heard: set[int],
) -> None:
    """Groups go by it: were the name given away once more by the same version, two would have the pipeline."""
    cluster = directory_of(3)
    name = next(n for n in map("q{}".format, count()) if cluster.routing.registrar(n) == 2)
    first = placed(cluster, name, 1)
    cluster.held = {(2, other) for other in {0, 1} - heard}
    cluster.handle(2, PlacePipeline("moves", name, 2, first.version))
    cluster.settle()
    assert not cluster.answers("moves")
    try:
        told = cluster.processes[2].placement(name)
    except Refused:
        told = None  # it was asked to wait
    lose(cluster, 2)
    cluster.held.clear()
    declare(cluster, 2)
    known = [process.placements for process in cluster.processes.values()]
    assert known[0] == known[1]
    again = placed(cluster, name, 3, first.version)
    assert told in (None, again)


@pytest.mark.parametrize("groups", [(1, 0), (0, 1), (1, 2)])
def test_one_that_has_a_name_later_is_of_later_generations_in_whatever_group(
    groups: tuple[int, int],
) -> None:
    """So what was heard or recorded of one before counts for nothing there."""
    made = Deployment(1, 1, 1)
    before, after = groups
    if before:
        made.register(SPEC, before)
    else:
        made.groups[0].register(SPEC)
    cluster = made.groups[before]
    for generation in range(3):
        cluster.ask(0, RestartPipeline, "p", generation, None, 0)
    made.delete("p", before)
    made.place("p", after)
    made.register(SPEC, after)
    process = made.groups[after].processes[0]
    assert process.generation("p") > 4, "the last was 3, and 4 has ended it"
    assert not any(process.goes_on_since("p", heard) for heard in range(4))


def test_one_that_is_registered_behind_a_placement_that_is_given_back_late_stays_here() -> None:
    """Who deletes gives the name back by the placement of the one that was deleted."""
    cluster = directory_of(1)
    first = placed(cluster, "p", 0)
    cluster.register(SPEC)
    cluster.ask(0, partial(DeletePipeline, drop_open=True, at_ms=0), "p", 0)
    cluster.settle()
    cluster.register(SPEC)
    placed(cluster, "p", NOWHERE, first.version)
    assert placed(cluster, "p", 1).group == 0
    known = cluster.processes[0].placement("p")
    assert known is not None and known.version >= cluster.pipeline(0).placed > first.version


def test_a_shard_that_does_not_decide_on_a_name_places_nothing() -> None:
    """It is asked to register it, and names the one that decides: what it would log of that were another word on the name."""
    cluster = directory_of(3)
    placed(cluster, "other", 1)
    registrar = cluster.routing.registrar("p")
    for shard in {0, 1, 2} - {registrar}:
        answer = cluster.ask(shard, RegisterPipeline, SPEC)
        assert refused(answer, RefusalCode.NOT_HOME).home == registrar
    cluster.settle()
    for process in cluster.processes.values():
        assert [*process.placements] == ["other"]
    assert placed(cluster, "p", 1).group == 1


def test_what_cannot_be_registered_is_not_placed_either(shards: int) -> None:
    cluster = directory_of(shards)
    placed(cluster, "other", 1)
    bad = PipelineSpec("p", ("s", "s"), open=True)
    refused(cluster.register(bad), RefusalCode.INVALID)
    for process in cluster.processes.values():
        assert [*process.placements] == ["other"]
    assert placed(cluster, "p", 1).group == 1


@pytest.mark.parametrize("claimed", [False, True])
@pytest.mark.parametrize(("shards", "asked"), [(3, 0), (4, 0), (4, 1)])
def test_what_the_directory_says_after_a_loss_is_known_when_the_one_that_says_it_is_lost_too(
    shards: int, asked: int, claimed: bool
) -> None:
    """One shard alone had heard where a pipeline has gone when the one was lost that had decided that. All go on with it, and groups
    are told, before the others have heard how."""
    cluster, last = directory_of(shards), shards - 1
    left = [*range(last)]
    after = RoutingTable([RoutingRule(LOWEST_SLOT, 1, tuple(left))], version=1)
    names = map("q{}".format, count())
    before = cluster.routing.registrar
    name = next(n for n in names if (before(n), after.registrar(n)) == (last, asked))
    first = cluster.ask(last, PlacePipeline, name, 1, None)
    cluster.held = {(last, other) for other in left if other}
    cluster.handle(last, PlacePipeline("moves", name, 2, first.version))
    cluster.settle()
    assert not cluster.answers("moves")
    lose(cluster, last)
    cluster.held = set()
    cluster.handle(0, DeclareLost("lost", (last,), True, 1_000))
    cluster.settle(lambda: bool(cluster.logged(ShardLost)))
    cluster.held = {(0, other) for other in left if other > asked}
    cluster.settle()
    assert cluster.processes[asked].membership.loss is None
    told: object = None  # it may be asked to wait
    if claimed:
        cluster.handle(asked, PlacePipeline("claim", name, 3))
        cluster.settle()
        told = next((a for a in cluster.answers("claim") if isinstance(a, Placement)), None)
    else:
        with suppress(Refused):
            told = cluster.processes[asked].placement(name)
    gone = [*range(asked + 1)]
    lose(cluster, *gone)
    cluster.held.clear()
    declare(cluster, *gone)
    again = cluster.ask(cluster.routing.registrar(name), PlacePipeline, name, 3, first.version)
    assert told in (None, again), "the version is given twice"


def joined_unheard() -> tuple[Cluster, int, int, str]:
    """As `joins_unheard`: the cluster, the registrar of a name, the newcomer and the name."""
    cluster, registrar = Cluster(2), 1
    name = next(n for n in map("q{}".format, count()) if cluster.routing.registrar(n) == registrar)
    return cluster, registrar, joins_unheard(cluster, registrar), name


def test_what_the_directory_has_told_a_newcomer_knows_that_is_left_alone() -> None:
    cluster, registrar, new, name = joined_unheard()
    cluster.handle(registrar, PlacePipeline("claim", name, 1))
    cluster.settle()
    told = next(iter(cluster.answers("claim")), None)
    left_alone(cluster, registrar, new)
    again = cluster.ask(new, PlacePipeline, name, 2, None)
    assert told in (None, again), "the version is given twice"


def test_a_name_that_a_newcomer_left_alone_has_never_heard_of_begins_above_what_it_may_have_had() -> (
    None
):
    """Its pipeline was registered, and min times of it announced, when the newcomer did not count yet."""
    cluster, registrar, new, name = joined_unheard()
    spec = PipelineSpec(name, ("s",), open=True)
    cluster.handle(registrar, RegisterPipeline("begin", spec))
    cluster.settle()
    assert cluster.answers("begin") == [spec]
    left_alone(cluster, registrar, new)
    refused(cluster.join("node", pipeline=name), RefusalCode.UNKNOWN_PIPELINE)
    assert cluster.ask(new, RegisterPipeline, spec) == spec
    assert cluster.pipeline(new, name).generation > GENERATIONS_PER_LOSS


def test_a_name_is_not_claimed_while_one_that_was_deleted_is_not_over() -> None:
    """Who claims it for a pipeline that can't be gives it back, before that is over."""
    cluster = Cluster(2)
    cluster.register(SPEC)
    registrar = cluster.routing.registrar("p")
    cluster.held = {(1 - registrar, registrar)}
    cluster.handle(registrar, DeletePipeline("over", "p", 0, True, 0))
    cluster.settle()
    with pytest.raises(Refused, match="was deleted, and not every shard has let go of it"):
        cluster.processes[registrar].check_claims("p")
    cluster.reconnect()
    cluster.processes[registrar].check_claims("p")


def test_a_name_is_not_claimed_while_its_pipeline_comes() -> None:
    """The directory has turned, and group 1 has not begun the pipeline. A program registers it once more, as it does at each start:
    the service of its registrar asks the directory, and then its own process whether the name may be claimed."""
    made, _, _ = running(1, 1)
    made.begin_move("p", 0, 1)
    steps = made.steps(made.drive("p", 0))
    assert any(isinstance(q, Ask) and isinstance(q.what, PlacePipeline) for q, _ in steps)
    known = made.ask(Ask(0, Where("p")))
    there = made.groups[1].processes[0]
    assert known.group == 1 and not there.placed("p")
    with pytest.raises(Refused, match="on its way"):
        there.check_claims("p")
    for _ in steps:
        pass
    made.go_on("p", 1)
    assert made.has("p") == [1] and there.placed("p") == known.version
    made.delete("p", 1)
    assert made.ask(Ask(0, Where("p"))) is None, "its name is given back"


def test_nothing_is_kept_of_a_name_that_was_given_back_before_a_shard_had_heard_that_its_pipeline_went() -> (
    None
):
    """So many such names would be as many as may be placed."""
    made = Deployment(2, 1)
    made.register(SPEC, 0)
    here = made.groups[0]
    lags = next(s for s in here.processes if s != here.sequencer)
    made.begin_move("p", 0, 1)
    drive = made.drive("p", 0)
    made.until(drive, EndMove)
    made.settle()
    placed = made.ask(Ask(0, Where("p")))
    assert isinstance(placed, Placement) and placed.group == 1
    gone = made.groups[1].pipeline(0, "p")
    delete = partial(DeletePipeline, drop_open=True, at_ms=0)
    assert isinstance(made.groups[1].ask(0, delete, "p", gone.generation), Restart)
    made.ask(Ask(0, PlacePipeline(None, "p", NOWHERE, placed.version, 1)))
    assert here.processes[lags].placements["p"].group == NOWHERE
    made.run(drive)
    made.settle()
    assert not any("p" in process.placements for process in here.processes.values())
    assert not any("p" in inside.pipelines(process) for process in here.processes.values())


@pytest.mark.parametrize("snapshot", [False, True])
def test_one_that_is_left_alone_and_comes_back_answers_though_it_has_nothing_to_announce(
    *, snapshot: bool
) -> None:
    """It knows that all have heard how they go on by the stable cut, which moves with what it reports."""
    cluster = directory_of(2)
    lose(cluster, 0)
    declare(cluster, 0)
    if snapshot:
        cluster.take_snapshot(1)
    cluster.restart(1)
    assert placed(cluster, "p", 1).group == 1


def test_nothing_is_kept_of_a_name_that_was_given_back_where_a_loss_says_that_its_pipeline_has_gone() -> (
    None
):
    """The sequencer had told one shard that the pipeline has gone, and was lost. The other one heard it by the loss, and kept for good
    that the name belongs nowhere."""
    made = Deployment(3, 1)
    made.register(SPEC, 0)
    here = made.groups[0]
    made.begin_move("p", 0, 1)
    made.until(made.drive("p", 0), PlacePipeline)
    made.settle()
    made.go_on("p", 1)
    by = made.ask(Ask(0, Where("p"))).version
    generation = made.groups[1].pipeline(0).generation
    how = partial(DeletePipeline, drop_open=True, at_ms=0)
    ended = made.groups[1].ask(0, how, "p", generation).generation
    made.ask(Ask(0, PlacePipeline(None, "p", NOWHERE, by, ended)))
    here.held = {(0, 2)}
    number = here.processes[0].membership.moving["p"].number
    here.handle(0, EndMove("end", "p", number, by, False))
    here.settle()
    lose(here, 0)
    here.held.clear()
    declare(here, 0)
    assert [process.placements for process in here.processes.values()] == [{}, {}]


def alone_again(directory: Cluster, name: str) -> None:
    """The shard that decides on a name comes back while the other one neither hears nor says anything."""
    directory.part(0, 1)
    directory.restart(directory.routing.registrar(name))
    directory.settle()


def test_a_name_is_given_back_while_another_shard_of_the_directory_is_away() -> None:
    """Who deletes a pipeline asks for that once. The name belonged to its group for ever, also when that was drained, and gone."""
    made = Deployment(2, 1)
    made.register(SPEC, 1)
    placed = made.groups[1].pipeline(0).placed
    alone_again(made.groups[0], "p")
    delete = partial(DeletePipeline, drop_open=True, at_ms=0)
    ended = made.groups[1].ask(0, delete, "p", 0).generation
    made.ask(Ask(0, PlacePipeline(None, "p", NOWHERE, placed, ended)))
    made.groups[0].reconnect()
    assert made.ask(Ask(0, Where("p"))) is None
    assert [process.placements for process in made.groups[0].processes.values()] == [{}, {}]


def test_nor_while_one_is_being_registered_by_a_claim_of_before() -> None:
    """That would be void, and the pipeline there by it: nobody could move it, or give its name back."""
    cluster = Cluster(1)
    cluster.handle(0, RegisterPipeline("begin", SPEC, placed=1))
    with pytest.raises(Refused, match="is being registered"):
        cluster.processes[0].check_claims("p")
    cluster.settle()
    cluster.processes[0].check_claims("p")


def test_what_no_other_shard_would_take_is_logged_by_none() -> None:
    """All would stop by it."""
    made, most = Deployment(2, 2), MAX_NUMBER + 1
    for address in ("", "x" * (MAX_ADDRESS_CHARACTERS + 1)):
        refused(made.groups[0].ask(0, JoinShard, address), RefusalCode.INVALID)
    made.register(SPEC, 0)
    made.begin_move("p", 0, 1)
    for ask in (
        Ask(1, MovePipeline(None, "q", most, 0, arrives=True)),
        Ask(1, MovePipeline(None, "q", 1, 0, arrives=True, next_incarnation=most)),
        Ask(0, EndMove(None, "p", 1, most, True)),
        Ask(0, PlacePipeline(None, "p", NOWHERE, 1, most)),
    ):
        refused(made.ask(ask), RefusalCode.INVALID)
