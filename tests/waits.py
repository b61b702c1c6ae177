"""How long tests wait: for an event, with a limit that only what hangs for good comes to.

A machine may be as slow as it likes, so no test has a limit of its own for what is to happen. A limit that is the
behaviour under test (a client's deadline that has to expire, a span in which nothing may come) is a number in the
call, with a comment `# expires: ` and why. `python -m scripts.lint` refuses other numbers and sleeps (see
`scripts/lint_waits.py`).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
HANG_S: float = int(os.environ.get("LOWMARK_HANG_S", "300"))
"""What has not come after so many seconds never will. LOWMARK_HANG_S in the environment makes it shorter, for
whoever looks for something that hangs. The longest single wait of `make test` takes some ten seconds, on a machine with a load
of 8 half a minute."""
MOST_HANGS = 2
"""So many tests may fail by waiting for so long; then no other of the same pytest is begun, so that a run that fails ends
within 25 minutes."""
PROGRAM_S = 4 * HANG_S
"""The same of a whole program that has waits of its own, which fail before this and say for what they waited."""
_LOOK_S = 0.02
_LOOK_SHARE = 0.02
"""Of the time waited so far, between two looks: what takes long is looked at less often."""
_LONGEST_LOOK_S = 0.2


def until(
    is_so: Callable[[], T],
    what: str | Callable[[], str] = "it does not come to be so",
    timeout_s: float = HANG_S,
) -> T:
    """Asks until something is so that nobody announces; returns what was said then. Raises AssertionError, with
    `what`, if it never is."""
    began_s = time.monotonic()
    while not (found := is_so()):
        waited_s = time.monotonic() - began_s
        assert waited_s < timeout_s, what if isinstance(what, str) else what()
        time.sleep(_pause_s(waited_s))
    return found


async def until_async(
    is_so: Callable[[], T], what: str | Callable[[], str] = "it does not come to be so"
) -> T:
    """`until` of what is in the same event loop."""
    began_s = time.monotonic()
    while not (found := is_so()):
        waited_s = time.monotonic() - began_s
        assert waited_s < HANG_S, what if isinstance(what, str) else what()
        await asyncio.sleep(_pause_s(waited_s))
    return found


def _pause_s(waited_s: float) -> float:
    return min(_LONGEST_LOOK_S, max(_LOOK_S, _LOOK_SHARE * waited_s))
