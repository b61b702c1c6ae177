"""Where checkpoints, sinks and what queries publish are: the little that is asked of a file system."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit


class LogError(Exception):
    """A log cannot be read: an entry is missing, purged or not what Spark writes. Names the path."""


class LogFiles(Protocol):
    """The little that is asked of a file system. Paths are as `local_path` returns them."""

    def names(self, directory: str) -> list[str]:
        """The names in a directory, in any order; none if it does not exist."""

    def size(self, path: str) -> int | None:
        """The size of a file in bytes; None if it does not exist."""

    def read(self, path: str, begin: int, end: int) -> bytes:
        """The bytes begin <= i < end of a file, fewer at its end."""


class LocalFiles:
    """`LogFiles` on the machine's own file system."""

    def names(self, directory: str) -> list[str]:
        try:
            return os.listdir(directory)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise LogError(f"{directory} cannot be listed: {error}") from None

    def size(self, path: str) -> int | None:
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise LogError(f"{path} cannot be read: {error}") from None
        if not stat.S_ISREG(found.st_mode):
            raise LogError(f"{path} is not a file")
        return found.st_size

    def read(self, path: str, begin: int, end: int) -> bytes:
        try:
            with open(path, "rb") as file:
                file.seek(begin)
                return file.read(end - begin)
        except OSError as error:
            raise LogError(f"{path} cannot be read: {error}") from None


def local_path(location: str) -> str:
    """The path of a local directory that Spark names plainly or as a `file:` URI.

    Raises LogError for any other scheme.
    """
    parts = urlsplit(location)
    if parts.scheme == "":
        return os.path.abspath(location)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return os.path.abspath(unquote(location.split(":", 1)[1].removeprefix("//localhost")))
    raise LogError(
        f"{location!r} is on file system {parts.scheme!r}: only local paths (file:) can be "
        f"followed; put the checkpoint and the sink on a local or mounted directory"
    )


def write_whole(path: Path, text: str) -> None:
    """Writes a file that readers find whole or not at all; not synced."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(text)
    os.replace(unfinished, path)
