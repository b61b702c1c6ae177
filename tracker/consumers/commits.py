"""Commits to tables that others write, too: whoever comes second looks at the table again, and tries again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

MAX_ATTEMPTS = 20
"""How often one commit is tried while others commit to the table, too."""

MAX_PAUSE_S = 5.0
"""How long is waited at most between two of them."""


def try_to_commit(attempt: Callable[[], object], conflicts: tuple[type[Exception], ...]) -> bool:
    """Calls `attempt` until it raises none of the conflicts; False if it raised one each of MAX_ATTEMPTS times.
    Each call has to look at the table anew: the one before may have committed after all."""
    for number in range(MAX_ATTEMPTS):
        try:
            attempt()
            return True
        except conflicts:
            time.sleep(_pause_s(number))
    return False


def _pause_s(attempt: int) -> float:
    """How long to wait after an attempt (from 0) that another writer of the table came before, in seconds:
    longer with each, and by chance, so that two do not meet again."""
    most = min(MAX_PAUSE_S, 0.05 * 2.0**attempt)
    return random.uniform(most / 2, most)
