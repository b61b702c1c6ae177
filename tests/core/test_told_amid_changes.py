"""What people and fronts are told while shards change, or a pipeline does, holds (rules 8, 10, 12)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tests.core.driver import Cluster, Lossy, refused
from tracker.core.log import RegisterPipeline, RescaleShards, RetireNode, ShardReport
from tracker.core.log.steps import CellsMoved
from tracker.core.model import Cells, Edge, PipelineSpec, RefusalCode

SPEC = PipelineSpec("p", ("in", "out"), fronts=("f", "g"))
SPEC_OF_ONE = PipelineSpec("p", ("in",), front_count=1, start_slot=0)


def test_what_is_written_off_as_cells_are_handed_over_is_written_off_or_refused() -> None:
    """By the new table its entry would go to the new owner, which has nothing yet, and clear nothing, though it is answered."""
    cluster = Cluster(3)
    cluster.register(SPEC_OF_ONE)
    slot = next(cluster.slots_of(2))
    front = cluster.front(SPEC_OF_ONE, next(cluster.ids_at(0)))
    front.commit(created=[(0, slot, 7)], heartbeats={"a": slot + 10})
    gone = cluster.node(SPEC_OF_ONE, next(cluster.ids_at(1)))
    shown = Cells.of([(0, slot, 7, 1)])
    cluster.handle(cluster.sequencer, RescaleShards("fewer", 2, True, ()))
    home = cluster.processes[1]
    cluster.settle(lambda: 1 in home.membership.adopted_at and bool(home.routing.version))
    assert not cluster.logged(CellsMoved)
    retire = partial(RetireNode, at_ms=1)
    cluster.handle(1, retire("early", "p", gone.key.node_id, shown))
    cluster.pass_time(3_000)
    refused(cluster.answers("early")[0], RefusalCode.NOT_READY, "hand over what is open")
    assert cluster.gone == {2}
    cluster.crash(2)
    assert cluster.agreed(SPEC_OF_ONE) == (slot,)
    assert cluster.ask_home(gone.key.node_id, retire, shown) is None
    assert cluster.agreed(SPEC_OF_ONE) == (slot + 10,)


def test_a_change_that_is_asked_for_again_is_answered_when_all_go_by_it_also_after_a_restart() -> (
    None
):
    cluster = Lossy(2)
    cluster.lost = set()
    cluster.register(SPEC)
    registrar = cluster.routing.registrar("p")
    joined = replace(SPEC, edges=(Edge("in", "out"),))
    cluster.lost = {(registrar, 1 - registrar, ShardReport)}
    cluster.handle(registrar, RegisterPipeline("first", joined, True))
    cluster.settle()
    assert cluster.pipeline(registrar).change_awaits
    cluster.take_snapshot(registrar)
    cluster.restart(registrar)
    cluster.settle()
    for again in ("again", "once more"):
        cluster.handle(registrar, RegisterPipeline(again, joined, True))
    cluster.settle()
    assert not cluster.answers("again") and not cluster.answers("once more")
    cluster.lost = set()
    cluster.reconnect()
    cluster.pass_time(3_000)
    assert cluster.answers("again") == cluster.answers("once more") == [joined]


def test_nothing_is_remembered_of_fronts_that_left_as_a_shard_died() -> None:
    """Its last report of a front came when that had left here, and that it had left there never came."""
    cluster = Lossy(2)
    cluster.lost = set()
    cluster.register(replace(SPEC, open=True))
    node = cluster.front(SPEC, next(cluster.ids_at(0)), promise=100, f=0, g=1)
    node.join_front("x", 0)
    cluster.settle()
    cluster.held = {(1, 0)}
    node.begin(heartbeats={"x": 500})
    cluster.settle()
    assert any(isinstance(frame.body, ShardReport) for frame in cluster.links[1, 0])
    cluster.lost = {(1, 0, ShardReport)}
    node.begin(leaves=("x",))
    cluster.settle()
    cluster.deliver(1, 0)
    assert len(cluster.pipeline(0).front_heard_ns) == 3
    cluster.restart(1)
    cluster.lost = set()
    cluster.reconnect()
    cluster.pass_time(1_000)
    assert {name for _, name, *_ in cluster.pipeline(0).front_heard_ns} == {"f", "g"}
