"""The plain Python example runs, and min time says what it says there."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from examples.plain_python.pipeline import run
from tests.docs.pages import ROOT
from tests.waits import HANG_S
from tracker.client import Update

LINES = ["to be or not to be", "that is the question", "to sleep, perchance to dream"]


def test_it_counts_every_word_and_min_time_never_goes_back(tmp_path: Path) -> None:
    heard: list[Update] = []
    counts = run(tmp_path, LINES, heard.append)
    assert counts == {
        "to": 4, "be": 2, "or": 1, "not": 1, "that": 1, "is": 1, "the": 1, "question": 1,
        "sleep": 1, "perchance": 1, "dream": 1,
    }  # fmt: skip
    assert heard[-1].segment is None and heard[-1].complete
    for segment in ("split", "count", None):
        times = [update.min_time for update in heard if update.segment == segment]
        assert times == sorted(set(times)) and len(times) > 1


def test_nothing_is_complete_while_a_line_is_to_come(tmp_path: Path) -> None:
    """Two lines are through, the third has not come in yet: min time follows the front's promises,
    and is complete only after it."""
    moving, seen = threading.Event(), []

    def show(update: Update) -> None:
        seen.append(update)
        if update.segment is None and len(seen) > 10:
            moving.set()

    def lines() -> Iterator[str]:
        yield from LINES[:2]
        assert moving.wait(HANG_S)
        assert not any(update.complete for update in seen)
        yield LINES[2]

    assert run(tmp_path, lines(), show).total() == 15
    assert seen[-1].complete


def test_it_runs_from_the_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.plain_python"],
        cwd=ROOT, check=True, capture_output=True, text=True, timeout=HANG_S,
    )  # fmt: skip
    *updates, last = done.stdout.splitlines()
    assert updates[-1] == "whole pipeline: complete"
    assert last.startswith("counted 144 words: is 10")
