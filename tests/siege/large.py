"""Those who attack, in a process of their own: `python -m tests.siege.large KIND TARGET`. Here are those who send as
much as a process takes; the others are in `sly`.

It says a JSON line with what became of its calls: how many by status.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from acker.v1 import node_service_pb2 as node_pb
from acker.v1 import node_service_pb2_grpc as node_grpc
from tests.siege.crowd import QUIET
from tests.siege.sly import SLY
from tests.waits import HANG_S

MIB = 2**20
PACKED, PLAIN = grpc.Compression.Gzip, grpc.Compression.NoCompression
HELD_S = 5.0
"""How long a call asks to wait."""

Ask = Callable[[grpc.aio.Channel, grpc.Compression], Awaitable[Any]]


def check(channel: grpc.aio.Channel, compression: grpc.Compression) -> Awaitable[Any]:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    request = health_pb2.HealthCheckRequest(service="x" * (63 * MIB))
    return stub.Check(request, compression=compression, timeout=HANG_S)


def join(channel: grpc.aio.Channel, compression: grpc.Compression) -> Awaitable[Any]:
    stub: Any = node_grpc.NodeServiceStub(channel)
    request = node_pb.JoinNodeRequest(pipeline=QUIET, node_id="x" * (63 * MIB))
    return stub.JoinNode(request, compression=compression, timeout=HANG_S)


def long_check(channel: grpc.aio.Channel, compression: grpc.Compression) -> Awaitable[Any]:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    return stub.Check(health_pb2.HealthCheckRequest(service="x" * (60 * MIB)), timeout=HANG_S)


def long_join(channel: grpc.aio.Channel, compression: grpc.Compression) -> Awaitable[Any]:
    stub: Any = node_grpc.NodeServiceStub(channel)
    request = node_pb.JoinNodeRequest(pipeline=QUIET, node_id="x" * 60_000)
    return stub.JoinNode(request, timeout=HANG_S)


def resolve(size: int) -> Ask:
    def ask(channel: grpc.aio.Channel, compression: grpc.Compression) -> Awaitable[Any]:
        stub: Any = node_grpc.NodeServiceStub(channel)
        names = ["u" * 530] * (size // 530)
        request = node_pb.ResolveUnitsRequest(
            pipeline=QUIET, segment="a", names=names, wait_ms=int(HELD_S * 1_000)
        )
        return stub.ResolveUnits(request, compression=compression, timeout=HANG_S)

    return ask


ATTACKS: dict[str, tuple[Ask, grpc.Compression, int]] = {
    "health-packed": (check, PACKED, 24),
    "health-long": (long_check, PLAIN, 24),
    "join-packed": (join, PACKED, 16),
    "join-long": (long_join, PLAIN, 500),
    "resolve-packed": (resolve(50 * MIB), PACKED, 12),
    "resolve-plain": (resolve(30 * MIB), PLAIN, 12),
}
"""By name: a call, whether it is packed, how often at once. Those named `health` go to the port for probes."""
ENDS = {
    "health-packed": {"UNIMPLEMENTED"},
    "join-packed": {"UNIMPLEMENTED"},
    "resolve-packed": {"UNIMPLEMENTED"},
    "health-long": {"RESOURCE_EXHAUSTED"},
    "join-long": {"INVALID_ARGUMENT"},
    "resolve-plain": {"RESOURCE_EXHAUSTED", "OK", "DEADLINE_EXCEEDED", "INVALID_ARGUMENT"},
}
"""With which statuses they may end."""


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=(*ATTACKS, *SLY))
    parser.add_argument("target")
    given = parser.parse_args()
    if given.kind in SLY:
        print(json.dumps(await SLY[given.kind][0](given.target)), flush=True)
        return
    ask, compression, count = ATTACKS[given.kind]
    options = (("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1))

    async def one() -> str:
        async with grpc.aio.insecure_channel(given.target, options) as channel:
            try:
                await ask(channel, compression)
            except grpc.aio.AioRpcError as error:
                return error.code().name
            return grpc.StatusCode.OK.name

    print(json.dumps(Counter(await asyncio.gather(*(one() for _ in range(count))))), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
