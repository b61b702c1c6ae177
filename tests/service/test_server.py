"""Whole trackers of one, two and three processes on loopback, with their real clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import tracker
from acker.v1 import node_service_pb2 as node_pb
from acker.v1 import node_service_pb2_grpc as node_grpc
from acker.v1 import pipeline_service_pb2 as pipeline_pb
from acker.v1 import pipeline_service_pb2_grpc as pipeline_grpc
from acker.v1 import progress_service_pb2 as progress_pb
from acker.v1 import progress_service_pb2_grpc as progress_grpc
from acker.v1 import types_pb2 as pb
from tracker import EmbeddedTracker
from tracker.client import RefusedError, Subscriber
from tracker.core.model import (
    Batch,
    Cells,
    Edge,
    Heartbeat,
    PipelineSpec,
    RefusalCode,
    TickContent,
    Unit,
)
from tracker.core.model.slots import FOREVER
from tracker.wire.grpc_options import MAX_MESSAGE_BYTES
from tracker.wire.pipelines import spec_to_pb
from tracker.wire.refusals import REFUSAL_KEY

PIPELINE = PipelineSpec(
    "p", ("in", "out"), (Edge("in", "out"),), fronts=("F",), horizon_slots=1_000
)
WAIT_S = 20.0


@pytest.fixture(params=[1, 2, 3], ids=lambda n: f"{n}-shards")
def any_tracker(request: pytest.FixtureRequest) -> Iterator[EmbeddedTracker]:
    with tracker.embedded(request.param, block_slots=2) as running:
        running.register(PIPELINE)
        yield running


@pytest.fixture
def one() -> Iterator[EmbeddedTracker]:
    with tracker.embedded() as running:
        running.register(PIPELINE)
        yield running


def created(slot: int, value: int, segment: int = 0) -> TickContent:
    return TickContent(created=Cells.of([(segment, slot, value, 1)]))


def moved(slot: int, value: int) -> TickContent:
    """From `in` to `out`."""
    return TickContent(
        consumed=Cells.of([(0, slot, value, 1)]), created=Cells.of([(1, slot, value + 1, 1)])
    )


def finished(slot: int, value: int) -> TickContent:
    return TickContent(consumed=Cells.of([(1, slot, value + 1, 1)]))


def test_min_time_follows_the_items_from_segment_to_segment(any_tracker: EmbeddedTracker) -> None:
    front = any_tracker.node("p", "f", "front")
    front.join()
    front.join_front("F", "in")
    worker = any_tracker.node("p", "w")
    worker.join()
    hears = any_tracker.subscriber("p")
    for slot in range(10):
        front.commit(created(slot, 1000 + slot))
    front.commit(TickContent(heartbeats=(Heartbeat("F", 10),))).result(WAIT_S)
    for slot in (1, 2, 3):
        worker.commit(moved(slot, 1000 + slot)).result(WAIT_S)
    assert hears.min_time("in") == 0  # slot 0 is still there
    worker.commit(moved(0, 1000)).result(WAIT_S)
    assert hears.wait_until(4, "in", WAIT_S)
    assert hears.min_time("in") == 4
    assert hears.min_time("out") == 0
    for slot in range(4):
        worker.commit(finished(slot, 1000 + slot))
    assert hears.wait_until(4, "out", WAIT_S)
    for slot in range(4, 10):
        worker.commit(moved(slot, 1000 + slot))
        worker.commit(finished(slot, 1000 + slot))
    assert hears.wait_until(10, timeout_s=WAIT_S)
    front.leave_front("F").result(WAIT_S)
    assert hears.wait_until(FOREVER, timeout_s=WAIT_S)
    state = any_tracker.admin().pipeline("p").state
    assert [segment.open_slots for segment in state.segments] == [0, 0]


def test_a_shard_that_is_killed_recovers_everything(tmp_path: Path) -> None:
    with tracker.embedded(3, store=f"sqlite:{tmp_path}", block_slots=2) as running:
        running.register(PIPELINE)
        front = running.node("p", "f", "front")
        front.join()
        front.join_front("F", "in")
        worker = running.node("p", "w")
        worker.join()
        ticks = []
        for slot in range(60):
            ticks.append(front.commit(created(slot, 1000 + slot)))
            ticks.append(worker.commit(moved(slot, 1000 + slot)))
            if slot % 20 == 10:
                running.kill_shard(slot // 20)
                running.start_shard(slot // 20)
        for slot in range(60):
            ticks.append(worker.commit(finished(slot, 1000 + slot)))
        ticks.append(front.commit(TickContent(heartbeats=(Heartbeat("F", 60),))))
        for tick in ticks:
            tick.result(WAIT_S)
        for address in running.addresses:
            with Subscriber(address, "p") as hears:
                assert hears.wait_until(60, timeout_s=WAIT_S)
                assert hears.min_time() == 60


def test_snapshots_replace_the_log(tmp_path: Path) -> None:
    with tracker.embedded(1, store=f"sqlite:{tmp_path}") as running:
        running.register(PIPELINE)
        node = running.node("p", "f", "front")
        node.join()
        node.join_front("F", "in")
        node.commit(created(5, 55)).result(WAIT_S)
        running.snapshot_shard(0)
        node.commit(TickContent(heartbeats=(Heartbeat("F", 9),))).result(WAIT_S)
        running.kill_shard(0)
        running.start_shard(0)
        hears = running.subscriber("p")
        assert hears.wait_until(5, "in", WAIT_S)
        state = running.admin().pipeline("p").state
        assert state.segments[0].open_slots == 1


REFUSED_TICKS = {
    "creation below min time": (created(1, 9), RefusalCode.BELOW_MIN_TIME, r"slot 1.*min time 5"),
    "beyond the horizon": (created(1_005, 9), RefusalCode.BEYOND_HORIZON, r"1005.*5.*1000"),
    "unknown segment": (created(7, 9, segment=4), RefusalCode.UNKNOWN_SEGMENT, r"number 4.*2 seg"),
    "unknown front": (
        TickContent(heartbeats=(Heartbeat("G", 8),)),
        RefusalCode.UNKNOWN_FRONT,
        r"no front 'G'",
    ),
    "promise that goes back": (
        TickContent(heartbeats=(Heartbeat("F", 4),)),
        RefusalCode.INVALID,
        r"promises slot 4.*last one, 5",
    ),
    "batch with other contents": (
        TickContent(batch=Batch("q", 1, b"other")),
        RefusalCode.ROLLED_BACK,
        r"batch 1 of 'q'.*rolled back",
    ),
    "name without end": (
        TickContent(units_created=(Unit(0, "x" * 2000, 7),)),
        RefusalCode.INVALID,
        r"2000 characters.*1024",
    ),
}


@pytest.mark.parametrize("what", REFUSED_TICKS)
def test_a_refused_tick_names_what_was_wrong_and_changes_nothing(
    one: EmbeddedTracker, what: str
) -> None:
    content, code, message = REFUSED_TICKS[what]
    front = one.node("p", "f", "front")
    front.join()
    front.join_front("F", "in")
    front.commit(TickContent(batch=Batch("q", 1, b"first"), heartbeats=(Heartbeat("F", 5),)))
    assert one.subscriber("p").wait_until(5, timeout_s=WAIT_S)
    before = one.admin().pipeline("p").state
    with pytest.raises(RefusedError, match=message) as refused:
        front.commit(content).result(WAIT_S)
    assert refused.value.refusal.code is code
    assert "'p'" in str(refused.value) or "'q'" in str(refused.value)
    after = one.admin().pipeline("p").state
    assert (after.segments, after.nodes) == (before.segments, before.nodes)
    assert front.commit(created(7, 9)).result(WAIT_S) == 3  # its number stayed free


def test_consumption_below_min_time_goes_to_the_late_ledger(one: EmbeddedTracker) -> None:
    front = one.node("p", "f", "front")
    front.join()
    front.join_front("F", "in")
    front.commit(TickContent(heartbeats=(Heartbeat("F", 5),))).result(WAIT_S)
    assert one.subscriber("p").wait_until(5, timeout_s=WAIT_S)
    front.commit(TickContent(consumed=Cells.of([(0, 2, 7, 3)]))).result(WAIT_S)
    front.commit(TickContent(heartbeats=(Heartbeat("F", 8),))).result(WAIT_S)
    assert one.subscriber("p").wait_until(8, timeout_s=WAIT_S)
    state = one.admin().pipeline("p").state
    assert state.late_items == 3
    assert state.segments[0].open_slots == 0


def test_registering_again_changes_nothing_and_a_difference_is_named(
    any_tracker: EmbeddedTracker,
) -> None:
    admin = any_tracker.admin()
    assert admin.register(PIPELINE) == (PIPELINE, False)
    other = PipelineSpec("p", ("in", "out"), (Edge("in", "out", 2),), fronts=("F",))
    with pytest.raises(RefusedError, match=r"edges: registered \[in->out\+0\], asked \[in->out\+2"):
        admin.register(other)
    assert admin.pipeline("p").spec == PIPELINE


def call_status(call: object, request: object) -> tuple[grpc.StatusCode, str, str]:
    """The status, the message and the refusal's code with which a call fails."""
    with pytest.raises(grpc.RpcError) as failed:
        call(request, timeout=WAIT_S)  # type: ignore[operator]
    error = failed.value
    trailing: dict[str, bytes] = dict(error.trailing_metadata() or ())  # type: ignore[arg-type]
    refusal = pb.Refusal.FromString(trailing.get(REFUSAL_KEY, b""))
    return error.code(), error.details() or "", refusal.code


