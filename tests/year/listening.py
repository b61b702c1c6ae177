"""Who hears of min times, and what is sampled of them: the service's own parts around a process, without gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from acker.v1 import progress_service_pb2 as progress_pb
from tracker.core.process import Process
from tracker.service.rpc.progress import Hub, ProgressServicer
from tracker.service.sampling import Sampler
from tracker.service.stats import Stats

_TURNS = 4
"""Turns of a loop in which a stream is woken and has written."""


class _Context:
    """A subscriber's call."""

    def __init__(self) -> None:
        self.heard = 0

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    async def write(self, _: bytes) -> None:
        self.heard += 1


class Listeners:
    """Subscribers' streams at one shard, which end with its process."""

    hub: Hub
    sampler: Sampler

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._streams: dict[str, asyncio.Task[None]] = {}
        self.heard = 0

    def begin(self, process: Process) -> None:
        """A process is started: nobody listens to it yet."""
        for name in [*self._streams]:
            self.leave(name)
        self.hub, self.sampler = Hub(), Sampler(process)
        self._stats = Stats()
        engine: Any = SimpleNamespace(process=process, stats=self._stats)
        self._servicer = ProgressServicer(engine, self.hub)

    @property
    def parts(self) -> tuple[object, ...]:
        """What is kept here."""
        return self.hub, self.sampler, self._servicer, self._stats

    def come(self, pipeline: str) -> None:
        """A subscriber of a pipeline comes; one of a pipeline at a time."""
        if pipeline not in self._streams:
            self._streams[pipeline] = self._loop.create_task(self._subscribe(pipeline))

    def leave(self, pipeline: str) -> None:
        """The subscriber of a pipeline leaves, if there is one."""
        stream = self._streams.pop(pipeline, None)
        if stream is not None:
            stream.cancel()
            self._loop.run_until_complete(asyncio.wait([stream]))

    def leave_beyond(self, most: int) -> None:
        """Those leave that came first, until there are no more than so many."""
        for name in [*self._streams][: max(0, len(self._streams) - most)]:
            self.leave(name)

    def forget(self, pipeline: str) -> None:
        """A pipeline was deleted."""
        self.hub.ended(pipeline)
        self.sampler.forget(pipeline)
        self.listen()
        self.leave(pipeline)

    async def _subscribe(self, pipeline: str) -> None:
        async def wanted() -> AsyncIterator[progress_pb.SubscribeRequest]:
            subscription = progress_pb.Subscription(pipeline=pipeline)
            yield progress_pb.SubscribeRequest(subscribe=subscription)
            await asyncio.Event().wait()

        context: Any = _Context()
        try:
            await self._servicer.Subscribe(wanted(), context)
        finally:
            self.heard += context.heard

    def listen(self, now_ns: int | None = None) -> None:
        """Streams write what is news; at a moment a sample is taken, too."""
        for _ in range(_TURNS):
            self._loop.run_until_complete(asyncio.sleep(0))
        if now_ns is not None:
            self.sampler.sample(now_ns / 1e9)

    def close(self) -> None:
        for name in [*self._streams]:
            self.leave(name)
        self._loop.close()
