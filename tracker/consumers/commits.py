"""Commits to tables that others write, too: whoever comes second looks at the table again, and tries again."""

from __future__ import annotations

import time
from collections.abc import Callable

from tracker.client.connection import Backoff

MAX_ATTEMPTS = 20
"""How often one commit is tried while others commit to the table, too."""

FIRST_PAUSE_S, MAX_PAUSE_S = 0.05, 5.0
"""How long is waited between two of them, at first and at most."""


def try_to_commit(attempt: Callable[[], object], conflicts: tuple[type[Exception], ...]) -> bool:
    """Calls `attempt` until it raises none of the conflicts; False if it raised one each of MAX_ATTEMPTS times.
    Each call has to look at the table anew: the one before may have committed after all."""
    backoff = Backoff(FIRST_PAUSE_S, MAX_PAUSE_S)
    for _ in range(MAX_ATTEMPTS):
        try:
            attempt()
            return True
        except conflicts:
            time.sleep(backoff.pause_s())
    return False
