"""Shards that never come back are declared lost, and the others go on: nothing goes back, nothing is announced early."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count

import pytest

from tests import inside
from tests.core.deployment import Deployment
from tests.core.driver import Cluster, HandNode, Lossy, refused
from tracker.core.log import (
    AttachSession,
    DeclareLost,
    DeletePipeline,
    Entries,
    HomeEntry,
    JoinNode,
    JoinShard,
    PeerDisconnected,
    RegisterPipeline,
    RescaleShards,
    Restart,
    RestartPipeline,
    SessionRefused,
    ShardNumber,
    ShardReport,
)
from tracker.core.log.losses import GENERATIONS_PER_LOSS, LossHeard, LossReport, ShardLost
from tracker.core.log.steps import ShardJoined, ShardLeaving, ShardLeft, SlotBounds
from tracker.core.model import Edge, PipelineSpec, RefusalCode
from tracker.core.model.levels import LOSSES
from tracker.core.model.slots import FOREVER
from tracker.core.process import ProcessConfig

SPEC = PipelineSpec("p", ("a", "b"), (Edge("a", "b", 0),), front_count=1, start_slot=0)


def lose(cluster: Cluster, *shards: int) -> None:
    """Their processes and stores are gone."""
    for shard in shards:
        cluster.crash(shard)
        del cluster.stored[shard]
        for other in cluster.processes:
            cluster.handle(other, PeerDisconnected(shard))


def declare(
    cluster: Cluster, *shards: int, write_off: bool = True, at: int | None = None
) -> LossReport:
    """An operator declares shards lost, and everything happens that follows."""
    leader = min(cluster.processes) if at is None else at
    report = cluster.ask(leader, DeclareLost, shards, write_off, 1_000)
    assert isinstance(report, LossReport), report
    cluster.pass_time(100)
    return report


def joins_unheard(cluster: Cluster, registrar: int) -> int:
    """Shard 2 has begun with what the sequencer, shard 0, knew, and has heard nothing since of what the registrar logs; returns its
    number. To be gone on with when something is decided there."""
    new = cluster.begin_to_join()
    cluster.settle()
    cluster.held = {(registrar, new), (new, 0)}
    cluster.bootstrap(new, 0)
    cluster.settle()
    return new


def left_alone(cluster: Cluster, registrar: int, new: int) -> None:
    """That newcomer counts, and the two others are lost."""
    cluster.held = {(registrar, new)}
    cluster.settle()
    cluster.pass_time(1_000)
    assert cluster.processes[new].membership.members == {0, 1, new}
    lose(cluster, 0, registrar)
    cluster.held.clear()
    declare(cluster, 0, registrar)


def at_home(cluster: Cluster, home: int, prefix: str, pipeline: str = "p") -> str:
    """A node id that is at home at a shard."""
    names = (f"{prefix}{number}" for number in count())
    return next(name for name in names if cluster.routing.home(pipeline, name) == home)


class Running:
    """A pipeline with a front at a survivor, and items open at every shard."""

    def __init__(self, shards: int = 3, lost: int = 2, cluster: Cluster | None = None) -> None:
        self.cluster = cluster or Cluster(shards)
        self.cluster.register(SPEC)
        survivor = min({*range(shards)} - {lost})
        self.front = self.cluster.node(SPEC, at_home(self.cluster, survivor, "front"), "front")
        self.front.join_front("f")
        self.worker = self.cluster.node(SPEC, at_home(self.cluster, lost, "worker"))
        self.values = count(1)
        self.made: list[tuple[int, int, int]] = []

    def create(self, *slots: int) -> None:
        made = [(0, slot, next(self.values)) for slot in slots]
        self.front.commit(created=made)
        self.front.commit(heartbeats={"f": max(slots) + 1})
        self.made += made

    def consume(self) -> None:
        self.worker.commit(consumed=self.made)
        self.made = []


def the_last_is_lost() -> Cluster:
    """Four shards with items open at each: the last is gone, and nobody has declared that."""
    running = Running(4, lost=3)
    running.create(0, 1, 2, 3)
    lose(running.cluster, 3)
    return running.cluster


def test_a_number_that_only_a_lost_sequencer_knows_is_given_to_nobody() -> None:
    """Two processes would be one shard: the one that had it, and the one that is given it next."""
    cluster = Cluster(3)
    cluster.part(0, 1, 2)
    cluster.handle(0, JoinShard("first", "host-a:1"))
    cluster.commit(0)
    cluster.handle(0, JoinShard("again", "host-a:1"))
    cluster.settle()
    assert not cluster.answers("first") and not cluster.answers("again")
    cluster.held.clear()
    lose(cluster, 0)
    declare(cluster, 0)
    assert cluster.ask(1, JoinShard, "host-b:1") == ShardNumber(3)


def finish_anew(cluster: Cluster, beyond: int) -> None:
    """A pipeline goes on in a new generation: a front labels, a worker consumes, and min time follows."""
    front = cluster.node(SPEC, "new front", "front")
    grant = front.join_front("g")
    assert grant.slot >= beyond
    worker = cluster.node(SPEC, "new worker")
    items = [(0, grant.slot + each, 7_000 + each) for each in range(12)]
    front.commit(created=items)
    front.commit(heartbeats={"g": grant.slot + 20})
    assert cluster.agreed(SPEC) == (grant.slot, grant.slot)
    worker.commit(consumed=items[1:])
    assert cluster.agreed(SPEC) == (grant.slot, grant.slot)
    worker.commit(consumed=items[:1])
    assert cluster.agreed(SPEC) == (grant.slot + 20,) * 2
    front.commit(leaves=["g"])
    assert cluster.agreed(SPEC) == (FOREVER, FOREVER)


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_the_others_go_on_in_a_new_generation_above_what_was_announced(lost: int) -> None:
    running = Running(lost=lost)
    cluster = running.cluster
    running.create(0, 1, 2, 3, 4, 5)
    running.consume()
    running.create(6, 7, 8)
    assert cluster.agreed(SPEC) == (6, 6)
    lose(cluster, lost)
    report = declare(cluster, lost)
    assert report.lost == (lost,) and report.write_off
    (known,) = report.pipelines
    assert known.bound is not None and known.bound >= 6
    left = {0, 1, 2} - {lost}
    for process in cluster.processes.values():
        assert process.membership.members == left
        assert process.membership.sequencer == min(left)
        assert process.routing.owning == tuple(sorted(left))
    assert {p.generation for p in cluster.pipelines()} == {1_000_001}
    assert running.front.ended.code is RefusalCode.NOT_READY
    assert running.front.attach_refused().code is RefusalCode.FENCED
    finish_anew(cluster, known.bound)


def test_held_pipelines_stand_until_an_operator_restarts_them() -> None:
    running = Running()
    cluster = running.cluster
    running.create(0, 1, 2, 3, 4, 5)
    lose(cluster, 2)
    report = declare(cluster, 2, write_off=False)
    (known,) = report.pipelines
    assert sum(cells.cells for cells in known.open) == 2
    assert known.bound is not None
    refused(
        cluster.join("new front"), RefusalCode.NOT_READY, "declared lost", "pipelines restart p"
    )
    assert {p.generation for p in cluster.pipelines()} == {0}
    assert cluster.agreed(SPEC) == (0, 0)
    cluster.restart_all(from_snapshots=True)
    again = declare(cluster, 2, write_off=False)
    assert [each.bound for each in again.pipelines] == [known.bound]
    registrar = cluster.routing.registrar("p")
    below = cluster.ask(registrar, RestartPipeline, "p", 0, known.bound - 1, 2_000)
    refused(below, RefusalCode.BELOW_MIN_TIME)
    cluster.ask(registrar, RestartPipeline, "p", 0, None, 2_000)
    finish_anew(cluster, known.bound)
    (restart,) = cluster.pipeline(0).restarts
    assert restart.cells[-len(known.open) :] == known.open


def test_what_a_lost_log_has_touched_in_a_pipeline_that_stands_is_not_reported() -> None:
    running = Running()
    cluster = running.cluster
    running.create(0, 1, 2)
    running.consume()
    lose(cluster, 2)
    declare(cluster, 2, write_off=False)
    cluster.restart_all()  # they find again what was touched
    cluster.ask(cluster.routing.registrar("p"), RestartPipeline, "p", 0, None, 2_000)
    finish_anew(cluster, 3)


def test_what_a_lost_shard_alone_has_announced_is_not_taken_back() -> None:
    """It heard the others' reports, announced, and died before anybody heard of it."""
    cluster = Lossy(3)
    running = Running(cluster=cluster)
    running.create(0, 1, 2, 3, 4, 5)
    cluster.lost = {(2, 0, ShardReport), (2, 1, ShardReport)}
    running.consume()
    told = cluster.processes[2].min_times("p")
    assert told == (6, 6)
    assert cluster.processes[0].min_times("p") == cluster.processes[1].min_times("p") == (0, 0)
    lose(cluster, 2)
    (known,) = declare(cluster, 2).pipelines
    assert known.bound is not None and known.bound >= min(told)
    finish_anew(cluster, min(told))


