"""Writing what is complete into the sink, from where the sink says that it is."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from tracker.client.connection import Backoff
from tracker.consumers.barrier.sink import OrderedSink, Position
from tracker.consumers.reorder import Released, ReorderBuffer
from tracker.errors import Code, StateError, UnavailableError

log = logging.getLogger("lowmark.barrier")


class Releaser:
    """What of a barrier writes. One thread uses it."""

    def __init__(self, barrier: str, buffer: ReorderBuffer, sink: OrderedSink) -> None:
        self._barrier, self._buffer, self._sink = barrier, buffer, sink
        self.is_open = False
        """Whether the sink has said how far it is, and is not away."""
        self._backoff, self._again_s = Backoff(), 0.0
        self._done_below: int | None = None
        self._wrote = False  # since all that was complete was written last
        self.away = ""
        """Why the sink cannot be written at the moment; empty if it can."""

    @property
    def released(self) -> int:
        """Rows that were written, since the barrier began."""
        return self._buffer.position

    def begin(self) -> None:
        """As `open`; of a sink that is away, `step` does it."""
        try:
            self.open()
        except UnavailableError as error:
            self._wait(error)

    def open(self) -> None:
        """Takes the sink, and drops from the buffer what it has. Raises LowmarkError, StateError."""
        held = self._sink.open(self._barrier, self._buffer.id)
        if held is not None:
            self._buffer.written(held.next, held.slot, held.key)
        elif self._buffer.position:
            raise StateError(
                f"{self._sink.name} has no row of barrier {self._barrier!r}, and {self._buffer.path} has let go of "
                f"{self._buffer.position} that were written: it is another sink, or was set back; bring it back",
                Code.STATE_POSITION,
            )
        self.is_open, self.away = True, ""
        self._backoff.reset()

    def step(self, min_time: int) -> bool:
        """Writes one piece of what min time has passed; returns whether there was one."""
        if time.monotonic() < self._again_s or self._done_below == min_time:
            return False
        try:
            if not self.is_open:
                self.open()
            if self._buffer.release_some(min_time, self._write):
                self._wrote = True
                return True
        except UnavailableError as error:
            self._wait(error)
            return False
        if self._wrote:
            self._wrote, self._again_s = False, time.monotonic() + self._sink.interval_ms / 1000
        self._done_below = min_time
        return False

    def _wait(self, error: UnavailableError) -> None:
        self.is_open, self.away = False, str(error)
        self._again_s = time.monotonic() + self._backoff.pause_s()
        log.warning("barrier %r waits for its sink: %s", self._barrier, error)

    def _write(self, rows: Sequence[Released]) -> None:
        last = rows[-1]
        position = Position(self._buffer.id, last.position + 1, last.slot, last.key)
        self._sink.write(rows, position)
