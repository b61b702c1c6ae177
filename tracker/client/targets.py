"""Which process of a tracker to ask next: those that were named, and, when none of these answers, those
that were heard of since. Shards come and go; a client that was given one address finds the others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence

LEARN_AFTER_S = 5.0
"""A client that lives so long asks which shards there are ..."""
LEARN_INTERVAL_S = 300.0
"""... and then now and then."""
MAX_LEARNED = 64
"""Addresses that are remembered beside those that were named."""


class Targets:
    """The addresses of one tracker. Safe for use by several threads."""

    def __init__(self, named: Sequence[str]) -> None:
        self.named = tuple(named)
        self._learned: list[str] = []
        self._lock = threading.Lock()
        self._turn = self._learned_turn = -1
        self._tried = 0
        """Addresses that were given out since a process has answered."""
        self._suggested = ""
        self._learn_at_s = time.monotonic() + LEARN_AFTER_S

    def next(self) -> str:
        """The process that another one has named; else another one at each call, in turn. Those that
        were not named when this was made may not be reachable from here: they are tried in between, when
        none of the others has answered."""
        with self._lock:
            suggested, self._suggested = self._suggested, ""
            if suggested:
                return suggested
            self._tried += 1
            beyond = self._tried - len(self.named)
            if self._learned and beyond > 0 and beyond % 2:
                self._learned_turn += 1
                return self._learned[self._learned_turn % len(self._learned)]
            self._turn += 1
            return self.named[self._turn % len(self.named)]

    def suggest(self, address: str) -> None:
        """The next attempt goes there: a process that waits for a shard, or stops, has named one that
        serves. Where the only target is a name that leads to any of them, asking that again might never
        get on."""
        self._suggested = address
        self.learn([address])

    def answered(self) -> bool:
        """A process has answered; returns whether it is time to ask it which shards there are."""
        with self._lock:
            self._tried = 0
            now_s = time.monotonic()
            if now_s < self._learn_at_s:
                return False
            self._learn_at_s = now_s + LEARN_INTERVAL_S
            return True

    def learn(self, addresses: Iterable[str], *, all_there_are: bool = False) -> None:
        """Processes of the tracker are reached there; `all_there_are`: and no others are."""
        with self._lock:
            found = [a for a in addresses if a and a not in self.named]
            kept = [] if all_there_are else [a for a in self._learned if a not in found]
            self._learned = [*kept, *found][-MAX_LEARNED:]