def test_a_front_of_a_segment_that_was_removed_bounds_nothing() -> None:
    """It had joined just as the segment was removed, holds nothing any more, and promises nothing: the lost shard has gone on
    without it."""
    spec = PipelineSpec("p", ("a", "b"), (), fronts=("g",), start_slot=0)
    cluster = Lossy(2)
    cluster.register(spec)
    front = cluster.node(spec, at_home(cluster, 0, "front"), "front")
    late = cluster.node(spec, at_home(cluster, 0, "late"), "front")
    late.begin(joins={"h": 0})
    removal = replace(spec, segments=("b",))
    cluster.handle(cluster.routing.registrar("p"), RegisterPipeline("r", removal, True))
    cluster.settle()
    assert cluster.answers("r")[0].removed == ("a",) and late.grants
    front.join_front("g", 1)
    cluster.lost = {(1, 0, ShardReport)}
    front.commit(heartbeats={"g": 100})
    told = cluster.processes[1].pipeline_min_time("p")
    assert told == 100
    lose(cluster, 1)
    declare(cluster, 1)
    assert cluster.node(spec, "new front", "front").join_front("n", 1).slot >= told


def test_a_newcomer_that_a_lost_shard_had_not_counted_bounds_nothing_that_it_announced() -> None:
    """It is behind with the log of a front's home, and the lost shard has announced what the front promised there."""
    cluster = Lossy(3)
    cluster.register(SPEC)
    front = cluster.node(SPEC, at_home(cluster, 1, "front"), "front")
    front.join_front("f")
    front.commit(heartbeats={"f": 5})
    shard = cluster.begin_to_join()
    cluster.settle()
    cluster.held = {(1, shard), (shard, 0)}
    cluster.bootstrap(shard, 0)
    cluster.pass_time(1_000)
    cluster.lost = {(2, other, ShardReport) for other in (0, 1, shard)}
    front.commit(heartbeats={"f": 100})
    told = cluster.processes[2].pipeline_min_time("p")
    assert told == 100 and shard in cluster.processes[2].membership.joining
    lose(cluster, 2)
    cluster.held = {(1, shard)}
    cluster.pass_time(1_000)
    assert shard in cluster.processes[0].membership.members
    cluster.handle(0, DeclareLost("declares", (2,), True, 1_000))
    cluster.settle()
    cluster.held.clear()
    cluster.pass_time(1_000)
    assert cluster.answers("declares")
    finish_anew(cluster, told)


@pytest.mark.parametrize("shards", [2, 3])
def test_a_front_that_joined_what_a_lost_shard_alone_had_announced_to_be_complete_bounds_nothing(
    shards: int,
) -> None:
    """It may label nothing for ever, so that what the others begin with would be behind all slots."""
    spec = PipelineSpec("p", ("a", "b"), (), front_count=2, start_slot=0)
    cluster = Lossy(shards)
    cluster.register(spec)
    one, other = (cluster.node(spec, at_home(cluster, 0, name), "front") for name in ("f", "g"))
    one.join_front("f", 0)
    other.join_front("g", 1)
    other.commit(created=[(1, next(cluster.slots_of(0, 10)), 7)], leaves=("g",))
    cluster.lost = {(shard, 0, ShardReport) for shard in range(1, shards)}
    one.commit(leaves=("f",))
    late = cluster.node(spec, at_home(cluster, 0, "late"), "front")
    late.begin(joins={"h": 0})
    cluster.lost = set()
    cluster.pass_time(1_000)
    assert late.grants[-1].slot == FOREVER
    lost = shards - 1
    lose(cluster, lost)
    (known,) = declare(cluster, lost).pipelines
    assert known.bound is None
    registrar = cluster.routing.registrar("p")
    restarted = cluster.ask(registrar, RestartPipeline, "p", 0, 20, 2_000)
    assert isinstance(restarted, Restart)
    for name, segment in (("f", 0), ("g", 1)):
        assert cluster.node(spec, f"new {name}", "front").join_front(name, segment).slot == 20


def waits_for_two() -> tuple[Lossy, PipelineSpec, HandNode]:
    """A pipeline that waits for `f` and `g`, registered by a shard of which the other one hears nothing from here on; an item
    came by a front that nobody waits for."""
    names = map("q{}".format, count())
    cluster = Lossy(2)
    name = next(each for each in names if cluster.routing.registrar(each) == 1)
    spec = PipelineSpec(name, ("a",), (), fronts=("f", "g"), start_slot=0)
    cluster.register(spec)
    front = cluster.node(spec, at_home(cluster, 0, "front", name), "front")
    front.join_front("x")
    front.commit(created=[(0, 30, 7)], leaves=("x",))
    return cluster, spec, front


