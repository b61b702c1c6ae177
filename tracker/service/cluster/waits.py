"""What a process waits for in the ordinary course of things, and says so: as trouble only once it lasts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 10.0
"""What is on its way comes sooner; where it has not, somebody has to look."""


class Wait:
    """One thing that is waited for. Whoever waits reports at each look; little of it is logged."""

    def __init__(self, log: Any, event: str, clock_s: Callable[[], float] = time.monotonic) -> None:
        """log: a structlog logger; event: what its lines are called; clock_s: seconds that never go back."""
        self._log, self._event, self._clock_s = log, event, clock_s
        self._since_s: float | None = None
        self._logged: object = None

    def report(self, **told: object) -> None:
        """Logs what is waited for where that has changed: as information, and as a warning from PATIENCE_S after the
        first report on, when the same is said once more."""
        now_s = self._clock_s()
        if self._since_s is None:
            self._since_s = now_s
        lasts = now_s - self._since_s >= PATIENCE_S
        if self._logged != (told, lasts):
            self._logged = (told, lasts)
            (self._log.warning if lasts else self._log.info)(self._event, **told)

    def over(self) -> None:
        """It has come: the next one has its own time."""
        self._since_s = self._logged = None
