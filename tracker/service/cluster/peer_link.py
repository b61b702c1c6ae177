"""The link to one other process: a stream, which is opened again for ever, and the frames that go there.

Frames that find no room, or are on their way when a stream breaks, are lost; the protocol sends again
what matters.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import grpc
import structlog

from acker.v1 import peer_service_pb2 as peer_pb
from acker.v1 import peer_service_pb2_grpc as peer_grpc
from tracker import __version__
from tracker.client.credentials import Credentials
from tracker.client.refusals import refusal_of
from tracker.core import log as m
from tracker.core.model import RefusalCode
from tracker.errors import InvalidError
from tracker.service.cluster.addresses import Addresses
from tracker.service.cluster.outgoing import MAX_QUEUED_FRAMES, Outgoing
from tracker.service.engine import Engine
from tracker.service.failpoints import failpoint
from tracker.service.tasks import end
from tracker.store import Leases, StoreError
from tracker.wire.frames import frame_to_pb, write_frame
from tracker.wire.grpc_options import CHANNEL_OPTIONS, MAX_MESSAGE_BYTES

log = structlog.get_logger(__name__)

FULL_MESSAGE_BYTES = 1024 * 1024
"""A message of this size takes no more frames."""
RECONNECT_FIRST_S = 0.05
RECONNECT_MOST_S = 0.25
CONNECT_TIMEOUT_S = 5.0

_STREAM_ENDS = (
    grpc.aio.AioRpcError,
    grpc.aio.UsageError,
    asyncio.InvalidStateError,  # a write to a call that has just ended
    TimeoutError,
    InvalidError,  # own files that cannot be read now: they are being renewed, or gone
)


_NOT_LET_IN = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)

TO_SHARD_KEY = "lowmark-to-shard"
"""Metadata of a stream: the number of the shard that it is meant for. Where a shard was served, another
one may be by now, and must take nothing of what was meant for the first."""

_FAILPOINTS: dict[type, str] = {m.Entries: "forward", m.ShardReport: "report"}


class GivenUp(Exception):
    """This process was to become a shard, and the others wait for it no more; or it was one that has left,
    and does not know."""


class PeerLink:
    """Sends frames to one other shard, wherever that is, and reconnects for ever."""

    def __init__(
        self,
        shard: int,
        addresses: Addresses,
        engine: Engine,
        leases: Leases | None,
        credentials: Credentials | None = None,
    ) -> None:
        """`credentials`: how this process shows itself to the other one."""
        self._credentials = credentials or Credentials()
        self._refused: str | None = None
        """The last reason that was logged why the other process did not let this one in."""
        self.shard = shard
        self._addresses = addresses
        self._engine = engine
        self._leases = leases
        self._forwarding = engine.stats.forwarding[shard]
        self._outgoing = Outgoing()
        self._news = asyncio.Event()
        self._ending = False
        self._hurries = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())
        addresses.on_move(shard, self._redirect)

    def _redirect(self) -> None:
        """The shard has moved: leaves the stream to its old place, which may never end by itself."""
        log.info("peer_moved", shard=self.shard, address=self._addresses[self.shard])
        before, loop = self._task, asyncio.get_running_loop()

        async def after() -> None:
            await end(before)
            await self._run()

        if asyncio.current_task() is not before:
            self._task = loop.create_task(after())

    def finish(self) -> None:
        """The shard has left: the link ends with the stream that there is, or when there is none to be
        had. Until then its process may wait to hear that its last entry has come."""
        self._ending = True

    def hurry(self) -> None:
        """The other process is there: the next attempt to connect is made now."""
        self._hurries.set()

    @property
    def ended(self) -> bool:
        return self._task.done()

    @property
    def queued(self) -> int:
        """Frames that wait to be sent."""
        return len(self._outgoing)

    def offer(self, frame: m.Frame) -> None:
        """Queues a frame, or drops it if there is no room."""
        due_before = self._outgoing.due_ns
        self._outgoing.links = max(1, len(self._engine.process.links))
        if not self._outgoing.add(frame, time.monotonic_ns()):
            self._forwarding.dropped_frames += 1
            dropped = self._outgoing.dropped
            # Twice as many as when it was said last: a store may be away for hours.
            if dropped.bit_count() == 1:
                log.warning(
                    "frame_dropped", to_shard=self.shard, dropped=dropped, limit=MAX_QUEUED_FRAMES
                )
            return
        if self._outgoing.due_ns != due_before:
            self._news.set()

    async def _run(self) -> None:
        delay_s, address = RECONNECT_FIRST_S, ""
        clock = asyncio.get_running_loop().time
        while True:
            await self._look_up()
            if address != self._addresses[self.shard]:
                address, delay_s = self._addresses[self.shard], RECONNECT_FIRST_S
            try:
                async with self._credentials.aio_channel(address, CHANNEL_OPTIONS) as channel:
                    call = peer_grpc.PeerServiceStub(channel).Exchange(
                        metadata=((TO_SHARD_KEY, str(self.shard)),)
                    )
                    # asyncio.wait_for would do, but before Python 3.12 may swallow a cancellation.
                    async with asyncio.timeout(CONNECT_TIMEOUT_S):
                        await call.wait_for_connection()
                    began_s = clock()
                    try:
                        await self._pump(call)
                    finally:
                        # A process that refuses ends the stream at once; the delay grows then.
                        if clock() - began_s > RECONNECT_MOST_S:
                            delay_s = RECONNECT_FIRST_S
            except _STREAM_ENDS as error:
                self._note_end(error, address)
            except Exception:
                # The link must outlive whatever ended this stream: without it min time holds.
                log.exception("peer_link_failed", shard=self.shard)
            if self._ending:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self._hurries.wait()
            self._hurries.clear()
            delay_s = min(2 * delay_s, RECONNECT_MOST_S)

    def _note_end(self, error: BaseException, address: str) -> None:
        """Reports why a stream has ended, or could not begin: loudly, and once, where this process was not
        let in. Stops the process if its shard is none of the tracker's any more."""
        reason: str | None = str(error)
        if isinstance(error, grpc.aio.AioRpcError):
            reason = error.details()
            refused = refusal_of(error)
            if refused is not None and refused.refusal.code is RefusalCode.FENCED:
                self._engine.fail(GivenUp(refused.refusal.message))
            is_refused = refused is not None and refused.refusal.code is RefusalCode.INVALID
            is_refused = is_refused or error.code() in _NOT_LET_IN
        else:
            is_refused = isinstance(error, InvalidError)
        if is_refused and reason != self._refused:
            log.error("peer_refused", shard=self.shard, address=address, reason=reason)
            self._refused = reason
        log.debug("peer_unreachable", shard=self.shard, reason=reason)

    async def _look_up(self) -> None:
        """Asks the store who owns the shard now."""
        if self._leases is None:
            return
        with suppress(StoreError):  # it will say so to whoever needs it
            lease = await asyncio.to_thread(self._leases.read, self.shard)
            if lease is not None and lease.epoch and not lease.address.endswith(":0"):
                self._addresses.learn(self.shard, lease.epoch, lease.address)

    async def _pump(self, call: grpc.aio.StreamStreamCall[Any, Any]) -> None:
        self._hurries.clear()
        self._outgoing = Outgoing()  # what waits was meant for a stream that is gone
        process, here = self._engine.process, self._engine.process.shard
        hello = peer_pb.ExchangeRequest(
            from_shard=here, epoch=process.epoch, address=self._addresses[here],
            speaks=process.speaks, release=__version__,
        )  # fmt: skip
        await call.write(hello)
        log.info("peer_connected", shard=self.shard)
        self._engine.post(m.PeerConnected(self.shard))
        ended = asyncio.ensure_future(call.read())
        ended.add_done_callback(lambda _: self._news.set())
        try:
            while not ended.done():
                if not await self._due():
                    continue
                for message, frames in messages(self._outgoing.take(time.monotonic_ns())):
                    if ended.done():
                        break
                    await self.send(call, message, frames)
        finally:
            call.cancel()
            await end(ended)
            log.info("peer_disconnected", shard=self.shard)
            self._engine.post(m.PeerDisconnected(self.shard))
        if ended.done() and not ended.cancelled():
            ended.result()  # raises why, if the other process has given a reason

    async def _due(self) -> bool:
        """Whether a message is due; if not, waits until one may be, or the stream has ended."""
        due_ns = self._outgoing.due_ns
        left_s = None if due_ns is None else (due_ns - time.monotonic_ns()) / 1e9
        if left_s is not None and left_s <= 0:
            return True
        loop = asyncio.get_running_loop()
        timer = None if left_s is None else loop.call_later(left_s, self._news.set)
        try:
            await self._news.wait()
            self._news.clear()
        finally:
            if timer is not None:
                timer.cancel()
        return False

    async def send(
        self, call: grpc.aio.StreamStreamCall[Any, Any], message: peer_pb.ExchangeRequest,
        frames: Sequence[m.Frame],
    ) -> None:  # fmt: skip
        """Sends a message on a stream, and counts its frames; one that is too large is left out."""
        if message.ByteSize() > MAX_MESSAGE_BYTES:
            self._cannot_send(message, frames)
            return
        crossed = [_FAILPOINTS.get(type(frame.body), "") for frame in frames]
        for what in crossed:
            failpoint(f"{what}-before")
        await call.write(message)
        self._forwarding.sent_messages += 1
        self._forwarding.sent_bytes += message.ByteSize()
        for what in crossed:
            failpoint(f"{what}-after")
        for frame in frames:
            if isinstance(frame.body, m.Entries):
                self._forwarding.sent(frame.body.last)

    def _cannot_send(self, message: peer_pb.ExchangeRequest, frames: Sequence[m.Frame]) -> None:
        """Logs a message that the other process would refuse for its size, each time: min time stands until
        somebody has done something about it."""
        self._forwarding.too_large_messages += 1
        bodies = [frame.body for frame in frames]
        log.error(
            "message_too_large",
            to_shard=self.shard,
            bytes=message.ByteSize(),
            limit=MAX_MESSAGE_BYTES,
            frames=[type(body).__name__ for body in bodies],
            entries=[
                f"{body.first} to {body.last}: "
                f"{sorted({type(entry).__name__ for entry in body.entries})}"
                for body in bodies
                if isinstance(body, m.Entries)
            ],
        )

    async def stop(self) -> None:
        await end(self._task)


def messages(
    frames: Sequence[m.Frame],
) -> Iterator[tuple[peer_pb.ExchangeRequest, Sequence[m.Frame]]]:
    """The frames in as few messages as may be, and which are in each."""
    first = 0
    while first < len(frames):
        message = frame_to_pb(frames[first])
        end = first + 1
        while end < len(frames) and message.ByteSize() < FULL_MESSAGE_BYTES:
            write_frame(frames[end], message.following.add())
            end += 1
        yield message, frames[first:end]
        first = end