def comes_to_wait_for_one(cluster: Lossy, spec: PipelineSpec) -> None:
    """Of which the shard alone hears that is to be lost."""
    cluster.lost = {(1, 0, ShardReport), (1, 0, Entries)}
    cluster.handle(1, RegisterPipeline("r", replace(spec, fronts=("f",)), True))
    cluster.pass_time(1_000)


def is_bound_by_what_was_told(cluster: Lossy, spec: PipelineSpec) -> bool:
    """Whether those that are left begin no lower than the shard has told that is lost now."""
    told = cluster.processes[1].pipeline_min_time(spec.name)
    lose(cluster, 1)
    (known,) = declare(cluster, 1).pipelines
    return known.bound is None or known.bound >= told


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_pipeline_that_only_the_lost_shard_knew_to_have_begun_is_not_bound_by_its_start(
    comes_back: bool,
) -> None:
    """It had heard that the pipeline waits for fewer fronts; maybe it came back from a snapshot since."""
    cluster, spec, front = waits_for_two()
    front.begin(joins={"f": 0})
    front.commit(leaves=("f",))
    comes_to_wait_for_one(cluster, spec)
    if comes_back:
        cluster.take_snapshot(1)
        cluster.restart(1)
        cluster.pass_time(1_000)
    assert is_bound_by_what_was_told(cluster, spec)


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_pipeline_that_only_the_lost_shard_knew_to_have_begun_by_a_joining_is_not_bound_by_its_start(
    comes_back: bool,
) -> None:
    """It had heard that the pipeline waits for fewer fronts, and of the last of those behind that."""
    cluster, spec, front = waits_for_two()
    comes_to_wait_for_one(cluster, spec)
    for step in ({"joins": {"f": 0}}, {"leaves": ("f",)}):
        front.begin(**step)
        cluster.pass_time(1_000)
    if comes_back:
        cluster.restart(1)
        cluster.pass_time(1_000)
    assert is_bound_by_what_was_told(cluster, spec)


def test_every_crash_of_every_survivor_on_the_way_changes_nothing() -> None:
    crashes = 0
    for shard in (0, 1):
        for commits in range(1, 40):
            running = Running()
            cluster = running.cluster
            running.create(0, 1, 2, 3)
            lose(cluster, 2)
            cluster.crash_at(shard, commits)
            cluster.handle(0, DeclareLost("asked", (2,), True, 1_000))
            cluster.settle()
            if not cluster.has_crashed:
                break
            crashes += 1
            declare(cluster, 2)
            finish_anew(cluster, 4)
    assert crashes >= 6


def test_a_pipeline_that_only_one_survivor_has_heard_of_is_everywhere_afterwards() -> None:
    """A node has even joined it there: the others pass over what they cannot know, and hold up nothing."""
    cluster = Cluster(3)
    other = next(
        PipelineSpec(name, ("a",), front_count=1, start_slot=0)
        for name in map("q{}".format, count())
        if cluster.routing.registrar(name) == 2
    )
    for heard in (0, 1):
        cluster = Cluster(3)
        deaf = 1 - heard
        cluster.held = {(2, deaf)}
        cluster.handle(2, RegisterPipeline("asked", other))
        cluster.settle()
        assert cluster.processes[heard].spec(other.name) == other
        node_id = at_home(cluster, heard, "node", other.name)
        cluster.handle(heard, JoinNode("joins", other.name, node_id, "other"))
        cluster.settle()
        lose(cluster, 2)
        cluster.held.clear()
        cluster.handle(0, DeclareLost("declares", (2,), True, 1_000))
        cluster.pass_time(3_000)
        (report,) = cluster.answers("declares")
        assert [known.spec for known in report.pipelines] == [other]
        assert {p.generation for p in cluster.pipelines(other.name)} == {1_000_001}
        front = cluster.node(other, "front", "front")
        assert front.join_front("f").slot == 0


def test_a_restart_that_one_survivor_has_heard_of_is_in_force_at_all() -> None:
    running = Running(lost=2)
    cluster = running.cluster
    name = next(n for n in map("r{}".format, count()) if cluster.routing.registrar(n) == 2)
    spec = PipelineSpec(name, ("a",), front_count=1, start_slot=0)
    cluster.register(spec)
    cluster.held = {(2, 1)}
    cluster.handle(2, RestartPipeline("asked", name, 0, None, 500))
    cluster.settle()
    assert [cluster.pipeline(shard, name).generation for shard in (0, 1)] == [1, 0]
    lose(cluster, 2)
    cluster.held.clear()
    declare(cluster, 2)
    assert [cluster.pipeline(shard, name).generation for shard in (0, 1)] == [1_000_001] * 2


def test_a_pipeline_whose_end_one_survivor_has_heard_of_has_ended_at_all() -> None:
    cluster = Cluster(3)
    name = next(n for n in map("r{}".format, count()) if cluster.routing.registrar(n) == 2)
    spec = PipelineSpec(name, ("a",), front_count=1, start_slot=0)
    cluster.register(spec)
    cluster.held = {(2, 1)}
    cluster.handle(2, DeletePipeline("asked", name, 0, True, 500))
    cluster.settle()
    assert name not in inside.pipelines(cluster.processes[0])
    lose(cluster, 2)
    cluster.held.clear()
    declare(cluster, 2)
    for process in cluster.processes.values():
        assert name not in inside.pipelines(process)
    assert cluster.register(spec) == spec


def test_a_pipeline_that_one_survivor_knows_to_be_complete_is_complete_at_all() -> None:
    cluster = Cluster(3)
    name = next(n for n in map("r{}".format, count()) if cluster.routing.registrar(n) == 2)
    spec = PipelineSpec(name, ("a",), front_count=1, start_slot=0)
    cluster.register(spec)
    front = cluster.node(spec, at_home(cluster, 0, "front", name), "front")
    front.join_front("f")
    cluster.held = {(2, 1)}
    front.begin(leaves=["f"])
    cluster.settle()
    assert cluster.processes[0].min_times(name) == (FOREVER,)
    lose(cluster, 2)
    cluster.held.clear()
    declare(cluster, 2)
    assert [process.min_times(name) for process in cluster.processes.values()] == [(FOREVER,)] * 2


