"""What was durable comes back, what was said stays said, and a lost log is noticed."""

from __future__ import annotations

import pytest

from tests.core.driver import Cluster, HandNode, refused
from tracker.core.log import LeaveNode
from tracker.core.model import Batch, Edge, PipelineSpec, RefusalCode, Unit
from tracker.core.process import LogLost, Process

SPEC = PipelineSpec("p", ("work", "next"), (Edge("work", "next", 1),), fronts=("a",))


def running(shards: int) -> tuple[Cluster, HandNode, HandNode]:
    """A pipeline in the middle of its work."""
    cluster = Cluster(shards)
    cluster.register(SPEC)
    front, worker = cluster.front(SPEC, "front"), cluster.node(SPEC, "worker")
    front.commit(
        created=[(0, slot, slot) for slot in range(1, 9)],
        batch=Batch("a", 0, b"f"),
        units_created=[Unit(0, "file:///x", 5)],
    )
    front.commit(heartbeats={"a": 50})
    worker.commit(consumed=[(0, slot, slot) for slot in range(1, 5)], created=[(1, 7, 99)])
    assert cluster.agreed(SPEC) == (5, 6)
    return cluster, front, worker


def test_a_node_that_asks_twice_is_told_that_it_has_left_when_that_is_durable(shards: int) -> None:
    cluster, _, worker = running(shards)
    for number in (1, 2):
        cluster.handle(worker.home, LeaveNode(("leave", number), "p", worker.key))
    assert cluster.answers(("leave", 1)) == cluster.answers(("leave", 2)) == []
    cluster.restart(worker.home)  # before its store has it
    assert worker.leave() is None
    refused(worker.leave(), RefusalCode.UNKNOWN_NODE)
    assert all(worker.key not in pipeline.shard.keys for pipeline in cluster.pipelines())


def test_a_log_with_a_hole_is_noticed() -> None:
    cluster, *_ = running(1)
    records = cluster.stored[0]
    process = Process(0, cluster.routing, 2, cluster.config)
    with pytest.raises(LogLost, match="record 3 to 5"):
        process.recover(None, records[:3] + records[4:], 0)


def test_a_log_that_came_back_shorter_than_what_was_acknowledged_is_noticed() -> None:
    cluster, front, _ = running(2)
    cluster.crash(front.home)
    del cluster.stored[front.home][-8:]
    with pytest.raises(LogLost, match="acknowledged entries were lost"):
        cluster.start(front.home)
        cluster.settle()


def test_a_node_that_left_is_forgotten_by_all_and_its_log_is_let_go() -> None:
    cluster, front, worker = running(3)
    for _ in range(5):
        worker = cluster.node(SPEC, "worker")
    assert worker.leave() is None
    cluster.settle()
    cluster.pass_time(cluster.config.retransmit_ms + 1)
    for process in cluster.processes.values():
        (pipeline,) = process.snapshot().pipelines
        assert [key.key for key in pipeline.keys] == [front.key]
        assert process.snapshot().outbox == ()
        assert all(s.entries_behind == 0 for s in process.describe_shards())
