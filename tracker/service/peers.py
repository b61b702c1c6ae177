"""The links between processes: each opens one stream to each other and sends its frames there.

Frames that find no room, or are on their way when a stream breaks, are lost; the protocol sends again
what matters.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import grpc
import structlog

from acker.v1 import peer_service_pb2 as peer_pb
from acker.v1 import peer_service_pb2_grpc as peer_grpc
from tracker import convert
from tracker.core import messages as m
from tracker.core.model import Refused
from tracker.grpc_options import CHANNEL_OPTIONS
from tracker.service.engine import Engine
from tracker.service.errors import Context

log = structlog.get_logger(__name__)

MAX_QUEUED_FRAMES = 1_024
RECONNECT_FIRST_S = 0.05
RECONNECT_MOST_S = 1.0
CONNECT_TIMEOUT_S = 5.0

_STREAM_ENDS = (
    grpc.aio.AioRpcError,
    grpc.aio.UsageError,
    asyncio.InvalidStateError,  # a write to a call that has just ended
    TimeoutError,
)


class PeerLink:
    """Sends frames to one other shard, and reconnects for ever."""

    def __init__(self, shard: int, address: str, engine: Engine) -> None:
        self.shard = shard
        self.address = address
        self._engine = engine
        self._frames: deque[m.Frame] = deque()
        self._news = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def offer(self, frame: m.Frame) -> None:
        """Queues a frame, or drops it if there is no room."""
        if len(self._frames) >= MAX_QUEUED_FRAMES:
            log.warning("frame_dropped", to_shard=self.shard, limit=MAX_QUEUED_FRAMES)
            return
        self._frames.append(frame)
        self._news.set()

    async def _run(self) -> None:
        delay_s = RECONNECT_FIRST_S
        while True:
            try:
                async with grpc.aio.insecure_channel(self.address, CHANNEL_OPTIONS) as channel:
                    call = peer_grpc.PeerServiceStub(channel).Exchange()
                    await asyncio.wait_for(call.wait_for_connection(), CONNECT_TIMEOUT_S)
                    delay_s = RECONNECT_FIRST_S
                    await self._pump(call)
            except _STREAM_ENDS as error:
                reason = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
                log.debug("peer_unreachable", shard=self.shard, reason=reason)
            except Exception:
                # The link must outlive whatever ended this stream: without it min time holds.
                log.exception("peer_link_failed", shard=self.shard)
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, RECONNECT_MOST_S)

    async def _pump(self, call: grpc.aio.StreamStreamCall[Any, Any]) -> None:
        self._frames.clear()  # meant for a stream that is gone
        log.info("peer_connected", shard=self.shard)
        self._engine.post(m.PeerConnected(self.shard))
        ended = asyncio.ensure_future(call.read())
        ended.add_done_callback(lambda _: self._news.set())
        try:
            while not ended.done():
                await self._news.wait()
                self._news.clear()
                while self._frames and not ended.done():
                    await call.write(convert.frame_to_pb(self._frames.popleft()))
        finally:
            ended.cancel()
            call.cancel()
            await asyncio.gather(ended, return_exceptions=True)
            log.info("peer_disconnected", shard=self.shard)
            self._engine.post(m.PeerDisconnected(self.shard))

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


class PeerServicer:
    """Takes the frames of other processes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._closing = asyncio.Event()

    def close(self) -> None:
        """Ends the streams of the other processes; what they had under way, they send again."""
        self._closing.set()

    async def Exchange(
        self,
        request_iterator: AsyncIterator[peer_pb.ExchangeRequest],
        context: Context,
    ) -> None:
        await context.send_initial_metadata(())
        reading = asyncio.ensure_future(self._read(request_iterator))
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait((reading, closing), return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                reading.result()  # raises what ended it
        except Refused as refused:
            log.error("frame_refused", reason=refused.refusal.message)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, refused.refusal.message)
        finally:
            reading.cancel()
            closing.cancel()
            await asyncio.gather(reading, closing, return_exceptions=True)

    async def _read(self, requests: AsyncIterator[peer_pb.ExchangeRequest]) -> None:
        async for request in requests:
            self._engine.post(m.FrameArrived(convert.frame_from_pb(request)))
            await self._engine.room_to_write()
