"""ProgressService: subscriptions, min time now, waiting for it.

A subscriber is owed the newest value of each segment, not each value in between: what it has not read
yet is a set of pipelines with news, however slow it is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import grpc

from acker.v1 import progress_service_pb2 as progress_pb
from acker.v1 import types_pb2 as pb
from tracker.core.model import PipelineSpec, Refusal, RefusalCode, Refused
from tracker.core.model.slots import FOREVER
from tracker.core.pipeline.pipelines import gone
from tracker.metrics.latencies import Latencies
from tracker.service.engine import Engine
from tracker.service.failpoints import failpoint
from tracker.service.rpc.errors import Context
from tracker.service.rpc.limits import MAX_SUBSCRIBERS, Quotas
from tracker.service.rpc.telling import Known, Telling
from tracker.service.rpc.waiters import Waiter, WaiterRegistry
from tracker.wire.history import reached_to_pb
from tracker.wire.refusals import invalid, segment_number

PROGRESS = progress_pb.DESCRIPTOR.services_by_name["ProgressService"].full_name
MAX_HISTORY_SLOTS = 10_000
"""Slots that one call may ask the history for."""
MAX_SUBSCRIPTIONS = 10_000
"""Pipelines that one stream may subscribe to."""


class Announced(Protocol):
    """What is announced of pipelines here. Each raises Refused for one that is unknown."""

    def spec(self, pipeline: str) -> PipelineSpec: ...
    def min_times(self, pipeline: str) -> Sequence[int]:
        """Of its segments, by number."""

    def pipeline_min_time(self, pipeline: str) -> int: ...
    def generation(self, pipeline: str) -> int: ...


Asked = (
    progress_pb.Subscription
    | progress_pb.GetMinTimeRequest
    | progress_pb.WaitUntilRequest
    | progress_pb.GetHistoryRequest
)
"""What names a pipeline, and in which generation it was heard of before, if it was."""


class _Subscription:
    """What one stream hears of one pipeline, and has heard."""

    def __init__(self, announced: Announced, hub: Hub, request: progress_pb.Subscription) -> None:
        self.spec = announced.spec(request.pipeline)
        self._announced, self._hub = announced, hub
        self._hears_all = not request.segments
        """Whether it hears of all segments, also of those that come while it listens."""
        chosen = _segments(self.spec, request.segments)
        heard = dict.fromkeys(chosen)  # type: dict[int, int | None]
        for each in request.heard:
            number = segment_number(self.spec, each.segment)
            if number in heard:
                heard[number] = each.min_time
        least = request.heard_min_time if request.HasField("heard_min_time") else None
        self._known = Known(tuple(heard), tuple(heard.values()), least)

    def news(self) -> bytes | None:
        """A SubscribeResponse of what is beyond all that was heard; None if nothing is."""
        name = self.spec.name
        spec = self.spec = self._announced.spec(name)
        if self._hears_all:
            self._known = self._known.with_segments(len(spec.segments))
        message = self._hub.telling(spec).message(
            self._known,
            self._announced.min_times(name),
            self._announced.pipeline_min_time(name),
            self._announced.generation(name),
        )
        self._known = message.known
        return message.data


def _segments(spec: PipelineSpec, names: Sequence[str]) -> list[int]:
    """Numbers of segments by name; all if none is named."""
    return [segment_number(spec, name) for name in names] or list(range(len(spec.segments)))


class _Subscriber:
    """One stream: its subscriptions, and which of them have news. Woken as a waiter is."""

    def __init__(self) -> None:
        self.subscriptions: dict[str, _Subscription] = {}
        self.fresh: dict[str, float] = {}
        """By pipeline when its news came; 0 for one that was just subscribed to."""
        self.refused: Refused | None = None
        """Why the stream ends: a pipeline of it was deleted."""
        self.telling_s = 0.0
        """Since when news is being sent to it, if it does not take that at once; else 0."""
        self.waiter = Waiter()

    def mark(self, pipeline: str, at_s: float = 0.0) -> None:
        self.fresh.setdefault(pipeline, at_s)
        self.waiter.wake()

    def news(self) -> Iterator[tuple[bytes, float]]:
        """What there is to tell now, a message a pipeline, and since when (0: from the start). Raises Refused where the stream
        is to end since an earlier one was sent: another pipeline may have the name of one that was deleted."""
        fresh, self.fresh = self.fresh, {}
        for pipeline, at_s in fresh.items():
            if self.refused is not None:
                raise self.refused
            subscription = self.subscriptions.get(pipeline)
            message = subscription.news() if subscription else None
            if message is not None:
                yield message, at_s


class Hub:
    """Who hears of which pipeline."""

    def __init__(self, max_subscribers: int = MAX_SUBSCRIBERS) -> None:
        """max_subscribers: streams that may subscribe to one pipeline."""
        self._max_subscribers = max_subscribers
        self._elsewhere = -1
        """The shard where whoever listens may go on when this process has stopped; -1: any other."""
        self._subscribers: dict[str, dict[_Subscriber, None]] = {}
        self._tellings: dict[str, Telling] = {}
        """Of the pipelines that somebody subscribes to."""
        self.waiting: WaiterRegistry[str] = WaiterRegistry()
        self._all: dict[_Subscriber, None] = {}
        self._closed = False

    @contextmanager
    def listening(self, subscriber: _Subscriber) -> Iterator[None]:
        """While a subscriber's stream lasts. Raises Refused(NOT_READY) when the process stops."""
        self.check_open()
        self._all[subscriber] = None
        try:
            yield
        finally:
            del self._all[subscriber]
            for pipeline in subscriber.subscriptions:
                self.remove(pipeline, subscriber)

    def check_open(self) -> None:
        """Raises Refused(NOT_READY) when the process stops."""
        if self._closed:
            raise Refused(
                RefusalCode.NOT_READY,
                "this process stops; subscribe to another one",
                home=self._elsewhere,
            )

    def close(self, elsewhere: int) -> None:
        """Wakes all who listen or wait, so that they leave, and go on at that shard."""
        self._closed, self._elsewhere = True, elsewhere
        for subscriber in self._all:
            subscriber.waiter.wake()
        self.waiting.close()

    def add(self, pipeline: str, subscriber: _Subscriber) -> None:
        subscribers = self._subscribers.setdefault(pipeline, {})
        if subscriber not in subscribers and len(subscribers) >= self._max_subscribers:
            raise Refused(
                RefusalCode.FULL,
                f"pipeline {pipeline!r} has {len(subscribers)} subscribers at this process, the limit "
                f"max_subscribers is {self._max_subscribers}; subscribe at another process, or once "
                "for a host",
            )
        subscribers[subscriber] = None

    def remove(self, pipeline: str, subscriber: _Subscriber) -> None:
        subscribers = self._subscribers.get(pipeline, {})
        subscribers.pop(subscriber, None)
        if not subscribers:
            self._subscribers.pop(pipeline, None)
            self._tellings.pop(pipeline, None)

    def telling(self, spec: PipelineSpec) -> Telling:
        """What the subscribers of a pipeline are sent."""
        telling = self._tellings.get(spec.name)
        if telling is None or telling.spec is not spec:
            telling = self._tellings[spec.name] = Telling(spec)
        return telling

    @property
    def streams(self) -> int:
        """How many subscribers' streams there are."""
        return len(self._all)

    def subscribers(self, pipeline: str) -> int:
        """How many streams subscribe to a pipeline."""
        return len(self._subscribers.get(pipeline, ()))

    def unread(self) -> tuple[int, float]:
        """News that subscribers have not taken yet, and since when the oldest waits (seconds)."""
        waiting = [at_s for subscriber in self._all for at_s in subscriber.fresh.values()]
        waiting += [subscriber.telling_s for subscriber in self._all if subscriber.telling_s]
        oldest = min((at_s for at_s in waiting if at_s), default=None)
        return len(waiting), 0.0 if oldest is None else time.monotonic() - oldest

    def announced(self, pipeline: str) -> None:
        """Min times of a pipeline are new."""
        subscribers = self._subscribers.get(pipeline)
        if subscribers:
            now_s = time.monotonic()
            for subscriber in subscribers:
                subscriber.mark(pipeline, now_s)
        self.waiting.news(pipeline)

    def ended(self, pipeline: str, *, moved: bool = False) -> None:
        """A pipeline was deleted, or has gone to another group: streams that subscribe to it end, and so do those who wait for
        it."""
        told = f"pipeline {pipeline!r} was deleted; nothing more is announced of it"
        self.refuse(
            pipeline,
            gone(pipeline) if moved else Refusal(RefusalCode.UNKNOWN_PIPELINE, told),
        )

    def refuse(self, pipeline: str, refusal: Refusal) -> None:
        """Nothing more is announced here of a pipeline: streams that subscribe to it end, and so do those who wait for it."""
        for subscriber in self._subscribers.get(pipeline, {}):
            subscriber.refused = Refused.of(refusal)
            subscriber.waiter.wake()
        self.waiting.news(pipeline)


