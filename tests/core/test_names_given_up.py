"""A unit that was written off and was not lost: its reader is told its slot, and what it consumes counts as late."""

from __future__ import annotations

from functools import partial

from tests.core.driver import Cluster
from tracker.core.log import RetireNode
from tracker.core.model import Cells, Edge, PipelineSpec, Unit

SPEC = PipelineSpec("p", ("in", "out"), (Edge("in", "out"),), fronts=("f",))


def test_the_reader_of_a_unit_that_was_written_off_is_told_its_slot(
    shards: int, snapshot: bool
) -> None:
    """A reader is gone for good, and an operator writes off what it has left: a file of the query before it, whose name does not
    tell its slot. It comes back after all, and reads the file that it had not come to."""
    cluster = Cluster(shards)
    cluster.register(SPEC)
    front = cluster.front(SPEC, "front", f=0)
    writer, reader = cluster.node(SPEC, "writer"), cluster.node(SPEC, "reader")
    front.commit(created=[(0, 5, 1)])
    unit = Unit(1, "file:///out/part-00000.parquet", 5)
    writer.commit(consumed=[(0, 5, 1)], created=[(1, 5, 2)], units_created=[unit])
    front.commit(heartbeats={"f": 9})
    assert cluster.agreed(SPEC) == (9, 5)
    given_up = Cells.of([(1, 5, 2, 1)])
    cluster.ask_home(reader.key.node_id, partial(RetireNode, at_ms=0), given_up)
    assert cluster.agreed(SPEC) == (9, 9)
    cluster.restart_all(from_snapshots=snapshot)
    keeper = cluster.processes[cluster.routing.names_keeper("p", 1)]
    assert keeper.resolve_units("p", 1, [unit.name]) == [5]
    back = cluster.node(SPEC, reader.key.node_id)
    back.commit(consumed=[(1, 5, 2)], units_consumed=[unit])
    late = [p.shard.late[1].items for p in cluster.pipelines() if 1 in p.shard.late]
    assert late == [1]
    assert keeper.resolve_units("p", 1, [unit.name]) == [None]
