"""Min times as server-sent events: one subscription for each pipeline that somebody listens to, however many do.

The id of an event is the generation of its pipeline and its min time. Min times never go back, so a client that comes back
with the last id that it has heard, here or at another process, needs nobody who remembers it. Where the pipeline of that
generation was deleted, and another one has its name, the client is refused: nothing that it has heard counts for that.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import ClassVar

from tracker.client import AsyncSubscriber, LowmarkError, RefusedError, SecureTarget, Update
from tracker.core.model import PipelineSpec
from tracker.dashboard.answers import Announcement, Error, min_time
from tracker.dashboard.query import ANSWER_TIMEOUT_S
from tracker.dashboard.refusing import Refused

MAX_STREAMS = 50
"""That may be open at once; further ones are refused with 503, and may come again."""
MAX_STREAMS_OF_A_CLIENT = 10
"""Of one token, or without tokens of one address."""
MAX_FOLLOWED = 20
"""Pipelines that are subscribed to at once, for all streams."""
EVENT_INTERVAL_S = 0.05
"""Between two events of a stream: what comes meanwhile is told as one, the newest."""
KEEP_ALIVE_S = 15.0
"""A comment is sent to a client for whom there was nothing for so long: a proxy may close what is silent."""
RIGHTS_INTERVAL_S = 1.0
"""A client's right is looked at so often, and before each event."""
STILL_HERE = b": still here\n\n"
RETRY_S = 10


@dataclass(frozen=True, slots=True)
class HeardEvent:
    """What the id of an event states: a min time, and in which generation of the pipeline that was."""

    PATTERN: ClassVar[str] = r"^[0-9]{1,18}\.-?[0-9]{1,19}$"
    """As `GENERATION.SLOT`."""

    generation: int
    slot: int

    @classmethod
    def of(cls, given: str) -> HeardEvent:
        """Raises ValueError with what is allowed."""
        if not re.fullmatch(cls.PATTERN, given):
            raise ValueError(
                "it is no id of an event; give the last that was heard, GENERATION.SLOT"
            )
        generation, _, slot = given.partition(".")
        return cls(int(generation), int(slot))

    def __str__(self) -> str:
        return f"{self.generation}.{self.slot}"


class Events:
    """The streams of one server."""

    def __init__(self, target: str | Sequence[str] | SecureTarget) -> None:
        self._target = target
        self._followed: dict[str, _Followed] = {}
        self._streams: Counter[str] = Counter()
        """By client."""

    @property
    def streams(self) -> int:
        return self._streams.total()

    @property
    def followed(self) -> int:
        """Pipelines that are subscribed to."""
        return len(self._followed)

    def stop(self) -> None:
        for followed in self._followed.values():
            followed.stop()

    async def open(
        self,
        spec: PipelineSpec,
        segment: str | None,
        after: int | None,
        since: int,
        client: str,
        may_go_on: Callable[[], bool],
    ) -> EventStream:
        """A stream of what is beyond a min time. since: the generation of both; for it `check_same` was asked; client: who listens;
        may_go_on: whether the client may still listen. Raises Refused where there are too many, and LowmarkError where the
        tracker does not answer."""
        await self._end_followed_before(spec.name)
        own, name = self._streams[client], spec.name
        is_new = name not in self._followed
        if own >= MAX_STREAMS_OF_A_CLIENT:
            _no_room(f"{own} of your {MAX_STREAMS_OF_A_CLIENT} streams are open")
        if self.streams >= MAX_STREAMS or (is_new and self.followed >= MAX_FOLLOWED):
            _no_room(
                f"{self.streams} of {MAX_STREAMS} streams are open, of {self.followed} of {MAX_FOLLOWED} pipelines"
            )
        if is_new:
            subscriber = AsyncSubscriber(self._target, name)
            subscriber.goes_on_since(since)
            self._followed[name] = _Followed(subscriber)
        followed = self._followed[name]
        followed.listeners += 1
        self._streams[client] += 1

        def closed() -> None:
            self._streams[client] -= 1
            if not self._streams[client]:
                del self._streams[client]
            self._leave(name, followed)

        return EventStream(_events(followed, spec, segment, after, may_go_on), closed)

    async def check_same(self, name: str, since: int) -> None:
        """Raises RefusedError where the pipeline was deleted that was in a generation, and another one has its name; LowmarkError
        where the tracker does not answer."""
        async with AsyncSubscriber(self._target, name) as subscriber:
            subscriber.goes_on_since(since)
            await subscriber.min_time(timeout_s=ANSWER_TIMEOUT_S)

    async def _end_followed_before(self, name: str) -> None:
        """Whoever comes now is to hear nothing of a pipeline that was deleted before, its name perhaps being another one's: where
        what is followed is no more, that ends. Raises LowmarkError."""
        followed = self._followed.get(name)
        if followed is None:
            return
        followed.listeners += 1
        try:
            await followed.check_same()
        except RefusedError as error:
            await followed.end(error)
            self._forget(name, followed)
        finally:
            self._leave(name, followed)

    def _leave(self, name: str, followed: _Followed) -> None:
        followed.listeners -= 1
        if not followed.listeners:
            followed.stop()
            self._forget(name, followed)

    def _forget(self, name: str, followed: _Followed) -> None:
        if self._followed.get(name) is followed:
            del self._followed[name]