def test_where_nobody_can_tell_what_was_announced_the_operator_names_the_slot() -> None:
    """Its only front has left, and what is open is open at the lost shard: that may have announced anything."""
    running = Running()
    cluster = running.cluster
    running.create(*(slot for slot in range(9) if cluster.routing.owner(slot, "p") == 2))
    running.front.commit(leaves=["f"])
    lose(cluster, 2)
    (known,) = declare(cluster, 2).pipelines
    assert known.bound is None
    refused(cluster.join("new front"), RefusalCode.NOT_READY, "--from")
    registrar = cluster.routing.registrar("p")
    answer = cluster.ask(registrar, RestartPipeline, "p", 0, None, 2_000)
    refused(answer, RefusalCode.INVALID, "--from")
    answer = cluster.ask(registrar, RestartPipeline, "p", 0, FOREVER, 2_000)
    refused(answer, RefusalCode.INVALID, "the largest is")
    cluster.ask(registrar, RestartPipeline, "p", 0, 10_000, 2_000)
    finish_anew(cluster, 10_000)


def test_a_lost_shard_that_comes_back_is_not_heard() -> None:
    running = Running()
    cluster = running.cluster
    running.create(0, 1, 2)
    stored = [*cluster.stored[2]]
    lose(cluster, 2)
    declare(cluster, 2)
    before = [process.links.keys() for process in cluster.processes.values()]
    cluster.stored[2] = stored
    cluster.start(2)
    cluster.pass_time(2_000)
    assert [p.links.keys() for s, p in cluster.processes.items() if s != 2] == before
    assert cluster.processes[2].min_times("p") <= (3, 3)
    cluster.crash(2)
    finish_anew(cluster, 3)


def test_a_shard_says_what_it_knows_when_all_that_it_had_appended_is_durable() -> None:
    """A restart that was not durable when it heard of the declaration: all know it, so that none goes on unheld."""
    cluster = Cluster(3)
    names = (replace(SPEC, name=f"p{number}") for number in count())
    spec = next(each for each in names if cluster.routing.registrar(each.name) == 1)
    cluster.register(spec)
    cluster.settle()
    lose(cluster, 2)
    cluster.handle(0, DeclareLost("lost", (2,), False, 1_000))
    cluster.commit(0)
    cluster.deliver(0, 1)
    cluster.handle(1, RestartPipeline("again", spec.name, 0, 5, 0))
    cluster.commit(1, 1)
    assert cluster.processes[1].membership.loss is not None
    assert not any(
        isinstance(r, HomeEntry) and isinstance(r.entry, LossHeard) for _, r in cluster.pending[1]
    )
    cluster.settle()
    assert [pipeline.generation for pipeline in cluster.pipelines(spec.name)] == [1, 1]
    assert all(pipeline.held is not None for pipeline in cluster.pipelines(spec.name))


def test_a_shard_goes_on_when_it_has_all_that_the_others_had_logged() -> None:
    cluster = Cluster(4)
    cluster.register(SPEC)
    cluster.settle()
    lose(cluster, 3)
    cluster.part(1, 2)
    cluster.handle(0, DeclareLost("lost", (3,), True, 1_000))
    cluster.settle(until=lambda: cluster.processes[0].membership.loss is None)
    cluster.pass_time(100)
    assert [p.membership.loss is None for p in cluster.processes.values()] == [True, False, False]
    cluster.reconnect()
    assert all(process.membership.loss is None for process in cluster.processes.values())


def test_a_second_shard_is_lost_while_the_first_is_declared() -> None:
    """Also the one that leads: the declaration of both takes the place of the first."""
    for second in (0, 1, 2):
        cluster = the_last_is_lost()
        cluster.held = {(second, other) for other in range(4)}
        cluster.handle(0, DeclareLost("asked", (3,), True, 1_000))
        cluster.settle()
        assert not cluster.answers("asked")
        lose(cluster, second)
        cluster.held.clear()
        report = declare(cluster, second, 3)
        assert report.lost == (second, 3)
        finish_anew(cluster, 4)


def test_who_declares_more_is_not_answered_by_the_declaration_before() -> None:
    """How all go on without shard 3 is logged, and not durable yet, when shard 2 dies and is declared lost, too."""
    cluster = the_last_is_lost()
    cluster.handle(0, DeclareLost("first", (3,), True, 1_000))
    cluster.settle(lambda: bool(cluster.logged(ShardLost)))
    lose(cluster, 2)
    cluster.handle(0, DeclareLost("second", (2,), True, 2_000))
    cluster.handle(0, DeclareLost("first again", (3,), True, 2_000))
    cluster.commit(0)
    assert cluster.answers("first") and cluster.answers("first again")
    assert not cluster.answers("second"), "it is answered for others"
    cluster.pass_time(1_000)
    (answer,) = cluster.answers("second")
    assert answer.lost == (2, 3)


def test_the_leader_is_lost_when_only_some_have_heard_how_all_go_on() -> None:
    cluster = the_last_is_lost()
    cluster.handle(0, DeclareLost("asked", (3,), True, 1_000))
    cluster.settle(lambda: bool(cluster.logged(LossHeard)))
    cluster.held = {(0, 2)}
    cluster.settle(lambda: bool(cluster.answers("asked")))
    cluster.settle()
    assert 3 in cluster.processes[2].membership.members, "2 has heard it already"
    lose(cluster, 0)
    cluster.held.clear()
    declare(cluster, 0)
    assert {p.generation for p in cluster.pipelines()} == {2_000_001}
    finish_anew(cluster, 4)


def test_another_is_lost_before_a_front_has_joined_again() -> None:
    """The one that was lost before has announced nothing in this generation."""
    cluster = the_last_is_lost()
    declare(cluster, 3)
    lose(cluster, 2)
    (known,) = declare(cluster, 2).pipelines
    assert known.bound == 4
    finish_anew(cluster, 4)


@pytest.mark.parametrize("lost", [(0, 1), (0, 3), (1, 2), (2, 3)])
def test_two_are_lost_at_once(lost: tuple[int, int]) -> None:
    running = Running(4, lost=3)
    running.create(0, 1, 2, 3)
    lose(running.cluster, *lost)
    declare(running.cluster, *lost)
    finish_anew(running.cluster, 4)


@pytest.mark.parametrize("crash", range(1, 4))
def test_one_that_is_left_is_lost_and_another_one_has_not_heard_what_it_knew(crash: int) -> None:
    """How all go on waits there for the rest of that log, which nobody sends any more; the next declaration stands behind it."""
    cluster = the_last_is_lost()
    cluster.held = {(1, 2)}
    cluster.handle(0, DeclareLost("asked", (3,), True, 1_000))
    cluster.settle()
    cluster.pass_time(1_000)
    assert [p.membership.loss is None for p in cluster.processes.values()] == [True, True, False]
    lose(cluster, 1)
    cluster.held.clear()
    cluster.crash_at(2, crash)
    declare(cluster, 1)
    assert cluster.has_crashed
    assert {p.generation for p in cluster.pipelines()} == {2_000_001}
    finish_anew(cluster, 4)


