"""What is known to go wrong, and is not mended yet: each test shows a fault of the core, and fails until that is mended.

Shards hear of changes by the registrar's log, and of joinings and generations by those of other homes, in any order. Whether a pipeline has begun, and
which new segments wait for a first front, depends on that order where a change of the declared fronts or of edges meets a joining or a
restart that is on its way at the same time (rules 8 and 12).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.driver import Cluster, HandNode
from tests.core.test_changing import IN, NEW, SPEC, apply, begun
from tracker.core.log import RegisterPipeline, RestartPipeline
from tracker.core.model import Edge, PipelineSpec
from tracker.core.model.slots import FOREVER

OUT = 1
TWO = PipelineSpec("p", ("in", "out"), (Edge("in", "out"),), fronts=("f",))
MORE = replace(TWO, fronts=("f", "h"))
FAR = replace(
    SPEC, segments=(*SPEC.segments, "new", "far"), edges=(*SPEC.edges, Edge("new", "far"))
)
FAULT = pytest.mark.xfail(raises=AssertionError, strict=True, reason="known, and not mended yet")


def raised() -> tuple[Cluster, HandNode]:
    """The pipeline waits for `f`, which joins just as it comes to wait for `h`, too: at the home of `f` the front comes first, at the
    registrar the change, which is answered."""
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


@FAULT
def test_whether_a_pipeline_has_begun_is_the_same_at_every_shard() -> None:
    cluster, _ = raised()
    assert len({pipeline.shard.begun for pipeline in cluster.pipelines()}) == 1


@FAULT
def test_no_segment_is_complete_for_some_while_another_waits_for_a_front_that_feeds_it() -> None:
    cluster, front = raised()
    front.commit(created=[(OUT, 900, 7)], leaves=("f",))
    cluster.pass_time(10_000)
    assert max(said[IN] for said in cluster.min_times(TWO)) < FOREVER, "`h` has not come"


@FAULT
def test_a_pipeline_that_some_shard_waits_to_begin_does_not_stand_for_ever() -> None:
    """Whatever fronts do: `h` is refused, since `in` is complete at two shards; the registrar waits for it, and says nothing."""
    cluster, front = raised()
    front.commit(created=[(OUT, 900, 7)], leaves=("f",))
    cluster.pass_time(10_000)
    cluster.node(MORE, "reader").commit(consumed=[(OUT, 900, 7)])
    other = cluster.front(MORE, next(cluster.ids_at(front.home)), h=IN)
    other.commit(leaves=("h",))
    cluster.pass_time(10_000)
    assert cluster.agreed(TWO) == (FOREVER, FOREVER)


@FAULT
def test_a_generation_waits_for_the_fronts_that_were_declared_before_it_also_where_it_is_known_first() -> (
    None
):
    """The pipeline comes to wait for `h`, too, and is restarted from slot 200 behind that. A shard hears of the generation, and that `f`
    has joined, from the home of that front, and of the change later: it has begun the pipeline by then."""
    cluster = Cluster(3)
    cluster.register(TWO)
    registrar = cluster.routing.registrar("p")
    home, late = (shard for shard in range(3) if shard != registrar)
    cluster.front(TWO, next(cluster.ids_at(home)), promise=100, f=IN)
    cluster.held.add((registrar, late))
    cluster.handle(registrar, RegisterPipeline("change", MORE, True))
    cluster.move_at_once()
    cluster.handle(registrar, RestartPipeline("restart", "p", 0, 200, 0))
    cluster.settle()
    front = cluster.node(MORE, next(cluster.ids_at(home)), "front")
    front.begin(joins={"f": IN})
    cluster.settle()
    cluster.reconnect()
    assert cluster.answers("change") == [MORE] and cluster.answers("restart")
    front.commit(created=[(OUT, 900, 7)], leaves=("f",))
    cluster.pass_time(10_000)
    assert [pipeline.generation for pipeline in cluster.pipelines()] == [1, 1, 1]
    assert max(said[IN] for said in cluster.min_times(TWO)) <= 200, "`h` has not come"


@FAULT
def test_a_new_source_whose_only_edge_is_taken_away_waits_for_its_own_front_at_every_shard() -> (
    None
):
    """`far` is fed by `new` alone, and both wait. That the edge is gone is durable at the registrar before a front joins `new`; at the home of
    that front it comes later."""
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
    assert len({str(pipeline.shard.vacancies.places) for pipeline in cluster.pipelines()}) == 1
    assert cluster.agreed(SPEC)[NEW + 1] < FOREVER


@FAULT
def test_no_shard_waits_for_a_first_front_in_a_generation_that_came_behind_the_change() -> None:
    """A new source is added, and the pipeline, which is open, restarted behind that: nobody waits for the first front of that segment any
    more. A shard hears of the generation from another home, and of the change later: it waits, and holds all when it alone is left."""
    spec = replace(TWO, open=True)
    cluster = Cluster(3)
    cluster.register(spec)
    registrar = cluster.routing.registrar("p")
    home, late = (shard for shard in range(3) if shard != registrar)
    cluster.front(spec, next(cluster.ids_at(home)), promise=100, f=IN)
    cluster.held.add((registrar, late))
    sourced = replace(
        spec, segments=(*spec.segments, "new"), edges=(*spec.edges, Edge("new", "out"))
    )
    cluster.handle(registrar, RegisterPipeline("change", sourced, True))
    cluster.move_at_once()
    cluster.handle(registrar, RestartPipeline("restart", "p", 0, 200, 0))
    cluster.settle()
    front = cluster.node(sourced, next(cluster.ids_at(home)), "front")
    front.begin(joins={"f": IN})
    cluster.settle()
    cluster.reconnect()
    cluster.pass_time(5_000)
    assert cluster.answers("change") == [sourced] and cluster.answers("restart")
    front.commit(heartbeats={"f": 400})
    cluster.rescale(1, without=(home, registrar), evacuate=True)
    cluster.pass_time(5_000)
    assert [*cluster.processes.keys() - cluster.gone] == [late]
    assert cluster.pipeline(late).generation == 1
    front = cluster.node(sourced, front.key.node_id, "front")
    front.commit(heartbeats={"f": 900})
    cluster.pass_time(10_000)
    assert cluster.processes[late].min_times("p")[OUT] == 900
