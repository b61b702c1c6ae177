"""What a query writes in a batch that has read nothing, or all of it too late, is labelled by the moment, and held there until it
is counted: no shard announces past it meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tracker
from local_tracker.spark.formats.interface import QueryReads
from local_tracker.spark.query.logs import CheckpointLog
from local_tracker.spark.query.plans import Routes
from local_tracker.spark.query.ticks import QueryTicks
from local_tracker.spark.session.attached import AttachedQuery
from local_tracker.spark.session.tracked_query import TrackedQuery
from local_tracker.spark.state.chosen import check_nothing_left
from local_tracker.spark.state.entries import Entries
from tests.spark.written_logs import Logs, source_file
from tests.waits import HANG_S
from tracker.client import NodeClient
from tracker.client.embedded import EmbeddedTracker
from tracker.client.state_names import batch_name
from tracker.core.model import Edge, Heartbeat, PipelineSpec, TickContent
from tracker.errors import TrackingError

SPEC = PipelineSpec("p", ("parse", "after"), (Edge("parse", "after"),), fronts=("front",))
BEGUN = 1
"""Where min time is when the batch is over."""
NAME = batch_name(0, SPEC.segments.index("after"))


@pytest.fixture
def running() -> Iterator[EmbeddedTracker]:
    with tracker.embedded() as running:
        running.register(SPEC)
        yield running


@pytest.fixture
def front(running: EmbeddedTracker) -> NodeClient:
    front = running.node("p", "front")
    front.join()
    front.join_front("front", "parse")
    promise(front, BEGUN)
    assert running.subscriber("p").wait_until(BEGUN, "after", timeout_s=HANG_S)
    return front


def promise(front: NodeClient, slot: int) -> None:
    front.commit(TickContent(heartbeats=(Heartbeat("front", slot),))).result(HANG_S)


def follow(running: EmbeddedTracker, logs: Logs, kind: type[AttachedQuery] = AttachedQuery) -> None:
    """A query, until all its batches are counted."""
    query = kind(
        running.target, "p", "query", str(logs.checkpoint), reads="parse", creates=["after"],
        sink=str(logs.sink),
    ).start()  # fmt: skip
    try:
        assert query.wait_durable(HANG_S)
    finally:
        query.close()


def created_at(running: EmbeddedTracker) -> list[int]:
    """The slots in which something is left behind the query; nothing is held there."""
    with running.admin() as admin:
        explained = admin.explain("p", "after", max_cells=9)
    holds = [hold for part in explained.parts for each in part.segments for hold in each.holds]
    assert not [hold for hold in holds if hold.node_id == "query"]
    return [cell.slot for part in explained.parts for cell in part.cells]


@pytest.mark.parametrize("read", [[], [source_file(0)]], ids=["nothing", "too late"])
def test_min_time_does_not_pass_it_on_the_way(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    running: EmbeddedTracker,
    front: NodeClient,
    read: list[str],
) -> None:
    """The windows of a query whose state nobody holds are written in batches without input. What was asked of min time before
    says nothing of when the tick arrives: its front promises more, and another shard may have announced that."""
    logs = Logs(tmp_path)
    begin = QueryTicks._begin  # noqa: SLF001 - min time would move on behind it

    def begun(ticks: QueryTicks, batch: int, segment: int) -> int:
        slot = begin(ticks, batch, segment)
        promise(front, BEGUN + 100)
        assert running.subscriber("p").wait_until(BEGUN + 100, "parse", timeout_s=HANG_S)
        return slot

    monkeypatch.setattr(QueryTicks, "_begin", begun)
    logs.windowed(0, read, at_ms=0, next_ms=0)
    follow(running, logs)
    assert created_at(running) == [BEGUN]


@pytest.mark.parametrize(("written", "created"), [(1, [BEGUN]), (0, [])])
def test_a_driver_that_died_before_the_tick_has_held_it(
    tmp_path: Path, running: EmbeddedTracker, front: NodeClient, written: int, created: list[int]
) -> None:
    """Where the batch has written nothing when it is done again, its tick lets go of it all the same."""
    logs = Logs(tmp_path)
    with running.node("p", "query") as died:
        died.join()
        assert died.hold("after", None, NAME).slot == BEGUN
    promise(front, BEGUN + 100)
    logs.windowed(0, [], at_ms=0, next_ms=0, written=written)
    follow(running, logs)
    assert created_at(running) == created


class Version(AttachedQuery):
    """One of the queries that a node follows one after the other, as those of a flow."""

    _one_query = False


def test_what_the_query_before_has_held_is_let_go_of(
    tmp_path: Path, running: EmbeddedTracker, front: NodeClient
) -> None:
    """A flow was refreshed before its batch 7 was counted, and its next version may never come to one of that number."""
    logs = Logs(tmp_path)
    with running.node("p", "query") as died:
        died.join()
        died.hold("after", None, batch_name(7, SPEC.segments.index("after")))
    logs.windowed(0, [], at_ms=0, next_ms=0, written=0)
    follow(running, logs, Version)
    promise(front, BEGUN + 100)
    with running.subscriber("p") as subscriber:
        assert subscriber.wait_until(BEGUN + 100, "after", timeout_s=HANG_S)


def test_what_a_batch_holds_is_not_taken_for_what_is_in_state(running: EmbeddedTracker) -> None:
    with running.node("p", "query") as node:
        node.join()
        node.hold("after", None, NAME)
    with running.node("p", "query") as again:
        joined = again.join()
    assert [hold.name for hold in joined.holds] == [NAME]
    check_nothing_left("query", joined)
    assert not len(Entries.found(joined.holds))


def test_a_query_that_was_closed_amid_a_batch_has_not_left(
    tmp_path: Path, running: EmbeddedTracker, front: NodeClient
) -> None:
    """What it is about to write is held for when it is started again; where it is to end for good, somebody has to let go."""
    logs, node = Logs(tmp_path), running.node("p", "query")
    joined = node.join()
    routes = Routes(SPEC, QueryReads("parse"), ("after",), "query")
    ticks = QueryTicks(node, running.admin(), routes, CheckpointLog(str(logs.checkpoint)))
    spark: Any = SimpleNamespace(id="id", isActive=True, stop=lambda: None)
    query = TrackedQuery(spark, "query", node, running.admin(), ticks, joined, 9, None, None)
    node.hold("after", None, NAME)
    query.stop()
    with pytest.raises(TrackingError, match="--release-holds"):
        query.stop(leave=True)
