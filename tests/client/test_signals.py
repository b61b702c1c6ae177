"""A signal that tells a process to end is heard wherever its main thread is just then."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from tests.waits import HANG_S
from tracker.client import signals
from tracker.client.signals import ToldToEnd

NUMBER = signal.SIGUSR1


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = signal.getsignal(NUMBER)
    yield
    signal.signal(NUMBER, before)
    signal.set_wakeup_fd(-1)


class RaisedAt:
    """Raises the signal when the main thread comes to the n-th line of some files' code, from 0."""

    def __init__(self, line: int, *files: str) -> None:
        self._left, self._files = line, files
        self.raised = False

    def __enter__(self) -> RaisedAt:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in self._files:
            return None
        if event == "line" and not self.raised:
            if self._left == 0:
                self.raised = True
                signal.raise_signal(NUMBER)
            self._left -= 1
        return self._trace


def test_it_is_heard_at_whatever_line_of_the_wait_it_comes() -> None:
    line, raised = 0, True
    while raised:
        told = ToldToEnd([NUMBER])
        with RaisedAt(line, signals.__file__, threading.__file__) as at:
            heard = told.wait(timeout_s=0.01)  # expires: at a line of it the signal comes
        raised = at.raised
        # One that comes as the time is up is heard at the next look.
        assert (heard or told.is_set()) == raised
        line += 1
    assert line > 1, "the signal came at no line of it"


def test_it_is_heard_while_nothing_else_happens_and_stays_heard() -> None:
    told = ToldToEnd([NUMBER])
    assert not told.is_set()
    main = threading.main_thread().ident
    assert main is not None
    threading.Timer(0.05, lambda: signal.pthread_kill(main, NUMBER)).start()
    assert told.wait(HANG_S)
    assert told.is_set()
    assert told.wait(0)


def test_it_is_heard_where_it_interrupts_no_wait() -> None:
    """As one that comes when the main thread has looked for signals and is about to wait: here another thread gets it."""
    told = ToldToEnd([NUMBER])
    threading.Timer(0.05, lambda: signal.pthread_kill(threading.get_ident(), NUMBER)).start()
    assert told.wait(HANG_S)
