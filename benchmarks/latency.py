"""From the last commit handed over to the subscriber that is called, against a bare gRPC round trip.

The items of many slots are created beforehand. A worker consumes them one by one, at uneven intervals;
each moves min time by a slot. Counted is the time from the moment at which the worker hands its step
over until the (last) subscriber is called with the new min time. With a flush window, the worker hands
over to a local tracker, and another worker keeps its windows going, so that half a window is waited for
(a local tracker at rest flushes at once); without one, the node commits to its home itself.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import os
import random
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import grpc

from benchmarks import looping
from benchmarks.bars import BARS
from benchmarks.echo import CALL, LISTEN, TELL
from benchmarks.figures import Budget, Curve, Figure, percentile
from benchmarks.pairs import FEWEST_ROUNDS, take_turns
from benchmarks.processes import EchoServer
from local_tracker.worker.handle import Handle
from tests.cluster.redis_server import RedisServer
from tests.cluster.relaying import relay
from tests.cluster.tracker import Tracker, local_tracker, socket_in
from tracker.client import AsyncSubscriber, NodeClient
from tracker.core.model import Cells, Heartbeat, PipelineSpec, TickContent
from tracker.wire.grpc_options import CHANNEL_OPTIONS

TIMEOUT_S = 60.0
SPACING_S = (0.008, 0.018)
"""Between two steps that are measured."""
BACKGROUND_SPACING_S = 0.002
WARM_UP = 30
SAMPLES, SAMPLES_TO_MANY = 200, 100
"""Of a round, with one subscriber and with more."""


@dataclass(frozen=True)
class Case:
    """What is varied. window_ms: of the local tracker's flushes; 0 without one. rests: it has nothing
    else to flush, so that a step that comes after a pause is flushed at once."""

    window_ms: float = 5
    store: str = "sqlite"
    shards: int = 1
    subscribers: int = 1
    relays: int = 0
    """That subscribers listen to, instead of the tracker."""
    rests: bool = False
    barred: str = ""
    """The name of its bars, behind their percentile."""

    @property
    def samples(self) -> int:
        """A round of many subscribers is barred by its p50 alone, and each of its samples tells all of them."""
        return SAMPLES_TO_MANY if self.subscribers > 1 else SAMPLES

    def __str__(self) -> str:
        window = f"flush {self.window_ms:g} ms" if self.window_ms else "no local tracker"
        if self.rests:
            window += " of a local tracker at rest"
        shards = "1 shard" if self.shards == 1 else f"{self.shards} shards"
        listeners = "1 subscriber" if self.subscribers == 1 else f"{self.subscribers:,} subscribers"
        behind = f" behind {self.relays} relays" if self.relays else ""
        return f"{window}, {self.store}, {shards}, {listeners}{behind}"


BARRED = (
    Case(barred="sqlite"),
    Case(store="redis", barred="redis"),
    Case(shards=2, barred="2 shards"),
    Case(shards=4, barred="4 shards"),
    Case(subscribers=100, barred="100 subscribers"),
    Case(subscribers=1000, relays=2, barred="1000 subscribers, 2 relays"),
)


def find(budget: Budget) -> Iterable[Figure | Curve]:
    rounds = budget.pick(FEWEST_ROUNDS, 2 * FEWEST_ROUNDS)
    yield _fsync()
    with EchoServer() as echo:
        for case in BARRED if budget is not Budget.QUICK else BARRED[:1]:
            yield from _measure(case, echo, rounds)
        if budget is Budget.QUICK:
            return
        others = [Case(0), Case(store="memory:"), Case(rests=True)]
        if budget is Budget.FULL:
            others += [Case(1), Case(2), Case(5), Case(10), Case(20), Case(0, shards=4)]
            others += [
                Case(0, store="memory:"),
                Case(0, store="redis"),
                Case(store="redis", shards=4),
            ]
        middles: dict[float, list[float]] = {}
        for case in others:
            found = list(_measure(case, echo, 1))
            yield from found
            if (case.store, case.shards, case.subscribers, case.rests) == ("sqlite", 1, 1, False):
                middles[case.window_ms] = [found[0].median, found[1].median]
    if len(middles) > 2:
        lines = {
            name: [(window, values[place]) for window, values in sorted(middles.items())]
            for place, name in enumerate(("p50", "p99"))
        }
        yield Curve("notification latency by flush window", "window, ms", "ms", lines, False)


def _measure(case: Case, echo: EchoServer, rounds: int) -> Iterable[Figure]:
    samples = case.samples
    with tempfile.TemporaryDirectory(prefix="lowmark-bench-") as directory, ExitStack() as stack:
        store = case.store
        if store == "redis":
            store = stack.enter_context(RedisServer(Path(directory) / "redis")).url
        tracker = stack.enter_context(Tracker(Path(directory), case.shards, store=store))
        heard_at = [
            stack.enter_context(relay(tracker.target, Path(directory))) for _ in range(case.relays)
        ] or tracker.addresses
        pipelines = (f"p{turn}" for turn in itertools.count())
        sides = {
            "ours": lambda: notifications(tracker, heard_at, next(pipelines), case),
            "bare": lambda: looping.run(_round_trips(echo, samples)),
        }
        if case.subscribers > 1:
            sides["fan"] = lambda: looping.run(_fans(echo, case.subscribers, samples))
        return _figures(case, **take_turns(sides, rounds))


def _figures(
    case: Case,
    ours: list[list[float]],
    bare: list[list[float]],
    fan: list[list[float]] | None = None,
) -> Iterator[Figure]:
    bare50, bare99 = (min(percentile(each, percent) for each in bare) for percent in (50, 99))
    trip = f"bare gRPC round trip of {bare50:.2f} ms p50, {bare99:.2f} ms p99"
    for percent in (50, 99):
        found = tuple(percentile(each, percent) for each in ours)
        yield Figure(
            f"notification p{percent}: {case}",
            found,
            "ms",
            f"{len(ours[0])} a round; {trip}",
            BARS.get(f"notification p{percent}, {case.barred}"),
            least=min(found),
        )
    if fan is not None:
        yield Figure(
            f"... and a bare gRPC server tells {case.subscribers} streams the same: until the last has it, p50",
            tuple(percentile(each, 50) for each in fan),
            "ms",
            f"{len(fan[0])} a round, nothing else is done; the same clients' library and connections",
        )
        yield Figure(
            f"notification p50: {case} / the bare server's",
            tuple(percentile(a, 50) / percentile(b, 50) for a, b in zip(ours, fan, strict=True)),
            "",
            "round by round",
            BARS.get(f"notification p50, {case.barred} / bare"),
            least=_least50(ours) / _least50(fan),
        )


def _least50(rounds: list[list[float]]) -> float:
    return min(percentile(each, 50) for each in rounds)


class Served(Protocol):
    """What notifications are measured of: a tracker, or a deployment of several."""

    @property
    def target(self) -> str: ...
    @property
    def directory(self) -> Path: ...
    def register(self, spec: PipelineSpec) -> None: ...


def notifications(
    tracker: Served, heard_at: Sequence[str], pipeline: str, case: Case
) -> list[float]:
    """Latencies in milliseconds. heard_at: the processes that subscribers listen to."""
    steps = case.samples + WARM_UP
    tracker.register(PipelineSpec(pipeline, ("in",), front_count=1))
    with ExitStack() as stack:
        front = stack.enter_context(NodeClient(tracker.target, pipeline, "front", "front"))
        front.join(TIMEOUT_S)
        front.join_front("front", "in", TIMEOUT_S)
        made = Cells.of((0, slot, slot + 1, 1) for slot in range(steps))
        promise = (Heartbeat("front", steps),)
        front.commit(TickContent(created=made)).result(TIMEOUT_S)
        front.commit(TickContent(heartbeats=promise)).result(TIMEOUT_S)
        heard = stack.enter_context(Heard(heard_at, pipeline, case.subscribers))
        consume = stack.enter_context(_worker(tracker, pipeline, case))
        chosen = random.Random(7)
        latencies = []
        for slot in range(steps):
            time.sleep(chosen.uniform(*SPACING_S))
            began = time.perf_counter()
            consume(slot)
            told_s = heard.reached(slot + 1)
            if slot >= WARM_UP:
                latencies.append((told_s - began) * 1000)
        return latencies


class Consume:
    """Hands over, without waiting, that the item of a slot is consumed."""

    def __call__(self, slot: int) -> None:
        raise NotImplementedError


class _ByNode(Consume):
    def __init__(self, node: NodeClient) -> None:
        self._node = node

    def __call__(self, slot: int) -> None:
        self._node.commit(TickContent(consumed=Cells.of([(0, slot, slot + 1, 1)])))


class _ByLocalTracker(Consume):
    """A worker's call returns when its step is durable; that min time moves is heard elsewhere."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def __call__(self, slot: int) -> None:
        self._handle.step(Cells.empty(), Cells.of([(0, slot, slot + 1, 1)]))


