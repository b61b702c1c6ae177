"""What is decided of a pipeline comes out the same at every shard (rules 8 and 12).

Shards hear of changes and generations by the registrar's log, and of joinings by those of other homes, in any order. A joining counts
for what the pipeline was where its home went by that, as that home's log says; and nothing that rests on a decision is taken before
what the registrar had decided by then.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.driver import Cluster, HandNode, Lossy, refused
from tests.core.test_changing import CUT, IN, NEW, SPEC, apply, begun
from tracker.core.log import RegisterPipeline, RescaleShards, RestartPipeline, ShardReport
from tracker.core.model import Edge, PipelineSpec, RefusalCode
from tracker.core.model.slots import FOREVER

OUT = 1
TWO = PipelineSpec("p", ("in", "out"), (Edge("in", "out"),), fronts=("f",))
MORE = replace(TWO, fronts=("f", "h"))
FAR = replace(
    SPEC, segments=(*SPEC.segments, "new", "far"), edges=(*SPEC.edges, Edge("new", "far"))
)


def raised() -> tuple[Cluster, HandNode]:
    """The pipeline waits for `f`, which joins just as it comes to wait for `h`, too: at the home of `f` the front comes first, at the
    registrar the change. Its home did not go by the change yet, so that the pipeline has begun."""
    cluster = Cluster(3)
    cluster.register(TWO)
    registrar = cluster.routing.registrar("p")
    home = next(shard for shard in range(3) if shard != registrar)
    front = cluster.node(TWO, next(cluster.ids_at(home)), "front")
    cluster.part(0, 1, 2)
    front.begin(joins={"f": IN})
    cluster.move_at_once()
    cluster.handle(registrar, RegisterPipeline("r", MORE, True))
    cluster.move_at_once()
    cluster.reconnect()
    assert cluster.answers("r") == [MORE]
    return cluster, front


def test_whether_a_pipeline_has_begun_is_the_same_at_every_shard() -> None:
    cluster, _ = raised()
    assert {pipeline.shard.begun for pipeline in cluster.pipelines()} == {True}
    cluster.restart_all()
    assert {pipeline.shard.begun for pipeline in cluster.pipelines()} == {True}


def test_where_a_front_came_before_a_change_at_its_home_the_pipeline_goes_on_at_every_shard() -> (
    None
):
    cluster, front = raised()
    front.commit(created=[(OUT, 900, 7)], leaves=("f",))
    cluster.pass_time(10_000)
    assert cluster.agreed(TWO) == (FOREVER, 900)
    cluster.node(MORE, "reader").commit(consumed=[(OUT, 900, 7)])
    cluster.pass_time(10_000)
    assert cluster.agreed(TWO) == (FOREVER, FOREVER)


def test_where_its_home_goes_by_the_change_a_front_does_not_begin_what_waits_for_more() -> None:
    cluster = Cluster(3)
    cluster.register(TWO)
    registrar = cluster.routing.registrar("p")
    home, late = (shard for shard in range(3) if shard != registrar)
    assert apply(cluster, MORE) == MORE
    front = cluster.front(MORE, next(cluster.ids_at(home)), f=IN)
    front.commit(created=[(OUT, 900, 7)], leaves=("f",))
    cluster.pass_time(10_000)
    assert {pipeline.shard.begun for pipeline in cluster.pipelines()} == {False}
    other = cluster.front(MORE, next(cluster.ids_at(late)), h=IN)
    other.commit(leaves=("h",))
    cluster.pass_time(10_000)
    assert cluster.agreed(TWO) == (FOREVER, 900)


def test_a_change_that_is_under_way_survives_with_what_had_joined_before() -> None:
    """One of two homes has not heard of it when the front joins there; the registrar dies, and comes back, be it from a snapshot."""
    for from_snapshot in (False, True):
        cluster = Cluster(3)
        cluster.register(TWO)
        registrar = cluster.routing.registrar("p")
        home, late = (shard for shard in range(3) if shard != registrar)
        front = cluster.node(TWO, next(cluster.ids_at(home)), "front")
        cluster.part(home, registrar)
        cluster.part(home, late)
        cluster.handle(registrar, RegisterPipeline("r", MORE, True))
        cluster.settle()
        if from_snapshot:
            cluster.take_snapshot(registrar)
        cluster.restart(registrar)
        front.begin(joins={"f": IN})
        cluster.move_at_once()
        assert not cluster.answers("r"), "not every home goes by it"
        cluster.reconnect()
        cluster.pass_time(10_000)
        assert {pipeline.shard.begun for pipeline in cluster.pipelines()} == {True}


@pytest.mark.parametrize("changed", ["fronts", "edges"])
def test_a_shard_that_has_joined_goes_by_a_change_that_is_over_before_it_is_a_home(
    changed: str,
) -> None:
    """It has begun with what a shard knew for which the change was still under way, and hears nothing of the reports of another."""
    cluster = Lossy(3)
    if changed == "fronts":
        spec, front = MORE, {"f": IN}
        cluster.register(TWO)
    else:
        spec, front = replace(FAR, edges=SPEC.edges), {"g": NEW}
        cluster.register(SPEC)
        cluster.front(SPEC, "front", promise=100, f=IN)
        apply(cluster, FAR)
    registrar = cluster.routing.registrar("p")
    peer, quiet = (shard for shard in range(3) if shard != registrar)
    new = cluster.begin_to_join()
    cluster.settle()
    changes = max(pipeline.changes for pipeline in cluster.pipelines()) + 1
    cluster.handle(registrar, RegisterPipeline("r", spec, True))
    cluster.settle(lambda: all(p.activates and p.changes == changes for p in cluster.pipelines()))
    cluster.lost = {(quiet, peer, ShardReport), (quiet, new, ShardReport)}
    cluster.settle()
    assert cluster.answers("r") == [spec]
    cluster.bootstrap(new, peer)
    cluster.pass_time(1_000)
    cluster.handle(cluster.sequencer, RescaleShards("more", 4, False, ()))
    cluster.pass_time(1_000)
    assert not cluster.answers("more"), (
        "it goes by the change when it has heard of all that they do"
    )
    cluster.lost = set()
    cluster.pass_time(10_000)
    node = cluster.node(spec, next(cluster.ids_at(new)), "front")
    node.begin(joins=front)
    cluster.pass_time(10_000)
    assert len({pipeline.shard.begun for pipeline in cluster.pipelines()}) == 1
    assert len({str(pipeline.shard.vacancies.unfed()) for pipeline in cluster.pipelines()}) == 1


def behind_a_change() -> tuple[Lossy, int, int]:
    """An edge is gone for all but the shard that hands out its state to a newcomer. Then the pipeline is restarted while the table
    changes: the report of a shard that has not begun the generation tells the newcomer that all go by the table, and nothing of the
    change. Also the registrar, and the newcomer."""
    cluster = Lossy(3)
    cluster.register(SPEC)
    registrar = cluster.routing.registrar("p")
    peer, quiet = (shard for shard in range(3) if shard != registrar)
    new = cluster.begin_to_join()
    cluster.settle()
    cluster.handle(registrar, RegisterPipeline("r", CUT, True))
    cluster.settle(lambda: all(p.activates and p.changes == 1 for p in cluster.pipelines()))
    cluster.lost = {(quiet, peer, ShardReport), (quiet, new, ShardReport)}
    cluster.settle()
    assert cluster.answers("r") == [CUT]
    cluster.bootstrap(new, peer)
    cluster.pass_time(100)
    cluster.handle(cluster.sequencer, RescaleShards("more", 4, False, ()))
    cluster.pass_time(100)
    assert all(process.membership.is_adopted for process in cluster.processes.values())
    cluster.held = {(registrar, quiet)}
    cluster.handle(registrar, RestartPipeline("restart", "p", 0, 100, 0))
    cluster.settle()
    cluster.lost = {(quiet, peer, ShardReport)}
    cluster.pass_time(1_100)
    assert not cluster.pipeline(new).activates
    return cluster, registrar, new


def test_a_shard_that_has_joined_takes_no_node_before_it_goes_by_a_change_that_is_over() -> None:
    cluster, _, new = behind_a_change()
    refused(cluster.join(next(cluster.ids_at(new))), RefusalCode.NOT_READY, "has changed")
    cluster.lost, cluster.held = set(), set()
    cluster.pass_time(3_000)
    assert cluster.pipeline(new).activates and cluster.answers("more")
    cluster.node(CUT, next(cluster.ids_at(new)))


def test_fronts_that_join_while_a_change_waits_for_a_shard_are_forgotten_once_it_has_begun() -> (
    None
):
    cluster = Cluster(3)
    cluster.register(TWO)
    registrar = cluster.routing.registrar("p")
    home, late = (shard for shard in range(3) if shard != registrar)
    cluster.front(TWO, "first", promise=100, f=IN)
    cluster.part(late, home)
    cluster.part(late, registrar)
    cluster.handle(registrar, RegisterPipeline("r", MORE, True))
    cluster.settle()
    node = cluster.node(TWO, next(cluster.ids_at(home)), "front")
    for number in range(3):
        node.begin(joins={f"g{number}": IN})
        node.begin(leaves=(f"g{number}",))
    cluster.settle()
    former = cluster.pipeline(registrar).shard.former
    assert former is not None and len(former.joined) <= 1


def restarted_behind(
    spec: PipelineSpec, changed: PipelineSpec
) -> tuple[Cluster, HandNode, int, int]:
    """A pipeline has changed, and begins anew from slot 200 behind that. A shard hears of the generation, and that `f` has joined, from
    the home of that front, and of the change later. Also the home, and that shard."""
    cluster = Cluster(3)
    cluster.register(spec)
    registrar = cluster.routing.registrar("p")
    home, late = (shard for shard in range(3) if shard != registrar)
    cluster.front(spec, next(cluster.ids_at(home)), promise=100, f=IN)
    cluster.held.add((registrar, late))
    cluster.handle(registrar, RegisterPipeline("change", changed, True))
    cluster.move_at_once()
    cluster.handle(registrar, RestartPipeline("restart", "p", 0, 200, 0))
    cluster.settle()
    front = cluster.node(changed, next(cluster.ids_at(home)), "front")
    front.begin(joins={"f": IN})
    cluster.settle()
    cluster.reconnect()
    cluster.pass_time(5_000)
    assert cluster.answers("change") == [changed] and cluster.answers("restart")
    return cluster, front, home, late


def test_a_generation_waits_for_the_fronts_that_were_declared_before_it_also_where_it_is_known_first() -> (
    None
):
    """It comes to wait for `h`, too, and is restarted behind that."""
    cluster, front, _, _ = restarted_behind(TWO, MORE)
    front.commit(created=[(OUT, 900, 7)], leaves=("f",))
    cluster.pass_time(10_000)
    assert [pipeline.generation for pipeline in cluster.pipelines()] == [1, 1, 1]
    assert max(said[IN] for said in cluster.min_times(TWO)) <= 200, "`h` has not come"


def test_a_new_source_whose_edge_is_taken_away_as_that_is_fed_waits_for_no_front_at_any_shard() -> (
    None
):
    """`far` is fed by `new` alone, and both wait. That the edge is gone is durable at the registrar before a front joins `new`; at the home of
    that front it comes later: the front was one that feeds both."""
    cluster, _, _ = begun(3)
    apply(cluster, FAR)
    registrar = cluster.routing.registrar("p")
    home = next(shard for shard in range(3) if shard != registrar)
    source = cluster.node(FAR, next(cluster.ids_at(home)), "front")
    cluster.part(0, 1, 2)
    apart = replace(FAR, edges=SPEC.edges)
    cluster.handle(registrar, RegisterPipeline("r", apart, True))
    cluster.move_at_once()
    source.begin(joins={"g": NEW})
    cluster.move_at_once()
    cluster.reconnect()
    cluster.pass_time(10_000)
    assert cluster.answers("r") == [apart]
    assert {pipeline.shard.vacancies.places for pipeline in cluster.pipelines()} == {()}
    assert cluster.agreed(SPEC)[NEW + 1] == FOREVER


def test_no_shard_waits_for_a_first_front_in_a_generation_that_came_behind_the_change() -> None:
    """A new source is added to an open pipeline, which is restarted behind that: nobody waits for the first front of that segment any
    more, also where a shard is left alone that heard of the generation first."""
    spec = replace(TWO, open=True)
    sourced = replace(
        spec, segments=(*spec.segments, "new"), edges=(*spec.edges, Edge("new", "out"))
    )
    cluster, front, home, late = restarted_behind(spec, sourced)
    registrar = cluster.routing.registrar("p")
    front.commit(heartbeats={"f": 400})
    cluster.rescale(1, without=(home, registrar), evacuate=True)
    cluster.pass_time(5_000)
    assert [*cluster.processes.keys() - cluster.gone] == [late]
    assert cluster.pipeline(late).generation == 1
    front = cluster.node(sourced, front.key.node_id, "front")
    front.commit(heartbeats={"f": 900})
    cluster.pass_time(10_000)
    assert cluster.processes[late].min_times("p")[OUT] == 900
