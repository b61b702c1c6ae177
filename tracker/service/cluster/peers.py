"""What other processes ask of this one: to take their frames, a number for a new shard, a state to begin
with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import grpc
import structlog

from acker.v1 import peer_service_pb2 as peer_pb
from tracker import __version__
from tracker.core import log as m
from tracker.core.insight.describe import StandbyDescription
from tracker.core.membership.membership import Membership
from tracker.core.model import RefusalCode, Refused
from tracker.service.cluster.addresses import Addresses, checked_address
from tracker.service.cluster.peer_link import TO_SHARD_KEY
from tracker.service.cluster.waits import Wait
from tracker.service.engine import Engine
from tracker.service.failpoints import failpoint
from tracker.service.rpc.access import Peers
from tracker.service.rpc.errors import Context
from tracker.service.rpc.standbys import Standbys
from tracker.service.tasks import unless
from tracker.wire.frames import carriers, frame_from_pb
from tracker.wire.refusals import invalid
from tracker.wire.shards import level_from_pb
from tracker.wire.storage import snapshot_to_bytes

log = structlog.get_logger(__name__)

MAX_BOOTSTRAPS = 4
"""Shards that may begin with what one process knows at a time: each takes the memory of a snapshot."""
BOOTSTRAP_PIECE_BYTES = 1024 * 1024
MAX_RELEASE_CHARACTERS = 100
"""Of a longer name of a release, so many are kept."""
MAX_PROCESS_CHARACTERS = 64


class PeerServicer:
    """Serves PeerService to the other processes of a tracker."""

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
        self.standbys = Standbys()
        self._bootstraps = 0
        self.heard_of: Callable[[int, str], None] = lambda shard, address: None
        """Called with the number and the address of each shard that begins a stream."""

    def close(self) -> None:
        """Ends the streams of the other processes; what they had under way, they send again."""
        self._closing.set()

    async def Exchange(
        self, request_iterator: AsyncIterator[peer_pb.ExchangeRequest], context: Context
    ) -> None:
        await self._peers.serve(context, "Exchange", self._exchange(request_iterator, context))

    async def _exchange(
        self, requests: AsyncIterator[peer_pb.ExchangeRequest], context: Context
    ) -> None:
        await self._check_destination(context)
        await context.send_initial_metadata(())
        try:
            await unless(self._closing, self._read(requests))
        except Refused as refused:
            log.error("frame_refused", reason=refused.refusal.message)
            raise

    def _check_known(self, shard: int) -> None:
        """Raises Refused(FENCED) for a shard that was declared lost, or was joining and is not waited for any more."""
        known = self._engine.process.membership
        if known.is_lost(shard):
            raise Refused(RefusalCode.FENCED, _declared_lost(shard, known))
        if shard < known.next_shard and not known.knows(shard):
            raise Refused(
                RefusalCode.FENCED,
                f"shard {shard} has been given up: it had not begun within the time for joining "
                "(join_timeout_ms of the sequencer); start its process again, and it gets another number",
            )

    def _check_release(self, hello: peer_pb.ExchangeRequest) -> None:
        """Raises Refused(INVALID) for a process that could not read what is recorded by now."""
        level, speaks = self._engine.process.membership.level, level_from_pb(hello.speaks)
        if speaks < level:
            raise invalid(
                f"the process of shard {hello.from_shard} at {hello.address} is of release {hello.release[:MAX_RELEASE_CHARACTERS] or 'unknown'} and "
                f"speaks feature levels up to {speaks}; the tracker records by level {level} since its upgrade was finished, "
                f"and this process is of release {__version__}: start that one with this release"
            )
        if self._engine.process.membership.knows(hello.from_shard):
            self._addresses.releases[hello.from_shard] = hello.release[:MAX_RELEASE_CHARACTERS]

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
        number = await self._peers.serve(context, "JoinShard", self._join(request))
        return peer_pb.JoinShardResponse(shard=number.shard)

    async def _join(self, request: peer_pb.JoinShardRequest) -> m.ShardNumber:
        if self._cannot_dial:
            raise invalid(
                f"shard {self._engine.process.shard} was started for itself alone, and cannot reach "
                f"a second one: {self._cannot_dial}; then start it again",
            )
        speaks = level_from_pb(request.speaks)
        if len(request.process) > MAX_PROCESS_CHARACTERS:
            raise invalid(
                f"a process is named by {len(request.process)} characters, the limit is {MAX_PROCESS_CHARACTERS}"
            )
        address = checked_address(request.address)
        event = m.JoinShard(object(), address, speaks, request.process)
        number: m.ShardNumber = await self._engine.ask(event)
        return number

    async def StandBy(
        self, request: peer_pb.StandByRequest, context: Context
    ) -> peer_pb.StandByResponse:
        return await self._peers.serve(context, "StandBy", self._stand_by(request))

    async def _stand_by(self, request: peer_pb.StandByRequest) -> peer_pb.StandByResponse:
        release = request.release[:MAX_RELEASE_CHARACTERS]
        speaks = level_from_pb(request.speaks)
        self.standbys.hear(StandbyDescription(checked_address(request.address), speaks, release))
        return peer_pb.StandByResponse()

    async def Bootstrap(self, request: peer_pb.BootstrapRequest, context: Context) -> None:
        await self._peers.serve(context, "Bootstrap", self._bootstrap(request.shard, context))

    async def _bootstrap(self, shard: int, context: Context) -> None:
        if self._bootstraps >= MAX_BOOTSTRAPS:
            raise Refused(
                RefusalCode.NOT_READY,
                f"{self._bootstraps} shards begin with what this process knows, the limit is "
                f"{MAX_BOOTSTRAPS}; ask another process, or again",
            )
        self._bootstraps += 1
        try:
            await self._hand_out(shard, context)
        finally:
            self._bootstraps -= 1

    async def _hand_out(self, shard: int, context: Context) -> None:
        self._check_known(shard)
        snapshot = self._engine.process.bootstrap_snapshot(shard)
        assert snapshot.membership is not None
        # A newcomer has not been given the addresses of the shards that were there from the start.
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
            raise invalid(
                f"the stream does not say in {TO_SHARD_KEY} which shard it is meant for",
            )
        if named != here:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"the stream is meant for shard {named}, and shard {here} is served here; "
                "ask the store where that shard is",
            )

    def _report_strangers(
        self, shard: int, report: m.ShardReport, strangers: set[int], wait: Wait
    ) -> None:
        """Says which shards another process counts and this one has never heard of. They are waited for: their
        joining may be on its way. Where it does not come, the processes were started with different lists of
        shards. strangers: those that the stream has named so far, and that are still unknown."""
        process = self._engine.process
        known = process.membership
        strangers.update(process.unknown_homes(report))
        strangers.difference_update(known.members, known.former, known.lost)
        if strangers:
            wait.report(
                from_shard=shard,
                names_shards=sorted(strangers),
                known_shards=sorted(known.members),
            )
        else:
            wait.over()

    async def _read(self, requests: AsyncIterator[peer_pb.ExchangeRequest]) -> None:
        strangers, wait = set[int](), Wait(log, "report_passed_over")
        async for request in requests:
            self._check_known(request.from_shard)
            if request.address:
                self._addresses.learn(request.from_shard, request.epoch, request.address)
                self.heard_of(request.from_shard, request.address)
                self._check_release(request)
            if request.WhichOneof("frame") is None:
                continue  # the first message of a stream says who it is, and where
            for message in carriers(request):
                self._check_known(message.from_shard)
                frame = frame_from_pb(message)
                self._engine.process.check_frame(frame)
                if isinstance(frame.body, m.ShardReport):
                    self._check_not_reborn(frame.shard, frame.body)
                    self._report_strangers(frame.shard, frame.body, strangers, wait)
                if isinstance(frame.body, m.EntriesReceived):
                    self._engine.stats.forwarding[frame.shard].confirmed(frame.body.number)
                self._engine.post(m.FrameArrived(frame))
                await self._engine.room_to_write()


def _declared_lost(shard: int, known: Membership) -> str:
    at_ms = known.lost.get(shard)
    if at_ms is None:
        assert known.loss is not None
        at_ms = known.loss.declared.at_ms
    when = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return (
        f"shard {shard} was declared lost by an operator at {when}, or was joining then: the others have gone on without it, and what its store "
        "has does not count any more; to have one more shard, start a process with --join and another store, and rescale"
    )
