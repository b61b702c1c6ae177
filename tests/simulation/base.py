"""Simulated time: a queue of what happens next, randomness from one seed, counts, and a trace."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.simulation.checkers import Failure
from tests.simulation.plan import MS, Plan
from tests.simulation.stories import draw_plan

STEP_LIMIT = 50_000
RARE = 0.04
"""How often a rare thing happens where it could."""


class Base:
    """The clock of one run. One event is taken from a queue at a time; what it causes goes back into
    the queue at a later moment. All randomness comes from one generator, so a seed gives one run."""

    def __init__(self, seed: int, *, traced: bool = False) -> None:
        self.plan: Plan = draw_plan(seed)
        self.rng = random.Random(f"run {seed}")
        self.now = 0
        self.steps = 0
        self.counts: Counter[str] = Counter()
        self.trace: list[str] | None = [] if traced else None
        self.faulty = False
        self.healed = False
        self._queue: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._queued = 0

    def after(self, delay_ns: int, call: Callable[..., None], *arguments: Any) -> None:
        """Calls back at a later moment."""
        self._queued += 1
        heapq.heappush(self._queue, (self.now + delay_ns, self._queued, call, arguments))

    def take_step(self) -> None:
        """The next thing happens."""
        if not self._queue or self.steps >= STEP_LIMIT:
            raise Failure("lost", f"nothing more happens after {self.steps} steps")
        self.now, _, call, arguments = heapq.heappop(self._queue)
        self.steps += 1
        call(*arguments)

    def not_a_step(self) -> None:
        """What was taken from the queue has been overtaken: nothing happened."""
        self.steps -= 1

    def count(self, what: str) -> None:
        self.counts[what] += 1

    def chance(self, what: str, share: float = RARE) -> bool:
        """Whether a rare thing happens here and now; only while there are faults."""
        if self.faulty and self.rng.random() < share:
            self.counts[what] += 1
            self.trace_line(lambda: f"fault: {what}")
            return True
        return False

    def milliseconds(self, first: int, last: int) -> int:
        """A random time, in nanoseconds."""
        return self.rng.randint(first * MS, last * MS)

    def trace_line(self, line: Callable[[], str]) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.now / MS:9.3f} ms  {line()}")
