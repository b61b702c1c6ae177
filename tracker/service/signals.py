"""Which signals tell a process to end."""

from __future__ import annotations

import signal


def ending_signals() -> tuple[signal.Signals, ...]:
    """SIGTERM, SIGINT, and SIGHUP, which comes when the terminal is closed; that one not where it was ignored
    before the process began (nohup)."""
    always = (signal.SIGTERM, signal.SIGINT)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return always
    return (*always, signal.SIGHUP)
