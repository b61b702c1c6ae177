"""Lets the checker, a program of its own, judge a history."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from scripts.summary import ROOT

_MORE = re.compile(r": (\d+) more$")
"""How the checker counts what it does not print."""


@dataclass(frozen=True)
class Judged:
    """What `python -m tests.check` said of a history."""

    ok: bool
    false: int
    lost: int
    said: list[str]


def judge(history: Path) -> Judged:
    """Runs `python -m tests.check` over it."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.check", str(history)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = done.stdout.splitlines() + done.stderr.splitlines()
    false = lost = 0
    for line in lines:
        if line.startswith("check:"):
            continue
        more = _MORE.search(line)
        count = int(more[1]) if more else 1
        if line.startswith("false completion"):
            false += count
        else:
            lost += count
    return Judged(done.returncode == 0, false, lost, lines)
