"""A simulated store of one shard: what it has acknowledged it keeps; only its newest owner writes.

The store knows what every shard's home log holds durably, and passes it on to the checkers.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable

from tracker.core.log import Record
from tracker.core.model.levels import OLDEST_LEVEL
from tracker.core.process.snapshot import ProcessSnapshot


class Fenced(Exception):
    """The store has a newer owner."""


class SimulatedStore:
    """A log and a snapshot. `on_durable` is called with each record when it becomes durable."""

    def __init__(self, on_durable: Callable[[Record], None]) -> None:
        self.epoch = 0
        self.position = 0
        """The last durable position."""
        self._records: list[tuple[int, Record]] = []
        self._snapshot: bytes | None = None
        self._on_durable = on_durable
        self.format = OLDEST_LEVEL
        """The feature level that it takes to read it."""

    def begin_with(self, snapshot: bytes) -> None:
        """What a shard that joins has got from a peer."""
        assert not self._records
        self._snapshot = snapshot
        self.format = pickle.loads(snapshot).membership.level

    def acquire(self) -> int:
        self.epoch += 1
        return self.epoch

    def load(self) -> tuple[ProcessSnapshot | None, list[tuple[int, Record]]]:
        snapshot = None if self._snapshot is None else pickle.loads(self._snapshot)
        return snapshot, list(self._records)

    def check(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise Fenced(f"epoch {epoch} has been replaced by epoch {self.epoch}")

    def commit(self, epoch: int, records: list[tuple[int, Record]]) -> None:
        """One group commit."""
        self.check(epoch)
        for position, record in records:
            assert position == self.position + 1, f"{position} comes after {self.position}"
            self.position = position
            self._records.append((position, record))
            self._on_durable(record)

    def write_snapshot(self, epoch: int, snapshot: ProcessSnapshot) -> None:
        self.check(epoch)
        assert snapshot.position <= self.position, "a snapshot covers what is not durable"
        self._snapshot = pickle.dumps(snapshot)
        self._records = [r for r in self._records if r[0] > snapshot.position]
