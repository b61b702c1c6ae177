"""A file of any store as Python's own kind of file, for libraries that read by position."""

from __future__ import annotations

import io
import os

from tracker.errors import FilesError
from tracker.files.interface import Files


class OpenedFile(io.RawIOBase):
    """Reads a file part by part, one request a part. Its size is that of when it was opened. Raises
    FilesError if the file does not exist."""

    def __init__(self, files: Files, where: str) -> None:
        super().__init__()
        size = files.size(where)
        if size is None:
            raise FilesError(f"{where} does not exist")
        self._files, self._where, self._size, self._at = files, where, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"{self._where}: byte {base + offset} is before its beginning")
        self._at = base + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._size - self._at)
        wanted = left if size is None or size < 0 else min(size, left)
        data = self._files.read(self._where, self._at, self._at + wanted)
        self._at += len(data)
        return data

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