def add_subscribing(servicer: Announcing, server: grpc.aio.Server) -> None:
    """Serves Subscribe, whose messages are bytes already. To be called when the service as a whole is added: the
    last that is registered for a method serves it."""
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.Subscribe, progress_pb.SubscribeRequest.FromString, lambda data: data
    )
    server.add_registered_method_handlers(PROGRESS, {"Subscribe": handler})


class Announcing:
    """Answers from what is announced now."""

    def __init__(
        self, announced: Callable[[], Announced], told: Latencies, hub: Hub, quotas: Quotas
    ) -> None:
        """announced: what is announced now; told: how long subscribers wait for their news."""
        self._announced, self._told = announced, told
        self._hub, self._quotas = hub, quotas

    async def _look(self, asked: Asked) -> PipelineSpec:
        """A pipeline of which something is announced here. Raises Refused, also where who asks has heard of another one of its
        name."""
        spec = self._announced().spec(asked.pipeline)
        if asked.HasField("heard_generation"):
            await self._check_same(asked.pipeline, asked.heard_generation)
        return spec

    async def _check_same(self, pipeline: str, generation: int) -> None:
        """Raises Refused where a pipeline is not the one of its name that was in a generation."""
        raise NotImplementedError

    async def Subscribe(
        self,
        request_iterator: AsyncIterator[progress_pb.SubscribeRequest],
        context: Context,
    ) -> None:
        subscriber = _Subscriber()
        with self._quotas.stream(context), self._hub.listening(subscriber):
            reading = asyncio.ensure_future(self._read(request_iterator, subscriber))
            reading.add_done_callback(lambda _: subscriber.waiter.wake())
            try:
                await self._tell(subscriber, reading, context)
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _tell(
        self, subscriber: _Subscriber, reading: asyncio.Future[None], context: Context
    ) -> None:
        """Writes what is news until `reading` fails, or nothing is subscribed to any more. A client
        that has said all it wants to say may close its half and go on listening."""
        while not (reading.done() and (reading.exception() or not subscriber.subscriptions)):
            await subscriber.waiter.until(None)
            self._hub.check_open()
            if subscriber.refused is not None:
                raise subscriber.refused
            for message, at_s in subscriber.news():
                subscriber.telling_s = at_s
                await context.write(message)
                subscriber.telling_s = 0.0
                if at_s:
                    self._told.observe(time.monotonic() - at_s)
                failpoint("announce-after")
        await reading  # raises what ended it

    async def _read(
        self, requests: AsyncIterator[progress_pb.SubscribeRequest], subscriber: _Subscriber
    ) -> None:
        async for request in requests:
            match request.WhichOneof("change"):
                case "subscribe":
                    await self._look(request.subscribe)
                    subscription = _Subscription(self._announced(), self._hub, request.subscribe)
                    name = subscription.spec.name
                    if len(subscriber.subscriptions) >= MAX_SUBSCRIPTIONS:
                        raise Refused(
                            RefusalCode.FULL,
                            f"a stream may subscribe to {MAX_SUBSCRIPTIONS} pipelines; "
                            "open another one",
                        )
                    self._hub.add(name, subscriber)
                    subscriber.subscriptions[name] = subscription
                    subscriber.mark(name)
                case "unsubscribe":
                    subscriber.subscriptions.pop(request.unsubscribe, None)
                    self._hub.remove(request.unsubscribe, subscriber)
                case _:
                    raise invalid(
                        "a subscribe request says nothing; set subscribe or unsubscribe",
                    )

    async def GetMinTime(
        self, request: progress_pb.GetMinTimeRequest, context: Context
    ) -> progress_pb.GetMinTimeResponse:
        spec = await self._look(request)
        announced = self._announced()
        min_times, least = announced.min_times(spec.name), announced.pipeline_min_time(spec.name)
        return progress_pb.GetMinTimeResponse(
            min_time=least,
            segments=[
                pb.SegmentTime(segment=name, min_time=min_time)
                for name, min_time in zip(spec.segments, min_times, strict=True)
            ],
            complete=least == FOREVER,
            slack_ns=spec.slack_ns,
            rounds=spec.rounds,
            generation=announced.generation(spec.name),
        )

    async def WaitUntil(
        self, request: progress_pb.WaitUntilRequest, context: Context
    ) -> progress_pb.WaitUntilResponse:
        spec = await self._look(request)
        announced = self._announced()
        segment = segment_number(spec, request.segment) if request.segment else None
        generation = announced.generation(spec.name)
        while True:
            with self._hub.waiting.waiter(spec.name) as waiter:
                # Another pipeline may have got the name in the step that has ended this one.
                if (now := announced.generation(spec.name)) != generation:
                    await self._check_same(spec.name, generation)
                    generation = now
                    continue
                if segment is None:
                    least = announced.pipeline_min_time(spec.name)
                else:
                    least = announced.min_times(spec.name)[segment]
                if least >= request.slot:
                    return progress_pb.WaitUntilResponse(min_time=least, generation=generation)
                await waiter.until(None)


