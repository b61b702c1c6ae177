"""What a process counts and times while it serves: plain numbers, for whoever gathers metrics.

Everything is written in the process's one loop, but for the failures of the store, which its own
thread and the lease's count too: adding to a number of a dict that exists loses at most a count.
"""

from __future__ import annotations

import time
from collections import Counter

from tracker.core.model import Refusal
from tracker.metrics.latencies import Latencies

CALLS_REFUSED: Counter[str] = Counter()
"""By reason, of this operating-system process: calls that ended with a refusal."""


class TickCounts:
    """What nodes have sent for one pipeline since this process started."""

    __slots__ = ("consumed", "created", "refused", "ticks")

    def __init__(self) -> None:
        self.ticks = 0
        self.created = 0
        self.consumed = 0
        self.refused: Counter[str] = Counter()

    def refuse(self, refusal: Refusal) -> None:
        self.refused[refusal.code.value] += 1


class Forwarding:
    """How long one other shard takes to have this shard's log durably. One entry at a time is timed:
    the last of the first frame sent after the entry before was confirmed."""

    __slots__ = (
        "_number", "_sent_s", "dropped_frames", "latencies", "sent_bytes", "sent_messages",
        "too_large_messages",
    )  # fmt: skip

    def __init__(self) -> None:
        self.latencies = Latencies()
        self.dropped_frames = 0
        self.sent_messages = 0
        self.sent_bytes = 0
        self.too_large_messages = 0
        self._number = 0
        self._sent_s = 0.0

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
        self.pipelines: dict[str, TickCounts] = {}
        self.commits = Latencies()
        self.committed_records = 0
        self.committed_bytes = 0
        self.snapshots = 0
        self.store_failures = {"commit": 0, "snapshot": 0, "renew": 0}
        self.notifications = Latencies()
        self.forwarding: dict[int, Forwarding] = {}

    def of_pipeline(self, pipeline: str) -> TickCounts:
        """The counts of a registered pipeline: there are no more than may be registered."""
        counts = self.pipelines.get(pipeline)
        if counts is None:
            counts = self.pipelines[pipeline] = TickCounts()
        return counts

    def to_shard(self, shard: int) -> Forwarding:
        forwarding = self.forwarding.get(shard)
        if forwarding is None:
            forwarding = self.forwarding[shard] = Forwarding()
        return forwarding
