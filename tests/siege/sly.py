"""Attacks that are small on the wire: many streams, halves of requests, names that are orders, other hosts' pages.

Each is a coroutine that goes on for as long as it takes, and says how often what became of it. Those that hold a door
open try it beside that, as somebody would who is let in, and say `served` or `not served`.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

import grpc

from acker.v1 import node_service_pb2 as node_pb
from acker.v1 import node_service_pb2_grpc as node_grpc
from acker.v1 import pipeline_service_pb2 as pipeline_pb
from acker.v1 import pipeline_service_pb2_grpc as pipeline_grpc
from acker.v1 import progress_service_pb2 as progress_pb
from acker.v1 import progress_service_pb2_grpc as progress_grpc
from tests.siege.crowd import QUIET
from tests.waits import HANG_S
from tracker.core.model import Edge, PipelineSpec
from tracker.wire.grpc_options import MAX_MESSAGE_BYTES
from tracker.wire.pipelines import spec_to_pb

Attack = Callable[[str], Awaitable[Counter[str]]]
_WHOLE = struct.pack(">II", 2, 0) + b"{}"
"""A frame that says nothing, which is refused as such."""
SERVED, NOT_SERVED = "served", "not served"
HELD_S = 8.0
"""How long doors are held open."""
PATIENCE_S = 5.0  # expires: of somebody who is let in
"""Of somebody who is let in: a page that takes longer is no page."""
STREAMS, SLOW, HALVES, CHAINS, SEGMENTS, ODD, MANGLED = 26_000, 300, 512, 40, 1_000, 200, 2_000
OPENING_AT_ONCE = 500
_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.use_local_subchannel_pool", 1),
)


def _channel(target: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(target, _OPTIONS)


async def _status(call: Any) -> str:
    """How a call ends."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return grpc.StatusCode.OK.name


async def streams(target: str) -> Counter[str]:
    """Subscribes on one connection more often than it takes; asks on another one meanwhile."""
    found: Counter[str] = Counter()

    async def asking() -> Any:
        yield progress_pb.SubscribeRequest(subscribe=progress_pb.Subscription(pipeline=QUIET))
        await asyncio.Event().wait()

    async with _channel(target) as crowd, _channel(target) as other:
        stub: Any = progress_grpc.ProgressServiceStub(crowd)
        honest: Any = progress_grpc.ProgressServiceStub(other)
        calls = [stub.Subscribe(asking()) for _ in range(STREAMS)]
        end = monotonic() + HELD_S
        while monotonic() < end:
            request = progress_pb.GetMinTimeRequest(pipeline=QUIET)
            said = await _status(honest.GetMinTime(request, timeout=2 * PATIENCE_S))
            found[SERVED if said == "OK" else NOT_SERVED] += 1
            await asyncio.sleep(0.1)  # paces: the load
        found["streams asked for"] = len(calls)
        for call in calls:
            call.cancel()
    return found


async def _listed(stub: Any) -> None:
    """Page by page, as clients do: all at once need not fit into a message."""
    request = pipeline_pb.ListPipelinesRequest(page_size=100)
    while True:
        answer = await stub.ListPipelines(request, timeout=HANG_S)
        if not answer.next_page_token:
            return
        request.page_token = answer.next_page_token


async def chains(target: str) -> Counter[str]:
    """Registers long chains of long names, then lists what is registered."""
    found: Counter[str] = Counter()
    async with _channel(target) as channel:
        stub: Any = pipeline_grpc.PipelineServiceStub(channel)
        for number in range(CHAINS):
            names = tuple(f"{n:04}{'x' * 600}" for n in range(SEGMENTS))
            edges = tuple(Edge(*pair) for pair in itertools.pairwise(names))
            spec = PipelineSpec(f"chain-{number}", names, edges, open=True)
            request = pipeline_pb.RegisterPipelineRequest(spec=spec_to_pb(spec))
            found[await _status(stub.RegisterPipeline(request, timeout=HANG_S))] += 1
        listed = await _status(_listed(stub))
        asked = pipeline_pb.GetPipelineRequest(pipeline=QUIET)
        looked = await _status(stub.GetPipeline(asked, timeout=HANG_S))
    found[f"listed {listed}"] += 1
    found[SERVED if looked == "OK" else NOT_SERVED] += 1
    return found


