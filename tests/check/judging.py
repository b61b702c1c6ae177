"""Lets the checker judge a history, and counts what it finds."""

from __future__ import annotations

import re
from collections import Counter
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
    """All that is not false."""
    by_kind: dict[str, int]
    said: list[str]


def judge(history: Path) -> Judged:
    """What `python -m tests.check` says of it."""
    status, lines = checked(history)
    kinds: Counter[str] = Counter()
    for line in lines:
        kind = line.split(":")[0]
        if kind != "check":
            more = _MORE.search(line)
            kinds[kind] += int(more[1]) if more else 1
    false = kinds["false completion"]
    return Judged(status == 0, false, kinds.total() - false, dict(kinds), lines)
