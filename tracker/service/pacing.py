"""When the next group commit begins: at once, or a little later where the process is busy.

Each group commit costs a process the same, whatever is in it: a turn of the store's thread, an
announcement, answers. One that has time to spare commits at once, for the sake of latency; one that has
none commits more at a time, and so has more time for ticks.
"""

from __future__ import annotations

import time

GATHER_S = 0.003
"""How long a busy process lets records gather between two group commits."""
BUSY_SHARE = 0.6
"""A loop whose thread has had that share of a processor is busy."""
HORIZON_S = 0.02
"""It is looked at over at least so long: between two commits in a row it is always busy."""


class Pace:
    """Used by the thread of the loop alone."""

    def __init__(self) -> None:
        self._wall_s, self._busy_s = time.monotonic(), time.thread_time()
        self._is_busy = False

    def pause_s(self) -> float:
        """How long to wait before the next group commit."""
        wall_s = time.monotonic()
        passed_s = wall_s - self._wall_s
        if passed_s >= HORIZON_S:
            busy_s = time.thread_time()
            self._is_busy = busy_s - self._busy_s > BUSY_SHARE * passed_s
            self._wall_s, self._busy_s = wall_s, busy_s
        return GATHER_S if self._is_busy else 0.0
