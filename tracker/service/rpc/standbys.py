"""Processes that wait for a shard state their release to those that serve: an upgrade is not finished without them (rule 10).

A standby of the release before could take no shard over once the upgrade is finished. It is no part of the protocol: whether it
is there, and of which release, is only known to who serves, for as long as it says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from tracker.core.insight.describe import StandbyDescription
from tracker.core.model import RefusalCode, Refused

HEARD_S = 5.0
"""One that has not been heard for so long does not wait any more."""
MAX_STANDBYS = 64
"""Of more than these, those that were heard first are forgotten."""


@dataclass(slots=True)
class Standbys:
    """Those that a process which serves has heard."""

    clock_s: Callable[[], float] = time.monotonic
    _heard: dict[str, tuple[StandbyDescription, float]] = field(default_factory=dict)
    """By address, and when; the one heard last comes last."""
    _since_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._since_s = self.clock_s()

    def hear(self, standby: StandbyDescription) -> None:
        """One states that it waits."""
        self._heard.pop(standby.address, None)
        self._heard[standby.address] = standby, self.clock_s()
        while len(self._heard) > MAX_STANDBYS:
            del self._heard[next(iter(self._heard))]

    def waiting(self, serving: Collection[str] = ()) -> list[StandbyDescription]:
        """Those that wait, by address, but for who serves a shard by now."""
        from_s = self.clock_s() - HEARD_S
        found = [standby for standby, at_s in self._heard.values() if at_s >= from_s]
        return sorted((s for s in found if s.address not in serving), key=lambda s: s.address)

    def check_speak(self, level: int, serving: Collection[str]) -> None:
        """Raises Refused(NOT_READY) while one that waits does not speak a level, or may not have said so yet."""
        if (left_s := self._since_s + HEARD_S - self.clock_s()) > 0:
            raise _not_ready(
                level, f"for {left_s:.1f} s standbys may not have stated their release"
            )
        older = [s for s in self.waiting(serving) if s.speaks < level]
        if older:
            shown = ", ".join(
                f"the standby at {s.address}, of release {s.release or 'unknown'}, speaks levels up to {s.speaks}"
                for s in older
            )
            raise _not_ready(level, f"{shown}; start it with the newer release")


def _not_ready(level: int, why: str) -> Refused:
    return Refused(RefusalCode.NOT_READY, f"feature level {level} has to wait: {why}; ask again")
