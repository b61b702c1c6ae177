"""A tree of local trackers, simulated: how many messages a second each level sends.

Each executor ends a task a second and hands its step to its local tracker; up to a hundred local
trackers flush into one of the next level, until few are left, which flush into the tracker. Windows and
merging are the production core's; the clock is simulated, and flushes arrive at once.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable

from local_tracker.core.window import FlushWindow, Step, merged_content
from tracker.core.model import Cells, TickContent
from tracker.wire.ticks import content_to_pb

FAN_IN = 100
WINDOWS_MS = (5.0, 50.0, 50.0, 50.0)
"""By level: more than one flush of a sender must fall into a window above it to be merged."""
SECONDS = 1
SLOT_NS = 10_000_000
_SECOND_NS = 1_000_000_000


def levels_per_second(executors: int) -> dict[str, float]:
    """Messages a second, by the level that they go into."""
    tree = _Tree(executors)
    tree.run()
    return tree.per_second()


def cost_of_tree(executors: int) -> tuple[dict[str, float], float]:
    """The same, and the bytes of the ticks that go into the tracker in a second, as they are sent."""
    tree = _Tree(executors)
    tree.run()
    return tree.per_second(), tree.tick_bytes / SECONDS


class _Tree:
    def __init__(self, executors: int) -> None:
        self.sizes = [executors]
        while self.sizes[-1] > FAN_IN:
            self.sizes.append(-(-self.sizes[-1] // FAN_IN))
        if len(self.sizes) == 1:
            self.sizes.append(1)
        self.windows = [
            [FlushWindow(WINDOWS_MS[level], 100_000, 10_000_000) for _ in range(size)]
            for level, size in enumerate(self.sizes)
        ]
        self.sent = [0] * (len(self.sizes) + 1)
        self.tick_bytes = 0
        self._planned: set[tuple[int, int]] = set()
        self._numbers = itertools.count(1)
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._now = 0

    def run(self) -> None:
        chosen = random.Random(7)
        for executor in range(self.sizes[0]):
            for second in range(SECONDS):
                moment = int((second + chosen.random()) * _SECOND_NS)
                value = chosen.getrandbits(64)
                self._at(moment, lambda e=executor, v=value: self._task_ends(e, v))  # type: ignore[misc]
        while self._queue:
            self._now, _, action = heapq.heappop(self._queue)
            action()

    def per_second(self) -> dict[str, float]:
        """Messages a second, by the level that they go into."""
        names = ["into the local trackers of executors"]
        names += [f"into level {level + 1}" for level in range(1, len(self.sizes))]
        rates = (sent / SECONDS for sent in self.sent)
        return dict(zip([*names, "into the tracker"], rates, strict=True))

    def _at(self, moment: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (moment, next(self._numbers), action))

    def _task_ends(self, executor: int, value: int) -> None:
        """It has consumed what it read, of one of the last few slots."""
        slot = self._now // SLOT_NS - value % 8
        consumed = Cells.of([(0, slot, value, 1)])
        self._hand_over(0, executor, Step("task", next(self._numbers), consumed=consumed))

    def _hand_over(self, level: int, place: int, step: Step) -> None:
        self.sent[level] += 1
        if level == len(self.sizes):
            content = TickContent(created=step.created, consumed=step.consumed)
            self.tick_bytes += content_to_pb(content).ByteSize()
            return
        window = self.windows[level][place]
        window.add(step, self._now)
        due = window.due_ns()
        if (level, place) not in self._planned and due is not None:
            self._planned.add((level, place))
            self._at(max(due, self._now), lambda: self._flush(level, place))

    def _flush(self, level: int, place: int) -> None:
        self._planned.discard((level, place))
        content = merged_content(self.windows[level][place].take(self._now))
        step = Step(
            "flush", next(self._numbers), content.created, content.consumed, content.heartbeats
        )
        self._hand_over(level + 1, place // FAN_IN, step)