@contextmanager
def _worker(tracker: Served, pipeline: str, case: Case) -> Iterator[Consume]:
    if not case.window_ms:
        with NodeClient(tracker.target, pipeline, "worker") as node:
            node.join(TIMEOUT_S)
            yield _ByNode(node)
        return
    directory = tracker.directory / pipeline
    process = local_tracker(
        tracker.target, pipeline, directory, "--flush-window-ms", f"{case.window_ms:g}",
        node_id="local",
    )  # fmt: skip
    process.start()
    ended = threading.Event()
    handles = [Handle(socket_in(directory), pipeline, TIMEOUT_S) for _ in range(2)]

    def keep_busy() -> None:
        """Empty steps: each flush has something, so the windows never rest."""
        while not ended.wait(BACKGROUND_SPACING_S):
            handles[1].step(Cells.empty(), Cells.empty())

    busy = threading.Thread(target=keep_busy, daemon=True)
    try:
        for handle in handles:
            handle.welcome()
        if not case.rests:
            busy.start()
        yield _ByLocalTracker(handles[0])
    finally:
        ended.set()
        if busy.ident is not None:
            busy.join(TIMEOUT_S)
        for handle in handles:
            handle.close()
        process.discard()


class Heard:
    """Subscribers; says when the last of them was called with a min time."""

    def __init__(self, addresses: Sequence[str], pipeline: str, subscribers: int) -> None:
        """They spread over the shards."""
        self._addresses, self._pipeline, self._count = addresses, pipeline, subscribers
        self._changed = threading.Condition()
        self._min_times: dict[int, int] = {}
        self._called_at: dict[int, float] = {}
        self._listening: list[Future[None]] = []

    async def _listen(self, number: int) -> None:
        address = self._addresses[number % len(self._addresses)]
        subscriber = AsyncSubscriber(address, self._pipeline)
        try:
            async for update in subscriber.updates():
                if update.segment is None:
                    self._call(number, update.min_time)
        finally:
            await subscriber.close()

    def _call(self, number: int, min_time: int) -> None:
        now = time.perf_counter()
        with self._changed:
            self._min_times[number], self._called_at[number] = min_time, now
            if len(self._min_times) == self._count:
                self._changed.notify_all()

    def reached(self, slot: int) -> float:
        """When the last subscriber was called with a min time of at least `slot`; waits for it."""
        with self._changed:
            if not self._changed.wait_for(
                lambda: (
                    len(self._min_times) == self._count and min(self._min_times.values()) >= slot
                ),
                TIMEOUT_S,
            ):
                raise RuntimeError(f"min time {slot} was not heard within {TIMEOUT_S:g} s")
            return max(self._called_at.values())

    def __enter__(self) -> Heard:
        self._listening = [looping.start(self._listen(n)) for n in range(self._count)]
        self.reached(0)
        return self

    def __exit__(self, *_: object) -> None:
        for listening in self._listening:
            listening.cancel()
        concurrent.futures.wait(self._listening, TIMEOUT_S)


