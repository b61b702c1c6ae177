"""A store that is gone with its process: for tests, and for `tracker.embedded()`."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from tracker.core.model.levels import OLDEST_LEVEL
from tracker.store.format import OLDEST_FORMAT
from tracker.store.interface import (
    Fenced,
    Lease,
    Stored,
    StoreError,
    follow_one_another,
    lease_left_ms,
    next_epoch,
)


class MemoryStore:
    """Keeps records in a list. Two owners may share one object, as two processes share a disk."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._epoch = 0
        self._owner = self._address = ""
        self._until_ms = self._lease_ms = 0
        self._snapshot: tuple[int, bytes] | None = None
        self._records: list[tuple[int, bytes]] = []
        self._last = 0
        self._format = OLDEST_FORMAT
        self._last_commit: tuple[int, list[tuple[int, bytes]]] = (0, [])

    def acquire(
        self, owner: str, *, lease_ms: int = 0, replaces: int = 0, least_epoch: int = 1
    ) -> int:
        with self._lock:
            self._epoch = next_epoch("this store", self.lease(), owner, replaces, least_epoch)
            self._owner, self._address = owner, ""
            self._run_lease(lease_ms)
            return self._epoch

    def lease(self) -> Lease:
        """The lease as it is now; epoch 0 where the store has never had an owner."""
        with self._lock:
            left_ms = lease_left_ms(self._until_ms, _now_ms(), self._lease_ms)
            return Lease(self._epoch, self._owner, self._address, left_ms)

    def _run_lease(self, lease_ms: int) -> None:
        self._lease_ms, self._until_ms = lease_ms, _now_ms() + lease_ms

    def renew(self, epoch: int, lease_ms: int, address: str | None = None) -> None:
        with self._lock:
            self._check(epoch)
            self._run_lease(lease_ms)
            if address is not None:
                self._address = address

    def release(self, epoch: int) -> None:
        with self._lock:
            if epoch == self._epoch:
                self._run_lease(0)

    def load(self, epoch: int) -> Stored:
        with self._lock:
            self._check(epoch)
            return Stored(self._snapshot, iter(list(self._records)), self._format)

    def commit(
        self, epoch: int, records: Sequence[tuple[int, bytes]], level: int = OLDEST_LEVEL
    ) -> None:
        with self._lock:
            self._check(epoch)
            batch = list(records)
            if not batch or (epoch, batch) == self._last_commit:
                return
            if not follow_one_another(batch, self._last + 1):
                raise StoreError(f"records must continue at position {self._last + 1}")
            self._records.extend(batch)
            self._last += len(batch)
            self._last_commit = (epoch, batch)
            self._format = max(self._format, level)

    def write_snapshot(
        self, epoch: int, position: int, snapshot: bytes, level: int = OLDEST_LEVEL
    ) -> None:
        with self._lock:
            self._check(epoch)
            self._snapshot = (position, snapshot)
            self._records = [record for record in self._records if record[0] > position]
            self._last = max(self._last, position)
            self._format = max(self._format, level)

    def weakened(self) -> str:
        return ""

    def accept_loss(self) -> str:
        """Nothing is ever missing that was not lost with the process."""
        return ""

    def _check(self, epoch: int) -> None:
        if epoch != self._epoch:
            raise Fenced(f"epoch {epoch} has been replaced by epoch {self._epoch}")

    def close(self) -> None:
        """Nothing to close."""


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
