"""Lets the checker judge a history, and counts what it finds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.check.__main__ import checked

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
    """What `python -m tests.check` says of it."""
    status, lines = checked(history)
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
    return Judged(status == 0, false, lost, lines)