def test_the_leader_is_lost_when_only_some_have_heard_its_declaration() -> None:
    """What they have logged by it counts for nothing where it does not come any more."""
    cluster = the_last_is_lost()
    cluster.held = {(0, 2)}
    cluster.handle(0, DeclareLost("asked", (3,), True, 1_000))
    cluster.settle(lambda: bool(cluster.logged(LossHeard)))
    cluster.settle()
    lose(cluster, 0)
    cluster.held.clear()
    declare(cluster, 0)
    finish_anew(cluster, 4)


@pytest.mark.parametrize("snapshot", [False, True])
def test_what_one_had_logged_before_all_went_on_counts_for_nothing_when_it_comes_late(
    snapshot: bool,
) -> None:
    """Another one is lost, and who waited for that goes on without it: steps by which shards had come and gone, say."""
    cluster = Cluster(5, config=ProcessConfig(rescale_margin_ms=40))
    running = Running(5, lost=3, cluster=cluster)
    running.create(0, 1, 2, 3)
    cluster.held = {(1, 2)}
    cluster.handle(0, RescaleShards("rescales", 4, False, (4,)))
    cluster.settle()
    lose(cluster, 3)
    cluster.handle(0, DeclareLost("asked", (3,), True, 1_000))
    cluster.settle()
    cluster.pass_time(1_000)
    assert cluster.answers("asked") and cluster.processes[2].membership.loss is not None
    lose(cluster, 4)
    cluster.handle(0, DeclareLost("again", (4,), True, 1_000))
    cluster.settle()
    assert cluster.processes[2].membership.is_lost(4)
    if snapshot:
        cluster.take_snapshot(2)
        cluster.restart(2)
    cluster.reconnect()
    cluster.pass_time(1_000)
    assert cluster.answers("again")
    assert len({process.routing for process in cluster.processes.values()}) == 1
    finish_anew(cluster, 4)


@pytest.mark.parametrize("crash", range(1, 5))
def test_the_leader_is_lost_when_others_have_gone_on(crash: int) -> None:
    """One has not heard how, and takes what they have logged since for nothing: it is of a generation that is over by the next
    declaration, nodes are at home by a table that it never hears of, and pipelines are in what the others know."""
    running = Running(5, lost=3)
    cluster = running.cluster
    running.create(0, 1, 2, 3)
    lose(cluster, 3)
    cluster.handle(0, DeclareLost("asked", (3,), True, 1_000))
    cluster.settle(lambda: bool(cluster.logged(LossHeard)))
    cluster.held = {(0, 2)}
    cluster.settle()
    cluster.pass_time(1_000)
    assert [p.membership.loss is None for p in cluster.processes.values()] == [
        True, True, False, True,
    ]  # fmt: skip
    new = next(n for n in map("r{}".format, count()) if cluster.routing.registrar(n) == 1)
    cluster.handle(1, RegisterPipeline("registers", replace(SPEC, name=new)))
    for home in (1, 4):
        node = cluster.node(SPEC, at_home(cluster, home, "node"))
        node.begin(created=[(0, slot, slot + 1) for slot in range(10, 20)])
    cluster.handle(0, RescaleShards("rescales", 3, False, (4,)))
    cluster.settle()
    assert cluster.logged(SlotBounds)
    lose(cluster, 0)
    cluster.held.clear()
    cluster.crash_at(2, crash)
    cluster.handle(1, DeclareLost("again", (0,), True, 1_000))
    cluster.settle()
    cluster.pass_time(2_000)
    assert cluster.answers("again") and cluster.has_crashed
    assert {p.generation for p in cluster.pipelines()} == {2_000_001}
    assert [inside.pipelines(p).keys() for p in cluster.processes.values()] == [{"p", new}] * 3
    assert not any(inside.pipelines(p).registering for p in cluster.processes.values())
    finish_anew(cluster, 4)


def test_one_that_is_connected_is_not_lost() -> None:
    cluster = Cluster(3)
    answer = cluster.ask(0, DeclareLost, (2,), True, 1_000)
    refused(answer, RefusalCode.CONFLICT, "shard 2 is connected")
    refused(cluster.ask(0, DeclareLost, (7,)), RefusalCode.INVALID, "shard 7")
    refused(cluster.ask(0, DeclareLost, (0,)), RefusalCode.INVALID, "it answers")
    assert refused(cluster.ask(1, DeclareLost, (2,)), RefusalCode.CONFLICT)


def test_in_the_midst_of_an_upgrade_all_that_are_left_have_to_be_of_the_newer_release() -> None:
    """What is lost cannot be waited for, as finishing the upgrade does."""
    cluster = Cluster(3, speaks=LOSSES - 1)
    cluster.register(SPEC)
    cluster.upgrade(0)
    cluster.settle()
    lose(cluster, 2)
    older = cluster.ask(0, DeclareLost, (2,), True, 1_000)
    refused(older, RefusalCode.NOT_READY, f"shard 1 speaks levels up to {LOSSES - 1};")
    assert cluster.formats[0] == LOSSES - 1
    cluster.upgrade(1)
    cluster.settle()
    declare(cluster, 2)
    assert {process.membership.level for process in cluster.processes.values()} == {LOSSES}
    assert {cluster.formats[shard] for shard in cluster.processes} == {LOSSES}
    cluster.restart_all()
    finish_anew(cluster, 0)


def test_a_newcomer_that_never_comes_holds_up_no_loss_in_the_midst_of_an_upgrade() -> None:
    """The sequencer that would have given it up is lost."""
    cluster = Cluster(3, speaks=LOSSES - 1)
    cluster.register(SPEC)
    for shard in range(3):
        cluster.upgrade(shard)
    cluster.settle()
    newcomer = cluster.begin_to_join()
    cluster.settle()
    assert newcomer in cluster.processes[1].membership.joining
    lose(cluster, 0)
    declare(cluster, 0)
    assert [p.membership.level for p in cluster.processes.values()] == [LOSSES] * 2
    finish_anew(cluster, 0)


def test_the_smallest_that_is_left_declares() -> None:
    cluster = Cluster(3)
    lose(cluster, 0)
    assert refused(cluster.ask(2, DeclareLost, (0,)), RefusalCode.NOT_HOME).home == 1
    declare(cluster, 0, at=1)
    assert cluster.processes[2].membership.members == {1, 2}


def test_nothing_is_decided_while_one_that_is_left_is_away() -> None:
    running = Running()
    cluster = running.cluster
    running.create(0, 1, 2)
    lose(cluster, 2)
    cluster.part(0, 1)
    cluster.handle(0, DeclareLost("asked", (2,), True, 1_000))
    cluster.pass_time(5_000)
    assert not cluster.answers("asked")
    refused(cluster.join(at_home(cluster, 0, "late")), RefusalCode.NOT_READY, "being declared lost")
    refused(cluster.ask(0, RescaleShards, 1), RefusalCode.NOT_READY)
    cluster.reconnect()
    cluster.settle()
    assert cluster.answers("asked")
    finish_anew(cluster, 3)


