"""Those who besiege a process, in a process of their own: `python -m tests.siege.crowd TARGET ...`.

It says a JSON line when all are there, goes on until it is told a line, then says what became of
them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from typing import Any

import grpc

from acker.v1 import node_service_pb2 as node_pb
from acker.v1 import node_service_pb2_grpc as node_grpc
from acker.v1 import progress_service_pb2 as progress_pb
from acker.v1 import progress_service_pb2_grpc as progress_grpc
from acker.v1 import types_pb2 as pb
from tracker.wire.grpc_options import CHANNEL_OPTIONS

BUSY, QUIET = "busy", "quiet"
"""The pipeline in which things happen, and the one in which nothing does."""
PER_CHANNEL = 1_000
"""Idle subscribers of one connection."""
OPENING_AT_ONCE = 200
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
_HEADERS_BEGUN = b"\x00\x40\x00\x01\x04\x00\x00\x00\x01"  # 16 KiB of headers are to come
_TRICKLE_S = 0.5  # paces: the load
TRICKLING = 2
_SOME_TICKS = 200
"""Bad ticks between two looks at what else there is to do."""


@dataclass
class Tally:
    """What became of them."""

    idle: int = 0
    """Idle subscribers that heard where min time is."""
    idle_ended: int = 0
    deaf: int = 0
    slow_closed: int = 0
    """Connections that never came to be one, and were closed by the process."""
    bad_ticks: int = 0
    refusals: int = 0
    cut_off: int = 0
    """Streams that read no refusals, and were ended for it."""


class Crowd:
    def __init__(self, target: str) -> None:
        self.target = target
        self.tally = Tally()
        self._tasks: list[asyncio.Task[None]] = []
        self._channels: list[grpc.aio.Channel] = []
        self._opening = asyncio.Semaphore(OPENING_AT_ONCE)

    def _begin(self, work: Any) -> None:
        self._tasks.append(asyncio.ensure_future(work))

    def _channel(self) -> grpc.aio.Channel:
        # Channels of one address share a connection unless they have pools of their own.
        options = (*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1))
        self._channels.append(grpc.aio.insecure_channel(self.target, options))
        return self._channels[-1]

    async def gather(self, subscribers: int, deaf: int, slow: int) -> None:
        """Returns when all are there."""
        heard = []
        for first in range(0, subscribers, PER_CHANNEL):
            stub = progress_grpc.ProgressServiceStub(self._channel())
            for _ in range(min(PER_CHANNEL, subscribers - first)):
                there = asyncio.get_running_loop().create_future()
                heard.append(there)
                self._begin(self._idle(stub, there))
        await asyncio.gather(*heard)
        stub = progress_grpc.ProgressServiceStub(self._channel())
        for _ in range(deaf):
            self._begin(self._deaf(stub))
        for place in range(slow):
            self._begin(self.slow(place % 3))
        for reads in (True, False):
            self._begin(self._flood(f"bad-{reads}", reads=reads))

    async def _idle(self, stub: Any, there: asyncio.Future[None]) -> None:
        async with self._opening:
            call = stub.Subscribe(_asking(QUIET))
            await call.read()
        self.tally.idle += 1
        there.set_result(None)
        await call.read()
        self.tally.idle_ended += 1

    async def _deaf(self, stub: Any) -> None:
        call = stub.Subscribe(_asking(BUSY))
        await call.wait_for_connection()
        self.tally.deaf += 1
        await asyncio.Event().wait()

    async def slow(self, kind: int) -> None:
        """Connects and says nothing, or half of what opens a connection, or headers without end."""
        host, _, port = self.target.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        begun = (b"", PREFACE[:10], PREFACE + _SETTINGS + _HEADERS_BEGUN)[kind]
        writer.write(begun)
        closed = asyncio.ensure_future(reader.read())
        try:
            while not closed.done():
                await asyncio.wait([closed], timeout=_TRICKLE_S)
                if kind == TRICKLING and not closed.done():
                    writer.write(b"\x00")
                    await writer.drain()
        except OSError:
            pass
        self.tally.slow_closed += kind != TRICKLING
        writer.close()

    async def _flood(self, node_id: str, *, reads: bool) -> None:
        """Ticks that must be refused, as fast as they are taken."""
        stub: Any = node_grpc.NodeServiceStub(self._channel())
        while True:
            try:
                joined = await stub.JoinNode(
                    node_pb.JoinNodeRequest(pipeline=BUSY, node_id=node_id, kind="bad")
                )
                call = stub.CommitTicks()
                attach = node_pb.Attach(pipeline=BUSY, key=joined.key)
                await call.write(node_pb.CommitTicksRequest(attach=attach))
                reading = asyncio.ensure_future(self._read(call)) if reads else None
                content = pb.TickContent(heartbeats=[pb.Heartbeat(front="nobody", slot=1)])
                tick = node_pb.NumberedTick(number=1, content=content)
                while reading is None or not reading.done():
                    for _ in range(_SOME_TICKS):
                        await call.write(node_pb.CommitTicksRequest(tick=tick))
                        self.tally.bad_ticks += 1
                    await asyncio.sleep(0)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
                self.tally.cut_off += not reads
                await asyncio.sleep(_TRICKLE_S)  # paces: the load

    async def _read(self, call: Any) -> None:
        while (answer := await call.read()) is not grpc.aio.EOF:
            self.tally.refusals += answer.WhichOneof("message") == "refused"

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for channel in self._channels:
            await channel.close()


def _asking(pipeline: str) -> AsyncIterator[progress_pb.SubscribeRequest]:
    async def requests() -> AsyncIterator[progress_pb.SubscribeRequest]:
        yield progress_pb.SubscribeRequest(subscribe=progress_pb.Subscription(pipeline=pipeline))

    return requests()


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    for name in ("--subscribers", "--deaf", "--slow"):
        parser.add_argument(name, type=int, required=True)
    given = parser.parse_args()
    crowd = Crowd(given.target)
    await crowd.gather(given.subscribers, given.deaf, given.slow)
    print(json.dumps(asdict(crowd.tally)), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print(json.dumps(asdict(crowd.tally)), flush=True)
    await crowd.end()


if __name__ == "__main__":
    asyncio.run(main())
