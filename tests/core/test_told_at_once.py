"""One shard by itself tells an announcement before the record of it is durable, just where recovery is sure to
find it again (rule 8)."""

from __future__ import annotations

from dataclasses import replace

from tests.core.driver import Cluster, HandNode
from tracker.core.log import (
    Announced,
    Announcement,
    Append,
    JoinShard,
    MovePipeline,
    RegisterPipeline,
    RestartPipeline,
)
from tracker.core.model import Edge, PipelineSpec
from tracker.core.model.slots import FOREVER

SPEC = PipelineSpec("p", ("work", "next"), (Edge("work", "next", 1),), fronts=("a",))
NEXT_MORE = Edge("next", "more")
BEFORE, AFTER = (5, 6), (50, 51)
"""What is announced while the item at slot 5 is open, and when nothing is."""


def running(shards: int = 1, spec: PipelineSpec = SPEC) -> tuple[Cluster, HandNode, HandNode]:
    """A front that has promised 50, and one item, which a worker may consume."""
    cluster = Cluster(shards)
    cluster.register(spec)
    front, worker = cluster.front(spec, "front"), cluster.node(spec, "worker")
    front.commit(created=[(0, 5, 1)])
    front.commit(heartbeats={"a": 50})
    assert cluster.agreed(spec) == BEFORE
    return cluster, front, worker


def told(spec: PipelineSpec = SPEC) -> tuple[Cluster, HandNode, HandNode]:
    """The item is consumed, and that is announced; the record of it is not durable."""
    cluster, front, worker = running(spec=spec)
    consume(cluster, worker)
    assert cluster.processes[0].min_times("p") == AFTER
    return cluster, front, worker


def consume(cluster: Cluster, worker: HandNode) -> None:
    """The last item is consumed, durably; what follows is appended and no more."""
    worker.begin(consumed=[(0, 5, 1)])
    cluster.commit(worker.home, records=1)
    cluster.pass_time_without_commits()


def test_it_is_told_while_its_record_waits_for_company() -> None:
    cluster, *_ = told()
    (waiting,) = cluster.pending[0]
    appended = [e for e in cluster.effects if isinstance(e, Append)][-1]
    assert appended.record == waiting[1] and appended.can_wait
    assert [e for e in cluster.effects if isinstance(e, Announced)][-1].pipeline_min_time == 50


def test_it_is_told_once() -> None:
    cluster, *_ = told()
    announcements = len(cluster.said)
    cluster.settle()
    assert cluster.processes[0].min_times("p") == AFTER
    assert len(cluster.said) == announcements


def test_its_history_is_known_when_it_is_durable() -> None:
    """The moment would be another one after a crash, so it is not told before."""
    cluster, *_ = told()
    process = cluster.processes[0]
    assert process.has_told_ahead("p") and not process.history("p", 0, [40])[0].reached
    cluster.settle()
    assert not process.has_told_ahead("p") and process.history("p", 0, [40])[0].reached


# --- where it is not sure to be found again: it waits for its record, as with several shards -----------


def waits(cluster: Cluster) -> None:
    """The announcement is appended, and nobody hears of it before it is durable."""
    appended = [e for e in cluster.effects if isinstance(e, Append)]
    (announcement,) = [e for e in appended[-2:] if isinstance(e.record, Announcement)]
    assert not announcement.can_wait
    process = cluster.processes[0]
    assert process.min_times("p") == BEFORE and not process.has_told_ahead("p")


def test_a_tick_of_another_pipeline_changes_nothing_of_it() -> None:
    cluster, _, worker = running()
    other = PipelineSpec("other", ("a",), fronts=("a",))
    cluster.register(other)
    front = cluster.front(other, "front")
    worker.begin(consumed=[(0, 5, 1)])
    front.begin(created=[(0, 1, 2)])
    cluster.commit(0, records=1)
    cluster.pass_time_without_commits()
    assert cluster.processes[0].min_times("p") == AFTER


def test_while_a_front_is_not_durably_pinned_it_waits() -> None:
    """The pin would be computed anew, from less."""
    cluster, _, worker = running()
    other = cluster.node(SPEC, "other", "front")
    worker.begin(consumed=[(0, 5, 1)])
    other.begin(joins={"b": 1})
    cluster.commit(0, records=2)
    cluster.pass_time_without_commits()
    assert cluster.processes[0].min_times("p") == BEFORE
    assert not cluster.processes[0].has_told_ahead("p")
    cluster.restart(0)
    assert cluster.processes[0].min_times("p") == BEFORE