def test_incarnations_begin_above_all_that_a_lost_shard_can_have_given() -> None:
    running = Running()
    cluster = running.cluster
    cluster.held = {(2, 0), (2, 1)}
    node_id = at_home(cluster, 2, "alone")
    cluster.handle(2, JoinNode("joins", "p", node_id, "other"))
    cluster.commit(2)
    (joined,) = cluster.answers("joins")
    lose(cluster, 2)
    cluster.held.clear()
    declare(cluster, 2)
    again = cluster.node(SPEC, node_id)
    assert again.key.incarnation > joined.key.incarnation
    old = HandNode(cluster, SPEC, again.home, joined)
    (refusal,) = [e.refusal for e in old.attach() if isinstance(e, SessionRefused)]
    assert refusal.code is RefusalCode.FENCED


@pytest.mark.parametrize("rounds", range(12))
def test_a_rescale_under_way_is_given_up(rounds: int) -> None:
    config = ProcessConfig(rescale_margin_ms=40)
    running = Running(cluster=Cluster(3, config=config))
    cluster = running.cluster
    running.create(0, 1, 2)
    cluster.join_shard()
    cluster.handle(0, RescaleShards("rescales", 4))
    for _ in range(rounds):
        cluster.move_once()
    lose(cluster, 2)
    declare(cluster, 2)
    cluster.settle()
    assert len(cluster.answers("rescales")) == 1
    finish_anew(cluster, 3)
    for process in cluster.processes.values():
        assert process.membership.members == {0, 1, 3}


@pytest.mark.parametrize("rounds", range(0, 20, 2))
def test_the_sequencer_is_lost_while_a_shard_joins(rounds: int) -> None:
    """The newcomer counts afterwards for all, or for none: then it has to join again."""
    running = Running(lost=0)
    cluster = running.cluster
    running.create(0, 1, 2)
    shard = cluster.begin_to_join()
    cluster.settle()
    cluster.bootstrap(shard, 1)
    for _ in range(rounds):
        cluster.move_once()
    lose(cluster, 0)
    declare(cluster, 0)
    members = {frozenset(cluster.processes[s].membership.members) for s in (1, 2)}
    assert members in ({frozenset({1, 2})}, {frozenset({1, 2, 3})})
    if members == {frozenset({1, 2})}:
        cluster.crash(shard)
    finish_anew(cluster, 3)


def test_a_lost_shard_is_replaced_by_a_new_one() -> None:
    running = Running()
    cluster = running.cluster
    running.create(0, 1, 2)
    lose(cluster, 2)
    declare(cluster, 2)
    assert cluster.join_shard() == 3
    assert cluster.rescale(3).shards == (0, 1, 3)
    finish_anew(cluster, 3)


def test_all_comes_back_from_snapshots() -> None:
    running = Running()
    cluster = running.cluster
    running.create(0, 1, 2, 3)
    lose(cluster, 2)
    declare(cluster, 2)
    cluster.restart_all(from_snapshots=True)
    for process in cluster.processes.values():
        assert process.membership.lost == {2: 1_000}
    finish_anew(cluster, 3)


def appended(cluster: Cluster, shard: int, kind: type) -> Callable[[], bool]:
    """Whether a shard has appended such an entry, which is not durable."""

    def is_there() -> bool:
        records = [record for _, record in cluster.pending[shard]]
        return any(isinstance(r, HomeEntry) and isinstance(r.entry, kind) for r in records)

    return is_there


def with_a_newcomer(*counting: int) -> tuple[Cluster, int]:
    """Shard 0 is lost when a shard has just joined; of the others, those that count it have heard that of shard 0."""
    running = Running(4, lost=0)
    cluster = running.cluster
    running.create(0, 1, 2)
    shard = cluster.begin_to_join()
    cluster.settle()
    cluster.bootstrap(shard, 1)
    joined = appended(cluster, 0, ShardJoined)
    cluster.settle(joined)
    assert joined()
    cluster.held = {(0, other) for other in {1, 2, 3, shard} - {*counting}}
    cluster.settle()
    for other in (1, 2, 3):
        assert (shard in cluster.processes[other].membership.members) == (other in counting)
    assert shard in cluster.processes[shard].membership.joining
    lose(cluster, 0)
    cluster.held.clear()
    return cluster, shard


def go_on_without(cluster: Cluster, newcomer: int) -> None:
    """The newcomer goes, too. Nobody says that it has less of a log than it had said, and in the end all have the same."""
    before = {s: inside.applied(cluster.processes[s]) for s in (1, 2, 3)}
    cluster.handle(1, DeclareLost("declared", (0,), True, 1_000))
    for _ in range(200):
        for shard, known in before.items():
            now = inside.applied(cluster.processes[shard])
            assert all(now.get(home, number) >= number for home, number in known.items())
            before[shard] = now
        if not cluster.move_once():
            cluster.pass_time_without_commits()
    assert isinstance(cluster.answers("declared")[0], LossReport)
    assert len({tuple(sorted(known.items())) for known in before.values()}) == 1
    for shard in before:
        assert cluster.processes[shard].membership.members == {1, 2, 3}
    cluster.crash(newcomer)
    cluster.restart_all(from_snapshots=True)
    finish_anew(cluster, 3)


def test_a_newcomer_that_has_not_heard_that_it_counts_is_waited_for_and_says_what_it_knows() -> (
    None
):
    """Others have heard it of the shard that is lost, which the newcomer has not."""
    go_on_without(*with_a_newcomer(1, 2, 3))


def test_what_others_have_of_a_newcomer_that_the_leader_does_not_count_is_of_no_account() -> None:
    """The leader has nothing of its log, and does not know how much they have."""
    go_on_without(*with_a_newcomer(2))


def test_what_one_that_left_had_of_a_log_is_not_waited_for_when_that_log_is_lost() -> None:
    """It has announced by entries that nobody else has heard of."""
    running = Running(4, lost=2, cluster=Cluster(4, config=ProcessConfig(rescale_margin_ms=40)))
    cluster = running.cluster
    running.create(0, 1, 2)
    cluster.handle(0, RescaleShards("leaves", 3, True))
    cluster.settle(lambda: bool(cluster.logged(ShardLeaving)))
    cluster.held = {(2, 0), (2, 1)}
    cluster.handle(2, JoinNode("joins", "p", at_home(cluster, 2, "alone"), "other"))
    cluster.settle()
    (left,) = cluster.logged(ShardLeft)
    assert dict(left.applied)[2] > inside.applied(cluster.processes[0])[2]
    lose(cluster, 2)
    cluster.held.clear()
    declare(cluster, 2)
    assert cluster.gone == {3}
    cluster.crash(3)
    finish_anew(cluster, 3)


