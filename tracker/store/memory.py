"""A store that is gone with its process: for tests, and for `tracker.embedded()`."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from tracker.store.interface import Fenced, Stored, StoreError


class MemoryStore:
    """Keeps records in a list. Two owners may share one object, as two processes share a disk."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epoch = 0
        self._snapshot: tuple[int, bytes] | None = None
        self._records: list[tuple[int, bytes]] = []
        self._last = 0

    def acquire(self, owner: str) -> int:
        with self._lock:
            self._epoch += 1
            return self._epoch

    def load(self, epoch: int) -> Stored:
        with self._lock:
            self._check(epoch)
            return Stored(self._snapshot, iter(list(self._records)))

    def commit(self, epoch: int, records: Sequence[tuple[int, bytes]]) -> None:
        with self._lock:
            self._check(epoch)
            due = self._last + 1
            if [position for position, _ in records] != list(range(due, due + len(records))):
                raise StoreError(f"records must continue at position {due}")
            self._records.extend(records)
            self._last += len(records)

    def write_snapshot(self, epoch: int, position: int, snapshot: bytes) -> None:
        with self._lock:
            self._check(epoch)
            self._snapshot = (position, snapshot)
            self._records = [record for record in self._records if record[0] > position]

    def _check(self, epoch: int) -> None:
        if epoch != self._epoch:
            raise Fenced(f"epoch {epoch} has been replaced by epoch {self._epoch}")

    def close(self) -> None:
        """Nothing to close."""
