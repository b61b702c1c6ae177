"""Ticks a second through one process with a durable store, against a bare gRPC echo of the same bytes.

Both servers run in processes of their own and take turns; one client sends the same prepared bytes to
either as fast as it can. The tracker answers once for many ticks, the echo answers each, so its client
has more to do and may be what holds it back: the processor time of the server for a tick is compared
as well, and must meet the same bar. A busy node, whose ticks gather, sends several in a message; the echo
goes on answering each by itself.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from acker.v1 import node_service_pb2 as node_pb
from acker.v1 import node_service_pb2_grpc as node_grpc
from benchmarks import looping
from benchmarks.bars import BARS
from benchmarks.echo import STREAM
from benchmarks.figures import Budget, Figure
from benchmarks.pairs import Bar, ratios, take_turns
from benchmarks.processes import EchoServer
from tests.cluster.tracker import Tracker
from tracker.core.model import Cells, FrontJoin, Heartbeat, PipelineSpec, TickContent
from tracker.wire.grpc_options import CHANNEL_OPTIONS
from tracker.wire.ticks import content_to_pb

COMMIT_TICKS = "/acker.v1.NodeService/CommitTicks"
TICKS_PER_SLOT = 20
"""A front promises the next slot as often, so that min time moves all the while."""
TICKS_TOGETHER = 64
"""In a message of a busy node, which sends what has gathered."""


def _bar(cells: int, together: int) -> Bar:
    """A tick without cells is not dearer than one with a cell."""
    what = "ticks of 1 cell" if cells <= 1 else f"ticks of {cells} cells"
    return BARS[f"{what}, busy node" if together > 1 else what]


@dataclass(frozen=True)
class Run:
    """One turn: ticks a second, and what a tick cost each side of processors, in microseconds."""

    per_second: float
    server_us: float
    client_us: float


def find(budget: Budget) -> Iterable[Figure]:
    # Many short turns: how fast the echo is differs from connection to connection, by how its threads and
    # the client's come to lie on the processors.
    rounds = budget.pick(7, 28)
    cases = [(1, 8_000)]
    if budget is not Budget.QUICK:
        cases += [(0, 8_000), (100, 4_000)]
    for cells, ticks in cases:
        yield from _case(cells, ticks, rounds)
    for cells, ticks in cases:
        if cells:
            yield from _case(cells, ticks, rounds, TICKS_TOGETHER)


def _case(cells: int, ticks: int, rounds: int, together: int = 1) -> Iterable[Figure]:
    return _figures(cells, ticks, together, **in_turns(cells, ticks, together, rounds))


def in_turns(cells: int, ticks: int, together: int, rounds: int) -> dict[str, list[Run]]:
    """The rounds of a tracker ("tracker") and of an echo ("echo"): so many ticks, of so many cells, so many of
    them together in a message to the tracker."""
    with (
        tempfile.TemporaryDirectory(prefix="lowmark-bench-") as directory,
        Tracker(Path(directory)) as tracker,
        EchoServer() as echo,
    ):
        numbered = [numbered_tick(number, cells) for number in range(2, ticks + 2)]
        ours, bare = messages_of(numbered, together), messages_of(numbered, 1)
        pipelines = (f"p{turn}" for turn in itertools.count())
        return take_turns(
            {
                "tracker": lambda: looping.run(commit(tracker, next(pipelines), ours, ticks)),
                "echo": lambda: looping.run(_echo(echo, bare)),
            },
            rounds,
        )


def _figures(
    cells: int, ticks: int, together: int, tracker: list[Run], echo: list[Run]
) -> Iterable[Figure]:
    ours, bare = tracker, echo
    what = {0: "ticks without cells", 1: "ticks of 1 cell"}.get(cells, f"ticks of {cells} cells")
    bar = _bar(cells, together)
    if together > 1:
        what = f"{what} of a busy node, {together} a message"
    yield Figure(
        f"{what}, through one process, a second",
        tuple(run.per_second for run in ours),
        "/s",
        f"SQLite with full sync; {ticks} ticks a turn",
    )
    yield Figure(
        f"{what}: tracker / echo, by time",
        ratios([run.per_second for run in ours], [run.per_second for run in bare]),
        "",
        f"bare gRPC echo of the same bytes, {_median(bare, 'per_second'):,.0f}/s",
        bar,
        least=max(run.per_second for run in ours) / max(run.per_second for run in bare),
    )
    yield Figure(
        f"{what}: echo / tracker, by processor time of the server",
        ratios([run.server_us for run in bare], [run.server_us for run in ours]),
        "",
        f"{_median(bare, 'server_us'):.0f} µs a message of the echo, "
        f"{_median(ours, 'server_us'):.0f} µs a tick",
        bar,
        least=min(run.server_us for run in bare) / min(run.server_us for run in ours),
    )


def _median(runs: list[Run], field: str) -> float:
    return float(np.median([getattr(run, field) for run in runs]))


def messages_of(ticks: list[node_pb.NumberedTick], together: int) -> list[bytes]:
    if together == 1:
        return [node_pb.CommitTicksRequest(tick=tick).SerializeToString() for tick in ticks]
    groups = (ticks[first : first + together] for first in range(0, len(ticks), together))
    return [
        node_pb.CommitTicksRequest(ticks=node_pb.NumberedTicks(ticks=group)).SerializeToString()
        for group in groups
    ]


def numbered_tick(number: int, cells: int) -> node_pb.NumberedTick:
    """A tick creates, the next one consumes the same; every so often the front promises a slot."""
    step, slot = number // 2, number // TICKS_PER_SLOT
    slots = slot + np.arange(cells, dtype=np.int64)
    values = np.arange(1, cells + 1, dtype=np.uint64) + np.uint64(1 + step * 7919)
    each = Cells(np.zeros(cells, np.int32), slots, values, np.ones(cells, np.int64))
    content = TickContent(created=each) if number % 2 == 0 else TickContent(consumed=each)
    if number % TICKS_PER_SLOT == 0:
        content.heartbeats = (Heartbeat("front", slot),)
    return node_pb.NumberedTick(number=number, content=content_to_pb(content))


async def commit(
    tracker: Tracker, pipeline: str, messages: list[bytes], ticks: int, node_id: str = "node"
) -> Run:
    """Commits ticks 2 and on, so many; returns when the last is durable. The node is at home at shard 0."""
    spec = PipelineSpec(pipeline, ("in",), front_count=1)
    await asyncio.to_thread(tracker.register, spec)
    async with grpc.aio.insecure_channel(tracker.addresses[0], CHANNEL_OPTIONS) as channel:
        request = node_pb.JoinNodeRequest(pipeline=pipeline, node_id=node_id, kind="other")
        key = (await node_grpc.NodeServiceStub(channel).JoinNode(request)).key
        call: Any = channel.stream_stream(COMMIT_TICKS)()
        attach = node_pb.CommitTicksRequest(attach=node_pb.Attach(pipeline=pipeline, key=key))
        await call.write(attach.SerializeToString())
        joins = content_to_pb(TickContent(joins=(FrontJoin("front", 0),)))
        await call.write(messages_of([node_pb.NumberedTick(number=1, content=joins)], 1)[0])
        while not (await _answer(call)).HasField("grant"):
            pass
        last = ticks + 1

        async def hear() -> None:
            while (await _answer(call)).committed.number < last:
                pass

        return await _run(call, messages, ticks, tracker.processor_s, hear)


async def _answer(call: Any) -> node_pb.CommitTicksResponse:
    answer = node_pb.CommitTicksResponse.FromString(await call.read())
    if answer.HasField("refused"):
        raise RuntimeError(f"a tick was refused: {answer.refused.refusal.message}")
    return answer


async def _echo(echo: EchoServer, messages: list[bytes]) -> Run:
    async with grpc.aio.insecure_channel(echo.address, CHANNEL_OPTIONS) as channel:
        call: Any = channel.stream_stream(STREAM)()

        async def hear() -> None:
            for _ in messages:
                await call.read()

        return await _run(call, messages, len(messages), echo.processor_s, hear)


async def _run(
    call: Any,
    messages: list[bytes],
    number: int,
    server_s: Callable[[], float],
    hear: Callable[[], Any],
) -> Run:
    began, server, client = time.perf_counter(), server_s(), time.process_time()

    async def send() -> None:
        for message in messages:
            await call.write(message)

    await asyncio.gather(send(), hear())
    return Run(
        number / (time.perf_counter() - began),
        (server_s() - server) / number * 1e6,
        (time.process_time() - client) / number * 1e6,
    )
