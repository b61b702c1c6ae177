"""Requests to every method: an answer, or a refusal of docs/errors.md that changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st

from acker.v1 import node_service_pb2 as node_pb
from acker.v1 import pipeline_service_pb2 as pipeline_pb
from acker.v1 import progress_service_pb2 as progress_pb
from acker.v1 import types_pb2 as pb
from tests.fuzz.examples import fuzz
from tests.fuzz.messages import sent
from tests.fuzz.wired import SPEC, CallEnded, Context, Services, Wired, called, stream
from tracker.core.model import Cells, Edge, PipelineSpec
from tracker.wire.cells import cells_to_pb
from tracker.wire.pipelines import spec_to_pb

CELLS = cells_to_pb(Cells.of([(1, 20, 7, 1), (0, 9, 1 << 63, 3)]))
OPEN = cells_to_pb(Cells.of([(1, 30, 5, 1), (0, 31, 6, 2)]))
"""What node `w` has created, and is open."""


def call(services: Services, method: str, request: Any) -> Any:
    """What a servicer makes of a request; of a stream, of its only message."""
    (method_called,) = [
        getattr(servicer, method)
        for servicer in (services.nodes, services.pipelines, services.progress)
        if hasattr(servicer, method)
    ]
    return method_called(stream([request]) if method == "Subscribe" else request, Context())


METHODS: dict[str, Any] = {
    "JoinNode": node_pb.JoinNodeRequest(pipeline="p", node_id="n", kind="other"),
    "LeaveNode": node_pb.LeaveNodeRequest(pipeline="p", key=pb.NodeKey(node_id="w", incarnation=1)),
    "StageContributions": node_pb.StageContributionsRequest(
        pipeline="p",
        node_id="w",
        contributions=[
            pb.StagedContribution(
                query="query",
                run="run",
                batch=3,
                execution=1,
                operator="op",
                stage=2,
                partition=partition,
                attempt=4,
                created=CELLS,
                consumed=CELLS,
            )
            for partition in range(2)
        ],
    ),
    "ListContributions": node_pb.ListContributionsRequest(
        pipeline="p", node_id="w", query="query", batch=3
    ),
    "ResolveUnits": node_pb.ResolveUnitsRequest(pipeline="p", segment="in", names=["file:///a"]),
    "RegisterPipeline": pipeline_pb.RegisterPipelineRequest(
        spec=spec_to_pb(
            PipelineSpec("q", ("in", "out"), (Edge("in", "out", 3),), fronts=("F", "G"))
        )
    ),
    "GetPipeline": pipeline_pb.GetPipelineRequest(pipeline="p"),
    "GetFreshness": pipeline_pb.GetFreshnessRequest(pipeline="p", within_ms=500),
    "GetHistory": progress_pb.GetHistoryRequest(pipeline="p", segment="in", slots=[3, 30]),
    "ExplainPipeline": pipeline_pb.ExplainPipelineRequest(
        pipeline="p", segment="in", from_slot=-5, to_slot=500, max_cells=10
    ),
    "RetireNode": pipeline_pb.RetireNodeRequest(pipeline="p", node_id="w", write_off=OPEN),
    "RestartPipeline": pipeline_pb.RestartPipelineRequest(pipeline="p", generation=0, from_slot=9),
    "ListPipelines": pipeline_pb.ListPipelinesRequest(),
    "ListShards": pipeline_pb.ListShardsRequest(),
    "GetMinTime": progress_pb.GetMinTimeRequest(pipeline="p"),
    "WaitUntil": progress_pb.WaitUntilRequest(pipeline="p", segment="in", slot=4),
    "Subscribe": progress_pb.SubscribeRequest(
        subscribe=progress_pb.Subscription(
            pipeline="p",
            segments=["in"],
            heard=[pb.SegmentTime(segment="in", min_time=2)],
            heard_min_time=1,
        )
    ),
}
"""By method a request that is answered."""
WAITING = ("ResolveUnits", "WaitUntil", "Subscribe")
CHANGING = (
    "JoinNode",
    "LeaveNode",
    "RetireNode",
    "RestartPipeline",
    "StageContributions",
    "RegisterPipeline",
)


@pytest.mark.parametrize("method", METHODS)
def test_a_request_is_answered_or_refused_whole(method: str) -> None:
    share = 0.4 if method in CHANGING else 0.15

    @fuzz(st.lists(sent(METHODS[method]), min_size=1, max_size=3), share=share, case=method)
    def requests_are_answered(requests: list[Any]) -> None:
        cluster = Wired()
        home = cluster.routing.home("p", "w")
        cluster.node(SPEC, "w").commit(created=[(1, 30, 5), (0, 31, 6)])
        services = Services(cluster, home)
        for request in requests:
            before = cluster.state()
            answer = called(call(services, method, request), waits=method in WAITING)
            cluster.settle()
            if isinstance(answer, CallEnded) or method not in CHANGING:
                assert cluster.state() == before
            elif answer is not None:
                answer.SerializeToString()
        cluster.check()

    requests_are_answered()
