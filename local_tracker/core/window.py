"""When a local tracker flushes, and what one flush holds.

Steps (rule 1) gather until the next flush: at once if the last one is a window ago, else when the
window since then is over. A local tracker that is told to wait begins a window with the first step after a
flush, also where the last one was long ago: fewer flushes, with more in each, which are later by up to a window.
Either way no step waits longer than one window, and no more than one flush is made in each. A flush is
merged: acks by decreasing global time, then the latest promise of each front.

What waits for the end of a window may be recorded ahead of it, so that the flush need not wait for the disk:
once a window, so long before its end as is allowed for recording, and where hardly a step is expected to come
meanwhile, since such a one is recorded by itself.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from enum import Enum

from local_tracker.core.merge import merge_cells
from tracker.core.model import Cells, Heartbeat, HoldMove, TickContent

_MS = 1_000_000
_LONGEST_AHEAD = 0.25
"""Where a larger share of the window is allowed for recording, it is not begun ahead: the disk is slow, and what comes
meanwhile would wait for a second write."""
_EXPECTED_LATE = 0.5
"""So many steps may be expected to come while what came before is recorded ahead."""


class Flush(Enum):
    """When steps that come after a pause are flushed."""

    WHEN_IDLE = "when-idle"
    """At once: less latency."""
    AT_WINDOW_END = "at-window-end"
    """With what else comes within a window: fewer messages."""


@dataclass(slots=True, eq=False)
class Step:
    """One whole step of a worker: what it consumed and created, promises, and what it holds after it.

    (sender, number): who hands it over and its number there, from 1, so that one that arrives again
    is known.
    """

    sender: str
    number: int
    created: Cells = field(default_factory=Cells.empty)
    consumed: Cells = field(default_factory=Cells.empty)
    heartbeats: tuple[Heartbeat, ...] = ()
    holds: tuple[HoldMove, ...] = ()

    @property
    def cells(self) -> int:
        """How many cells it has; at least 1, so that empty steps count too."""
        return max(1, len(self.created) + len(self.consumed))


def merged_content(steps: tuple[Step, ...]) -> TickContent:
    """The tick content of steps: each (segment, slot) once, by decreasing slot, then the latest
    promise of each joining of a front, in the order in which they were first heard, and where each hold came to."""
    latest: dict[Heartbeat, int] = {}
    for step in steps:
        for heartbeat in step.heartbeats:
            joined = replace(heartbeat, slot=0)
            latest[joined] = max(heartbeat.slot, latest.get(joined, heartbeat.slot))
    return TickContent(
        created=merge_cells(Cells.concatenate(step.created for step in steps)),
        consumed=merge_cells(Cells.concatenate(step.consumed for step in steps)),
        heartbeats=tuple(replace(joined, slot=slot) for joined, slot in latest.items()),
        holds=tuple({move.name: move for step in steps for move in step.holds}.values()),
    )


class FlushWindow:
    """Gathers steps and says when they are due. The moment is an argument: nanoseconds of any
    monotonic clock."""

    def __init__(
        self,
        window_ms: float,
        max_cells_per_flush: int,
        max_gathered_cells: int,
        flush: Flush = Flush.WHEN_IDLE,
    ) -> None:
        """max_gathered_cells: above it nothing more is taken (`full`), so that a tracker that is
        away pushes back to the workers."""
        self._window_ns = int(window_ms * _MS)
        self._max_cells_per_flush = max_cells_per_flush
        self._max_gathered_cells = max_gathered_cells
        self._steps: deque[Step] = deque()
        self._cells = 0
        self._flush = flush
        self._left_over = False
        self._last_flush_ns: int | None = None
        self._oldest_ns = 0
        self._ahead = 0
        """How many of the steps, from the oldest on, are recorded ahead of their flush."""

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def cells(self) -> int:
        """How many cells are gathered; an empty step counts as one."""
        return self._cells

    @property
    def full(self) -> bool:
        """Whether `add` must wait for a flush."""
        return self._cells >= self._max_gathered_cells

    def add(self, step: Step, now_ns: int) -> None:
        """Takes a step. Raises ValueError if the window is full or the step is larger than a flush."""
        if self.full:
            raise ValueError(
                f"{self._cells} cells are gathered, the limit max_gathered_cells is "
                f"{self._max_gathered_cells}; wait for a flush"
            )
        if step.cells > self._max_cells_per_flush:
            raise ValueError(
                f"a step of {step.cells} cells, the limit max_cells_per_flush is "
                f"{self._max_cells_per_flush}; acknowledge in smaller steps or use a wider slack"
            )
        if not self._steps:
            self._oldest_ns = now_ns
        self._steps.append(step)
        self._cells += step.cells

    def due_ns(self) -> int | None:
        """The moment from which `take` may be called; None while nothing is gathered."""
        if not self._steps:
            return None
        if self._left_over or self._cells >= self._max_cells_per_flush:
            return self._oldest_ns
        if self._flush is Flush.AT_WINDOW_END:
            return self._oldest_ns + self._window_ns
        if self._last_flush_ns is None:
            return self._oldest_ns
        return max(self._oldest_ns, self._last_flush_ns + self._window_ns)

    def ahead_ns(self, takes_ns: int) -> int | None:
        """The moment from which what has gathered should be recorded ahead, where `takes_ns` are allowed for
        that; None where it should not be: nothing waits for the end of a window, it is recorded already,
        the disk is slow, or half a step and more is expected to come while it writes."""
        due = self.due_ns()
        if due is None or due <= self._oldest_ns or self._ahead:
            return None
        before_ns = self._window_ns - takes_ns
        slow = takes_ns > self._window_ns * _LONGEST_AHEAD
        if slow or len(self._steps) * takes_ns > before_ns * _EXPECTED_LATE:
            return None
        return due - takes_ns

    def record_ahead(self) -> tuple[Step, ...]:
        """All that has gathered: the first steps of the next flush, whatever else comes."""
        self._ahead = len(self._steps)
        return tuple(self._steps)

    def take(self, now_ns: int) -> tuple[Step, ...]:
        """The steps of the next flush, in the order in which they came: as many whole steps as go
        into one, those that are recorded ahead first. What is left over is due at once."""
        taken: list[Step] = []
        cells = 0
        while self._steps and cells + self._steps[0].cells <= self._max_cells_per_flush:
            step = self._steps.popleft()
            cells += step.cells
            taken.append(step)
        self._cells -= cells
        # Left-over steps have waited already: they must not wait for another window.
        self._left_over = bool(self._steps)
        self._last_flush_ns = now_ns
        self._oldest_ns = min(self._oldest_ns, now_ns)
        self._ahead = 0
        return tuple(taken)

    def validate(self) -> None:
        """Raises AssertionError where an invariant does not hold."""
        assert self._cells == sum(step.cells for step in self._steps), "cells are miscounted"
        assert all(s.cells <= self._max_cells_per_flush for s in self._steps), "a step is too large"
        assert self._ahead <= len(self._steps), "more is recorded ahead than has gathered"
        assert not self._ahead or sum(s.cells for s in list(self._steps)[: self._ahead]) <= (
            self._max_cells_per_flush
        ), "what is recorded ahead does not go into one flush"
        if self._steps:
            due = self.due_ns()
            assert due is not None and due <= self._oldest_ns + self._window_ns, "due too late"
