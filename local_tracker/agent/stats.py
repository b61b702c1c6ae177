"""What a local tracker counts, in several threads: plain numbers for whoever gathers metrics."""

from __future__ import annotations

import threading
from collections import Counter

from tracker.metrics.latencies import Latencies


class Stats:
    """Counts since the start."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.steps = 0
        self.cells_received = 0
        self.cells_flushed = 0
        self.flushes: Counter[str] = Counter({"durable": 0, "refused": 0})
        self.flush_latencies = Latencies()
        self.contributions = 0
        self.stage_latencies = Latencies()
        self.refused: Counter[str] = Counter()

    def flushed(self, steps: int, received: int, flushed: int, seconds: float) -> None:
        """A flush is durable: of so many steps, whose cells were merged into fewer."""
        with self._lock:
            self.flushes["durable"] += 1
            self.steps += steps
            self.cells_received += received
            self.cells_flushed += flushed
            self.flush_latencies.observe(seconds)

    def flush_refused(self) -> None:
        with self._lock:
            self.flushes["refused"] += 1

    def staged(self, contributions: int, seconds: float) -> None:
        """Contributions are durable at their query's home."""
        with self._lock:
            self.contributions += contributions
            self.stage_latencies.observe(seconds)

    def refuse(self, code: str) -> None:
        """A worker was answered with an error."""
        with self._lock:
            self.refused[code] += 1
