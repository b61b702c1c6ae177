"""A thread that does some work again and again, until it is stopped or the work fails."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from tracker.errors import Code, LowmarkError, TrackingError

log = logging.getLogger("lowmark.front")


class Rounds:
    """One round every interval, the first one interval after the start. stopping: set when no other is to
    begin, for rounds that take long."""

    def __init__(
        self,
        name: str,
        interval_s: float,
        work: Callable[[], None],
        fails: str,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        """name: of the thread. fails: what it means that the work has raised, before the reason. end: called
        in the thread after the last round, in order or by a failure."""
        self.stopping = threading.Event()
        self.failure: LowmarkError | None = None
        """Why there are no more rounds, if the work has raised."""
        self._interval_s, self._work, self._fails, self._end = interval_s, work, fails, end
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def has_begun(self) -> bool:
        return self._thread.ident is not None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when the last round has ended, and what follows it."""
        self.stopping.set()
        if self.has_begun:
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self.stopping.wait(self._interval_s):
                self._work()
        except Exception as error:
            self.failure = TrackingError(f"{self._fails}: {error}", Code.TRACKING_FRONT)
            self.failure.__cause__ = error
            log.error("%s", self.failure)
        finally:
            self._end()
