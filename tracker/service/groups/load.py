"""What one process has to do: for people, and for the choice of a group for a new pipeline."""

from __future__ import annotations

import time
from collections import deque

from acker.v1 import group_service_pb2 as pb
from tracker.service.engine import Engine

WINDOW_S = 10.0
"""Over how long ticks are counted."""
_PAGE_BYTES = 4_096


class Load:
    """Counted when it is asked for, which others do now and then."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ticks: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])

    def state(self) -> pb.GroupState:
        """Of this shard alone."""
        process = self._engine.process
        moving = process.membership.moving.values()
        return pb.GroupState(
            pipelines=len(process.pipelines()),
            ticks_per_s=self._rate(),
            open_cells=process.open_cells,
            memory_bytes=_resident_bytes(),
            leaving=sorted(move.pipeline for move in moving if not move.arrives),
            arriving=sorted(move.pipeline for move in moving if move.arrives),
        )

    def _rate(self) -> float:
        now_s = time.monotonic()
        ticks = sum(counts.ticks for counts in self._engine.stats.pipelines.values())
        self._ticks.append((now_s, ticks))
        while len(self._ticks) > 2 and now_s - self._ticks[1][0] > WINDOW_S:
            self._ticks.popleft()
        since_s, before = self._ticks[0]
        return max(0, ticks - before) / max(now_s - since_s, 1e-3)


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm") as told:
            return int(told.read().split()[1]) * _PAGE_BYTES
    except OSError:  # not on this system
        return 0
