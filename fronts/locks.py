"""Locks on files: each ends with the process that holds it."""

from __future__ import annotations

import time
from pathlib import Path

from tracker.errors import Code, FencedError
from tracker.files.local import try_lock

_RETRY_S = 0.05


def take_lock(path: Path, timeout_s: float, front: str) -> int:
    """A descriptor that holds the lock until it is closed. Raises FencedError if another process
    holds it for longer."""
    deadline = time.monotonic() + timeout_s
    while True:
        fd = try_lock(path)
        if fd is not None:
            return fd
        if time.monotonic() >= deadline:
            raise FencedError(
                f"front {front!r} runs in another process, which holds {path}; it did not end "
                f"within {timeout_s:g} s; end it, or name this front otherwise",
                code=Code.FENCED_FRONT,
            )
        time.sleep(_RETRY_S)