def test_one_that_has_left_ends_also_when_the_sequencer_is_lost_by_then() -> None:
    """It has heard of the declaration, and the others go on without it."""
    running = Running(4, lost=2, cluster=Cluster(4, config=ProcessConfig(rescale_margin_ms=40)))
    cluster = running.cluster
    running.create(0, 1, 2)
    cluster.handle(0, RescaleShards("leaves", 3, True, (3,)))
    leaves = appended(cluster, 3, ShardLeft)
    cluster.settle(leaves)
    assert leaves()
    lose(cluster, 0)
    cluster.handle(1, DeclareLost("declares", (0,), True, 1_000))
    cluster.commit(1)
    cluster.deliver(1, 3)
    cluster.settle()
    cluster.pass_time(1_000)
    assert cluster.answers("declares") and cluster.gone == {3}
    cluster.crash(3)
    finish_anew(cluster, 3)


def test_nobody_waits_for_a_lost_log_who_begins_anew_beside_one_that_still_does() -> None:
    running = Running()
    cluster = running.cluster
    running.create(0, 1, 2)
    lose(cluster, 2)
    cluster.handle(0, DeclareLost("declared", (2,), True, 1_000))
    cluster.settle(appended(cluster, 1, LossHeard))
    cluster.held = {(0, 1)}
    cluster.settle()
    assert [p.membership.loss is None for p in cluster.processes.values()] == [True, False]
    assert dict(inside.let_go_by(cluster.processes[1]))[2] > 0
    cluster.take_snapshot(0)
    cluster.restart(0)
    cluster.settle()
    cluster.reconnect()
    cluster.settle()
    finish_anew(cluster, 3)


def test_one_that_has_logged_its_last_declares_nothing() -> None:
    """Nobody takes what comes behind it."""
    running = Running(cluster=Cluster(3, config=ProcessConfig(rescale_margin_ms=40)))
    cluster = running.cluster
    running.create(0, 1, 2)
    cluster.handle(0, RescaleShards("leaves", 2, True, (0,)))
    has_left = appended(cluster, 0, ShardLeft)
    cluster.settle(has_left)
    assert has_left()
    lose(cluster, 2)
    assert refused(cluster.ask(0, DeclareLost, (2,)), RefusalCode.NOT_HOME).home == 1


def moved_after_a_loss() -> tuple[Deployment, Cluster, int]:
    """A pipeline comes from a group that has lost a shard to one that has lost none. Returns that one, and its registrar, of which
    nobody hears any more."""
    made = Deployment(3, 3)
    made.register(replace(SPEC, open=True), 0)
    lose(made.groups[0], 2)
    declare(made.groups[0], 2)
    made.groups[0].join("worker")
    assert made.move("p", 0, 1) == ""
    there = made.groups[1]
    registrar = there.routing.registrar("p")
    there.held = {(registrar, other) for other in range(3)}
    return made, there, registrar


def test_a_key_that_only_a_lost_shard_has_given_is_given_to_nobody_of_a_pipeline_that_has_come() -> (
    None
):
    _, there, lost = moved_after_a_loss()
    node_id = at_home(there, lost, "node")
    before = there.join(node_id).key
    there.held.clear()
    lose(there, lost)
    declare(there, lost)
    assert there.join(node_id).key.incarnation > before.incarnation


def test_nor_begins_a_generation_that_only_a_lost_shard_has_begun() -> None:
    _, there, lost = moved_after_a_loss()
    before = there.pipeline(lost).generation
    there.handle(lost, RestartPipeline("again", "p", before, None, 0))
    there.settle()
    begun = there.pipeline(lost).generation
    assert begun > before
    there.held.clear()
    lose(there, lost)
    declare(there, lost)
    assert {pipeline.generation > begun for pipeline in there.pipelines()} == {True}


@pytest.mark.parametrize("heard", [False, True])
def test_a_name_is_free_that_one_of_those_left_has_never_heard_of(heard: bool) -> None:
    """The lost shard had registered and deleted it. heard: whether another one has said there that it is over."""
    cluster = Cluster(3)
    registrar = cluster.routing.registrar("p")
    late = (registrar + 1) % 3
    cluster.held = {(registrar, late)} | (set() if heard else {(3 - registrar - late, late)})
    cluster.handle(registrar, RegisterPipeline("begin", SPEC))
    cluster.settle()
    cluster.handle(registrar, DeletePipeline("end", "p", 0, True, 0))
    cluster.settle()
    cluster.held.clear()
    cluster.links.clear()
    lose(cluster, registrar)
    declare(cluster, registrar)
    cluster.pass_time(1_000)
    assert isinstance(cluster.register(SPEC), PipelineSpec)


def test_what_was_open_at_lost_shards_is_listed_once_when_a_shard_joins() -> None:
    running = Running()
    cluster = running.cluster
    running.create(0, 1, 2, 3, 4, 5)
    lose(cluster, 2)
    (known,) = declare(cluster, 2, write_off=False).pipelines
    lost = sum(cells.cells for cells in known.open)
    there = sum(sum(p.shard.cells.open_slots) for p in cluster.pipelines())
    cluster.join_shard(0)
    cluster.ask(cluster.routing.registrar("p"), RestartPipeline, "p", 0, None, 2_000)
    cluster.settle()
    listed = [c.cells for p in cluster.pipelines() for each in p.restarts for c in each.cells]
    assert sum(listed) == lost + there


@pytest.mark.parametrize("is_deleted_first", [True, False])
def test_who_has_the_name_of_one_from_before_a_loss_is_another_pipeline(
    is_deleted_first: bool,
) -> None:
    """A subscriber and a position of the one that was deleted are nothing to it, nor is a restart that comes late."""
    cluster = Cluster(3)
    cluster.register(SPEC)
    front = cluster.front(SPEC, "front", promise=1_000, f=0)
    registrar = cluster.routing.registrar("p")

    def delete() -> None:
        generation = cluster.pipeline(registrar).generation
        gone = partial(DeletePipeline, drop_open=True, at_ms=0)
        assert isinstance(cluster.ask(registrar, gone, "p", generation), Restart)

    if is_deleted_first:
        delete()
    else:
        front.commit(leaves=["f"])
        assert cluster.agreed(SPEC) == (FOREVER, FOREVER)
    lost = max({0, 1, 2} - {registrar})
    lose(cluster, lost)
    declare(cluster, lost)
    if not is_deleted_first:
        registrar = cluster.routing.registrar("p")
        delete()
    cluster.register(SPEC)
    assert cluster.agreed(SPEC) == (0, 0)
    assert not any(process.goes_on_since("p", 0) for process in cluster.processes.values())
    late = cluster.ask(cluster.routing.registrar("p"), RestartPipeline, "p", 0, None, 0)
    refused(late, RefusalCode.CONFLICT)
    new = cluster.pipeline(min(cluster.processes)).generation
    assert all(process.goes_on_since("p", new) for process in cluster.processes.values())


