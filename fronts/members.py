"""Who takes part in a group, and who of them is to do what.

A member locks a file for as long as its process lives. From the set of members everyone comes to the
same answer; where views differ for a while, a lock or a rename decides, never this.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from urllib.parse import quote, unquote

from fronts.locks import take_lock, try_lock

_SUFFIX = ".member"


def meant_for(piece: str, members: Iterable[str]) -> str:
    """The member that a piece of work is meant for, by rendezvous hashing: when members come and go,
    only pieces of those change hands."""

    def weight(member: str) -> bytes:
        return blake2b(f"{member}\0{piece}".encode(), digest_size=8).digest()

    return max(members, key=weight)


def held_locks(directory: Path, pattern: str, *, but: Path) -> Iterator[tuple[Path, int | None]]:
    """The lock files of a directory but for the caller's own, by name: None where a process that lives
    holds one, else a descriptor that holds it now, which is the caller's to close."""
    for path in sorted(directory.glob(pattern)):
        if path == but:
            continue
        try:
            fd = try_lock(path, make=False)
        except FileNotFoundError:
            continue  # its process has left meanwhile
        yield path, fd


class Membership:
    """One member of a group, by a lock file in the group's directory."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name, self._directory = name, directory
        self._path = directory / (quote(name, safe="") + _SUFFIX)
        self._lock_fd: int | None = None

    def join(self) -> None:
        """Raises FrontStateError if another process has the name."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self._lock_fd = take_lock(self._path, 0.0, self.name)

    def leave(self) -> None:
        if self._lock_fd is not None:
            self._path.unlink(missing_ok=True)  # while it is locked
            os.close(self._lock_fd)
            self._lock_fd = None

    def members(self) -> list[str]:
        """Who is alive, by name, this one too. What those who died have left is tidied away."""
        alive = [self.name]
        for path, fd in held_locks(self._directory, f"*{_SUFFIX}", but=self._path):
            if fd is None:
                alive.append(unquote(path.name[: -len(_SUFFIX)]))
            else:
                path.unlink(missing_ok=True)
                os.close(fd)
        return sorted(alive)