def check_not_behind(pipeline: str, heard: int, known: int) -> None:
    """Raises Refused(NOT_READY) where who asks has heard of a generation that is not known here yet: it may be of another
    pipeline of that name."""
    if heard > known:
        raise Refused(
            RefusalCode.NOT_READY,
            f"pipeline {pipeline!r} is in generation {known} here, and you have heard of {heard}; ask another process, or again",
        )


class ProgressServicer(Announcing):
    """Answers from what this process has announced, also for the past."""

    def __init__(self, engine: Engine, hub: Hub, quotas: Quotas | None = None) -> None:
        told = engine.stats.notifications
        super().__init__(lambda: engine.process, told, hub, quotas or Quotas())
        self._engine = engine

    async def _check_same(self, pipeline: str, generation: int) -> None:
        check_not_behind(pipeline, generation, self._engine.process.generation(pipeline))
        if not self._engine.process.goes_on_since(pipeline, generation):
            raise Refused(
                RefusalCode.UNKNOWN_PIPELINE,
                f"pipeline {pipeline!r}, of which you have heard in generation {generation}, was deleted, and another one has its "
                "name; nothing of the one before counts for that: subscribe anew, with a new record if you keep one",
            )

    async def GetHistory(
        self, request: progress_pb.GetHistoryRequest, context: Context
    ) -> progress_pb.GetHistoryResponse:
        process, name = self._engine.process, request.pipeline
        if len(request.slots) > MAX_HISTORY_SLOTS:
            raise invalid(
                f"pipeline {name!r}: its history is asked for {len(request.slots)} slots, the "
                f"limit is {MAX_HISTORY_SLOTS}; ask for them in parts",
            )
        if process.has_told_ahead(process.spec(name).name):
            await self._engine.written()
        # Only now: another pipeline may have got the name.
        spec = await self._look(request)
        segment = segment_number(spec, request.segment) if request.segment else -1
        answer = process.history(spec.name, segment, request.slots)
        return progress_pb.GetHistoryResponse(reached=map(reached_to_pb, answer))