def gone_on_unheard(cluster: Cluster, lost: int, late: int) -> None:
    """A shard is declared lost, and the others go on without it, of which one hears nothing of how."""
    lose(cluster, lost)
    leader = min(cluster.processes)
    cluster.handle(leader, DeclareLost("first", (lost,), True, 1_000))
    cluster.settle(lambda: bool(cluster.logged(ShardLost)))
    cluster.held |= {(other, late) for other in cluster.processes if other != late}
    cluster.settle()
    assert cluster.processes[late].membership.loss is not None


@pytest.mark.parametrize("comes_by", ["a move", "its name"])
def test_two_losses_begin_two_generations_also_of_one_whose_number_is_from_elsewhere(
    comes_by: str,
) -> None:
    """Who is left by the second loss has not heard how the first one ended: a process that joined since then is another one."""
    made = Deployment(2, 3)
    before, there = made.groups
    made.register(replace(SPEC, open=True), 0)
    lose(before, 1)
    declare(before, 1)
    if comes_by == "a move":
        assert made.move("p", 0, 1) == ""
    else:
        made.delete("p", 0)
        made.register(replace(SPEC, open=True), 1)
    made.settle()
    assert {pipeline.base for pipeline in there.pipelines()} == {1}
    gone_on_unheard(there, 0, late=2)
    node_id = at_home(there, 1, "node")
    there.handle(1, JoinNode("join", "p", node_id, "worker"))
    there.settle()
    (joined,) = there.answers("join")
    lose(there, 1)
    there.held.clear()
    declare(there, 0, 1)
    refusal = there.handle(2, AttachSession("old", "p", joined.key, joined.generation))
    assert any(isinstance(effect, SessionRefused) for effect in refusal)
    assert there.join(node_id).generation > joined.generation


def test_a_newcomer_left_alone_begins_a_name_above_what_it_had_also_behind_one_from_elsewhere() -> (
    None
):
    made = Deployment(1, 2, 4)
    here, other = made.groups[1:]
    spec = replace(SPEC, name="other")
    made.register(spec, 2)
    other.front(spec, "front", promise=5, f=0)
    lose(other, 2, 3)
    declare(other, 2, 3)
    made.delete("other", 2)
    registrar = here.routing.registrar("p")
    new = joins_unheard(here, registrar)
    made.register(SPEC, 1)
    front = here.front(SPEC, next(here.ids_at(registrar)), promise=1_000, f=0)
    generation = front.joined.generation
    left_alone(here, registrar, new)
    made.settle()
    made.register(SPEC, 1)
    assert here.pipeline(new).generation > generation
    assert here.agreed(SPEC) == (0, 0)
    assert not here.processes[new].goes_on_since("p", generation)


def test_those_that_are_left_know_together_how_all_generations_began() -> None:
    """The lost registrar had restarted it twice, of which one of the others has heard."""
    cluster = Cluster(3)
    cluster.register(SPEC)
    registrar = cluster.routing.registrar("p")
    late = min({0, 1, 2} - {registrar})
    cluster.front(SPEC, next(cluster.ids_at(late)), promise=1_000, f=0)
    cluster.held = {(registrar, late)}
    for generation in (0, 1):
        cluster.handle(registrar, RestartPipeline(f"{generation}", "p", generation, None, 0))
        cluster.settle()
    lose(cluster, registrar)
    cluster.held.clear()
    declare(cluster, registrar)
    begun = [[each.restart for each in pipeline.restarts] for pipeline in cluster.pipelines()]
    assert begun[0] == begun[1]
    assert [restart.generation for restart in begun[0][:2]] == [1, 2]
    asked = [(p, since) for p in cluster.processes.values() for since in (0, 1, 2)]
    assert all(process.goes_on_since("p", since) for process, since in asked)


def test_who_hears_by_two_losses_alone_of_the_next_of_a_name_takes_no_position_of_the_one_before() -> (
    None
):
    """What the registrar logs of the next one does not come to a shard, and neither how all went on without the first that was
    lost."""
    cluster = Cluster(5)
    first, leader, registrar, other, late = range(5)
    name = next(n for n in map("q{}".format, count()) if cluster.routing.registrar(n) == registrar)
    spec = replace(SPEC, name=name)
    cluster.register(spec)
    gone = partial(DeletePipeline, drop_open=True, at_ms=0)
    assert isinstance(cluster.ask(registrar, gone, name, 0), Restart)
    cluster.pass_time(500)
    cluster.held = {(registrar, late)}
    cluster.handle(registrar, RegisterPipeline("next", spec))
    cluster.settle()
    began = cluster.pipeline(other, name).generation
    gone_on_unheard(cluster, first, late)
    lose(cluster, leader, registrar)
    cluster.held.clear()
    declare(cluster, first, leader, registrar)
    for process in cluster.processes.values():
        assert process.goes_on_since(name, began) and not process.goes_on_since(name, 0)


def test_a_name_whose_last_one_had_come_by_a_move_begins_above_all_that_it_had() -> None:
    """That one was deleted here, of which the directory has not heard; what has its name then is not known to a newcomer, which is
    left alone."""
    made = Deployment(1, 2, 3)
    here, other = made.groups[1:]
    made.register(replace(SPEC, open=True), 2)
    lose(other, 1, 2)
    declare(other, 1, 2)
    assert made.move("p", 2, 1) == ""
    made.settle()
    gone = partial(DeletePipeline, drop_open=True, at_ms=0)
    registrar = here.routing.registrar("p")
    answer = here.ask(registrar, gone, "p", here.pipeline(registrar).generation)
    assert isinstance(answer, Restart)
    made.settle()
    new = joins_unheard(here, registrar)
    made.register(SPEC, 1)
    generation = here.pipeline(registrar).generation
    left_alone(here, registrar, new)
    made.settle()
    made.register(SPEC, 1)
    assert here.pipeline(new).generation > generation


@pytest.mark.parametrize("again", [True, False])
def test_what_is_decided_behind_a_restart_that_is_not_durable_has_the_next_generation(
    again: bool,
) -> None:
    cluster = Cluster(2)
    cluster.register(SPEC)
    cluster.front(SPEC, "front", promise=100, f=0)
    lose(cluster, 1)
    declare(cluster, 1, write_off=False)
    held = cluster.pipeline(0).held
    assert held is not None and held.from_slot is not None
    slot = held.from_slot
    cluster.handle(0, RestartPipeline("first", "p", 0, slot, 0))
    begun = GENERATIONS_PER_LOSS + 1
    if again:
        cluster.handle(0, RestartPipeline("next", "p", begun, slot + 5, 0))
    else:
        cluster.handle(0, DeletePipeline("next", "p", begun, True, 0))
    cluster.settle()
    (first,), (following,) = cluster.answers("first"), cluster.answers("next")
    assert (first.generation, following.generation) == (begun, begun + 1)