async def _round_trips(echo: EchoServer, samples: int) -> list[float]:
    """Milliseconds of calls that carry a hundred bytes there and back."""
    chosen = random.Random(7)
    times = []
    async with grpc.aio.insecure_channel(echo.address, CHANNEL_OPTIONS) as channel:
        call: Any = channel.unary_unary(CALL)
        for sample in range(samples + WARM_UP):
            await asyncio.sleep(chosen.uniform(*SPACING_S) / 4)
            began = time.perf_counter()
            await call(bytes(100))
            if sample >= WARM_UP:
                times.append((time.perf_counter() - began) * 1000)
    return times


async def _fans(echo: EchoServer, streams: int, samples: int) -> list[float]:
    """Milliseconds from a call that tells a message to so many streams until the last of them has it."""
    chosen = random.Random(7)
    times: list[float] = []
    left, all_have_it = streams, asyncio.Event()

    async def listen(channel: grpc.aio.Channel) -> None:
        nonlocal left
        call: Any = channel.unary_stream(LISTEN)
        async for _ in call(bytes(1)):
            left -= 1
            if not left:
                all_have_it.set()

    async with AsyncExitStack() as stack:
        channels = [
            await stack.enter_async_context(
                grpc.aio.insecure_channel(echo.address, CHANNEL_OPTIONS)
            )
            for _ in range(streams)
        ]
        listening = [asyncio.ensure_future(listen(channel)) for channel in channels]
        await asyncio.wait_for(all_have_it.wait(), TIMEOUT_S)
        tell: Any = channels[0].unary_unary(TELL)
        for sample in range(samples + WARM_UP):
            await asyncio.sleep(chosen.uniform(*SPACING_S))
            left = streams
            all_have_it.clear()
            began = time.perf_counter()
            await tell(bytes(40))
            await asyncio.wait_for(all_have_it.wait(), TIMEOUT_S)
            if sample >= WARM_UP:
                times.append((time.perf_counter() - began) * 1000)
        for each in listening:
            each.cancel()
        await asyncio.gather(*listening, return_exceptions=True)
    return times


def _fsync() -> Figure:
    """What the disk takes, whoever asks it."""
    times = []
    with tempfile.NamedTemporaryFile(prefix="lowmark-bench-") as file:
        for _ in range(200):
            began = time.perf_counter()
            file.write(bytes(4096))
            file.flush()
            os.fdatasync(file.fileno())
            times.append((time.perf_counter() - began) * 1000)
    return Figure("writing 4 KiB and waiting for the disk, p50", (percentile(times, 50),), "ms")
