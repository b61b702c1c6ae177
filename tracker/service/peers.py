"""The links between processes: each opens one stream to each other and sends its frames there.

Frames that find no room, or are on their way when a stream breaks, are lost; the protocol sends again
what matters.
"""

from __future__ import annotations

import asyncio
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


class PeerLink:
    """Sends frames to one other shard, and reconnects for ever."""

    def __init__(self, shard: int, address: str, engine: Engine) -> None:
        self.shard = shard
        self.address = address
        self._engine = engine
        self._queue: asyncio.Queue[m.Frame] = asyncio.Queue(MAX_QUEUED_FRAMES)
        self._task = asyncio.get_running_loop().create_task(self._run())

    def offer(self, frame: m.Frame) -> None:
        """Queues a frame, or drops it if there is no room."""
        try:
            self._queue.put_nowait(frame)
        except asyncio.QueueFull:
            log.warning("frame_dropped", to_shard=self.shard, limit=MAX_QUEUED_FRAMES)

    async def _run(self) -> None:
        delay_s = RECONNECT_FIRST_S
        while True:
            try:
                async with grpc.aio.insecure_channel(self.address, CHANNEL_OPTIONS) as channel:
                    call = peer_grpc.PeerServiceStub(channel).Exchange()
                    await asyncio.wait_for(call.wait_for_connection(), CONNECT_TIMEOUT_S)
                    delay_s = RECONNECT_FIRST_S
                    await self._pump(call)
            except (grpc.aio.AioRpcError, grpc.aio.UsageError, TimeoutError) as error:
                reason = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
                log.debug("peer_unreachable", shard=self.shard, reason=reason)
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, RECONNECT_MOST_S)

    async def _pump(self, call: grpc.aio.StreamStreamCall[Any, Any]) -> None:
        while not self._queue.empty():  # meant for a stream that is gone
            self._queue.get_nowait()
        log.info("peer_connected", shard=self.shard)
        self._engine.post(m.PeerConnected(self.shard))
        ended = asyncio.ensure_future(call.read())
        try:
            while not ended.done():
                frame = asyncio.ensure_future(self._queue.get())
                await asyncio.wait((frame, ended), return_when=asyncio.FIRST_COMPLETED)
                if not frame.done():
                    frame.cancel()
                    break
                await call.write(convert.frame_to_pb(frame.result()))
                while not self._queue.empty():
                    await call.write(convert.frame_to_pb(self._queue.get_nowait()))
        finally:
            ended.cancel()
            call.cancel()
            log.info("peer_disconnected", shard=self.shard)
            self._engine.post(m.PeerDisconnected(self.shard))

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


class PeerServicer:
    """Takes the frames of other processes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def Exchange(
        self,
        request_iterator: AsyncIterator[peer_pb.ExchangeRequest],
        context: Context,
    ) -> None:
        await context.send_initial_metadata(())
        async for request in request_iterator:
            try:
                frame = convert.frame_from_pb(request)
            except Refused as refused:
                log.error("frame_refused", reason=refused.refusal.message)
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, refused.refusal.message)
            self._engine.post(m.FrameArrived(frame))
            await self._engine.room_to_write()
