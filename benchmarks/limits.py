"""How long rounds that cannot tell may go on."""

from __future__ import annotations

import time
from collections.abc import Callable


def time_for(seconds: float) -> Callable[[], bool]:
    """Says whether so many seconds are not over yet."""
    until_s = time.monotonic() + seconds
    return lambda: time.monotonic() < until_s
