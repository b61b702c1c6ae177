"""A local tracker hears of a signal wherever its main thread is just then."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import tracker
from local_tracker.agent.lifetime import SIGNAL, Lifetime
from local_tracker.agent.main import Agent, parse
from local_tracker.agent.server import Server
from tracker.core.model import PipelineSpec

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


def test_signals_are_reasons_to_end_before_anyone_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that has been welcomed may hand over at once, and that is drained at the end."""
    life, taken_by = Lifetime(follow_pid=0, idle_exit_s=0), []

    def serve(*arguments: Any, **named: Any) -> Server:
        taken_by.append(signal.getsignal(signal.SIGTERM))
        return Server(*arguments, **named)

    monkeypatch.setattr(sys.modules[Agent.__module__], "Server", serve)
    with tracker.embedded() as embedded, ExitStack() as stack:
        embedded.register(PipelineSpec("p", ("a",), (), open=True))
        options = parse(
            ["--target", embedded.target, "--pipeline", "p", "--node-id", "n", "--socket", f"unix:{tmp_path}/lt"]
        )  # fmt: skip
        Agent(options, life, stack).stop()
    life.take_signals()
    assert taken_by == [signal.getsignal(signal.SIGTERM)]
