"""A local tracker hears of a signal wherever its main thread is just then."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from local_tracker.agent.lifetime import SIGNAL, Lifetime

TAKEN = (signal.SIGTERM, signal.SIGINT)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = [(number, signal.getsignal(number)) for number in TAKEN]
    yield
    for number, handler in before:
        signal.signal(number, handler)
    signal.set_wakeup_fd(-1)


@pytest.mark.parametrize("number", TAKEN)
def test_a_signal_ends_the_wait_where_it_interrupts_nothing(number: signal.Signals) -> None:
    """As one that comes when the main thread is about to wait: here another thread gets it."""
    life = Lifetime(follow_pid=0, idle_exit_s=0)
    life.take_signals()
    threading.Timer(0.05, lambda: signal.pthread_kill(threading.get_ident(), number)).start()
    assert life.wait(in_use=True) == SIGNAL
