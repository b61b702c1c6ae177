"""What a process counts and times while it serves: plain numbers, for whoever gathers metrics.

Everything is written in the process's one loop, but for the failures of the store, which its own
thread and the lease's count too: adding to a number of a dict that exists loses at most a count.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from tracker.core.model import Refusal
from tracker.metrics.latencies import Latencies

CALLS_REFUSED: Counter[str] = Counter()
"""By reason, of this operating-system process: calls that ended with a refusal."""


@dataclass(slots=True)
class TickCounts:
    """What nodes have sent for one pipeline since this process started."""

    ticks: int = 0
    created: int = 0
    consumed: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """By reason."""

    def refuse(self, refusal: Refusal) -> None:
        self.refused[refusal.code.value] += 1


@dataclass(slots=True)
class Forwarding:
    """How long one other shard takes to have this shard's log durably. One entry at a time is timed:
    the last of the first frame sent after the entry before was confirmed."""

    latencies: Latencies = field(default_factory=Latencies)
    dropped_frames: int = 0
    sent_messages: int = 0
    sent_bytes: int = 0
    too_large_messages: int = 0
    _number: int = 0
    _sent_s: float = 0.0

    def sent(self, last: int) -> None:
        if not self._number:
            self._number, self._sent_s = last, time.monotonic()

    def confirmed(self, number: int) -> None:
        if self._number and number >= self._number:
            self.latencies.observe(time.monotonic() - self._sent_s)
            self._number = 0


class Stats:
    """The counts of one shard's process."""

    def __init__(self) -> None:
        self.pipelines: defaultdict[str, TickCounts] = defaultdict(TickCounts)
        """Of registered pipelines: there are no more than may be registered."""
        self.commits = Latencies()
        self.committed_records = 0
        self.committed_bytes = 0
        self.snapshots = 0
        self.store_failures = {"commit": 0, "snapshot": 0, "renew": 0}
        self.store_weakened = ""
        """What the store promises less than it must, for people; empty while that is nothing."""
        self.notifications = Latencies()
        self.forwarding: defaultdict[int, Forwarding] = defaultdict(Forwarding)
        """By the other shard."""
