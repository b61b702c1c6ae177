"""Which signals tell a process to end, and how its main thread hears of it."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterable
from types import FrameType

_MOST_SIGNALS = 4096
"""As many bytes as one look takes from the pipe, one for each signal; of the rest the next look hears."""


def ending_signals() -> tuple[signal.Signals, ...]:
    """SIGTERM, SIGINT, and SIGHUP, which comes when the terminal is closed; that one not where it was ignored
    before the process began (nohup)."""
    always = (signal.SIGTERM, signal.SIGINT)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return always
    return (*always, signal.SIGHUP)


class ToldToEnd:
    """Whether one of some signals has come since this was made. Made once in a process, and used in its main thread.

    Python's handlers run between two steps of the main thread. A signal that comes when that has looked for signals,
    and is about to wait for a lock, ends no wait for it: nobody would look again. So the wait is for a pipe, to which
    the interpreter itself writes as the signal comes, whatever thread gets it.
    """

    def __init__(self, numbers: Iterable[signal.Signals]) -> None:
        self._woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._told = False
        for number in numbers:
            signal.signal(number, self._hear)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self._told = True

    def wait(self, timeout_s: float | None = None) -> bool:
        """Returns at the first signal, or after a time; whether one has come."""
        if not self._told and select.select([self._woken], [], [], timeout_s)[0]:
            os.read(self._woken, _MOST_SIGNALS)
        return self._told

    def is_set(self) -> bool:
        """Whether one has come, without waiting."""
        return self._told
