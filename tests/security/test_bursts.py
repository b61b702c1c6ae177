"""What comes at once over few connections is taken up in its turn, and costs nobody else his call."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import grpc

from acker.v1 import progress_service_pb2 as progress_pb
from acker.v1 import progress_service_pb2_grpc as progress_grpc
from tests.client.support import TWO_SEGMENTS
from tests.waits import HANG_S
from tracker.client.embedded import EmbeddedTracker, embedded
from tracker.wire.grpc_options import CHANNEL_OPTIONS, MAX_STREAMS_PER_CONNECTION

CONNECTIONS = 2
OWN = ("grpc.use_local_subchannel_pool", 1)


def test_a_burst_of_streams_cancels_no_call() -> None:
    """By gRPC's default, of calls that are not taken up yet each beyond a thousand may be cancelled."""
    with embedded() as tracker:
        tracker.register(TWO_SEGMENTS)
        statuses = asyncio.run(burst(tracker))
    assert statuses == {"OK": CONNECTIONS * MAX_STREAMS_PER_CONNECTION + 100}


async def burst(tracker: EmbeddedTracker) -> Counter[str]:
    """How calls end that come at once, and those of somebody else meanwhile."""
    channels = [
        grpc.aio.insecure_channel(tracker.target, (*CHANNEL_OPTIONS, OWN))
        for _ in range(CONNECTIONS + 1)
    ]
    *crowd, honest = [progress_grpc.ProgressServiceStub(channel) for channel in channels]
    calls = [ask(stub) for stub in crowd for _ in range(MAX_STREAMS_PER_CONNECTION)]
    ended = asyncio.gather(*calls)
    others = [await ask(honest) for _ in range(100)]
    statuses = Counter([*await ended, *others])
    for channel in channels:
        await channel.close()
    return statuses


async def ask(stub: Any) -> str:
    try:
        request = progress_pb.GetMinTimeRequest(pipeline="two")
        await stub.GetMinTime(request, timeout=HANG_S)
    except grpc.aio.AioRpcError as error:
        return f"{error.code().name}: {error.details()}"
    return "OK"