def test_each_refused_call_has_its_status_and_names_what_was_wrong(one: EmbeddedTracker) -> None:
    with grpc.insecure_channel(one.target) as channel:
        nodes = node_grpc.NodeServiceStub(channel)
        progress = progress_grpc.ProgressServiceStub(channel)
        pipelines = pipeline_grpc.PipelineServiceStub(channel)
        spec = spec_to_pb(PipelineSpec("bad", ("a",), (Edge("a", "b"),), fronts=("F",)))
        cases = [
            (
                nodes.JoinNode,
                node_pb.JoinNodeRequest(pipeline="x", node_id="n"),
                "NOT_FOUND",
                "'x'",
            ),
            (progress.GetMinTime, progress_pb.GetMinTimeRequest(pipeline="x"), "NOT_FOUND", "'x'"),
            (
                progress.WaitUntil,
                progress_pb.WaitUntilRequest(pipeline="p", segment="s", slot=1),
                "NOT_FOUND",
                "no segment 's'",
            ),
            (
                pipelines.RegisterPipeline,
                pipeline_pb.RegisterPipelineRequest(spec=spec),
                "INVALID_ARGUMENT",
                "names segment 'b'",
            ),
            (
                nodes.LeaveNode,
                node_pb.LeaveNodeRequest(pipeline="p", key=pb.NodeKey(node_id="n", incarnation=9)),
                "DATA_LOSS",
                "n#9 has joined, and this tracker knows of no such joining",
            ),
            (
                nodes.ResolveUnits,
                node_pb.ResolveUnitsRequest(pipeline="p", segment="in", wait_ms=10**9),
                "INVALID_ARGUMENT",
                "60000",
            ),
            (
                nodes.StageContributions,
                node_pb.StageContributionsRequest(
                    pipeline="p",
                    node_id="n",
                    contributions=[pb.StagedContribution(created=pb.Cells(slots=b"12345678"))],
                ),
                "INVALID_ARGUMENT",
                "not four arrays of one length",
            ),
        ]
        for call, request, status, message in cases:
            code, details, refusal = call_status(call, request)
            assert (code.name, bool(refusal)) == (status, True), details
            assert message in details


