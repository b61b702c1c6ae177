"""The links between processes: each opens one stream to each other and sends its frames there.

Frames that find no room, or are on their way when a stream breaks, are lost; the protocol sends again
what matters.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import grpc
import structlog

from acker.v1 import peer_service_pb2 as peer_pb
from acker.v1 import peer_service_pb2_grpc as peer_grpc
from tracker.client.credentials import Credentials
from tracker.client.errors import refusal_of
from tracker.core import log as m
from tracker.core.membership.step_checks import MAX_ADDRESS_CHARACTERS
from tracker.core.model import RefusalCode, Refused
from tracker.core.process.checking import check_frame
from tracker.service.cluster.addresses import Addresses
from tracker.service.cluster.outgoing import MAX_QUEUED_FRAMES, Outgoing
from tracker.service.engine import Engine
from tracker.service.failpoints import failpoint
from tracker.service.rpc.access import Peers
from tracker.service.rpc.errors import Context
from tracker.service.tasks import end, unless
from tracker.store import Leases, StoreError
from tracker.wire.frames import frame_from_pb, frame_to_pb, write_frame
from tracker.wire.grpc_options import CHANNEL_OPTIONS, MAX_MESSAGE_BYTES
from tracker.wire.storage import snapshot_to_bytes

log = structlog.get_logger(__name__)

MAX_BOOTSTRAPS = 4
"""Shards that may begin with what one process knows at a time: each takes the memory of a snapshot."""
BOOTSTRAP_PIECE_BYTES = 1024 * 1024
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
        """Why the other process did not let this one in, when that was said last."""
        self.shard = shard
        self._addresses = addresses
        self._engine = engine
        self._leases = leases
        self._forwarding = engine.stats.to_shard(shard)
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
        if not self._outgoing.add(frame, time.monotonic_ns()):
            self._forwarding.dropped_frames += 1
            log.warning("frame_dropped", to_shard=self.shard, limit=MAX_QUEUED_FRAMES)
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
                    # Not wait_for: before Python 3.12 it may swallow that this task is cancelled.
                    async with asyncio.timeout(CONNECT_TIMEOUT_S):
                        await call.wait_for_connection()
                    began_s = clock()
                    try:
                        await self._pump(call)
                    finally:
                        # A process that refuses ends the stream at once: no hurry then.
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
            if error.code() in _NOT_LET_IN and reason != self._refused:
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
            from_shard=here, epoch=process.epoch, address=self._addresses[here]
        )
        await call.write(hello)
        log.info("peer_connected", shard=self.shard)
        self._engine.post(m.PeerConnected(self.shard))
        ended = asyncio.ensure_future(call.read())
        ended.add_done_callback(lambda _: self._news.set())
        try:
            while not ended.done():
                if not await self._due():
                    continue
                for message, frames in _messages(self._outgoing.take(time.monotonic_ns())):
                    if ended.done():
                        break
                    await self._send(call, message, frames)
        finally:
            call.cancel()
            await end(ended)
            log.info("peer_disconnected", shard=self.shard)
            self._engine.post(m.PeerDisconnected(self.shard))
        if ended.done() and not ended.cancelled():
            ended.result()  # raises why, if the other process has said it

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

    async def _send(
        self, call: grpc.aio.StreamStreamCall[Any, Any], message: peer_pb.ExchangeRequest,
        frames: Sequence[m.Frame],
    ) -> None:  # fmt: skip
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
                self._forwarding.sent(frame.body.first + len(frame.body.entries) - 1)

    def _cannot_send(self, message: peer_pb.ExchangeRequest, frames: Sequence[m.Frame]) -> None:
        """What the other process would refuse for its size is not sent, and said each time: until somebody
        has done something about it, min time stands."""
        self._forwarding.too_large_messages += 1
        bodies = [frame.body for frame in frames]
        log.error(
            "message_too_large",
            to_shard=self.shard,
            bytes=message.ByteSize(),
            limit=MAX_MESSAGE_BYTES,
            frames=[type(body).__name__ for body in bodies],
            entries=[
                f"{body.first} to {body.first + len(body.entries) - 1}: "
                f"{sorted({type(entry).__name__ for entry in body.entries})}"
                for body in bodies
                if isinstance(body, m.Entries)
            ],
        )

    async def stop(self) -> None:
        await end(self._task)


def _messages(
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


class PeerServicer:
    """Takes the frames of other processes."""

    def __init__(
        self,
        engine: Engine,
        addresses: Addresses,
        peers: Peers,
        cannot_dial: str,
    ) -> None:
        """`peers`: who may act as a shard. cannot_dial: why this process could not reach another one, if
        so."""
        self._cannot_dial = cannot_dial
        self._peers = peers
        self._engine = engine
        self._addresses = addresses
        self._closing = asyncio.Event()
        self._bootstraps = 0
        self.heard_of: Callable[[int, str], None] = lambda shard, address: None
        """Told who begins a stream, and where it is reached."""

    def close(self) -> None:
        """Ends the streams of the other processes; what they had under way, they send again."""
        self._closing.set()

    async def Exchange(
        self, request_iterator: AsyncIterator[peer_pb.ExchangeRequest], context: Context
    ) -> None:
        await self._peers.check(context, "Exchange")
        await self._check_destination(context)
        await context.send_initial_metadata(())
        try:
            await unless(self._closing, self._read(request_iterator))
        except Refused as refused:
            log.error("frame_refused", reason=refused.refusal.message)
            raise

    def _check_known(self, shard: int) -> None:
        """Raises Refused(FENCED) for a shard that was joining and is not waited for any more."""
        known = self._engine.process.membership
        if shard < known.next_shard and not known.knows(shard):
            raise Refused(
                RefusalCode.FENCED,
                f"shard {shard} has been given up: it had not begun within the time for joining "
                "(--join-timeout-ms of shard 0); start its process again, and it gets another number",
            )

    def _check_not_reborn(self, shard: int, report: m.ShardReport) -> None:
        """Raises Refused(FENCED) for a process of a shard that has left and does not know: it was started
        with a store that is empty, or older."""
        last = self._engine.process.membership.former.get(shard)
        if last is not None and dict(report.applied).get(shard, 0) < last:
            raise Refused(
                RefusalCode.FENCED,
                f"shard {shard} has left the tracker, and this process was started for it with a store "
                "that does not say so; to have one more shard, start it with --join and another store",
            )

    async def JoinShard(
        self, request: peer_pb.JoinShardRequest, context: Context
    ) -> peer_pb.JoinShardResponse:
        await self._peers.check(context, "JoinShard")
        if self._cannot_dial:
            raise Refused(
                RefusalCode.INVALID,
                f"shard {self._engine.process.shard} was started for itself alone, and cannot reach "
                f"a second one: {self._cannot_dial}; then start it again",
            )
        event = m.JoinShard(object(), _checked_address(request.address))
        number: m.ShardNumber = await self._engine.ask(event)
        return peer_pb.JoinShardResponse(shard=number.shard)

    async def Bootstrap(self, request: peer_pb.BootstrapRequest, context: Context) -> None:
        await self._peers.check(context, "Bootstrap")
        if self._bootstraps >= MAX_BOOTSTRAPS:
            raise Refused(
                RefusalCode.NOT_READY,
                f"{self._bootstraps} shards begin with what this process knows, the limit is "
                f"{MAX_BOOTSTRAPS}; ask another process, or again",
            )
        self._bootstraps += 1
        try:
            await self._hand_out(request.shard, context)
        finally:
            self._bootstraps -= 1

    async def _hand_out(self, shard: int, context: Context) -> None:
        self._check_known(shard)
        snapshot = self._engine.process.bootstrap_snapshot(shard)
        assert snapshot.membership is not None
        # Those who were there from the start are found by a list that a newcomer has not been given.
        snapshot.membership.addresses = dict(self._addresses)
        # The snapshot is a copy: nothing changes it while another thread writes it down.
        data = await asyncio.to_thread(snapshot_to_bytes, snapshot)
        log.info("hands_out_state", to_shard=shard, bytes=len(data))
        for start in range(0, len(data), BOOTSTRAP_PIECE_BYTES):
            await context.write(
                peer_pb.BootstrapResponse(
                    total_bytes=len(data), piece=data[start : start + BOOTSTRAP_PIECE_BYTES]
                )
            )
            failpoint("bootstrap-piece")

    async def _check_destination(self, context: Context) -> None:
        """Ends a stream that is not meant for this shard, before anything of it is read."""
        here = str(self._engine.process.shard)
        metadata: dict[str, Any] = dict(context.invocation_metadata() or ())
        named = metadata.get(TO_SHARD_KEY)
        if named is None:
            raise Refused(
                RefusalCode.INVALID,
                f"the stream does not say in {TO_SHARD_KEY} which shard it is meant for",
            )
        if named != here:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"the stream is meant for shard {named}, and shard {here} is served here; "
                "ask the store where that shard is",
            )

    def _look_for_strangers(self, shard: int, report: m.ShardReport, told: set[int]) -> None:
        """Says once a stream of each shard that another process counts and this one has never heard of.
        It is waited for: its joining may be on its way. If this is said again and again, the processes
        were started with different lists of shards."""
        process = self._engine.process
        strangers = set(process.unknown_homes(report)) - told
        if strangers:
            told |= strangers
            log.warning(
                "report_passed_over",
                from_shard=shard,
                names_shards=sorted(strangers),
                known_shards=sorted(process.membership.members),
            )

    async def _read(self, requests: AsyncIterator[peer_pb.ExchangeRequest]) -> None:
        strangers: set[int] = set()
        async for request in requests:
            self._check_known(request.from_shard)
            if request.address:
                self._addresses.learn(request.from_shard, request.epoch, request.address)
                self.heard_of(request.from_shard, request.address)
            if request.WhichOneof("frame") is None:
                continue  # the first message of a stream says who it is, and where
            for message in (request, *request.following):
                self._check_known(message.from_shard)
                frame = frame_from_pb(message)
                check_frame(self._engine.process, frame)
                if isinstance(frame.body, m.ShardReport):
                    self._check_not_reborn(frame.shard, frame.body)
                    self._look_for_strangers(frame.shard, frame.body, strangers)
                if isinstance(frame.body, m.EntriesReceived):
                    self._engine.stats.to_shard(frame.shard).confirmed(frame.body.number)
                self._engine.post(m.FrameArrived(frame))
                await self._engine.room_to_write()


def nobody_reaches(address: str) -> bool:
    """Whether an address is one to listen on alone: no other machine reaches this one there."""
    return address.rpartition(":")[0].strip("[]") in ("0.0.0.0", "::")


def _checked_address(address: str) -> str:
    """Raises Refused(INVALID) for what nobody could be reached at."""
    host, _, port = address.rpartition(":")
    if (
        not host
        or not port.isdigit()
        or not 0 < int(port) < 65_536
        or not host.isprintable()
        or len(address) > MAX_ADDRESS_CHARACTERS
        or nobody_reaches(address)
    ):
        raise Refused(
            RefusalCode.INVALID,
            f"{address[:100]!r} is no address at which a shard is reached: host:port, of up to "
            f"{MAX_ADDRESS_CHARACTERS} characters",
        )
    return address
