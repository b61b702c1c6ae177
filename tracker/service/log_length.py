"""When a snapshot is due: how long a log may grow beside the snapshot before it."""

from __future__ import annotations

import math

SNAPSHOT_AFTER_RECORDS = 100_000
SNAPSHOT_AFTER_BYTES = 256 * 1024 * 1024
SMALL_SNAPSHOT_AFTER_RECORDS = 3_000
"""The least length of a log at which a small snapshot takes its place. A log of twice a snapshot's size
takes longer to read than it does; so many records take a quarter of a second of a processor to read and apply, and more on a loaded machine."""
SNAPSHOT_AFTER_DELETION_S = 20.0
"""What was kept of a deleted pipeline goes with a snapshot so long after it; pipelines that are deleted one after the
other go with one."""


class LogLength:
    """How much a store has beside its newest snapshot."""

    def __init__(self, snapshot_after_records: int = SNAPSHOT_AFTER_RECORDS) -> None:
        self.records = 0
        """After the snapshot, as far as is known."""
        self._bytes = 0
        """Of those that this process has written."""
        self._snapshot_bytes = 0
        self._wanted_s = math.inf
        self._after_records = snapshot_after_records

    def wrote(self, records: int, size_bytes: int) -> None:
        """So much was committed, or (with no bytes) was there at the start."""
        self.records += records
        self._bytes += size_bytes

    def want_snapshot(self, now_s: float) -> None:
        """A pipeline was deleted, of which the snapshot holds much that is gone."""
        self._wanted_s = min(self._wanted_s, now_s + SNAPSHOT_AFTER_DELETION_S)

    @property
    def is_wanted(self) -> bool:
        """Whether a pipeline was deleted since a snapshot was begun."""
        return self._wanted_s < math.inf

    def is_due(self, now_s: float) -> bool:
        """Whether a snapshot is due. now_s: of any monotonic clock."""
        is_small = self._bytes >= 2 * self._snapshot_bytes
        return (
            now_s >= self._wanted_s
            or self.records >= self._after_records
            or self._bytes >= SNAPSHOT_AFTER_BYTES
            or (is_small and self.records >= SMALL_SNAPSHOT_AFTER_RECORDS)
        )

    def begin(self) -> None:
        """A snapshot of all that is committed by now is being written."""
        self.records = self._bytes = 0
        self._wanted_s = math.inf

    def wrote_snapshot(self, size_bytes: int) -> None:
        """It has this size."""
        self._snapshot_bytes = size_bytes
