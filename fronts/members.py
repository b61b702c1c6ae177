"""Who takes part in a group, and who of them is to do what.

A member locks a file for as long as its process lives; in a store it puts a new file there again and again. From the
set of members everyone comes to the same answer; where views differ for a while, a lock, a rename or the tracker
decides, never this.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, unquote
from uuid import uuid4

from fronts.locks import take_lock
from tracker.files import STORES, AwayError, Files, child, scheme
from tracker.files.local import try_lock

RENEWED_EVERY_S = 3.0
"""In a store: how often a member says that it lives, by two requests, and lists the others, by one."""
GONE_AFTER_S = 10.0
"""In a store: a member that has not said so for so long, as long as another one has looked, is gone."""

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


class Membership(Protocol):
    """One member of a group."""

    def join(self) -> None:
        """Raises StateError if another process is seen to have the name."""

    def leave(self) -> None: ...

    def members(self) -> list[str]:
        """Who is alive, by name, this one too. What those who died have left is tidied away."""


def membership_in(directory: str, name: str) -> Membership:
    """By the location of the group's directory."""
    if scheme(directory):
        return StoredMembership(STORES.files(directory), directory, name)
    return LockedMembership(Path(directory), name)


@dataclass(slots=True)
class _Seen:
    """A member of which a file was seen. count: of its file; at: when that was new, by this process's clock."""

    count: int
    at: float


class StoredMembership:
    """By files in the group's directory of a store: `<name>.<run>.<count>.member`, each replaced by the next.
    Clocks are not compared: a member is gone when nothing new of it was seen for long."""

    def __init__(
        self, files: Files, directory: str, name: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """clock: in seconds, of this process alone."""
        self.name, self._files, self._directory, self._clock = name, files, directory, clock
        self._run = uuid4().hex
        self._count = 0
        self._seen: dict[tuple[str, str], _Seen] = {}
        self._alive = [name]
        self._due_at = 0.0

    def join(self) -> None:
        """Names are told apart by runs here: of two that have one name, both are members."""
        self._renew()

    def leave(self) -> None:
        try:
            self._files.delete(self._at(self.name, self._run, self._count))
        except AwayError:
            return  # it is found to be gone

    def members(self) -> list[str]:
        """While the store is away, who was alive before."""
        now = self._clock()
        if now >= self._due_at:
            try:
                self._renew()
                self._look(now)
            except AwayError:
                return list(self._alive)
            self._due_at = now + RENEWED_EVERY_S
        return list(self._alive)

    def _renew(self) -> None:
        self._count += 1
        self._files.create(self._at(self.name, self._run, self._count), b"lives\n")
        self._files.delete(self._at(self.name, self._run, self._count - 1))

    def _look(self, now: float) -> None:
        found: dict[tuple[str, str], int] = {}
        for name in self._files.names(self._directory):
            member, run, count = [*name.removesuffix(_SUFFIX).rsplit(".", 2), "", ""][:3]
            if name.endswith(_SUFFIX) and count.isdigit():
                key = unquote(member), run
                found[key] = max(int(count), found.get(key, 0))
        self._seen = {key: seen for key, seen in self._seen.items() if key in found}
        for key, number in found.items():
            seen = self._seen.get(key)
            if seen is None or seen.count != number:
                self._seen[key] = _Seen(number, now)
            elif now - seen.at >= GONE_AFTER_S and key[1] != self._run:
                self._files.delete(self._at(*key, number))
        lives = {key[0] for key, seen in self._seen.items() if now - seen.at < GONE_AFTER_S}
        self._alive = sorted(lives | {self.name})

    def _at(self, name: str, run: str, count: int) -> str:
        return child(self._directory, f"{quote(name, safe='')}.{run}.{count:012d}{_SUFFIX}")


class LockedMembership:
    """By a lock file in the group's directory."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name, self._directory = name, directory
        self._path = directory / (quote(name, safe="") + _SUFFIX)
        self._lock_fd: int | None = None

    def join(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._lock_fd = take_lock(self._path, 0.0, self.name)

    def leave(self) -> None:
        if self._lock_fd is not None:
            self._path.unlink(missing_ok=True)  # while it is locked
            os.close(self._lock_fd)
            self._lock_fd = None

    def members(self) -> list[str]:
        alive = [self.name]
        for path, fd in held_locks(self._directory, f"*{_SUFFIX}", but=self._path):
            if fd is None:
                alive.append(unquote(path.name[: -len(_SUFFIX)]))
            else:
                path.unlink(missing_ok=True)
                os.close(fd)
        return sorted(alive)
