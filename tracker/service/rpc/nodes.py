"""NodeService: joining, streams of ticks, staged contributions, names of units."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from acker.v1 import node_service_pb2 as node_pb
from tracker.core import log as m
from tracker.core.log.sizes import pieces, staged_bytes
from tracker.core.model import (
    PipelineSpec,
    Refusal,
    RefusalCode,
    Refused,
    StagedContribution,
    TickContent,
)
from tracker.core.model.waits import MAX_WAITS
from tracker.core.process import ProcessConfig
from tracker.service.engine import Engine
from tracker.service.failpoints import failpoint
from tracker.service.rpc.budgets import Budgets
from tracker.service.rpc.errors import Context
from tracker.service.rpc.limits import Bucket, Quotas
from tracker.service.rpc.waiters import WaiterRegistry
from tracker.service.stats import TickCounts
from tracker.service.tasks import end, unless
from tracker.wire.grpc_options import MAX_TICK_BYTES, MAX_TICKS_PER_MESSAGE
from tracker.wire.nodes import grant_to_pb, joined_to_pb, wait_from_pb
from tracker.wire.pipelines import spec_to_pb
from tracker.wire.refusals import invalid, refusal_to_pb, segment_number
from tracker.wire.ticks import (
    content_from_pb,
    contribution_from_pb,
    contribution_to_pb,
    key_from_pb,
)

MAX_UNANSWERED = 10_000
"""Refusals and grants that a node has not read; a node that lets more gather is cut off."""
MANY_TICKS = 1_000
"""Ticks that were handed over, for which it is worth while to look which are durable."""
MAX_RESOLVE_WAIT_MS = 60_000
MAX_RESOLVE_NAMES = 100_000
MAX_STAGED_PAGE_BYTES = 16 * 1024 * 1024
"""Of staged contributions that are listed at a time; a larger one is alone on its page."""
MANY_NAMES = 1_000
"""Calls that wait for more look one after the other, and leave most of the time between two looks to others."""
SHARE_OF_LOOKS = 4
"""After a look for many names so many times what it took is for others."""


class TickStream:
    """One stream of ticks: gathers what the process says until the stream can take it."""

    def __init__(self) -> None:
        self.spec: PipelineSpec | None = None
        self.counts = TickCounts()
        self.ended_by: Refusal | None = None
        self.failure: Exception | None = None
        """What kept a tick from being taken that was no refusal: a fault of ours."""
        self.overflows = asyncio.Event()
        """Set when the node leaves too many answers unread: the one that is being written may never be taken."""
        self._unanswered: set[int] = set()
        """Ticks handed over, and not refused. Those up to the last durable one stay for a while."""
        self._last_durable = 0
        self._looked_at_above = MANY_TICKS
        """With more unanswered ticks, it is looked which of them are durable by now."""
        self._attached: int | None = None
        self._durable: int | None = None
        self._changed = False
        self._others: list[node_pb.CommitTicksResponse] = []
        self._news = asyncio.Event()

    def handed(self, ticks: Sequence[m.SubmitTick]) -> None:
        """Ticks are handed to the process."""
        counts, unanswered = self.counts, self._unanswered
        counts.ticks += len(ticks)
        if len(unanswered) > self._looked_at_above:
            self._forget_durable()
            unanswered = self._unanswered
        for tick in ticks:
            unanswered.add(tick.number)
            counts.created += tick.content.created.size
            counts.consumed += tick.content.consumed.size

    @property
    def goes_on(self) -> bool:
        """Whether nothing has ended it."""
        return self.ended_by is None and self.failure is None

    @property
    def answered(self) -> bool:
        """Whether every tick handed over is durable or refused, and all of that was taken to be written."""
        self._forget_durable()
        untaken = self._attached is not None or self._durable is not None or bool(self._others)
        return not self._unanswered and not untaken

    def _forget_durable(self) -> None:
        # Those that were accepted stand in the order of their numbers.
        self._unanswered = {n for n in self._unanswered if n > self._last_durable}
        self._looked_at_above = 2 * len(self._unanswered) + MANY_TICKS

    def attached(self, last_number: int) -> None:
        self._attached = last_number
        self._news.set()

    def ended(self, refusal: Refusal) -> None:
        self.ended_by = refusal
        self._news.set()

    def failed(self, error: Exception) -> None:
        self.failure = error
        self._news.set()

    def durable(self, number: int) -> None:
        self._durable = self._last_durable = number
        self._news.set()

    def refused(self, number: int, refusal: Refusal) -> None:
        self._unanswered.discard(number)
        self.counts.refuse(refusal)
        message = node_pb.CommitTicksResponse()
        message.refused.number = number
        message.refused.refusal.CopyFrom(refusal_to_pb(refusal))
        self._add(message)

    def granted(self, grant: m.Grant) -> None:
        assert self.spec is not None
        self._add(node_pb.CommitTicksResponse(grant=grant_to_pb(grant, self.spec)))

    def changed(self, spec: PipelineSpec) -> None:
        """A pipeline has become `spec`. A node that does not read gets the newest."""
        if self.spec is not None and spec.name == self.spec.name:
            self.spec, self._changed = spec, True
            self._news.set()

    def _add(self, message: node_pb.CommitTicksResponse) -> None:
        """Behind what was durable before it: what a node hears of a front that is durable to have left by then is of the next one of the name."""
        self._keep_durable()
        self._others.append(message)
        if len(self._others) > MAX_UNANSWERED:
            self.ended_by = Refusal(
                RefusalCode.FULL,
                f"the node has left {len(self._others)} answers unread, the limit is "
                f"{MAX_UNANSWERED}; read the stream while ticks are sent",
            )
            self.overflows.set()
        self._news.set()

    def wake(self) -> None:
        """Lets `next_messages` return, with nothing if nothing has gathered."""
        self._news.set()

    async def next_messages(self) -> list[node_pb.CommitTicksResponse]:
        """What has gathered, in order; only the newest of the durable numbers. Waits for some."""
        await self._news.wait()
        self._news.clear()
        messages: list[node_pb.CommitTicksResponse] = []
        if self._attached is not None:
            assert self.spec is not None
            attached = node_pb.Attached(
                last_number=self._attached,
                keep_alive_ms=self.spec.keep_alive_ms,
                max_ticks_per_message=MAX_TICKS_PER_MESSAGE,
                spec=spec_to_pb(self.spec),
            )
            messages.append(node_pb.CommitTicksResponse(attached=attached))
            self._attached, self._changed = None, False
        if self._changed and self.spec is not None:
            messages.append(node_pb.CommitTicksResponse(changed=spec_to_pb(self.spec)))
            self._changed = False
        self._keep_durable()
        messages.extend(self._others)
        self._others = []
        return messages

    def _keep_durable(self) -> None:
        """The newest of the durable numbers gets its place among the rest."""
        if self._durable is not None:
            committed = node_pb.TicksCommitted(number=self._durable)
            self._others.append(node_pb.CommitTicksResponse(committed=committed))
            self._durable = None


def _content(tick: node_pb.NumberedTick) -> TickContent:
    """What a tick carries. Raises Refused where that is malformed, or too much."""
    content = content_from_pb(tick.content)
    size = len(content.told or b"")
    if size > MAX_TICK_BYTES:
        raise invalid(
            f"a tick of {size} bytes is over the limit of {MAX_TICK_BYTES} bytes; commit smaller ticks",
        )
    return content


def _ticks(request: node_pb.CommitTicksRequest) -> Sequence[node_pb.NumberedTick]:
    """Those of a message, in their order. Raises Refused where it has too many."""
    if request.HasField("tick"):
        return (request.tick,)
    ticks = request.ticks.ticks
    if len(ticks) > MAX_TICKS_PER_MESSAGE:
        raise invalid(
            f"a message of {len(ticks)} ticks, the limit is {MAX_TICKS_PER_MESSAGE}; send the rest in another"
        )
    return ticks


def _staged_bytes(contribution: StagedContribution) -> int:
    return staged_bytes(("", contribution))


class NodeServicer:
    """Serves nodes whose home this process is; sends others there."""

    def __init__(
        self,
        engine: Engine,
        units: WaiterRegistry[tuple[str, int]],
        quotas: Quotas | None = None,
        budgets: Budgets | None = None,
    ) -> None:
        self._budgets = budgets or Budgets(engine.process, ProcessConfig())
        self._quotas = quotas or Quotas()
        self._engine = engine
        self._units = units
        self._looking = asyncio.Lock()
        """Held by the call that looks for many names."""

    async def JoinNode(
        self, request: node_pb.JoinNodeRequest, context: Context
    ) -> node_pb.JoinNodeResponse:
        r = request
        self._budgets.check_join(r.pipeline, r.node_id)
        event = m.JoinNode(
            object(), r.pipeline, r.node_id, r.kind, r.owner, r.take_over, r.check_only,
            r.known_incarnation, r.known_ticks, r.known_generation, r.joining,
            r.never_left,
        )  # fmt: skip
        return joined_to_pb(await self._ask(event))

    async def _ask(self, event: m.Event) -> Any:
        """As `Engine.ask`; but that what a node knows of is gone, only the owner knows. Raises Refused."""
        try:
            return await self._engine.ask(event)
        except Refused as refused:
            if refused.refusal.code is RefusalCode.LOST:
                self._engine.check_lease()
            raise

    async def LeaveNode(
        self, request: node_pb.LeaveNodeRequest, context: Context
    ) -> node_pb.LeaveNodeResponse:
        key = key_from_pb(request.key)
        generation = request.generation if request.HasField("generation") else None
        await self._ask(m.LeaveNode(object(), request.pipeline, key, generation))
        return node_pb.LeaveNodeResponse()

    async def CommitTicks(
        self,
        request_iterator: AsyncIterator[node_pb.CommitTicksRequest],
        context: Context,
    ) -> None:
        with self._quotas.stream(context):
            await self._serve_stream(request_iterator, context)

    async def _serve_stream(
        self, requests: AsyncIterator[node_pb.CommitTicksRequest], context: Context
    ) -> None:
        """Serves a stream of ticks to its end. Raises Refused."""
        stream = TickStream()
        reading = asyncio.ensure_future(self._read(requests, stream))
        reading.add_done_callback(lambda _: stream.wake())
        try:
            await unless(stream.overflows, self._tell(stream, reading, context))
            if stream.failure is not None:
                raise stream.failure
            if stream.ended_by is None:
                await reading  # raises what ended it
        except Refused as refused:
            stream.ended_by = refused.refusal
        finally:
            try:
                await end(reading)
            finally:  # the call may be cancelled just as it has ended by itself
                self._engine.remove_session(stream)
        if stream.ended_by is not None:
            ended = stream.ended_by
            if ended.code is RefusalCode.NOT_HOME:
                # Sent away because shards change: its new home takes it up no sooner.
                await self._engine.taken_up()
            raise Refused.of(ended)

    async def _tell(
        self, stream: TickStream, reading: asyncio.Future[None], context: Context
    ) -> None:
        """Writes what becomes of a node's ticks. A node that has sent all may close its half: what it handed over is
        still answered."""
        while stream.goes_on and not (reading.done() and stream.answered):
            for message in await stream.next_messages():
                await context.write(message)
                if message.WhichOneof("message") == "committed":
                    failpoint("acknowledge-after")
            if reading.done() and reading.exception() is not None:
                break

    async def _read(
        self,
        requests: AsyncIterator[node_pb.CommitTicksRequest],
        stream: TickStream,
    ) -> None:
        engine, rate, loop = self._engine, None, asyncio.get_running_loop()
        async for request in requests:
            what = request.WhichOneof("message")
            if what == "keep_alive" and stream.spec is not None:
                engine.post(m.NodeAlive(stream))
                continue
            ticks = _ticks(request)
            if rate is not None:
                for _ in ticks or (request,):
                    await self._pause(rate, stream)
            if ticks:
                if stream.spec is None:
                    raise invalid("a tick came before attach; attach first")
                # Taken in the loop's next turn: gRPC's threads fetch the next one in the meantime.
                loop.call_soon(self._take_ticks, ticks, stream)
                await engine.room()
            elif what == "status" and stream.spec is not None:
                loop.call_soon(self._take_status, request.status, stream)
            elif what == "attach" and stream.spec is None:
                name = engine.process.spec(request.attach.pipeline).name
                stream.counts = engine.stats.pipelines[name]
                rate = self._quotas.ticks_of(name)
                key = key_from_pb(request.attach.key)
                home = engine.process.routing.home(name, key.node_id)
                if home == engine.process.shard:
                    await engine.taken_up()
                engine.check_lease()  # which may have ended meanwhile
                stream.spec = engine.process.spec(name)  # from here on it hears of changes
                engine.add_session(stream, stream)
                said = request.attach.HasField("generation")
                generation = request.attach.generation if said else None
                engine.post(m.AttachSession(stream, request.attach.pipeline, key, generation))
            else:
                raise invalid(
                    f"a stream begins with one attach, then ticks and status; got {what}",
                )
        await asyncio.sleep(0)  # until the last tick is taken

    async def _pause(self, rate: Bucket, stream: TickStream) -> None:
        """Waits until the next of a rate is due. The node is not silent meanwhile: it is not read."""
        left_s = rate.take()
        while left_s > 0:
            self._engine.post(m.NodeAlive(stream))
            assert stream.spec is not None
            step_s = min(left_s, (stream.spec.keep_alive_ms / 1000) or left_s)
            await asyncio.sleep(step_s)
            left_s -= step_s

    def _take_ticks(self, ticks: Sequence[node_pb.NumberedTick], stream: TickStream) -> None:
        """Those of a message, all at once. What cannot be read is answered behind what came before it: a node
        goes by the order of what is refused."""
        taken: list[m.SubmitTick] = []
        for tick in ticks:
            if not stream.goes_on:
                return
            try:
                taken.append(m.SubmitTick(stream, tick.number, _content(tick)))
            except Refused as refused:
                self._hand_over(taken, stream)
                taken = []
                stream.refused(tick.number, refused.refusal)
            except Exception as error:
                self._hand_over(taken, stream)
                stream.failed(error)
                return
        self._hand_over(taken, stream)

    def _hand_over(self, taken: Sequence[m.SubmitTick], stream: TickStream) -> None:
        """Gives ticks to the process, unless the stream has ended."""
        if not taken or not stream.goes_on:
            return
        try:
            stream.handed(taken)
            self._engine.post(m.SubmitTicks(taken))
        except Exception as error:
            stream.failed(error)

    def _take_status(self, status: node_pb.NodeStatus, stream: TickStream) -> None:
        try:
            # One more than may be: the core refuses that by its number.
            waits = tuple(wait_from_pb(wait) for wait in status.waits[: MAX_WAITS + 1])
            self._engine.post(m.ReportWaits(stream, waits))
        except Exception as error:
            stream.failed(error)

    async def StageContributions(
        self, request: node_pb.StageContributionsRequest, context: Context
    ) -> node_pb.StageContributionsResponse:
        contributions = tuple(contribution_from_pb(c) for c in request.contributions)
        await self._engine.room()
        await self._ask(
            m.StageContributions(object(), request.pipeline, request.node_id, contributions)
        )
        return node_pb.StageContributionsResponse()

    async def ListContributions(
        self, request: node_pb.ListContributionsRequest, context: Context
    ) -> node_pb.ListContributionsResponse:
        self._engine.check_lease()
        staged: Sequence[StagedContribution] = self._engine.process.staged(
            request.pipeline, request.node_id, request.query, request.batch
        )
        page = staged
        if request.by_pages:
            left = sorted(staged, key=lambda c: c.key)[max(0, request.skip) :]
            page = next(pieces(left, _staged_bytes, MAX_STAGED_PAGE_BYTES), ())
            staged = left
        return node_pb.ListContributionsResponse(
            contributions=[contribution_to_pb(c) for c in page], more=len(page) < len(staged)
        )

    async def ResolveUnits(
        self, request: node_pb.ResolveUnitsRequest, context: Context
    ) -> node_pb.ResolveUnitsResponse:
        process = self._engine.process
        segment = segment_number(process.spec(request.pipeline), request.segment)
        if not 0 <= request.wait_ms <= MAX_RESOLVE_WAIT_MS or (
            len(request.names) > MAX_RESOLVE_NAMES
        ):
            raise invalid(
                f"asked for {len(request.names)} units, waiting {request.wait_ms} ms; the limits "
                f"are {MAX_RESOLVE_NAMES} and {MAX_RESOLVE_WAIT_MS}",
            )
        deadline = asyncio.get_running_loop().time() + request.wait_ms / 1000
        while True:
            with self._units.waiter((request.pipeline, segment)) as waiter:
                slots = await self._resolved(request.pipeline, segment, request.names)
                missing = [index for index, slot in enumerate(slots) if slot is None]
                if not missing or not await waiter.until(deadline):
                    return node_pb.ResolveUnitsResponse(
                        slots=[slot or 0 for slot in slots], missing=missing
                    )

    async def _resolved(
        self, pipeline: str, segment: int, names: Sequence[str]
    ) -> Sequence[int | None]:
        """The slots of units by name, as they are now. Raises Refused."""
        if len(names) <= MANY_NAMES:
            self._engine.check_lease()
            return self._engine.process.resolve_units(pipeline, segment, names)
        clock = asyncio.get_running_loop().time
        async with self._looking:
            began_s = clock()
            self._engine.check_lease()
            slots = self._engine.process.resolve_units(pipeline, segment, names)
            await asyncio.sleep(SHARE_OF_LOOKS * (clock() - began_s))
        return slots
