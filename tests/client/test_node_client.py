"""A node client against real servers: order, refusals, redirects, reconnects, incarnations."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracker
from acker.v1 import node_service_pb2 as node_pb
from acker.v1 import node_service_pb2_grpc as node_grpc
from tests.client.support import TWO_SEGMENTS, consume, create, done, joined_front, promise
from tests.waits import HANG_S, until
from tracker.client import (
    ClosedError,
    FencedError,
    LowmarkError,
    NodeClient,
    RefusedError,
    UnavailableError,
)
from tracker.client.connection import Connection
from tracker.client.embedded import EmbeddedTracker
from tracker.core.home.home import MAX_CELLS_PER_TICK
from tracker.core.log.sizes import CELL_BYTES
from tracker.core.model import (
    Batch,
    Cells,
    PipelineSpec,
    RefusalCode,
    StagedContribution,
    TickContent,
    Unit,
)
from tracker.core.model.waits import WaitCause, WaitKind
from tracker.wire.grpc_options import MAX_MESSAGE_BYTES
from tracker.wire.ticks import key_to_pb

NO_SLOTS = np.empty(0, np.int64)


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddedTracker]:
    with tracker.embedded(shards=3) as embedded:
        yield embedded


@pytest.fixture
def pipeline(running: EmbeddedTracker, request: pytest.FixtureRequest) -> str:
    """A pipeline of its own for each test."""
    name = request.node.name
    running.register(named(name))
    return name


def named(name: str) -> PipelineSpec:
    spec = TWO_SEGMENTS
    return PipelineSpec(name, spec.segments, spec.edges, spec.fronts, horizon_slots=1_000_000)


def test_ticks_are_numbered_in_the_order_of_their_commits(
    running: EmbeddedTracker, pipeline: str
) -> None:
    with NodeClient(running.target, pipeline, "n") as node:
        joined_front(node)
        futures = [node.commit(create(slot, 7 + slot)) for slot in range(500)]
        numbers = [done(future) for future in futures]
        assert numbers == list(range(2, 502))  # 1 is the joining of the front
        assert node.durable == 501


def test_a_node_is_redirected_to_its_home(running: EmbeddedTracker, pipeline: str) -> None:
    homes = set()
    for number in range(8):
        for address in running.addresses:  # whichever is asked first
            with NodeClient(address, pipeline, f"n{number}") as node:
                node.join(HANG_S)
                assert done(node.commit(TickContent())) == 1
                homes.add(node._home)
    assert homes == set(running.addresses)


def test_a_refused_tick_fails_and_those_behind_it_go_on(
    running: EmbeddedTracker, pipeline: str
) -> None:
    with NodeClient(running.target, pipeline, "n") as node:
        joined_front(node)
        first = node.commit(create(10, 7))
        refused = node.commit(create(2_000_000, 8))
        behind = [node.commit(create(20, 9)), node.commit(create(30, 10))]
        assert done(first) == 2
        with pytest.raises(RefusedError, match=r"slot 2000000.*horizon_slots 1000000") as error:
            done(refused)
        assert error.value.refusal.code is RefusalCode.BEYOND_HORIZON
        assert [done(future) for future in behind] == [3, 4]
        done(node.commit(promise(100)))
        with running.admin() as admin:
            assert admin.pipeline(pipeline).spec.horizon_slots == 1_000_000
        subscriber = running.subscriber(pipeline)
        for slot, value in ((10, 7), (20, 9), (30, 10)):
            node.commit(consume(slot, value))
        assert subscriber.wait_until(100, timeout_s=HANG_S)


def test_a_promise_behind_a_refused_tick_is_refused_with_it(
    running: EmbeddedTracker, pipeline: str
) -> None:
    with NodeClient(running.target, pipeline, "n") as node:
        joined_front(node)
        refused = node.commit(create(2_000_000, 8))
        promised = node.commit(promise(3_000_000))
        with pytest.raises(RefusedError, match="slot 2000000"):
            done(refused)
        with pytest.raises(RefusedError, match="promises or leaves behind a tick"):
            done(promised)
        assert done(node.commit(promise(5))) == 2
        assert running.subscriber(pipeline).wait_until(5, timeout_s=HANG_S)
        assert running.subscriber(pipeline).min_time() == 5


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param(
            TickContent(created=replace(create(1, 1).created, slots=NO_SLOTS)),
            "1 segments, 0 slots, 1 checksums and 1 counts", id="unequal arrays",
        ),
        pytest.param(
            TickContent(units_created=(Unit(0, "u", 2**63),)), "cannot be written", id="no int64"
        ),
        pytest.param(
            TickContent(batch=Batch("q", 1, b"x" * 34_000_000)),
            r"over the limit of 33553408 bytes", id="oversized",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_and_changes_nothing(
    running: EmbeddedTracker, pipeline: str, content: TickContent, says: str
) -> None:
    with NodeClient(running.target, pipeline, "n") as node:
        node.join(HANG_S)
        with pytest.raises(RefusedError, match=says):
            done(node.commit(content))
        assert done(node.commit(TickContent())) == 1


def test_an_unknown_pipeline_is_refused_at_once(running: EmbeddedTracker) -> None:
    with (
        NodeClient(running.target, "nowhere", "n") as node,
        pytest.raises(RefusedError, match="'nowhere' is not registered") as error,
    ):
        node.join(HANG_S)
    assert error.value.refusal.code is RefusalCode.UNKNOWN_PIPELINE


def test_a_newer_incarnation_fences_the_older(running: EmbeddedTracker, pipeline: str) -> None:
    with (
        NodeClient(running.target, pipeline, "n") as older,
        NodeClient(running.target, pipeline, "n") as newer,
    ):
        joined_front(older)
        done(older.commit(TickContent(batch=Batch("q", 4, b"four"))))
        joined = newer.join(HANG_S)
        assert joined.key.incarnation > older.joined.key.incarnation
        assert joined.previous_node_time == 2
        assert joined.last_batches == (Batch("q", 4, b"four"),)
        assert [grant.front for grant in joined.fronts] == ["front"]
        with pytest.raises(FencedError):
            for _ in range(1_000):
                done(older.commit(TickContent()))
        assert done(newer.commit(promise(9))) == 1
        assert running.subscriber(pipeline).wait_until(9, timeout_s=HANG_S)


def test_ticks_under_way_are_durable_or_fenced_when_a_newer_incarnation_joins(
    running: EmbeddedTracker, pipeline: str
) -> None:
    """Also those that the home refuses one by one, before it ends the stream."""
    with (
        NodeClient(running.target, pipeline, "n") as older,
        NodeClient(running.target, pipeline, "n") as newer,
        ThreadPoolExecutor() as pool,
    ):
        older.join(HANG_S)
        joining = pool.submit(newer.join, HANG_S)
        futures: list[Future[int]] = []
        with pytest.raises(FencedError):
            while True:
                futures.append(older.commit(TickContent(), HANG_S))
        last = joining.result(HANG_S).previous_node_time
        errors = [future.exception(HANG_S) for future in futures]
        assert {type(error) for error in errors[last:]} <= {FencedError}
        # What was durable may not have been told any more; never told otherwise.
        assert {type(error) for error in errors[:last]} <= {type(None), FencedError}


def test_a_client_whose_key_is_closed_and_forgotten_is_fenced(
    running: EmbeddedTracker, pipeline: str
) -> None:
    """Its home does not know the key any more, but the client knows that it was given."""
    with NodeClient(running.target, pipeline, "n") as node:
        key = key_to_pb(node.join(HANG_S).key)
        done(node.commit(TickContent()))
        connection = Connection(running.target)
        connection.call(
            lambda channel: node_grpc.NodeServiceStub(channel).LeaveNode,
            node_pb.LeaveNodeRequest(pipeline=pipeline, key=key),
            HANG_S,
        )
        connection.close()
        with pytest.raises(FencedError) as over:
            done(node.commit(TickContent()))
        assert over.value.refusal.code is RefusalCode.FENCED
        assert "has left" in over.value.refusal.message


def test_an_attempt_to_join_that_comes_late_fences_nobody(
    running: EmbeddedTracker, pipeline: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was sent for the first attempt comes once more when the node is at work."""
    asked = []
    ask = Connection.call

    def call(self: Connection, make: Any, request: Any, *rest: Any, **named: Any) -> Any:
        asked.append((make, request))
        return ask(self, make, request, *rest, **named)

    monkeypatch.setattr(Connection, "call", call)
    with (
        NodeClient(running.target, pipeline, "n") as node,
        closing(Connection(running.target)) as late,
    ):
        joined = node.join(HANG_S)
        done(node.commit(create(10, 1)))
        answer, _ = ask(late, *asked[0], HANG_S)
        assert answer.key == key_to_pb(joined.key)
        done(node.commit(create(11, 2)))
        assert node.join(HANG_S).key != joined.key