def test_a_stream_that_does_not_attach_first_is_refused(one: EmbeddedTracker) -> None:
    with grpc.insecure_channel(one.target) as channel:
        stub = node_grpc.NodeServiceStub(channel)
        tick = node_pb.CommitTicksRequest(tick=node_pb.NumberedTick(number=1))
        with pytest.raises(grpc.RpcError, match="attach first"):
            list(stub.CommitTicks(iter([tick]), timeout=WAIT_S))


def test_malformed_cells_in_a_tick_are_refused_and_the_stream_goes_on(one: EmbeddedTracker) -> None:
    with grpc.insecure_channel(one.target) as channel:
        stub = node_grpc.NodeServiceStub(channel)
        joined = stub.JoinNode(node_pb.JoinNodeRequest(pipeline="p", node_id="n"), timeout=WAIT_S)
        bad = pb.TickContent(created=pb.Cells(slots=b"12345678"))
        answers = stub.CommitTicks(
            iter(
                [
                    node_pb.CommitTicksRequest(attach=node_pb.Attach(pipeline="p", key=joined.key)),
                    node_pb.CommitTicksRequest(tick=node_pb.NumberedTick(number=1, content=bad)),
                    node_pb.CommitTicksRequest(tick=node_pb.NumberedTick(number=1)),
                ]
            ),
            timeout=WAIT_S,
        )
        kinds = []
        for answer in answers:
            kinds.append(str(answer.WhichOneof("message")))
            if kinds[-1] == "committed":
                assert answer.committed.number == 1
                break
        assert sorted(kinds) == ["attached", "committed", "refused"]
        answers.cancel()


