"""Where a benchmark puts its files when the disk is not what it measures."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

_IN_MEMORY = Path("/dev/shm")


def scratch(room_bytes: int = 0) -> tempfile.TemporaryDirectory[str]:
    """A folder in memory, or where temporary files are if there is no such place with so much room."""
    has_room = _IN_MEMORY.is_dir() and shutil.disk_usage(_IN_MEMORY).free >= room_bytes
    return tempfile.TemporaryDirectory(
        prefix="lowmark-bench-", dir=_IN_MEMORY if has_room else None
    )