def test_a_fenced_client_may_join_anew(running: EmbeddedTracker, pipeline: str) -> None:
    with NodeClient(running.target, pipeline, "n") as node:
        first = node.join(HANG_S)
        waits = node.commit(TickContent())
        second = node.join(HANG_S)
        assert second.key.incarnation > first.key.incarnation
        # Durable before, fenced by the second incarnation, or given up for it: but settled.
        assert isinstance(waits.exception(HANG_S), LowmarkError | None)
        assert done(node.commit(TickContent())) == 1


def test_a_front_joins_again_after_it_has_left(running: EmbeddedTracker) -> None:
    name = f"again-{len(running.addresses)}"
    running.register(PipelineSpec(name, ("s",), open=True))
    with NodeClient(running.target, name, "n") as node:
        node.join(HANG_S)
        node.join_front("front", "s", HANG_S)
        done(node.commit(promise(40)))
        assert running.subscriber(name).wait_until(40, timeout_s=HANG_S)
        node.leave_front("front")
        again = node.join_front("front", "s", HANG_S)
        assert again.slot >= 40, "its first grant would let it label what is complete"


def test_the_window_is_a_bound(running: EmbeddedTracker) -> None:
    name = f"bound-{len(running.addresses)}"
    running.register(named(name))
    with NodeClient(running.target, name, "n", max_unacknowledged=4) as node:
        node.join(HANG_S)
        futures = [node.commit(TickContent()) for _ in range(200)]
        assert [done(future) for future in futures] == list(range(1, 201))


