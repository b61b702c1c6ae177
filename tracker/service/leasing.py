"""Keeping a lease, in a thread of its own: neither recovery nor a busy loop can end it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from tracker.service.stats import Stats
from tracker.store import Fenced, LogShortened, Store, StoreDamaged, StoreError

log = structlog.get_logger(__name__)

RENEWALS_PER_LEASE = 4
JOIN_S = 10.0
PROMISES_INTERVAL_S = 1.0
"""How often the store is asked whether it still promises what it did when it was acquired."""
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Goes on while the machine sleeps, where there is such a one: the store's clock, by which leases end, does."""


def _now_s() -> float:
    return time.clock_gettime(_CLOCK)


class LeaseKeeper:
    """Renews the lease of an owner, several times in its length, until it is stopped or replaced."""

    def __init__(
        self,
        store: Store,
        epoch: int,
        lease_ms: int,
        ended: Callable[[BaseException], None],
        stats: Stats | None = None,
    ) -> None:
        """`ended` is called, in the keeper's thread, when another owner has taken the store, or
        records are gone from it."""
        self._store, self._epoch, self._lease_ms = store, epoch, lease_ms
        self._ended = ended
        self._stats = stats or Stats()
        self._stop = threading.Event()
        self._renewing = threading.Lock()
        self._until = 0.0
        self._ask_from_s = 0.0
        self._thread = threading.Thread(target=self._run, name="lowmark-lease", daemon=True)

    def start(self) -> None:
        """Renews once, then goes on in the background. Raises StoreError."""
        self.renew()
        self._thread.start()

    @property
    def held(self) -> bool:
        """Whether it is certain that nobody else owns the store."""
        return self.left_s > 0

    @property
    def left_s(self) -> float:
        """How long that is certain; 0 if it is not."""
        return max(0.0, self._until - _now_s())

    def renew(self) -> None:
        """Renews it now. Raises StoreError."""
        with self._renewing:
            asked = _now_s()
            self._store.renew(self._epoch, self._lease_ms)
            self._until = asked + self._lease_ms / 1000

    def _run(self) -> None:
        while not self._stop.wait(self._lease_ms / 1000 / RENEWALS_PER_LEASE):
            try:
                self.renew()
                self._ask_promises()
            except (Fenced, LogShortened, StoreDamaged) as error:
                self._ended(error)
                return
            except StoreError as error:
                self._stats.store_failures["renew"] += 1
                log.warning("lease_not_renewed", reason=str(error))
            except Exception as error:
                self._ended(error)
                return

    def _ask_promises(self) -> None:
        """Says whether the store promises less than it must, when that begins and when it is over."""
        now_s = time.monotonic()
        if now_s < self._ask_from_s:
            return
        self._ask_from_s = now_s + PROMISES_INTERVAL_S
        found, before = self._store.weakened(), self._stats.store_weakened
        self._stats.store_weakened = found
        if found and found != before:
            log.error(
                "store_weakened", reason=f"{found}: nothing is acknowledged until that is corrected; what was "
                f"acknowledged within the last {PROMISES_INTERVAL_S + self._lease_ms / 1000:g} s may be less "
                "durable than it must",
            )  # fmt: skip
        elif before and not found:
            log.warning("store_as_asked", reason="the store promises again what it must")

    def stop(self, *, release: bool) -> None:
        """Returns when no renewal is under way; gives the lease back, if it is to. Blocks as long as
        the store does."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(JOIN_S)
        if release:
            try:
                self._store.release(self._epoch)
            except StoreError as error:
                log.warning("lease_not_released", reason=str(error))
