"""Where the microseconds of a tick go: what each step of its way through one process costs.

The steps are taken one after the other for many ticks, in one thread and without a network, and timed by the
processor time of that thread: waiting and other work on the machine count little (`benchmarks/instructions.py` counts the
same steps' instructions, where they count nothing). Then the same ticks go through a process of its own, over gRPC: what that takes beside the steps is the library's, the stream's, and
the hand-overs' between threads.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acker.v1 import node_service_pb2 as node_pb
from benchmarks.core import HORIZON, SETTLE_NS, TICK_NS
from benchmarks.figures import Budget, Figure
from benchmarks.throughput import TICKS_TOGETHER, in_turns, messages_of, numbered_tick
from tracker.core.log import (
    Answer,
    Append,
    AttachSession,
    Committed,
    Event,
    Joined,
    JoinNode,
    RegisterPipeline,
    SubmitTick,
    SubmitTicks,
    TickRefused,
    Wake,
)
from tracker.core.model import FrontJoin, PipelineSpec, TickContent
from tracker.core.model.routing import RoutingTable
from tracker.core.process import Process
from tracker.service.run import collect_rarely
from tracker.store.sqlite import SqliteStore
from tracker.wire.storage import record_to_bytes
from tracker.wire.ticks import content_from_pb

TICKS_PER_COMMIT = 256
"""Of a busy process."""
READ, TAKE, JUDGE = "reading the message", "reading its ticks", "judging them"
ENCODE, STORE, APPLY = "encoding the records", "SQLite, synced", "applying, announcing"
STEPS = (READ, TAKE, JUDGE, ENCODE, STORE, APPLY)


def find(budget: Budget) -> Iterable[Figure]:
    rounds = budget.pick(3, 7, 14)
    collect_rarely()  # as a process that serves
    for cells, ticks in ((1, 8_192), (100, 4_096)):
        for together in (1, TICKS_TOGETHER):
            yield from _costs(cells, ticks, together, rounds)


def name_of(cells: int, together: int) -> str:
    """Of ticks of so many cells, so many of them in a message."""
    return f"a tick of {'1 cell' if cells == 1 else f'{cells} cells'}, {together} a message"


def _costs(cells: int, ticks: int, together: int, rounds: int) -> Iterable[Figure]:
    what = name_of(cells, together)
    costs = [steps_of(cells, ticks, together) for _ in range(rounds)]
    runs = in_turns(cells, ticks, together, rounds)
    for step in STEPS:
        yield Figure(f"{what}: {step}", tuple(cost[step] for cost in costs), "µs")
    steps = statistics.median(sum(cost.values()) for cost in costs)
    servers = tuple(run.server_us for run in runs["tracker"])
    echo = statistics.median(run.server_us for run in runs["echo"])
    yield Figure(
        f"{what}: the whole process, over gRPC",
        servers,
        "µs",
        f"the steps: {steps:.1f} µs; beside them: {statistics.median(servers) - steps:.1f} µs; a bare echo: "
        f"{echo:.1f} µs a message",
    )


Meter = Callable[[str], AbstractContextManager[None]]
"""Measures what is done within it, for the step of that name."""


class ProcessorTime:
    """A meter: of this thread, in microseconds, by step."""

    def __init__(self) -> None:
        self.us = dict.fromkeys(STEPS, 0.0)

    @contextmanager
    def __call__(self, step: str) -> Iterator[None]:
        began_ns = time.thread_time_ns()
        yield
        self.us[step] += (time.thread_time_ns() - began_ns) / 1_000


@dataclass
class _Steps:
    """One process and its store, driven step by step."""

    store: SqliteStore
    meter: Meter
    process: Process = field(
        default_factory=lambda: Process(0, RoutingTable.uniform(1, block_slots=64), epoch=1)
    )
    now_ns: int = 10**9
    appended: list[Append] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)

    def handle(self, event: Event) -> None:
        self.now_ns += TICK_NS
        for effect in self.process.handle(event, self.now_ns):
            if isinstance(effect, Append):
                self.appended.append(effect)
            elif isinstance(effect, Answer):
                self.answers.append(effect.result)
            elif isinstance(effect, TickRefused):
                raise RuntimeError(f"a tick was refused: {effect.refusal.message}")

    def metered(self, step: str, do: Callable[..., Any], *what: Any) -> Any:
        with self.meter(step):
            return do(*what)

    def read(self, messages: list[bytes]) -> list[node_pb.CommitTicksRequest]:
        return [node_pb.CommitTicksRequest.FromString(message) for message in messages]

    def take(self, requests: list[node_pb.CommitTicksRequest]) -> list[SubmitTicks]:
        return [
            SubmitTicks(
                [
                    SubmitTick("session", tick.number, content_from_pb(tick.content))
                    for tick in (
                        (request.tick,) if request.HasField("tick") else request.ticks.ticks
                    )
                ]
            )
            for request in requests
        ]

    def judge(self, taken: list[SubmitTicks]) -> None:
        for event in taken:
            self.handle(event)

    def encode(self) -> list[tuple[int, bytes]]:
        appended, self.appended = self.appended, []
        return [(each.position, record_to_bytes(each.record)) for each in appended]

    def commit(self) -> None:
        """What was appended becomes durable, and takes effect."""
        records = self.metered(ENCODE, self.encode)
        self.metered(STORE, self.store.commit, 1, records)
        self.metered(APPLY, self.handle, Committed(records[-1][0]))

    def settle(self) -> None:
        for _ in range(3):
            while self.appended:
                self.commit()
            self.now_ns += SETTLE_NS
            self.handle(Wake())

    def begin(self) -> None:
        """A node that has a front which may label."""
        spec = PipelineSpec("p", ("in",), front_count=1, horizon_slots=HORIZON)
        for event in (RegisterPipeline(1, spec), JoinNode(2, "p", "node", "bench")):
            self.handle(event)
            self.settle()
        joined: Joined = self.answers[-1]
        self.handle(AttachSession("session", "p", joined.key))
        joins = TickContent(joins=(FrontJoin("front", 0),))
        self.judge([SubmitTicks([SubmitTick("session", 1, joins)])])
        self.settle()


def steps_of(cells: int, ticks: int, together: int) -> dict[str, float]:
    """By step, what it takes for a tick, in microseconds."""
    meter = ProcessorTime()
    take_steps(cells, ticks, together, lambda: meter)
    return {step: us / ticks for step, us in meter.us.items()}


def take_steps(
    cells: int, ticks: int, together: int, meter: Callable[[], Meter], unmetered: int = 0
) -> None:
    """So many ticks go through the steps, behind others whose steps do not count. meter: makes the one that takes
    theirs, when its turn has come."""
    numbered = [numbered_tick(number, cells) for number in range(2, unmetered + ticks + 2)]
    with tempfile.TemporaryDirectory(prefix="lowmark-bench-") as directory:
        store = SqliteStore(Path(directory) / "store", 0)
        store.acquire("bench")
        steps = _Steps(store, lambda _: nullcontext())
        steps.begin()
        for first in range(0, unmetered + ticks, TICKS_PER_COMMIT):
            if first == unmetered:
                steps.meter = meter()
            messages = messages_of(numbered[first : first + TICKS_PER_COMMIT], together)
            requests = steps.metered(READ, steps.read, messages)
            taken = steps.metered(TAKE, steps.take, requests)
            steps.metered(JUDGE, steps.judge, taken)
            steps.commit()
        store.close()
