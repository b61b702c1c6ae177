"""What is sent when nothing is mangled: requests of every method, and frames between processes."""

from __future__ import annotations

from typing import Any

from acker.v1 import node_service_pb2 as node_pb
from acker.v1 import pipeline_service_pb2 as pipeline_pb
from acker.v1 import progress_service_pb2 as progress_pb
from acker.v1 import types_pb2 as pb
from tests.fuzz.wired import lived
from tracker.core.log import Send
from tracker.core.model import Cells, Edge, PipelineSpec
from tracker.wire.cells import cells_to_pb
from tracker.wire.frames import frame_to_pb
from tracker.wire.pipelines import spec_to_pb

CELLS = cells_to_pb(Cells.of([(1, 20, 7, 1), (0, 9, 1 << 63, 3)]))
OPEN = cells_to_pb(Cells.of([(1, 30, 5, 1), (0, 31, 6, 2)]))
"""What node `w` has created, and is open."""

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
    "DeletePipeline": pipeline_pb.DeletePipelineRequest(pipeline="p", generation=0),
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
CHANGING = (
    "JoinNode",
    "LeaveNode",
    "RetireNode",
    "RestartPipeline",
    "DeletePipeline",
    "StageContributions",
    "RegisterPipeline",
)

TO, FROM = 0, 1
LIVED = lived(FROM)
FRAMES = [
    frame_to_pb(effect.frame)
    for effect in LIVED.effects[LIVED.begun :]
    if isinstance(effect, Send) and effect.shard == TO
]
"""What shard 1 sends to shard 0 in a life with everything in it."""
