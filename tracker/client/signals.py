"""Which signals tell a process to end, and how its main thread hears of it."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from queue import Empty, SimpleQueue


def ending_signals() -> tuple[signal.Signals, ...]:
    """SIGTERM, SIGINT, and SIGHUP, which comes when the terminal is closed; that one not where it was ignored
    before the process began (nohup)."""
    always = (signal.SIGTERM, signal.SIGINT)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return always
    return (*always, signal.SIGHUP)


class ToldToEnd:
    """Whether one of some signals has come since this was made. Made and used in the main thread.

    A handler runs within whatever the main thread does just then, and must not need a lock that this thread holds.
    `threading.Event.set` does, where the signal comes as the main thread enters or leaves `wait`: both then wait for
    ever. `SimpleQueue.put` may be called from handlers.
    """

    def __init__(self, numbers: Iterable[signal.Signals]) -> None:
        self._came: SimpleQueue[int] = SimpleQueue()
        self._told = False
        for number in numbers:
            signal.signal(number, lambda came, _: self._came.put(came))

    def wait(self, timeout_s: float | None = None) -> bool:
        """Returns at the first signal, or after a time; whether one has come."""
        if not self._told:
            try:
                self._came.get(timeout=timeout_s)
                self._told = True
            except Empty:
                pass
        return self._told

    def is_set(self) -> bool:
        """Whether one has come, without waiting."""
        return self.wait(0)
