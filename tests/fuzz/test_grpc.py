"""Bytes sent to a real server: to every method of every service, as messages that are none, or odd ones.

Each call ends with an answer, with a status of docs/errors.md, or at its deadline where what it waits for
does not come; the server serves on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from hypothesis import strategies as st

import tracker
from acker.v1 import (
    node_service_pb2,
    peer_service_pb2,
    pipeline_service_pb2,
    progress_service_pb2,
)
from acker.v1 import types_pb2 as pb
from tests.fuzz.examples import fuzz
from tests.fuzz.mangling import damaged, sent
from tests.fuzz.requests import FRAMES, METHODS
from tests.fuzz.test_ticks import TICKS
from tests.fuzz.wired import SPEC
from tests.waits import HANG_S
from tracker import EmbeddedTracker
from tracker.core.model import Cells, Heartbeat, RefusalCode, TickContent
from tracker.service.cluster.peer_link import TO_SHARD_KEY
from tracker.service.rpc.errors import STATUS
from tracker.wire.grpc_options import CHANNEL_OPTIONS
from tracker.wire.refusals import REFUSAL_KEY

MODULES = (node_service_pb2, peer_service_pb2, pipeline_service_pb2, progress_service_pb2)
SERVED = {
    f"/{service.full_name}/{method.name}": method
    for module in MODULES
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
STREAMS: dict[str, list[Any]] = {
    "CommitTicks": [
        node_service_pb2.CommitTicksRequest(
            attach=node_service_pb2.Attach(pipeline="p", key=pb.NodeKey(node_id="w", incarnation=2))
        ),
        *(
            node_service_pb2.CommitTicksRequest(
                tick=node_service_pb2.NumberedTick(number=number, content=content)
            )
            for number, content in enumerate(TICKS, 1)
        ),
    ],
    "Exchange": FRAMES,
    "Subscribe": [METHODS["Subscribe"]],
}
SHARDS: dict[str, Any] = {
    "JoinShard": peer_service_pb2.JoinShardRequest(address="127.0.0.1:9"),
    "Bootstrap": peer_service_pb2.BootstrapRequest(shard=1),
    "StandBy": peer_service_pb2.StandByRequest(address="127.0.0.1:9", speaks=2, release="9.9"),
    "RescaleShards": pipeline_service_pb2.RescaleShardsRequest(shards=1, wait_ms=10),
    "FinishUpgrade": pipeline_service_pb2.FinishUpgradeRequest(level=2),
    "DeclareLost": pipeline_service_pb2.DeclareLostRequest(shards=[1], wait_ms=10),
}
TIMEOUT_S = 0.1
"""Of calls that may wait for what never comes; none of the others takes so long."""
WAITING = ("ResolveUnits", "WaitUntil", "Subscribe", "Exchange", "RescaleShards")
TO_SHARD_0 = ((TO_SHARD_KEY, "0"),)


def test_every_method_is_among_the_examples() -> None:
    assert {method.name for method in SERVED.values()} == {*METHODS, *STREAMS, *SHARDS}


@pytest.fixture(scope="module")
def served() -> Iterator[EmbeddedTracker]:
    with tracker.embedded() as running:
        running.register(SPEC)
        front = running.node("p", "f", "front")
        front.join()
        front.join_front("F", "in")
        front.commit(TickContent(heartbeats=(Heartbeat("F", 5),))).result(HANG_S)
        node = running.node("p", "w")
        node.join()
        node.commit(TickContent(created=Cells.of([(1, 30, 5, 1)]))).result(HANG_S)
        yield running


@pytest.mark.parametrize("path", SERVED)
def test_a_call_ends_as_calls_end(served: EmbeddedTracker, path: str) -> None:
    method = SERVED[path]
    name = method.name
    valid = STREAMS.get(name) or [SHARDS[name] if name in SHARDS else METHODS[name]]
    message = st.sampled_from(valid).flatmap(sent).map(lambda sent: sent.SerializeToString())
    data = message | st.sampled_from(valid).flatmap(lambda m: damaged(m.SerializeToString()))
    data = data | st.binary(max_size=60)
    most = 6 if name in STREAMS else 1

    @fuzz(
        st.lists(data, min_size=1, max_size=most), share=0.1 if name in WAITING else 0.3, case=name
    )
    def calls_end(requests: list[bytes]) -> None:
        timeout_s = TIMEOUT_S if name in WAITING else HANG_S
        with grpc.insecure_channel(served.target, CHANNEL_OPTIONS) as channel:
            try:
                if name in STREAMS:
                    stream: Any = channel.stream_stream(path)
                    list(stream(iter(requests), timeout=timeout_s, metadata=TO_SHARD_0))
                elif method.server_streaming:
                    answers: Any = channel.unary_stream(path)
                    list(answers(requests[0], timeout=timeout_s))
                else:
                    call: Any = channel.unary_unary(path)
                    call(requests[0], timeout=timeout_s)
            except grpc.RpcError as error:
                ended(error, name)
        process = served.servers[0].engine.process
        assert served.admin().pipeline("p").spec == SPEC, "it serves on"
        process.validate()

    calls_end()


def ended(error: Any, name: str) -> None:
    """A call failed: as it may."""
    status, details = error.code(), error.details()
    if status is grpc.StatusCode.DEADLINE_EXCEEDED:
        assert name in WAITING, details
        return
    trailing = dict(error.trailing_metadata() or ())
    assert REFUSAL_KEY in trailing, f"{status}: {details}"
    refusal = pb.Refusal.FromString(trailing[REFUSAL_KEY])
    assert STATUS[RefusalCode(refusal.code)] is status, details
    assert refusal.message == details


def test_a_refusal_of_long_names_arrives_whole(served: EmbeddedTracker) -> None:
    """What it says is cut where it would be more than gRPC lets through at the end of a call."""
    names = ["\U0001f6eb" * 1_000 + str(number) for number in range(20)]
    for request in (
        pipeline_service_pb2.RegisterPipelineRequest(
            spec=pb.PipelineSpec(name="p", segments=names, fronts=["F"])
        ),
        pipeline_service_pb2.RegisterPipelineRequest(
            spec=pb.PipelineSpec(
                name=names[0], segments=names, edges=[pb.Edge(source=names[0], target="x")]
            )
        ),
    ):
        with grpc.insecure_channel(served.target, CHANNEL_OPTIONS) as channel:
            call: Any = channel.unary_unary("/acker.v1.PipelineService/RegisterPipeline")
            with pytest.raises(grpc.RpcError) as failed:
                call(request.SerializeToString(), timeout=HANG_S)
            ended(failed.value, "RegisterPipeline")
            assert failed.value.code().name in ("ALREADY_EXISTS", "INVALID_ARGUMENT")