def _no_room(why: str) -> None:
    raise Refused(
        503,
        f"{why}; close one that nobody reads, or ask for min_times instead",
        headers=(("retry-after", str(RETRY_S)),),
    )


class EventStream:
    """Parts of a response. Its place is free again when it is closed, also where nothing was read of it."""

    def __init__(self, events: AsyncGenerator[bytes, None], closed: Callable[[], None]) -> None:
        self._events, self._closed = events, closed
        self._is_open = True

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._events

    async def aclose(self) -> None:
        if self._is_open:
            self._is_open = False
            self._closed()
            await self._events.aclose()


async def _events(
    followed: _Followed,
    spec: PipelineSpec,
    segment: str | None,
    after: int | None,
    may_go_on: Callable[[], bool],
) -> AsyncGenerator[bytes, None]:
    loop = asyncio.get_running_loop()
    yield f"retry: {RETRY_S * 1000}\n\n".encode()
    told_s = loop.time()
    while may_go_on():
        try:
            async with asyncio.timeout(min(RIGHTS_INTERVAL_S, KEEP_ALIVE_S)):
                update = await followed.beyond(segment, after)
        except TimeoutError:
            if loop.time() - told_s >= KEEP_ALIVE_S:
                yield STILL_HERE
                told_s = loop.time()
            continue
        except LowmarkError as error:  # it was deleted, say
            told = Error(code=error.code, message=str(error))
            yield f"event: refused\ndata: {told.model_dump_json()}\n\n".encode()
            return
        if not may_go_on():
            return
        after = update.min_time
        announced = Announcement(pipeline=spec.name, segment=segment, **min_time(after, spec))
        yield f"id: {HeardEvent(followed.generation, after)}\nevent: min_time\ndata: {announced.model_dump_json()}\n\n".encode()
        told_s = loop.time()
        if update.complete:
            return
        await asyncio.sleep(EVENT_INTERVAL_S)


class _Followed:
    """A pipeline that is subscribed to. Invariant: `latest` has the furthest that was heard of each segment, and by None
    of the whole pipeline."""

    def __init__(self, subscriber: AsyncSubscriber) -> None:
        self.listeners = 0
        self._subscriber = subscriber
        self._latest: dict[str | None, Update] = {}
        self._failure: LowmarkError | None = None
        self._news = asyncio.Condition()
        self._task = asyncio.get_running_loop().create_task(self._follow(subscriber))

    def stop(self) -> None:
        self._task.cancel()

    @property
    def generation(self) -> int:
        """The newest in which anything was heard; 0 of a tracker that states none."""
        return self._subscriber.heard_generation or 0

    async def check_same(self) -> None:
        """Raises RefusedError where the tracker knows the pipeline no more of which was heard, perhaps another one of its name;
        LowmarkError where it does not answer."""
        await self._subscriber.min_time(timeout_s=ANSWER_TIMEOUT_S)

    async def end(self, failure: LowmarkError) -> None:
        """Nothing more will be heard: who listens hears why."""
        async with self._news:
            self._failure = self._failure or failure
            self._news.notify_all()

    async def beyond(self, segment: str | None, slot: int | None) -> Update:
        """The newest of a segment, when it is beyond a slot. Raises LowmarkError when nothing more will be heard."""

        def is_news() -> bool:
            update = self._latest.get(segment)
            return update is not None and (slot is None or update.min_time > slot)

        async with self._news:
            await self._news.wait_for(lambda: is_news() or self._failure)
        # Also where it is news: what was heard of a pipeline that is gone counts no more.
        if self._failure is not None:
            raise self._failure
        return self._latest[segment]

    async def _follow(self, subscriber: AsyncSubscriber) -> None:
        try:
            async with aclosing(subscriber.updates()) as updates:  # type: ignore[type-var]
                async for update in updates:
                    async with self._news:
                        self._latest[update.segment] = update
                        self._news.notify_all()
        except LowmarkError as error:
            await self.end(error)
        finally:
            await subscriber.close()
