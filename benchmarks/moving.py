"""A pipeline that moves between two groups under load: for how long it is not announced, and what others notice.

Each group is a process with one shard. The pipeline that moves has a front, a hundred nodes that consume, and 100,000 open
cells; 500 ticks a second come from a process of their own, each of which moves min time by a slot, so that it is announced all
the time. In each group another pipeline is asked again and again how long a notification takes: while the one moves, and in as
many seconds in which none does, by turns.

    python -m benchmarks.moving TARGET

is the load: it says `started`, and goes on until its standard input ends.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from benchmarks import looping
from benchmarks.bars import BARS
from benchmarks.figures import Budget, Figure, percentile
from benchmarks.groups import started
from benchmarks.scratch import scratch
from tests.cluster.children import Running
from tests.waits import until
from tracker.client import Admin, AsyncSubscriber, NodeClient, Subscriber
from tracker.core.model import Cells, Heartbeat, PipelineSpec, TickContent

NAME = "moved"
NODES, CELLS, TICKS_PER_S = 100, 100_000, 500
FILLED_AT_ONCE, CREATED_AT_ONCE = 1_000, 10
MOVES = 30
TIMEOUT_S = 60.0
CONTROL_S = 2.0
"""In which nothing moves, after each move."""
SETTLE_S = 1.0
"""Behind a move: an announcement that it has kept waiting comes within it."""
SPACING_S = (0.008, 0.018)
"""Between two notifications of another pipeline."""


def spec(name: str) -> PipelineSpec:
    return PipelineSpec(name, ("in",), fronts=("front",), open=True)


def item(slot: int) -> tuple[int, int, int, int]:
    """The one item of a slot."""
    return (0, slot, slot + 1, 1)


class Announced:
    """When each min time of a pipeline was heard."""

    def __init__(self, target: str, name: str) -> None:
        self._target, self._name = target, name
        self.times: list[float] = []
        self._listening: Future[None] | None = None

    async def _listen(self) -> None:
        subscriber = AsyncSubscriber(self._target, self._name)
        try:
            async for update in subscriber.updates():
                if update.segment is None:
                    self.times.append(time.perf_counter())
        finally:
            await subscriber.close()

    def longest_pause_s(self, began: float, ended: float) -> float:
        """The longest time without an announcement that lies in a span, or reaches into it."""
        times = list(self.times)
        pairs = pairwise(times)
        return max((b - a for a, b in pairs if b > began and a < ended), default=ended - began)

    def __enter__(self) -> Announced:
        self._listening = looping.start(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        assert self._listening is not None
        self._listening.cancel()


@dataclass
class Other(threading.Thread):
    """A pipeline of a group that stays: its notifications, one after the other, each with the moment at which it began."""

    target: str
    group: int
    found: list[tuple[float, float]] = field(default_factory=list)
    failure: BaseException | None = None
    _ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__(name=f"other-{self.group}")

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        try:
            self._notify()
        except BaseException as error:
            self.failure = error
            raise

    def _notify(self) -> None:
        chosen = random.Random(self.group)
        with (
            NodeClient(self.target, self.name, "front", "front") as front,
            Subscriber(self.target, self.name) as subscriber,
        ):
            front.join(TIMEOUT_S)
            slot = front.join_front("front", "in", TIMEOUT_S).slot
            while not self._ended.is_set():
                slot += 1
                began = time.perf_counter()
                front.commit(TickContent(heartbeats=(Heartbeat("front", slot),)))
                if not subscriber.wait_until(slot, timeout_s=TIMEOUT_S):
                    raise TimeoutError(f"{self.name} was not announced at {slot}")
                self.found.append((began, time.perf_counter() - began))
                time.sleep(chosen.uniform(*SPACING_S))

    def between(self, began: float, ended: float) -> list[float]:
        """Milliseconds of the notifications that began in a span."""
        return [took * 1000 for at, took in list(self.found) if began <= at < ended]

    def end(self) -> None:
        self._ended.set()
        self.join(TIMEOUT_S)
        assert self.failure is None, self.failure


def find(budget: Budget) -> Iterable[Figure]:
    moves = budget.pick(4, MOVES)
    with scratch() as directory, ExitStack() as stack:
        deployment = started(Path(directory), 2, stack)
        target = deployment.target
        others = [Other(target, number) for number in range(2)]
        deployment.place([(spec(NAME), 0), *((spec(each.name), each.group) for each in others)])
        load = Running("benchmarks.moving", target, errors=Path(directory) / "load.log")
        stack.callback(load.discard)
        load.start()
        load.until_says("started")
        announced = stack.enter_context(Announced(target, NAME))
        until(lambda: announced.times, load.errors)
        for other in others:
            other.start()
            stack.callback(other.end)
        pauses, moving, resting = _measured(target, moves, announced, others)
        assert not load.has_ended(), load.errors()
    yield from _figures(pauses, moving, resting)


def _measured(
    target: str, moves: int, announced: Announced, others: list[Other]
) -> tuple[list[float], list[float], list[float]]:
    """Seconds without an announcement, of each move; milliseconds of the others' notifications while one moved, and while
    none did."""
    pauses: list[float] = []
    moving: list[float] = []
    resting: list[float] = []
    with Admin(target, TIMEOUT_S) as admin:
        for move in range(moves):
            began = time.perf_counter()
            admin.move(NAME, 1 - move % 2)
            ended = time.perf_counter() + SETTLE_S
            time.sleep(SETTLE_S + CONTROL_S)
            pauses.append(announced.longest_pause_s(began, ended))
            for other in others:
                moving += other.between(began, ended)
                resting += other.between(ended, time.perf_counter())
            print(f"move {move + 1} of {moves}: {pauses[-1] * 1000:.0f} ms", flush=True)
    return pauses, moving, resting


def _figures(pauses: list[float], moving: list[float], resting: list[float]) -> Iterable[Figure]:
    load = f"{NODES} nodes, {CELLS:,} open cells, {TICKS_PER_S} ticks a second, sqlite"
    yield Figure(
        f"a pipeline moves under load: not announced, p99 of {len(pauses)} moves",
        (percentile(pauses, 99),), "s", f"{load}; p50 {percentile(pauses, 50):.2f} s", BARS["move, pause"], exact=True,
    )  # fmt: skip
    yield Figure(
        "notification p99 of other pipelines while one moves / while none does",
        (percentile(moving, 99) / percentile(resting, 99),), "",
        f"{len(moving)} and {len(resting)} notifications, by turns", BARS["move, others"], exact=True,
    )  # fmt: skip


def main(target: str) -> int:
    """The load of the pipeline that moves."""
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    with ExitStack() as stack:
        front = stack.enter_context(NodeClient(target, NAME, "front", "front"))
        front.join(TIMEOUT_S)
        front.join_front("front", "in", TIMEOUT_S)
        nodes = [stack.enter_context(NodeClient(target, NAME, f"node-{n}")) for n in range(NODES)]
        for node in nodes:
            node.join(TIMEOUT_S)
        for slot in range(0, CELLS, FILLED_AT_ONCE):
            _create(front, slot, FILLED_AT_ONCE).result(TIMEOUT_S)
        print("started", flush=True)
        slot, due_s = 0, time.monotonic()
        while not ended.is_set():
            nodes[slot % NODES].commit(TickContent(consumed=Cells.of([item(slot)])))
            slot += 1
            if slot % CREATED_AT_ONCE == 0:
                _create(front, slot + CELLS - CREATED_AT_ONCE, CREATED_AT_ONCE)
            due_s = max(due_s + 1 / TICKS_PER_S, time.monotonic() - 1.0)
            time.sleep(max(0.0, due_s - time.monotonic()))
    return 0


def _create(front: NodeClient, slot: int, slots: int) -> Future[int]:
    """An item in each of some slots, and the promise of none below their end."""
    made = Cells.of(item(each) for each in range(slot, slot + slots))
    return front.commit(TickContent(created=made, heartbeats=(Heartbeat("front", slot + slots),)))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
