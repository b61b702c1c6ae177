"""Locks on files: each ends with the process that holds it."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from tracker.errors import Code, FencedError

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


def try_lock(path: Path, *, make: bool = True) -> int | None:
    """As `take_lock`, at once; None if another process holds it. Raises FileNotFoundError if there is
    no such file and it is not to be made."""
    while True:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if make else 0)
        fd = os.open(path, flags, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        # Whoever held it before may have removed the file: then a lock on it keeps nobody out.
        if _is_file(fd, path):
            return fd
        os.close(fd)


def _is_file(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False
