"""What a node knows of itself, in a file of its own: which incarnation it got last, and how many of its ticks
were acknowledged under it.

A tracker whose store was put back to an older state cannot tell that by itself; who comes back and knows more
can. The file is written over in place after each acknowledgement, and not synced: it is never ahead of the
tracker, and behind by what a machine that lost power had not written down.
"""

from __future__ import annotations

import os
import zlib
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from tracker.client.errors import LowmarkError

_WORD = "lowmark-known-1"
_MOST_BYTES = 512


def known_beside(record: str | os.PathLike[str], pipeline: str, node_id: str) -> Path:
    """The file of a node beside its durable record, which is a directory: hidden from who reads that."""
    name = blake2b(f"{pipeline}\0{node_id}".encode(), digest_size=8).hexdigest()
    return Path(record) / f".lowmark-{name}.known"


class Known:
    """The file of one node. One process writes it at a time: the one whose key is open."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """The file may not be there yet, nor its directory: then nothing is known, and nothing recorded
        before that is made."""
        self.path = Path(os.path.abspath(path))
        self._file = -1

    def read(self) -> tuple[int, int]:
        """The last incarnation and the number of its last tick that was acknowledged; 0 and 0 where
        nothing is known. Raises LowmarkError if the file cannot be read."""
        try:
            content = self.path.read_bytes()[:_MOST_BYTES]
        except (FileNotFoundError, NotADirectoryError):
            return 0, 0
        except OSError as error:
            raise LowmarkError(f"{self.path} cannot be read: {error}") from error
        if not content:
            return 0, 0  # made, and not written
        with suppress(ValueError):
            _, incarnation, ticks, _ = content.decode().split()
            if _line(int(incarnation), int(ticks)) == content:
                return int(incarnation), int(ticks)
        raise LowmarkError(
            f"{self.path} is damaged: it said which ticks the tracker had acknowledged, and without it nobody "
            "notices if they are gone; restore it, or remove it where the tracker has surely lost nothing"
        )

    def record(self, incarnation: int, ticks: int) -> None:
        """The tracker has these durably. What cannot be written stays behind, which is allowed."""
        with suppress(OSError):
            if self._file < 0:
                self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            os.pwrite(self._file, _line(incarnation, ticks), 0)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _line(incarnation: int, ticks: int) -> bytes:
    said = f"{_WORD} {incarnation:020d} {ticks:020d}"
    return f"{said} {zlib.crc32(said.encode()):08x}\n".encode()