def test_contributions_are_staged_at_the_home_until_their_batch_commits(
    running: EmbeddedTracker, pipeline: str
) -> None:
    contribution = StagedContribution(
        "q", "run", 3, 0, "op", 1, 2, 5, create(1, 7).created, Cells.empty()
    )
    with (
        NodeClient(running.target, pipeline, "query", "query") as query,
        NodeClient(running.target, pipeline, "local") as local,
    ):
        query.join(HANG_S)
        local.stage([contribution], node_id="query")
        local.stage([contribution], node_id="query")  # a repetition changes nothing
        (staged,) = query.list_contributions("q", 3)
        assert staged.key == contribution.key
        assert staged.created.rows() == contribution.created.rows()
        done(query.commit(TickContent(batch=Batch("q", 3, b"three"))))
        assert query.list_contributions("q", 3) == []


def test_contributions_that_are_more_than_a_message_takes_are_listed(
    running: EmbeddedTracker, pipeline: str
) -> None:
    """As those of a batch by rows: each task has as many cells as it may, and each may be staged."""
    size = MAX_CELLS_PER_TICK
    cells = Cells(
        np.zeros(size, np.int32), np.arange(size), np.ones(size, np.uint64), np.ones(size, np.int64)
    )
    tasks = 1 + MAX_MESSAGE_BYTES // (size * CELL_BYTES)
    with NodeClient(running.target, pipeline, "query", "query") as query:
        query.join(HANG_S)
        for task in range(tasks):
            query.stage(
                [StagedContribution("q", "run", 3, 0, "op", 1, task, 5, cells, Cells.empty())]
            )
        staged = query.list_contributions("q", 3)
    assert [contribution.partition for contribution in staged] == [*range(tasks)]
    assert {len(contribution.created) for contribution in staged} == {size}


def test_units_are_found_by_name(running: EmbeddedTracker, pipeline: str) -> None:
    with NodeClient(running.target, pipeline, "n") as node:
        node.join(HANG_S)
        names = [f"file:///{number}" for number in range(5)]
        done(node.commit(TickContent(units_created=tuple(
            Unit(1, name, place) for place, name in enumerate(names)))))  # fmt: skip
        found = node.resolve_units("second", [*names, "file:///none"], wait_ms=1)
        found |= node.resolve_units("second", names, wait_ms=20_000)
        assert found == {name: place for place, name in enumerate(names)}


def test_what_is_not_joined_or_is_closed_says_so(running: EmbeddedTracker, pipeline: str) -> None:
    node = NodeClient(running.target, pipeline, "n")
    with pytest.raises(LowmarkError, match="has not joined"):
        node.commit(TickContent())
    node.join(HANG_S)
    with pytest.raises(LowmarkError, match=r"no segment 'third'; it has \['first', 'second'\]"):
        node.segment("third")
    node.close()
    for late in (lambda: node.commit(TickContent()), node.flush, node.join):
        with pytest.raises(ClosedError, match="closed"):
            late()


def test_a_client_made_before_a_fork_works_in_the_child(
    running: EmbeddedTracker, pipeline: str
) -> None:
    context = multiprocessing.get_context("spawn")  # so that the one that forks has no gRPC of ours
    with context.Pool(1) as pool:
        assert pool.apply(fork_and_commit, (running.target, pipeline)) == 0


