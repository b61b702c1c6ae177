"""Every kind of bad input over the wire: its status, what its message names, and that it changes nothing.

Calls that are refused end with the status. A refused tick is a message on its stream, which goes on;
its code stands for a status as docs/errors.md says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import grpc
import numpy as np
import pytest

import tracker
from acker.v1 import node_service_pb2 as node_pb
from acker.v1 import node_service_pb2_grpc as node_grpc
from acker.v1 import pipeline_service_pb2 as pipeline_pb
from acker.v1 import pipeline_service_pb2_grpc as pipeline_grpc
from acker.v1 import progress_service_pb2 as progress_pb
from acker.v1 import progress_service_pb2_grpc as progress_grpc
from acker.v1 import types_pb2 as pb
from tests import inside
from tests.waits import HANG_S, until
from tracker import EmbeddedTracker
from tracker.core.home.home import MAX_CELLS_PER_TICK
from tracker.core.model import Cells, Edge, Heartbeat, PipelineSpec, RefusalCode, TickContent, Unit
from tracker.core.model.slots import FOREVER
from tracker.service.rpc.errors import STATUS
from tracker.wire.grpc_options import CHANNEL_OPTIONS, MAX_MESSAGE_BYTES
from tracker.wire.pipelines import spec_to_pb
from tracker.wire.refusals import REFUSAL_KEY, refusal_from_pb
from tracker.wire.storage import snapshot_to_bytes
from tracker.wire.ticks import content_to_pb

SPEC = PipelineSpec("p", ("in", "out"), (Edge("in", "out", 2),), fronts=("F",), horizon_slots=1_000)


@dataclass
class Wired:
    """A tracker of one shard whose front `F`, of node `f`, has promised slot 5; its stubs; the key of
    a node `n`, and one of the same id that is closed."""

    tracker: EmbeddedTracker
    nodes: Any
    pipelines: Any
    progress: Any
    key: pb.NodeKey
    closed: pb.NodeKey

    def state(self) -> bytes:
        """All that is durable, when nothing is on its way to the store any more."""
        process = self.tracker.servers[0].engine.process
        until(
            lambda: process.position == process.committed and not inside.has_news(process),
            "it does not come to rest",
        )
        process.validate()
        return snapshot_to_bytes(process.snapshot())

    def join(self, node_id: str) -> pb.NodeKey:
        request = node_pb.JoinNodeRequest(pipeline="p", node_id=node_id)
        return self.nodes.JoinNode(request, timeout=HANG_S).key

    def commit(self, key: pb.NodeKey, content: pb.TickContent) -> node_pb.CommitTicksResponse:
        """The answer to tick 1 of a key."""
        requests = [
            node_pb.CommitTicksRequest(attach=node_pb.Attach(pipeline="p", key=key)),
            node_pb.CommitTicksRequest(tick=node_pb.NumberedTick(number=1, content=content)),
        ]
        answers = self.nodes.CommitTicks(iter(requests), timeout=HANG_S)
        return next(a for a in answers if a.WhichOneof("message") != "attached")


@pytest.fixture(scope="module")
def wired() -> Iterator[Wired]:
    """One for all: what is tried changes nothing."""
    with (
        tracker.embedded() as running,
        grpc.insecure_channel(running.target, CHANNEL_OPTIONS) as channel,
    ):
        running.register(SPEC)
        front = running.node("p", "f", "front")
        front.join()
        front.join_front("F", "in")
        front.commit(TickContent(heartbeats=(Heartbeat("F", 5),))).result(HANG_S)
        assert running.subscriber("p").wait_until(5, "in", HANG_S)
        wired = Wired(
            running, node_grpc.NodeServiceStub(channel), pipeline_grpc.PipelineServiceStub(channel),
            progress_grpc.ProgressServiceStub(channel), pb.NodeKey(), pb.NodeKey(),
        )  # fmt: skip
        wired.closed, wired.key = wired.join("n"), wired.join("n")
        yield wired


def tick(**parts: Any) -> pb.TickContent:
    return content_to_pb(TickContent(**parts))


def created(*rows: tuple[int, int, int, int]) -> pb.TickContent:
    return tick(created=Cells.of(rows))


def many_cells(count: int) -> pb.TickContent:
    zeros = np.zeros(count, np.int64)
    return tick(created=Cells(zeros.astype(np.int32), zeros + 10, zeros.astype(np.uint64), zeros))


def unequal(**changes: bytes) -> pb.TickContent:
    content = created((0, 10, 7, 1), (0, 11, 8, 1))
    for name, value in changes.items():
        setattr(content.created, name, value)
    return content


GOOD = (0, 10, 0xFEED, 1)
"""Something of a refused tick that would have been fine: it must not be applied either."""

BAD_TICKS: dict[str, tuple[pb.TickContent, str, tuple[str, ...]]] = {
    "an unknown segment": (
        created(GOOD, (2, 10, 1, 1)),
        "NOT_FOUND",
        ("'p'", "segment number 2", "2 segments"),
    ),
    "an unknown front": (
        tick(created=Cells.of([GOOD]), heartbeats=(Heartbeat("G", 9),)),
        "NOT_FOUND",
        ("'p'", "an unknown front#", "'G'"),
    ),
    "creation below min time": (
        created(GOOD, (1, 6, 1, 1)),
        "FAILED_PRECONDITION",
        ("'p'", "'out'", "slot 6", "min time 7"),
    ),
    "creation beyond the horizon": (
        created(GOOD, (0, 1_005, 1, 1)),
        "OUT_OF_RANGE",
        ("'p'", "'in'", "1005", "5", "1000"),
    ),
    "a slot that no min time could pass": (
        tick(consumed=Cells.of([GOOD, (0, FOREVER, 1, 1)])),
        "INVALID_ARGUMENT",
        ("'p'", str(FOREVER)),
    ),
    "fewer checksums than slots": (
        unequal(checksums=bytes(8)),
        "INVALID_ARGUMENT",
        ("8 of checksums", "16 of slots", "one length"),
    ),
    "half a slot": (
        unequal(slots=bytes(12)),
        "INVALID_ARGUMENT",
        ("12 of slots", "one length"),
    ),
    "too many cells": (
        many_cells(MAX_CELLS_PER_TICK + 1),
        "INVALID_ARGUMENT",
        ("'p'", str(MAX_CELLS_PER_TICK + 1), f"limit of {MAX_CELLS_PER_TICK}"),
    ),
    "a unit whose name is too long": (
        tick(created=Cells.of([GOOD]), units_created=(Unit(0, "x" * 2000, 10),)),
        "INVALID_ARGUMENT",
        ("'p'", "2000 characters", "1024"),
    ),
    "a unit without a name": (
        tick(created=Cells.of([GOOD]), units_created=(Unit(0, "", 10),)),
        "INVALID_ARGUMENT",
        ("'p'", "0 characters"),
    ),
}


@pytest.mark.parametrize("what", BAD_TICKS)
def test_a_bad_tick_changes_nothing_and_its_number_stays_free(wired: Wired, what: str) -> None:
    content, status, named = BAD_TICKS[what]
    key = wired.join(what)
    before = wired.state()
    answer = wired.commit(key, content)
    refusal = refusal_from_pb(answer.refused.refusal)
    assert (answer.refused.number, STATUS[refusal.code].name) == (1, status), refusal
    for name in named:
        assert name in refusal.message
    assert wired.state() == before
    answer = wired.commit(key, created(GOOD))
    assert answer.committed.number == 1


@pytest.mark.parametrize("number", [2, 2**63 - 1])
def test_a_stream_ends_after_a_tick_that_came_too_early(wired: Wired, number: int) -> None:
    """Its half is closed, and nothing is unanswered: nobody is left waiting for the ticks between."""
    requests = [
        node_pb.CommitTicksRequest(attach=node_pb.Attach(pipeline="p", key=wired.key)),
        node_pb.CommitTicksRequest(tick=node_pb.NumberedTick(number=number)),
    ]
    answers = list(wired.nodes.CommitTicks(iter(requests), timeout=HANG_S))
    refused = answers[-1].refused
    assert (refused.number, refused.refusal.code) == (number, "out_of_order")
    assert refused.refusal.expected == 1


Call = Callable[[Wired], Any]
FIRST_TICK = node_pb.NumberedTick(number=1)


def attach(wired: Wired, pipeline: str, key: pb.NodeKey) -> None:
    request = node_pb.CommitTicksRequest(attach=node_pb.Attach(pipeline=pipeline, key=key))
    list(wired.nodes.CommitTicks(iter([request]), timeout=HANG_S))


def subscribe(wired: Wired, **what: Any) -> None:
    request = progress_pb.SubscribeRequest(subscribe=progress_pb.Subscription(**what))
    list(wired.progress.Subscribe(iter([request]), timeout=HANG_S))


def register(wired: Wired, spec: PipelineSpec) -> None:
    request = pipeline_pb.RegisterPipelineRequest(spec=spec_to_pb(spec))
    wired.pipelines.RegisterPipeline(request, timeout=HANG_S)


BAD_CALLS: dict[str, tuple[Call, str, tuple[str, ...]]] = {
    "joining an unknown pipeline": (
        lambda w: w.nodes.JoinNode(node_pb.JoinNodeRequest(pipeline="q", node_id="n")),
        "NOT_FOUND",
        ("'q'",),
    ),
    "min times of an unknown pipeline": (
        lambda w: w.progress.GetMinTime(progress_pb.GetMinTimeRequest(pipeline="q")),
        "NOT_FOUND",
        ("'q'",),
    ),
    "ticks before anything is attached": (
        lambda w: list(w.nodes.CommitTicks(iter([node_pb.CommitTicksRequest(tick=FIRST_TICK)]))),
        "INVALID_ARGUMENT",
        ("attach first",),
    ),
    "the leaving of a node that the tracker has forgotten": (
        lambda w: w.nodes.LeaveNode(
            node_pb.LeaveNodeRequest(pipeline="p", key=pb.NodeKey(node_id="n", incarnation=9))
        ),
        "DATA_LOSS",
        ("n#9 has joined, and this tracker knows of no such joining",),
    ),
    "a wait for units that is too long": (
        lambda w: w.nodes.ResolveUnits(
            node_pb.ResolveUnitsRequest(pipeline="p", segment="in", wait_ms=10**9)
        ),
        "INVALID_ARGUMENT",
        ("60000",),
    ),
    "contributions with half a cell": (
        lambda w: w.nodes.StageContributions(
            node_pb.StageContributionsRequest(
                pipeline="p",
                node_id="n",
                contributions=[pb.StagedContribution(created=pb.Cells(slots=bytes(8)))],
            )
        ),
        "INVALID_ARGUMENT",
        ("not four arrays of one length",),
    ),
    "ticks of an unknown pipeline": (
        lambda w: attach(w, "q", w.key),
        "NOT_FOUND",
        ("'q'",),
    ),
    "waiting in an unknown segment": (
        lambda w: w.progress.WaitUntil(progress_pb.WaitUntilRequest(pipeline="p", segment="s")),
        "NOT_FOUND",
        ("'p'", "'s'", "'in'"),
    ),
    "subscribing to an unknown segment": (
        lambda w: subscribe(w, pipeline="p", segments=["in", "s"]),
        "NOT_FOUND",
        ("'p'", "'s'", "'in'"),
    ),
    "units of an unknown segment": (
        lambda w: w.nodes.ResolveUnits(
            node_pb.ResolveUnitsRequest(pipeline="p", segment="s", names=["file:///x"])
        ),
        "NOT_FOUND",
        ("'p'", "'s'", "'in'"),
    ),
    "a closed incarnation": (
        lambda w: attach(w, "p", w.closed),
        "FAILED_PRECONDITION",
        ("'p'", "n#2", "n#3"),
    ),
    "a node that never joined": (
        lambda w: attach(w, "p", pb.NodeKey(node_id="m", incarnation=1)),
        "NOT_FOUND",
        ("'p'", "m#1"),
    ),
    "contributions for a node that never joined": (
        lambda w: w.nodes.StageContributions(
            node_pb.StageContributionsRequest(
                pipeline="p", node_id="m", contributions=[pb.StagedContribution(query="q")]
            )
        ),
        "NOT_FOUND",
        ("'p'", "'m'"),
    ),
    "another graph under the same name": (
        lambda w: register(w, replace(SPEC, edges=())),
        "ALREADY_EXISTS",
        ("'p'", "edges", "in -> out + 2"),
    ),
    "a pipeline whose edge leads nowhere": (
        lambda w: register(w, replace(SPEC, name="q", edges=(Edge("in", "nowhere"),))),
        "INVALID_ARGUMENT",
        ("'q'", "'nowhere'"),
    ),
    "an oversized message": (
        lambda w: w.nodes.JoinNode(
            node_pb.JoinNodeRequest(pipeline="p", node_id="x" * (MAX_MESSAGE_BYTES + 1))
        ),
        "RESOURCE_EXHAUSTED",
        (str(MAX_MESSAGE_BYTES),),
    ),
}


@pytest.mark.parametrize("what", BAD_CALLS)
def test_a_bad_call_has_its_status_and_changes_nothing(wired: Wired, what: str) -> None:
    call, status, named = BAD_CALLS[what]
    before = wired.state()
    with pytest.raises(grpc.RpcError) as failed:
        call(wired)
    details = failed.value.details() or ""
    assert failed.value.code().name == status, details
    for name in named:
        assert name in details
    if what != "an oversized message":  # which gRPC refuses by itself
        trailing: Any = dict(failed.value.trailing_metadata() or ())  # type: ignore[arg-type]
        refusal = pb.Refusal.FromString(trailing[REFUSAL_KEY])
        assert STATUS[RefusalCode(refusal.code)].name == status
        assert refusal.message == details
    assert wired.state() == before
