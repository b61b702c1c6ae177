"""How long a local tracker runs: until a signal, the end of its executor's JVM, or disuse."""

from __future__ import annotations

import os
import select
import signal
from types import FrameType

SIGNAL, FOLLOWED, UNUSED, CHANGED = "a signal", "the end of the JVM", "disuse", "a change"


class Lifetime:
    """Waits for a reason to end. Made in the main thread, once in a process."""

    def __init__(self, follow_pid: int, idle_exit_s: float) -> None:
        """follow_pid: the process whose end is this one's (0: none). idle_exit_s: end when nobody was
        connected for so long (0: never)."""
        self._idle_exit_s = idle_exit_s
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._followed = -1
        if follow_pid:
            try:
                self._followed = os.pidfd_open(follow_pid)
            except ProcessLookupError:
                # It has ended before; a pipe whose writer is closed says so just as well.
                self._followed, ended = os.pipe()
                os.close(ended)
        self._signalled = False
        # A container's first process has no default action for signals.
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))

    def take_signals(self) -> None:
        """From here on SIGTERM and SIGINT are reasons for `wait` to return; before, they end the process at
        once: so this comes before anything can be taken. The interpreter itself writes to the pipe as one comes: a handler would
        run too late for a `wait` that is about to begin."""
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signalled = True

    def changed(self) -> None:
        """Lets `wait` return: something that it, or its caller, follows has changed."""
        try:
            os.write(self._wake, b"x")
        except BlockingIOError:
            pass  # it is awake as it is

    def wait(self, in_use: bool) -> str:
        """Waits for a reason: SIGNAL, FOLLOWED or UNUSED to end, CHANGED to look again. in_use:
        whether anybody is connected."""
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        if self._followed >= 0:
            poll.register(self._followed, select.POLLIN)
        may_end = self._idle_exit_s > 0 and not in_use
        found = poll.poll(self._idle_exit_s * 1000 if may_end else None)
        if self._signalled:
            return SIGNAL
        if not found:
            return UNUSED
        if any(descriptor == self._followed for descriptor, _ in found):
            return FOLLOWED
        os.read(self._woken, 4096)
        return CHANGED
