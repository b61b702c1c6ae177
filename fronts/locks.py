"""Keeping a second run of a front out, by a lock on a file that ends with the process that holds it."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from fronts.core import FrontStateError

_RETRY_S = 0.05


def take_lock(path: Path, timeout_s: float, front: str) -> int:
    """A descriptor that holds the lock until it is closed. Raises FrontStateError if another process
    holds it for longer."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(fd)
                raise FrontStateError(
                    f"front {front!r} runs in another process, which holds {path}; it did not end "
                    f"within {timeout_s:g} s; end it, or name this front otherwise"
                ) from None
            time.sleep(_RETRY_S)