def fork_and_commit(target: str, pipeline: str) -> int:
    """Makes a client, forks, and commits in the child; returns the child's exit status."""
    import os

    node = NodeClient(target, pipeline, "forked")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            node.join(HANG_S)
            status = 0 if done(node.commit(TickContent())) == 1 else 2
            node.close()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_nothing_is_lost_or_repeated_while_the_home_is_killed_again_and_again() -> None:
    with tracker.embedded(shards=2) as embedded:
        embedded.register(named("p"))
        with embedded.node("p", "n") as node:
            joined_front(node)
            home = embedded.addresses.index(node._home)
            futures = []
            for round_number in range(3):
                for slot in range(100):
                    futures.append(node.commit(create(slot, 2 * slot + 1)))
                    futures.append(node.commit(consume(slot, 2 * slot + 1)))
                done(futures[200 * round_number])
                embedded.kill_shard(home)
                embedded.start_shard(home)
            node.commit(promise(100))
            assert [done(future) for future in futures] == list(range(2, 602))
            assert embedded.subscriber("p").wait_until(100, timeout_s=HANG_S)


def test_without_a_home_ticks_wait_and_what_has_no_room_is_told_so() -> None:
    with tracker.embedded() as embedded:
        embedded.register(named("p"))
        with NodeClient(embedded.target, "p", "n", max_unacknowledged=2) as node:
            node.join(HANG_S)
            embedded.stop_shard(0)
            waiting = [node.commit(TickContent()) for _ in range(2)]
            with pytest.raises(UnavailableError, match=r"2 ticks .*the limits are 2 and"):
                node.commit(TickContent(), timeout_s=0.01)  # expires: nobody answers
            with pytest.raises(UnavailableError, match="not all became durable"):
                node.flush(0.01)  # expires: nobody answers
            embedded.start_shard(0)
            assert [done(future) for future in waiting] == [1, 2]


def test_a_tracker_that_forgot_everything_is_not_taken_for_the_same(tmp_path: Path) -> None:
    with tracker.embedded(store=f"sqlite:{tmp_path}") as embedded:
        embedded.register(named("p"))
        with embedded.node("p", "n") as node:
            node.join(HANG_S)
            done(node.commit(TickContent()))
            embedded.stop_shard(0)
            waiting = node.commit(TickContent())
            for file in tmp_path.iterdir():
                file.unlink()
            embedded.start_shard(0)
            with pytest.raises(RefusedError, match="not registered"):
                done(waiting)
            assert isinstance(node.failure, RefusedError)


def waits_of(running: EmbeddedTracker, pipeline: str, node_id: str) -> list[WaitCause]:
    explanation = running.admin().explain(pipeline)
    return [
        wait
        for part in explanation.parts
        for node in part.nodes
        if node.key.node_id == node_id
        for wait in node.waits
    ]


def until_it_says(running: EmbeddedTracker, pipeline: str, waits: list[WaitCause]) -> None:
    """Reports are not answered: they are looked for until they are there."""
    until(lambda: waits_of(running, pipeline, "n") == waits)


def test_what_a_node_waits_for_is_told_and_again_after_a_new_incarnation(
    running: EmbeddedTracker, pipeline: str
) -> None:
    with NodeClient(running.target, pipeline, "n") as node:
        node.join(HANG_S)
        wait = WaitCause(
            WaitKind.NOT_TOLD, "offsets 0..9 of topic orders", node.segment("first"), 3
        )
        node.report_waits([wait])
        until_it_says(running, pipeline, [wait])
        node.join(HANG_S)
        until_it_says(running, pipeline, [wait])
        done(node.commit(create(5, 7)))
        node.report_waits([])
        until_it_says(running, pipeline, [])


def test_what_a_node_says_is_cut_and_what_cannot_be_is_refused(
    running: EmbeddedTracker, pipeline: str
) -> None:
    with NodeClient(running.target, pipeline, "n") as node:
        with pytest.raises(LowmarkError, match="has not joined"):
            node.report_waits([])
        node.join(HANG_S)
        long = WaitCause(WaitKind.OTHER, "x" * 1_000)
        node.report_waits([long] * 20)
        until_it_says(running, pipeline, [replace(long, text="x" * 500)] * 8)
        for wrong in (WaitCause(WaitKind.OTHER, ""), WaitCause(WaitKind.OTHER, "x", 2)):
            with pytest.raises(ValueError, match="segment number within -1 and 1"):
                node.report_waits([wrong])