def test_while_another_shard_joins_it_waits() -> None:
    cluster, _, worker = running()
    worker.begin(consumed=[(0, 5, 1)])
    cluster.handle(0, JoinShard("joins", "host:1"))
    cluster.commit(0, records=1)
    cluster.pass_time_without_commits()
    waits(cluster)


def test_while_a_restart_is_not_durable_it_waits() -> None:
    cluster, _, worker = running()
    worker.begin(consumed=[(0, 5, 1)])
    cluster.handle(0, RestartPipeline("again", "p", 0, None, 0))
    cluster.commit(0, records=1)
    cluster.pass_time_without_commits()
    waits(cluster)


def test_where_an_open_pipeline_waits_for_its_next_front_it_waits() -> None:
    """Where a segment stands that no front feeds, follows from what was announced of those behind it."""
    spec = PipelineSpec("p", ("work", "next"), (Edge("work", "next", 1),), open=True)
    cluster = Cluster(1)
    cluster.register(spec)
    front = cluster.front(spec, "front", promise=5)
    cluster.settle()
    front.begin(heartbeats={"a": 50}, leaves=["a"])
    cluster.commit(0, records=1)
    cluster.pass_time_without_commits()
    assert not cluster.processes[0].has_told_ahead("p")


def test_that_all_is_complete_its_registrar_says_first() -> None:
    cluster, front, _ = told()
    cluster.settle()
    front.begin(leaves=["a"])
    cluster.commit(0, records=1)
    cluster.pass_time_without_commits()
    assert cluster.processes[0].min_times("p") == AFTER
    assert cluster.agreed(SPEC) == (FOREVER, FOREVER)


def test_it_is_not_told_while_a_change_is_under_way() -> None:
    """A process that comes back counts on with what the change before has taken away, until this one is over."""
    cluster, _, worker = running()
    later = replace(SPEC, edges=(Edge("work", "next", 3),))
    cluster.handle(0, RegisterPipeline("later", later, True))
    cluster.settle()
    assert cluster.agreed(later) == (5, 8)
    more = replace(later, segments=(*later.segments, "more"), edges=(*later.edges, NEXT_MORE))
    worker.begin(consumed=[(0, 5, 1)])
    cluster.handle(0, RegisterPipeline("more", more, True))
    cluster.pass_time_without_commits()  # so that a report is due when both are durable
    cluster.commit(0, records=2)
    said = cluster.processes[0].min_times("p")
    assert cluster.restart(0).min_times("p") == said
    cluster.settle()
    assert cluster.agreed(more) == (50, 53, 53)


def test_it_is_found_again_where_another_pipeline_is_about_to_move() -> None:
    """What recovery says of that move, which may change what is announced, is appended behind it."""
    cluster, _, worker = running()
    other = replace(SPEC, name="q")
    cluster.register(other)
    worker.begin(consumed=[(0, 5, 1)])
    cluster.handle(0, MovePipeline("m", "q", 0, 1))
    cluster.handle(0, RegisterPipeline("r", replace(other, max_nodes=7), True))
    cluster.commit(0, records=2)
    cluster.pass_time_without_commits()
    assert cluster.processes[0].min_times("p") == AFTER
    cluster.restart(0)
    assert cluster.processes[0].min_times("p") == AFTER


def test_what_was_told_of_many_pipelines_is_found_again() -> None:
    """Recovery looks at them in the order in which they were registered, and not in which they moved."""
    cluster = Cluster(1)
    specs = [replace(SPEC, name=f"q{number}") for number in range(70)]
    workers = []
    for spec in specs:
        cluster.register(spec)
        front = cluster.front(spec, "front")
        front.commit(created=[(0, 5, 1)])
        front.commit(heartbeats={"a": 50})
        workers.append(cluster.node(spec, "worker"))
    for worker in reversed(workers):
        worker.begin(consumed=[(0, 5, 1)])
    cluster.commit(0)
    cluster.pass_time_without_commits()
    told = [cluster.processes[0].min_times(spec.name) for spec in specs]
    assert told == [AFTER] * len(specs)
    process = cluster.restart(0)
    assert [process.min_times(spec.name) for spec in specs] == told
