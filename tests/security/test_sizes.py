"""No request costs more memory than it must: nothing is unpacked, small calls are small, and what large ones take
is counted until they are over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from acker.v1 import node_service_pb2 as node_pb
from acker.v1 import node_service_pb2_grpc as node_grpc
from acker.v1 import pipeline_service_pb2 as pipeline_pb
from acker.v1 import pipeline_service_pb2_grpc as pipeline_grpc
from acker.v1 import types_pb2 as pb
from examples.children import free_ports
from tests.client.support import TWO_SEGMENTS
from tests.fuzz.wired import Context
from tests.waits import HANG_S
from tracker.client.embedded import EmbeddedTracker, embedded
from tracker.core.model import RefusalCode, Refused
from tracker.service.rpc.access import CALLS, STREAMS
from tracker.service.rpc.limits import Limits
from tracker.service.rpc.probes import Probes
from tracker.service.rpc.redirect import RedirectServer
from tracker.service.rpc.sizes import LARGE, MAX_REQUEST_BYTES, RequestSizes, most_bytes
from tracker.wire.grpc_options import MAX_PROBE_BYTES, MAX_TICK_BYTES

MIB = 2**20
GZIP = grpc.Compression.Gzip
Ask = Callable[[grpc.aio.Channel, grpc.Compression], Awaitable[Any]]


async def status_of(call: Awaitable[Any]) -> tuple[grpc.StatusCode, str]:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    return grpc.StatusCode.OK, ""


def check(channel: grpc.aio.Channel, compression: grpc.Compression, name: str = "x" * MIB) -> Any:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    request = health_pb2.HealthCheckRequest(service=name)
    return stub.Check(request, compression=compression, timeout=HANG_S)


def join(channel: grpc.aio.Channel, compression: grpc.Compression) -> Any:
    stub: Any = node_grpc.NodeServiceStub(channel)
    request = node_pb.JoinNodeRequest(pipeline="two", node_id="x" * MIB)
    return stub.JoinNode(request, compression=compression, timeout=HANG_S)


@asynccontextmanager
async def probed() -> AsyncIterator[str]:
    probes = Probes(f"127.0.0.1:{free_ports(1)}")
    await probes.open()
    try:
        yield probes.address
    finally:
        await probes.close()


@asynccontextmanager
async def waiting() -> AsyncIterator[str]:
    """A process that waits for a shard."""
    address = f"127.0.0.1:{free_ports(1)}"
    server = RedirectServer(address)
    await server.open()
    try:
        yield address
    finally:
        await server.close()


@pytest.mark.parametrize("place", [probed, waiting])
def test_ports_for_probes_take_4_kib_and_unpack_nothing(place: Any) -> None:
    async def ask() -> None:
        async with place() as address, grpc.aio.insecure_channel(address) as channel:
            packed = await status_of(check(channel, GZIP))
            assert packed[0] is grpc.StatusCode.UNIMPLEMENTED and "disabled" in packed[1]
            code, why = await status_of(check(channel, grpc.Compression.NoCompression))
            assert code is grpc.StatusCode.RESOURCE_EXHAUSTED and str(MAX_PROBE_BYTES) in why
            assert (await check(channel, grpc.Compression.NoCompression, "live")).status == 1

    asyncio.run(ask())


@pytest.fixture(scope="module")
def running() -> Any:
    with embedded() as tracker:
        tracker.register(TWO_SEGMENTS)
        yield tracker


@pytest.mark.parametrize("call", [check, join])
def test_a_tracker_unpacks_nothing_and_parses_nothing_too_large(
    running: EmbeddedTracker, call: Ask
) -> None:
    async def ask() -> None:
        async with grpc.aio.insecure_channel(running.target) as channel:
            assert (await status_of(call(channel, GZIP)))[0] is grpc.StatusCode.UNIMPLEMENTED
            code, why = await status_of(call(channel, grpc.Compression.NoCompression))
            assert code is grpc.StatusCode.INVALID_ARGUMENT and "over the limit of" in why

    asyncio.run(ask())


def test_a_stream_that_sends_a_packed_message_ends(running: EmbeddedTracker) -> None:
    async def ask() -> None:
        async with grpc.aio.insecure_channel(running.target) as channel:
            stub: Any = node_grpc.NodeServiceStub(channel)
            attach = node_pb.Attach(pipeline="x" * MIB)

            async def requests() -> AsyncIterator[node_pb.CommitTicksRequest]:
                yield node_pb.CommitTicksRequest(attach=attach)

            call = stub.CommitTicks(requests(), compression=GZIP, timeout=HANG_S)
            # INTERNAL where the end overtakes what is still being written.
            ended = {grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INTERNAL}
            assert await call.code() in ended

    asyncio.run(ask())


def test_every_call_has_a_limit_that_its_longest_names_fit_in() -> None:
    assert set(CALLS) >= LARGE
    for method in CALLS.keys() - LARGE:
        assert most_bytes(method) == MAX_REQUEST_BYTES
    longest = node_pb.JoinNodeRequest(
        pipeline="\U00010000" * 1_024, node_id="\U00010000" * 1_024, kind="k" * 100,
        owner="\U00010000" * 700,
    )  # fmt: skip
    assert longest.ByteSize() <= MAX_REQUEST_BYTES
    assert {most_bytes(method) for method in LARGE} == {MAX_TICK_BYTES}
    assert not STREAMS.keys() & LARGE


class Waiting:
    """Calls that wait until they are let go, behind the limits."""

    def __init__(self, limits: Limits) -> None:
        self.sizes = RequestSizes(limits)
        self.over = asyncio.Event()
        self.under_way: list[asyncio.Task[Any]] = []

    async def begin(self, client: str, size: int) -> str:
        """Begins a call; returns the limit that refused it, or nothing."""

        async def handler(*_: Any) -> grpc.RpcMethodHandler[Any, Any]:
            return grpc.unary_unary_rpc_method_handler(
                self._serve, request_deserializer=lambda data: data
            )

        class Details:
            method = "/acker.v1.NodeService/ResolveUnits"

        class From(Context):
            def peer(self) -> str:
                return f"ipv4:{client}:1"

        details: Any = Details()
        found = await self.sizes.intercept_service(handler, details)
        assert found is not None and found.unary_unary is not None
        served: Any = found.unary_unary
        task = asyncio.ensure_future(served(bytes(size), From()))
        await asyncio.sleep(0)
        if task.done():
            with pytest.raises(Refused) as refused:
                task.result()
            assert refused.value.refusal.code is RefusalCode.FULL
            return str(refused.value)
        self.under_way.append(task)
        return ""

    async def _serve(self, data: bytes, context: Any) -> None:
        await self.over.wait()

    async def end(self) -> None:
        self.over.set()
        await asyncio.gather(*self.under_way)
        self.under_way.clear()


def test_calls_that_wait_count_until_they_are_over() -> None:
    async def crowd() -> None:
        calls = Waiting(Limits(max_bytes_in_flight=8 * MIB, max_bytes_in_flight_per_client=4 * MIB))
        for _ in range(2):
            assert [await calls.begin("a", 2 * MIB) for _ in range(2)] == ["", ""]
            assert "max_bytes_in_flight_per_client of 4194304" in await calls.begin("a", MIB)
            assert await calls.begin("a", MAX_REQUEST_BYTES) == "", "small ones are served"
            assert [await calls.begin("b", 4 * MIB), calls.sizes.in_flight] == ["", 8 * MIB]
            assert "max_bytes_in_flight of 8388608" in await calls.begin("c", MIB)
            await calls.end()
            calls.over.clear()
            assert calls.sizes.in_flight == 0

    asyncio.run(crowd())


def test_a_pipeline_of_many_names_is_no_small_call(running: EmbeddedTracker) -> None:
    async def ask() -> None:
        async with grpc.aio.insecure_channel(running.target) as channel:
            stub: Any = pipeline_grpc.PipelineServiceStub(channel)
            spec = pb.PipelineSpec(
                name="wide", segments=[f"segment-{n}" * 10 for n in range(900)], open=True
            )
            answer = await stub.RegisterPipeline(pipeline_pb.RegisterPipelineRequest(spec=spec))
            assert len(answer.spec.segments) == 900

    asyncio.run(ask())