async def orders(target: str) -> Counter[str]:
    """Joins as nodes whose names are orders to a terminal."""
    async with _channel(target) as channel:
        stub: Any = node_grpc.NodeServiceStub(channel)
        signs = "\x1b\x07\n\r\0\u202e"
        odd = [f"n{number}{signs[number % len(signs)]}" for number in range(ODD)]
        said = [
            await _status(stub.JoinNode(node_pb.JoinNodeRequest(pipeline=QUIET, node_id=name)))
            for name in odd
        ]
    return Counter(said)


async def mangled(target: str) -> Counter[str]:
    """Bytes that are no messages, and ones that are larger than any may be, to many methods."""
    choose, found = random.Random(0), Counter[str]()
    methods = [
        "/acker.v1.NodeService/JoinNode", "/acker.v1.NodeService/StageContributions",
        "/acker.v1.PipelineService/RegisterPipeline", "/acker.v1.PipelineService/RetireNode",
        "/acker.v1.ProgressService/GetHistory", "/acker.v1.PeerService/JoinShard", "/no.Service/Method",
    ]  # fmt: skip
    async with _channel(target) as channel:
        for number in range(MANGLED):
            size = 65 * 2**20 if number % 400 == 0 else choose.randrange(200)
            call: Any = channel.unary_unary(choose.choice(methods))
            found[await _status(call(choose.randbytes(size), timeout=HANG_S))] += 1
    return found


async def _held(target: str, count: int, half: bytes) -> list[asyncio.StreamWriter]:
    """Connections that have each said half of something."""
    host, _, port = target.rpartition(":")
    held = []
    for _ in range(count):
        try:
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(half)
            held.append(writer)
        except OSError:
            pass
    return held


async def _page(target: str, host: str, path: str = "/") -> str:
    """The status line's number of a page; empty if there is none in time."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_connection(*target.rsplit(":", 1))
            writer.write(
                f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
            )
            said = (await reader.readline()).decode(errors="replace").split()
            writer.close()
            return said[1] if len(said) > 1 else ""
    except (OSError, TimeoutError):
        return ""


async def slow_pages(target: str) -> Counter[str]:
    """Halves of requests for pages; pages are asked for meanwhile."""
    found: Counter[str] = Counter()
    held = await _held(target, SLOW, b"GET / HTTP/1.1\r\nHost: loc")
    end = monotonic() + HELD_S
    while monotonic() < end:
        status = await _page(target, "localhost")
        found[SERVED if status == "200" else NOT_SERVED] += 1
        await asyncio.sleep(0.2)  # paces: the load
    for writer in held:
        writer.close()
    return found


async def foreign(target: str) -> Counter[str]:
    """Pages for a name that is elsewhere's, as a browser asks whom it has been made to mean it."""
    said = [
        await _page(target, "pages.example", path) for path in ("/", "/metrics") for _ in range(50)
    ]
    return Counter(said)


async def half_frames(target: str) -> Counter[str]:
    """Halves of frames for a local tracker; then whole ones are sent by another neighbour, who is answered if
    it is but by a refusal."""
    found: Counter[str] = Counter()
    held = await _held(target, HALVES, b"\0\0")
    end = monotonic() + HELD_S
    host, _, port = target.rpartition(":")
    while monotonic() < end:
        try:
            async with asyncio.timeout(PATIENCE_S):
                reader, writer = await asyncio.open_connection(
                    host, int(port), local_addr=("127.0.0.2", 0)
                )
                writer.write(_WHOLE)
                found[SERVED if await reader.read(1) else NOT_SERVED] += 1
                writer.close()
        except (OSError, TimeoutError):
            found[NOT_SERVED] += 1
        await asyncio.sleep(0.2)  # paces: the load
    for writer in held:
        writer.close()
    return found


SLY: dict[str, tuple[Attack, str, set[str]]] = {
    "streams": (streams, "tracker", {SERVED, "streams asked for"}),
    "orders": (orders, "tracker", {"INVALID_ARGUMENT"}),
    "mangled": (
        mangled, "tracker",
        {"OK", "INVALID_ARGUMENT", "INTERNAL", "RESOURCE_EXHAUSTED", "NOT_FOUND", "UNIMPLEMENTED",
         "FAILED_PRECONDITION", "UNKNOWN"},
    ),
    "slow-pages": (slow_pages, "dashboard", {SERVED}),
    "foreign-page": (foreign, "dashboard", {"421"}),
    "foreign-metrics": (foreign, "metrics", {"421"}),
    "half-frames": (half_frames, "local", {SERVED}),
    "chains": (chains, "tracker", {"OK", "RESOURCE_EXHAUSTED", "listed OK", SERVED}),
}  # fmt: skip
"""By name: an attack, at which door, and all that may come of it."""