def test_an_oversized_message_is_refused_and_changes_nothing(one: EmbeddedTracker) -> None:
    with grpc.insecure_channel(
        one.target, options=[("grpc.max_send_message_length", -1)]
    ) as channel:
        stub = node_grpc.NodeServiceStub(channel)
        huge = node_pb.JoinNodeRequest(pipeline="p", node_id="x" * (MAX_MESSAGE_BYTES + 1))
        code, details, _ = call_status(stub.JoinNode, huge)
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert str(MAX_MESSAGE_BYTES) in details
    assert one.admin().pipeline("p").state.nodes == ()


def test_a_newer_incarnation_closes_the_older(any_tracker: EmbeddedTracker) -> None:
    old = any_tracker.node("p", "n")
    old.join()
    old.commit(TickContent(batch=Batch("q", 3, b"f"))).result(WAIT_S)
    new = any_tracker.node("p", "n")
    joined = new.join()
    assert joined.last_batches == (Batch("q", 3, b"f"),)
    assert joined.previous_node_time == 1
    with pytest.raises(RefusedError) as refused:
        old.commit(TickContent()).result(WAIT_S)
    assert refused.value.refusal.code is RefusalCode.FENCED
    assert new.commit(TickContent()).result(WAIT_S) == 1


def test_units_are_resolved_once_their_tick_has_arrived(any_tracker: EmbeddedTracker) -> None:
    front = any_tracker.node("p", "f", "front")
    front.join()
    front.join_front("F", "in")
    reader = any_tracker.node("p", "r")
    assert reader.resolve_units("in", ["file:///a"]) == {}
    unit = Unit(0, "file:///a", 12)
    front.commit(TickContent(created=Cells.of([(0, 12, 5, 1)]), units_created=(unit,)))
    assert reader.resolve_units("in", ["file:///a", "file:///b"], wait_ms=500) == {"file:///a": 12}
    assert reader.resolve_units("in", ["file:///a"], wait_ms=20_000) == {"file:///a": 12}


def test_health_says_serving(one: EmbeddedTracker) -> None:
    with grpc.insecure_channel(one.target) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=WAIT_S)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_every_process_tells_of_the_others(any_tracker: EmbeddedTracker) -> None:
    shards = any_tracker.admin().shards()
    assert [shard.address for shard in shards] == list(any_tracker.addresses)
